"""
The whole gateway under a simulator: production code, and everything around it played.

One seed decides all that happens. In the order in which things are built:

- ``seed``: named streams of chance, all from one number.
- ``loop``: an asyncio loop whose time is simulated; hosts with clocks, processes that can crash.
- ``network``: sockets between hosts, with everything that can go wrong on the way.
- ``transports``: asyncio's transports and epoll over such sockets, as the gateway uses them.
- ``certificates``, ``tls``: TLS over them, the same bytes in every life of a seed.
- ``doors``: the places where the product asks for time, chance, sockets or threads.
- ``gateways``: the product's own gateway in a process of a simulated host.
- ``peers``, ``speech``: what simulated brokers and clients are made of.
- ``brokers``: simulated Kafka brokers.
- ``conversations``, ``clients``, ``deeds``: simulated clients, and all that a story can make
  happen.
- ``story``: a life as data, drawn from its seed.
- ``watch``: what passes a gateway, read off its wires.
- ``oracle``: Kafka's own decisions, transcribed once more.
- ``laws``, ``laws_turns``, ``laws_waiting``, ``laws_passing``, ``laws_tls``: what must hold in
  every life.
- ``life``: a story lived through under the laws.
- ``shrink``: makes a failing story short.
- ``trace``: what the laws saw of one connection.
- ``disk``: a machine's disk, which loses what wasn't synced.
- ``stores``: what keeps quotas, in one home that any number of stores have open.
- ``fibers``: threads that run until they wait.
- ``control``: several gateways with their stores, leases, snapshots and journals.
- ``plants``, ``plants_passing``: faults planted in the product, which the laws must find.
- ``run``: many lives, and what they came to (`make simulate`).
"""
