"""
The code that runs in Spark's Python workers.

- ``daemon``: what forks them, with everything imported.
- ``log_reader``: the lines of a piece of a log, scanned or parsed.
- ``emit``: pieces, or a topic's messages, to rows of requests, or to sums by second.
- ``resolve``: the quota-id that each row is charged to, and its limit.
"""
