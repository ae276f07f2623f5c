"""
Quotas in ZooKeeper, in the layout that ZooKeeper-mode brokers and Kafka's tools share.

- ``client``: a connection to ZooKeeper: many reads in flight, transactions, errors translated.
- ``znodes``: what is read of a znode, and the steps of a transaction.
- ``takeover``: whether a KRaft controller has taken the cluster over.
- ``layout``: paths, JSON and notifications as ZooKeeper holds them, byte for byte.
- ``identity``: which store a chroot is.
- ``home``: a chroot as a store has it open.
- ``read``: which znodes make up an entity, and the whole tree at once.
- ``change``: the steps of the transaction that alters one entity.
- ``alter``: sends alterations, a transaction for each entity, and again on conflict.
- ``history``: history and audit lines; removes old notifications.
- ``brokers``: Headgate's broker settings, beside Kafka's in a broker's znode.
- ``scram``: SCRAM credentials in the znodes of users.
- ``lease``: leases, a znode each.
- ``store``: the store itself.
"""
