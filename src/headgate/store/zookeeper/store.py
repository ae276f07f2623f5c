"""
The ZooKeeper home: KIP-55's layout, shared with ZooKeeper-mode brokers and Kafka's own tools.

An alteration is one transaction per entity: the entity's znode, compared and set by version, its
notification and its history entry. A watch reads again what a notification names (Kafka's and
Headgate's). When the connection was lost it reads everything again, so no change is missed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from headgate.clock import now_ms
from headgate.config.security import ZooKeeperSecurity
from headgate.config.settings import Settings
from headgate.errors import StoreError, StoreSilent
from headgate.quota.alteration import AlterResult, Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable, TableDelta
from headgate.store.base import KeyChange, StoreChange, resolvable
from headgate.store.broker_rules import Told
from headgate.store.home import log
from headgate.store.watched import QuotaStore
from headgate.store.zookeeper import brokers as zk_brokers
from headgate.store.zookeeper import identity as zk_identity
from headgate.store.zookeeper.alter import BATCH, ZkAlterer
from headgate.store.zookeeper.history import ForeignChange, ZkHistory
from headgate.store.zookeeper.home import ZkHome
from headgate.store.zookeeper.layout import (
    CHANGE_PREFIX,
    CHANGES,
    HOMES,
    KAFKA_HOME,
    OLDER,
    OWN_HOME,
    decode_notice,
    home_of,
    node_name_error,
    noticed_entity,
    sequence,
)
from headgate.store.zookeeper.lease import ZkLeases
from headgate.store.zookeeper.read import (
    gone_by,
    read_entities,
    read_tree,
    values_of,
)
from headgate.store.zookeeper.takeover import CONTROLLER
from headgate.store.zookeeper.znodes import TransactionStep, Znode

#: How often a watch looks without a notification, in case ZooKeeper's was lost; a few small reads.
IDLE_POLL_S = 10.0


class _Noticed(NamedTuple):
    """When a notification came, and under which root."""

    czxid: int
    t_ms: int
    home: str


class ZooKeeperStore(QuotaStore):
    """
    Quotas in ZooKeeper.

    Args:
        hosts: ``host:port,host:port/chroot``.
        create: make the chroot and Headgate's znodes when they are missing; without it a missing
            chroot is an error, and the first change makes the znodes.
        security: TLS, SASL, ACLs, session timeout; None for none of them.
        clock_ms: the clock of the history.
        resolve: whether a host name of an ip entity resolves.
    """

    home: ZkHome
    history: ZkHistory

    def __init__(
        self,
        hosts: str,
        *,
        create: bool = True,
        security: ZooKeeperSecurity | None = None,
        clock_ms: Callable[[], int] = now_ms,
        resolve: Callable[[str], bool] = resolvable,
    ) -> None:
        home = ZkHome(hosts, security, clock_ms)
        history = ZkHistory(home)
        super().__init__(home, history, self._alter_broker, ZkLeases(home), IDLE_POLL_S, resolve)
        self._client = home.client
        self._read_at = -1
        self._seen = dict.fromkeys(HOMES, -1)
        self._pzxid = dict.fromkeys(HOMES, -1)
        self._older_fired = False
        self._foreign: list[ForeignChange] = []
        # By entity path: the transaction as of which it was last read under /config. For all that
        # aren't in it, the one as of which everything was read.
        self._read_zxids: dict[str, int] = {}
        self._all_read_zxid = 0
        self._begin(create, home.find)

    # --- reading

    def _on_change(self, _event: Any) -> None:
        self.home.poke.set()

    def _on_older(self, _event: Any) -> None:
        self._older_fired = True
        self.home.poke.set()

    def snapshot(self) -> QuotaTable:
        """Return every quota as of now."""
        self.home.check_open()
        self._client.sync()
        return self._refresh()

    def _refresh(self) -> QuotaTable:
        with self.home.lock:
            try:
                self.home.check_now()
                self.availability.refuses = self._client.in_charge().why
                return self._catch_up()
            except StoreError:
                # What was read may be another store's; what was noticed may not have been read.
                self._read_at = -1
                raise

    def _publish(self, table: QuotaTable, delta: TableDelta) -> QuotaTable:
        """Publish what was read if it is still this store's."""
        self.home.check_now()
        return super()._publish(table, delta)

    def _publish_brokers(self) -> None:
        """Publish the settings of brokers, read anew, if they are still this store's."""
        found = zk_brokers.read(self._client)
        if found != self.broker_settings.known:
            self.home.check_now()
        self.broker_settings.publish(found)

    def _catch_up(self) -> QuotaTable:
        losses = self.home.losses
        if self._table is None or self._read_at != losses:
            table = self._read_all()
            self._read_at = losses
            return table
        noticed = self._read_news()
        if noticed is None:
            return self._read_all()
        table, delta = self._obey(self._table, noticed)
        return self._publish(table, delta) if delta.changes else self._table

    def _read_news(self) -> dict[str, _Noticed] | None:
        """Return what is noticed under both roots; None if something was purged unread."""
        news = [self._read_notices(home) for home in HOMES]
        if None in news:
            return None
        return {path: notice for each in news if each for path, notice in each.items()}

    def _read_notices(self, home: str) -> dict[str, _Noticed] | None:
        """Return the entity paths in new notifications; None if some were purged unread."""
        folder = CHANGES[home]
        if self._client.pzxid(folder) == self._pzxid[home]:
            return {}
        names, pzxid = self._client.watch_children(folder, self._on_change)
        last = self._seen[home]
        fresh = [n for n in names if n.startswith(CHANGE_PREFIX) and sequence(n) > last]
        if fresh and sequence(fresh[0]) != last + 1:
            return None
        nodes = self._client.nodes(f"{folder}/{name}" for name in fresh)
        self._pzxid[home] = pzxid
        noticed: dict[str, _Noticed] = {}
        for name in fresh:
            node = nodes[f"{folder}/{name}"]
            if node is None:
                return None  # purged since it was listed
            notice = decode_notice(node.data)
            if notice is not None:
                noticed[notice] = _Noticed(node.czxid, node.mtime_ms, home)
        if fresh:
            self._seen[home] = sequence(fresh[-1])
        return noticed

    def _obey(
        self, table: QuotaTable, noticed: Mapping[str, _Noticed]
    ) -> tuple[QuotaTable, TableDelta]:
        entities: dict[QuotaEntity, _Noticed | None] = {}
        if self._older_fired:
            self._older_fired = False
            self._watch_older()
            entities.update(dict.fromkeys(OLDER))
        for path, notice in noticed.items():
            entity = noticed_entity(path)
            if entity is not None:
                entities[entity] = notice
        if any(path == "brokers" or path.startswith("brokers/") for path in noticed):
            self._publish_brokers()
        return self._reread(table, entities)

    def _reread(
        self, table: QuotaTable, entities: Mapping[QuotaEntity, _Noticed | None]
    ) -> tuple[QuotaTable, TableDelta]:
        """Read these entities again; return the table with them. Under ``_state_lock``."""
        nodes = read_entities(self._client, entities)
        alterations = []
        for entity in entities:
            now = values_of(entity, nodes)
            keys = {**table.entities.get(entity, {}), **now}
            ops = (Op(key, now.get(key)) for key in keys)
            alterations.append(QuotaAlteration.of(entity, ops))
        new, delta = table.apply(alterations)
        for entity, changes in groupby(delta.changes, lambda change: change.entity):
            notice = entities[entity]
            if notice is not None and notice.home == KAFKA_HOME:
                # The other root's are as of another moment, and only Headgate changes them.
                changed = [KeyChange(*c[1:]) for c in changes if home_of(c.key) == KAFKA_HOME]
                if changed:
                    self._suspect(entity, changed, notice, nodes)
        return new, delta

    def _suspect(
        self,
        entity: QuotaEntity,
        changed: list[KeyChange],
        notice: _Noticed,
        nodes: Mapping[str, Znode | None],
    ) -> None:
        """
        Queue a change to be compared with the history, unless it is certainly Headgate's.

        Headgate sets a znode and notifies in one transaction, Kafka in two.
        """
        node = nodes[f"{KAFKA_HOME}/{entity.path}"]
        zxid = gone_by(self._client, KAFKA_HOME, entity.path) if node is None else node.mzxid
        since = self._read_zxids.get(entity.path, self._all_read_zxid)
        self._read_zxids[entity.path] = max(zxid, notice.czxid)
        if zxid != notice.czxid or node is None:
            self._foreign.append(ForeignChange(entity.path, notice.t_ms, since, zxid, changed))

    def _read_all(self) -> QuotaTable:
        # The lists of notifications first, so that what changes during the read is noticed later.
        for home in HOMES:
            names, self._pzxid[home] = self._client.watch_children(CHANGES[home], self._on_change)
            fresh = [sequence(n) for n in names if n.startswith(CHANGE_PREFIX)]
            self._seen[home] = max(fresh, default=-1)
        self._read_zxids.clear()
        self._all_read_zxid = self._pzxid[KAFKA_HOME]
        self._older_fired = False
        self._watch_older()
        entities, nodes = read_tree(self._client)
        found = {entity: values_of(entity, nodes) for entity in entities}
        # What changed meanwhile may have been read in part.
        noticed = self._read_news()
        if noticed is None:
            return self._read_all()
        table, _ = self._obey(QuotaTable(found), noticed)
        self._publish_brokers()
        return self._publish_whole(table)

    def _watch_older(self) -> None:
        for path in OLDER.values():
            self._client.watch_data(path, self._on_older)

    def _look(self) -> None:
        self._client.watch_data(CONTROLLER, self._on_change)
        super()._look()

    # --- changing

    def _alter(self, change: StoreChange) -> list[AlterResult]:
        """Each entity changes in a transaction of its own."""
        validated, accepted = change.checked
        refused = {a.entity: error for a in accepted if (error := node_name_error(a.entity))}
        results = [AlterResult(e, error or refused.get(e)) for e, error in validated]
        accepted = [a for a in accepted if a.entity not in refused]
        if change.validate_only:
            refusal = self._client.in_charge().refusal()
            kafkas = {a.entity for a in accepted if any(op.key.known_to_kafka for op in a.ops)}
            return [
                AlterResult(e, error or (refusal if e in kafkas else None)) for e, error in results
            ]
        alterer = ZkAlterer(self.home, self.history, change.origin, change.at_revision)
        for first in range(0, len(accepted), BATCH):
            batch = accepted[first : first + BATCH]
            alterer.alter(batch)
            # Made, whether or not it can be read now; a later snapshot reads it again, or fails.
            with contextlib.suppress(StoreSilent), self.home.lock:
                table, delta = self._reread(self._refresh(), dict.fromkeys(a.entity for a in batch))
                if delta.changes:
                    self._publish(table, delta)
            self.home.poke.set()
        return [AlterResult(e, error or alterer.errors.get(e)) for e, error in results]

    def _alter_broker(self, broker: str, ops: Mapping[str, str | None], told: Told) -> None:
        """Change settings; what else the broker's znode holds stays."""
        counted = zk_identity.count_step(self.home.id)

        def more(*changed: Any) -> list[TransactionStep]:
            return [self.history.audit_step(told(*changed)), counted]

        self.home.insist(
            "broker settings couldn't be altered",
            lambda: zk_brokers.alter(self._client, broker, ops, more),
        )
        with contextlib.suppress(StoreSilent), self.home.lock:
            self._refresh()
            self._publish_brokers()
        self.home.poke.set()

    # --- the rest

    def _after_delivery(self) -> None:
        """Write changes made without Headgate into the history; purge old notifications."""
        with self.home.lock:
            foreign, self._foreign = self._foreign, []
        try:
            self.history.record_foreign(foreign)
            self.history.purge_notices(CHANGES[OWN_HOME])
        except StoreSilent:
            with self.home.lock:  # later; what was written is found then, and not written again
                self._foreign = [*foreign, *self._foreign]
        except StoreError as exc:
            log.warning("changes made past Headgate aren't in its history: %s", exc)


def open_home(place: str, settings: Settings | None, *, create: bool) -> ZooKeeperStore:
    """Open the ZooKeeper store at ``//HOST:PORT/CHROOT``; ``create``: make one that is missing."""
    security = settings.zookeeper if settings else None
    return ZooKeeperStore(place.removeprefix("//").rstrip("/"), create=create, security=security)
