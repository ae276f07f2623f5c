"""
Several workers of one gateway: which one fronts a broker, and what their supervisor knows.

- ``worker_name``: a worker's name, held by a lock while it lives.
- ``leases``: each broker is fronted by one live worker; the others stand by.
- ``pipe``: the line between a worker and its supervisor, and what is asked over it.
- ``fleet``: all workers' health and metrics in one, and whether one hangs.
"""
