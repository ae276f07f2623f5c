"""
The code that runs in Spark's Python workers.

- ``daemon``: what forks them, with everything imported.
- ``log_reader``: the lines of a piece of a log, scanned or parsed.
- ``activity_blobs``: sums by second on their way through the shuffle, as few rows.
- ``emit``: pieces to rows of requests, or to sums by second.
- ``exchange``: a job of two stages on plain bytes, past Spark's SQL, on a local master.
- ``messages``: a topic's messages to rows of requests, or to sums by second.
- ``resolve``: the quota-id that each row is charged to, and its limit.
"""
