"""
The gateway's own work on its event loop, so that it doesn't keep clients waiting.

- ``tasks``: tasks that end with the gateway, threads for what may wait, failures.
- ``slices``: long work done a millisecond at a time.
- ``memory``: when Python's garbage collector works.
- ``watcher``: how long each piece of work holds the loop.
- ``log_limit``: how many log lines of a kind are written in a minute.
"""
