"""
The code that runs in Spark's Python workers.

- ``daemon``: what forks them, with everything imported.
- ``log_reader``: the lines of a piece of a log, scanned or parsed.
- ``emit``: pieces to rows of requests, or to sums by second.
- ``messages``: a topic's messages to rows of requests, or to sums by second.
- ``order``: refuses rows that come in another order than was asked for.
- ``resolve``: the quota-id that each row is charged to, and its limit.
"""
