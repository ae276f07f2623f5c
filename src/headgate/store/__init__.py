"""
Stores of quotas: one contract, and three homes for it; the URL of a store chooses one.

A home is what keeps a store's data: a SQLite file, ZooKeeper or a KRaft cluster.

- ``base``: the words of the contract: history entries, audit lines, where a change comes from.
- ``home``: what keeps a store's data; the parts of a store share it.
- ``availability``: whether a store can be read and changed now.
- ``opening``: opens a store by its URL.
- ``deadline``: how long a call may take altogether.
- ``identity``: which store it is, and which stores it took over from.
- ``hub``: calls watches back with each change, once and in order.
- ``leases``: the rules of leases; a home keeps their records.
- ``history``: what a kind of store has for history, audit lines and quotas that end.
- ``broker_settings``: the dynamic settings of brokers.
- ``watched``: the store: its parts, the last table, watches, their thread.
- ``broker_rules``: which broker settings a store keeps, and what values they take.
- ``synonyms``: where a broker setting's value comes from, and from where else it could.
- ``sqlite``: the embedded home, one file on one host.
- ``zookeeper``: the home that ZooKeeper-mode brokers and Kafka's own tools share.
- ``kafka``: a KRaft cluster's own quotas, and a compacted topic for what Kafka has no place for.
"""

from headgate.store.base import AuditEvent, HistoryEntry
from headgate.store.hub import Watch
from headgate.store.leases import Lease
from headgate.store.opening import open_store
from headgate.store.watched import QuotaStore

__all__ = ["AuditEvent", "HistoryEntry", "Lease", "QuotaStore", "Watch", "open_store"]
