"""
Read request-log lines in machine code; give back every line that isn't wholly understood.

- ``json_text``: strings, numbers and whole values of JSON, byte by byte.
- ``names``, ``intern``: names that occur in lines, and how each gets a number.
- ``columns``: numbers of the columns that lines are read into, and of the sums.
- ``walk``: objects and lists, key by key: what the readers of bodies are made of.
- ``frame``: what stands around a request: its time stamps, and the rest.
- ``escaped``: a request inside a JSON string.
- ``front``: where a request is, and its header.
- ``produce``, ``fetch``, ``mutation``: the bodies of requests that a quota of their own charges.
- ``line``: a whole line, and a buffer of lines.
- ``totals``: lines settled (their moment, whether they're charged) and added up by second.
- ``arguments``, ``entry``: the way in for callers without Numba.
- ``machine``: the machine code, kept in a file.
- ``frames``: what the text around a request means, for which the parser is asked.
- ``scanner``: what workers use: buffers of lines in, columns or sums out.
"""
