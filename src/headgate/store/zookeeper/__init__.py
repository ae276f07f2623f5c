"""
Quotas in ZooKeeper, in the layout that ZooKeeper-mode brokers and Kafka's tools share.

- ``client``: a connection to ZooKeeper: reads in flight, transactions, kazoo's errors translated.
- ``layout``: paths, JSON and notifications as ZooKeeper holds them, byte for byte.
- ``identity``: which store a chroot is.
- ``read``: which znodes make up an entity, and the whole tree at once.
- ``change``: which steps of one transaction make one entity's alteration happen.
- ``alter``: sends alterations, a transaction for each entity, and again on conflict.
- ``history``: history and audit lines, and old notifications swept away.
- ``brokers``: broker settings among Kafka's own in a broker's znode.
- ``scram``: SCRAM credentials in the znodes of users.
- ``lease``: leases: a znode each, timed by ZooKeeper's clock.
- ``store``: the store itself.
"""
