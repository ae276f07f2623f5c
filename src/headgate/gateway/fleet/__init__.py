"""
Several workers of one gateway: which one fronts a broker, and what their supervisor knows.

- ``instance``: a worker's name, held by a lock while it lives.
- ``leases``: each broker is fronted by one live worker; the others stand by.
- ``pipe``: the line between a worker and its supervisor.
- ``questions``: what a supervisor asks its workers.
- ``watchdog``: tells a worker that hangs from one that is busy.
- ``fleet``: all workers' health and metrics in one.
"""
