"""
All brokers of the upstream cluster. A gateway fronts a broker when it has the broker's ports open.

In the order a gateway starts:

- ``listener_security``: each listener's protocol, credentials and TLS, here and to the brokers.
- ``discovery``: which brokers the cluster has, and whether each that is fronted answers.
- ``ports``: the brokers fronted: their leases taken, their ports opened.
- ``shared_listeners``: the admin listener, and ports that lead to any live broker.
- ``quotas``: quotas and brokers' settings, put in force on every broker as the store tells.
"""
