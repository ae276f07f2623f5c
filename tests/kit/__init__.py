"""
What tests, benchmarks and fuzzing share. None of it is part of the package.

- ``playbook``: a small language for conversations with a gateway's session.
- ``cluster_simulation``: simulated clients and brokers under a quota of the whole cluster.
- ``splits_fleet``: brokers, a gateway in front of each, ``headgate splits``, and tenants with load.
- ``throttled_clients``: clients of one quota-id, record by record, in front of Kafka's manager.
- ``driven_clients``: real clients of known demand.
- ``golden_kernel``: the golden checker for the array kernel, also as a command.
- ``logins``: what a client sends to log in, and to get a delegation token.
- ``console``: a console over real quotas and a picture of a busy broker.
- ``claims``: what is claimed of quotas for requests in flight.
- ``played_zookeeper``: a ZooKeeper in memory, for the whole store of that kind.
- ``schemas``: the JSON Schema of what each command prints.
- ``settings_page``, ``metrics_page``: write reference pages from the tables they are about.
"""
