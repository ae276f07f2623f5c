"""
The pipeline's answers as functions: DataFrame in, DataFrame out.

``headgate.pipeline`` offers them. Each takes requests as its first argument, so that
``frame.transform(usage, quotas)`` works. Each calls what the command of its name calls.

- ``reading``: a frame of requests, which remembers the files it is of; sums by second.
- ``answers``: usage, effective, replay, what-if, recommend, chargeback, storms.
- ``jars``: what a session needs for Delta.
- ``writing``: tables by day, appended and merged.
- ``stream``, ``request_log``: the same requests as a data source of Spark's.
"""
