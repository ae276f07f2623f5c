"""
The same tables from an input that grows: a stream of Spark's, whose batches are rounds.

- ``parts``: what rounds have written.
- ``files``: directories, patterns and files as a source, by the data source of request logs.
- ``topic``: a topic as a source.
- ``follow``: the stream; a command's tables, made again after each round.
"""
