"""
The pipeline's answers as functions: DataFrame in, DataFrame out.

``headgate.pipeline`` offers them. Each takes requests as its first argument, so that
``frame.transform(usage, quotas)`` works. Each calls what the command of its name calls.

- ``arguments``: what functions are given, checked; errors that name arguments.
- ``rows``: requests as workers read them from files.
- ``reading``: frames of requests, of files or of any frame; sums by second.
- ``answers``: usage, effective, replay, what-if, recommend, chargeback, storms.
- ``writing``: tables by day, appended and merged.
- ``stream``: files that grow, read as a stream of Spark's.
- ``request_log``: the same requests as a data source of Spark's, whole or as a stream.
"""
