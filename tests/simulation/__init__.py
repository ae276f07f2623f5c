"""
The whole gateway under a simulator: production code, and everything around it played.

One seed decides all that happens. In the order in which things are built:

- ``seed``: named streams of chance, all from one number.
- ``loop``: an asyncio loop whose time is simulated; hosts with clocks, processes that can crash.
- ``network``: sockets between hosts, with everything that can go wrong on the way.
- ``transports``: asyncio's transports and epoll over such sockets, as the gateway uses them.
- ``doors``: the places where the product asks for time, chance, sockets or threads.
- ``disk``: a machine's disk, which loses what wasn't synced.
- ``stores``: what keeps quotas, in one home that any number of stores have open.
- ``fibers``: threads that run until they wait.
- ``control``: several gateways with their stores, leases, snapshots and journals.
"""
