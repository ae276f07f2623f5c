"""
Stores under faults: who wrote what, what was done to them meanwhile, and whether it all fits.

- ``workload``: writers and watchers, each a process with a log of what it asked and was told.
- ``injection``: kills and pauses of those and of servers, and partitions by a proxy between them.
- ``checker``: whether the logs are linearizable, and agree with the store's history.
- ``planted``: a store with a fault in it; the checker finds each.
- ``trial``: all of it together, over one store.
"""
