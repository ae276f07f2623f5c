"""
All brokers of the upstream cluster. A gateway fronts a broker when it has the broker's ports open.

In the order a gateway starts:

- ``ways``: how each listener's connections reach the brokers: protocols, credentials, TLS.
- ``discovery``: which brokers the cluster has.
- ``answering``: whether each broker that is fronted answers the gateway's own question.
- ``ports``: the brokers fronted: their leases taken, their ports opened.
- ``shared_listeners``: the admin listener, and ports that lead to any live broker.
- ``quotas``: quotas and brokers' settings, put in force on every broker as the store tells.
- ``quota_changes``: large changes of quotas, put in force a few at a time.
- ``splits``: cluster-wide quotas divided over the brokers.
"""
