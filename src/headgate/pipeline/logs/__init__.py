"""
Read a line of a request log, and compute what was charged. No file is opened here.

- ``stamp_forms``: the forms of time stamps, as patterns.
- ``time_stamps``: the time stamp in front of a line, in any layout.
- ``principals``: the user's name in a principal of any known form.
- ``bad_lines``: what is wrong with a line that holds no request.
- ``csv_lines``: the cells of a line of CSV.
- ``field_times``: the time in the fields beside a request.
- ``old_text``: request lines of Kafka before 2.8.
- ``find``: the requests in a line, wherever they stand, and the time of each.
- ``line_json``: which fields of a request's JSON are decoded, by API.
- ``charged_bytes``: the bytes that Kafka charged, from the sizes that a line holds.
- ``line_parser``: parses one line of any layout and any API into a row.
- ``parts``: a line's message, the source that wraps it, and whether more of it follows.
- ``joining``: lines that are parts of one request, put together.
- ``topics``: the topics that a line's bytes belong to.
- ``shapes``: the shapes that logs have, by name.
- ``scan``: most lines in machine code, many at a time; the others go to the parser.
- ``line_sums``: rows added up by second.
- ``api_names``: APIs' names by number, and which APIs only brokers use.
"""
