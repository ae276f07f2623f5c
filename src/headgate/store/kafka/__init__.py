"""
Quotas in a KRaft cluster: Kafka's own through its APIs, all else in a compacted topic beside it.

- ``client``: client quotas described and altered through any broker.
- ``codec``: joins the quotas of the two places, Kafka and the topic.
- ``reader``: a thread that reads the topic from its beginning.
- ``state``: the state that the topic's records add up to.
- ``topic``: reads the topic to its end and commits to it, one fenced writer at a time.
- ``home``: the cluster and the topic as a store has them open; history and audit lines.
- ``alter``: changes quotas, one change at a time over all processes.
- ``lease``: leases, a record each.
- ``store``: the store itself.
"""
