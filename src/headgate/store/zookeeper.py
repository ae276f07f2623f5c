"""
The ZooKeeper home: KIP-55's layout, shared with ZooKeeper-mode brokers and Kafka's own tools.

An alteration is one transaction per entity: the entity's znode, compared and set by version, its
notification and its history entry. A watch obeys notifications (Kafka's and ours); whenever the
connection was lost everything is read again, so nothing that happened meanwhile is missed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headgate.config.settings import ZooKeeperSecurity
from headgate.errors import ApiError, InvalidQuota, KafkaError, StoreError
from headgate.quota.alteration import AlterResult, Op, QuotaAlteration, Validated
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable, TableDelta, alterations_of, table_delta
from headgate.store.base import (
    BROKER_SETTINGS,
    AuditEvent,
    BrokerConfigs,
    HistoryEntry,
    base_setting,
    broker_event,
    now_ms,
    resolvable,
)
from headgate.store.watched import WatchedStore, log
from headgate.store.zk_change import decide, reads_of
from headgate.store.zk_client import Conflict, Interrupted, Node, Step, ZkClient
from headgate.store.zk_history import ForeignChange, ZkHistory
from headgate.store.zk_layout import (
    AUDIT,
    BROKERS,
    CHANGE_PREFIX,
    CHANGES,
    CLOCK,
    HISTORY,
    HOMES,
    KAFKA_HOME,
    LEASES,
    OLDER,
    OWN_HOME,
    OWN_ROOT,
    decode_config,
    decode_notice,
    encode_config,
    encode_notice,
    node_name_error,
    noticed_entity,
    sequence,
)
from headgate.store.zk_lease import ZkLease, take
from headgate.store.zk_read import TYPES, config_at, read_tree, sources, values_of

#: Entities altered with their transactions in flight together.
BATCH = 250
#: How long an alteration tries, over lost connections and other writers, before it gives up.
PATIENCE_S = 60.0
#: A look without any notification, in case a watch was lost: cheap, one exists() per home.
IDLE_POLL_S = 10.0

_SKELETON = (
    KAFKA_HOME,
    *CHANGES.values(),
    *(f"{KAFKA_HOME}/{name}" for name in TYPES),
    BROKERS,
    OWN_HOME,
    *(f"{OWN_HOME}/{name}" for name in TYPES),
    HISTORY,
    AUDIT,
    LEASES,
    CLOCK,
)


class _Noticed(NamedTuple):
    """When a notification came, and in which home."""

    czxid: int
    t_ms: int
    home: str


class ZooKeeperStore(WatchedStore):
    """
    Quotas in ZooKeeper.

    Args:
        hosts: ``host:port,host:port/chroot``; the chroot is made when missing.
        security: TLS, SASL, ACLs, session timeout; None for none of them.
        clock_ms: the clock of the history.
        resolve: whether a host name of an ip entity resolves.
    """

    def __init__(
        self,
        hosts: str,
        *,
        security: ZooKeeperSecurity | None = None,
        clock_ms: Callable[[], int] = now_ms,
        resolve: Callable[[str], bool] = resolvable,
    ) -> None:
        super().__init__(f"zookeeper://{hosts}", IDLE_POLL_S, clock_ms, resolve)
        # Counts losses of the connection; what was read before the last one is read again.
        self._losses = 0
        self._read_at = -1
        self._seen = dict.fromkeys(HOMES, -1)
        self._pzxid = dict.fromkeys(HOMES, -1)
        self._older_fired = False
        self._foreign: list[ForeignChange] = []
        # Transactions as of which entities of Kafka's home were last read; the others: all at once.
        self._read_zxids: dict[str, int] = {}
        self._all_read_zxid = 0
        self._client = ZkClient(hosts, security, self._on_state)
        try:
            self._make_skeleton()
        except BaseException:
            self._client.close()
            raise
        self._history = ZkHistory(self._client, clock_ms)

    def _make_skeleton(self) -> None:
        known = self._client.nodes([OWN_ROOT, *_SKELETON])
        self._client.make(path for path, node in known.items() if node is None)

    def _on_state(self, connected: bool) -> None:
        if not connected:
            self._losses += 1
        self._poke.set()

    def _on_change(self, _event: Any) -> None:
        self._poke.set()

    def _on_older(self, _event: Any) -> None:
        self._older_fired = True
        self._poke.set()

    # --- reading

    def snapshot(self) -> QuotaTable:
        """Return every quota as of now."""
        self._check_open()
        self._client.sync()
        return self._refresh()

    def broker_configs(self) -> BrokerConfigs:
        """Return the gateway's dynamic broker settings among those of Kafka's znodes."""
        self._check_open()
        self._client.sync()
        with self._state_lock:
            self._refresh()
            return self._brokers

    def history(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """Return who changed what, oldest first."""
        self._check_open()
        return self._history.entries(entity, limit)

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return refused attempts and changes of broker settings, oldest first."""
        self._check_open()
        return self._history.audit_log(limit)

    def _refresh(self) -> QuotaTable:
        with self._state_lock:
            losses = self._losses
            if self._table is None or self._read_at != losses:
                table = self._read_all()
                self._read_at = losses
                return table
            noticed: dict[str, _Noticed] = {}
            for home in HOMES:
                news = self._read_notices(home)
                if news is None:
                    return self._read_all()
                noticed.update(news)
            return self._obey(self._table, noticed)

    def _read_notices(self, home: str) -> dict[str, _Noticed] | None:
        """Return the entity paths noticed since the last time; None when some were purged."""
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
            notice = decode_notice(node.data) if node else None
            if node is None or notice is None:
                # Purged since it was listed, or of a kind that isn't for us.
                if node is None:
                    return None
                continue
            noticed[notice] = _Noticed(node.czxid, node.mtime_ms, home)
        if fresh:
            self._seen[home] = sequence(fresh[-1])
        return noticed

    def _obey(self, table: QuotaTable, noticed: Mapping[str, _Noticed]) -> QuotaTable:
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
            self._publish_brokers(self._read_brokers())
        return self._reread(table, entities)

    def _reread(
        self, table: QuotaTable, entities: Mapping[QuotaEntity, _Noticed | None]
    ) -> QuotaTable:
        """Read these entities again and publish what differs. Under ``_state_lock``."""
        if not entities:
            return table
        nodes = self._client.nodes(path for e in entities for path in sources(e))
        alterations = []
        for entity in entities:
            now = values_of(entity, nodes)
            known = table.entities.get(entity, {})
            keys = [key for key in {**known, **now} if known.get(key) != now.get(key)]
            ops = [Op(key, now.get(key)) for key in keys]
            if ops:
                alterations.append(QuotaAlteration(entity, tuple(ops)))
        new, delta = table.apply(alterations)
        for alteration in alterations_of(delta):
            notice = entities[alteration.entity]
            if notice is not None and notice.home == KAFKA_HOME:
                self._suspect(table, alteration, notice, nodes)
        return self._publish(new, delta)

    def _suspect(
        self,
        table: QuotaTable,
        alteration: QuotaAlteration,
        notice: _Noticed,
        nodes: Mapping[str, Node | None],
    ) -> None:
        """Queue a change for the history unless its own transaction shows that it was ours."""
        entity = alteration.entity
        node = nodes[f"{KAFKA_HOME}/{entity.path}"]
        zxid = notice.czxid if node is None else node.mzxid
        since = self._read_zxids.get(entity.path, self._all_read_zxid)
        self._read_zxids[entity.path] = max(zxid, notice.czxid)
        if zxid == notice.czxid and node is not None:
            return
        before = table.entities.get(entity, {})
        changed = [(op.key, before.get(op.key), op.value) for op in alteration.ops]
        self._foreign.append(ForeignChange(entity.path, notice.t_ms, since, zxid, changed))

    def _read_all(self) -> QuotaTable:
        # The lists of notifications first: what changes while we read is noticed after.
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
        old = self._table
        table = QuotaTable.of(found, 1 if old is None else old.version)
        self._publish_brokers(self._read_brokers())
        if old is None:
            return self._publish(table, TableDelta((), 0, 0))
        delta = table_delta(old, table)
        if not delta.changes:
            return old
        return self._publish(table.with_version(old.version + 1), delta)

    def _watch_older(self) -> None:
        for path in OLDER.values():
            self._client.watch_data(path, self._on_older)

    @property
    def client(self) -> ZkClient:
        """The connection, for what stands beside quotas in the same znodes."""
        self._check_open()
        return self._client

    def older_nodes(self) -> list[tuple[QuotaEntity, str]]:
        """Return the defaults that the layout before KIP-55's final one keeps, with their path."""
        nodes = self._client.nodes(OLDER.values())
        return [(entity, path) for entity, path in OLDER.items() if config_at(path, nodes)]

    def _read_brokers(self) -> BrokerConfigs:
        names = self._client.children([BROKERS])[BROKERS]
        nodes = self._client.nodes(f"{BROKERS}/{name}" for name in names)
        found: dict[str, dict[str, str]] = {}
        for name in names:
            config = config_at(f"{BROKERS}/{name}", nodes)
            ours = {k: v for k, v in sorted(config.items()) if base_setting(k) in BROKER_SETTINGS}
            if ours:
                found["" if name == "<default>" else name] = ours
        return found

    # --- changing

    def _alter(
        self, checked: Validated, *, validate_only: bool, who: str, tool: str
    ) -> list[AlterResult]:
        """Each entity changes in a transaction of its own."""
        validated, accepted = checked
        refused = {a.entity: error for a in accepted if (error := node_name_error(a.entity))}
        results = [
            AlterResult(entity, ApiError(KafkaError.INVALID_REQUEST, refused[entity]))
            if error is None and entity in refused
            else AlterResult(entity, error)
            for entity, error in validated
        ]
        accepted = [a for a in accepted if a.entity not in refused]
        if validate_only:
            return results
        for first in range(0, len(accepted), BATCH):
            self._alter_batch(accepted[first : first + BATCH], who, tool)
        return results

    def _alter_batch(self, batch: Sequence[QuotaAlteration], who: str, tool: str) -> None:
        pending = list(batch)
        deadline = time.monotonic() + PATIENCE_S
        rounds = 0
        while pending:
            nodes = self._client.nodes(path for a in pending for path in reads_of(a))
            self._history.prune(nodes)
            try:
                decided = [
                    (a, decide(a, nodes, t_ms=self._clock_ms(), who=who, tool=tool).steps)
                    for a in pending
                ]
            except InvalidQuota as exc:
                raise StoreError(f"{self.url}: a znode is {exc}; mend it first") from exc
            todo = [(a, steps) for a, steps in decided if steps]
            outcomes = self._client.commit([steps for _, steps in todo])
            pending = [a for (a, _), o in zip(todo, outcomes, strict=True) if o is not None]
            if pending and time.monotonic() > deadline:
                raise StoreError(
                    f"{self.url}: {len(pending)} of {len(batch)} entities couldn't be altered in "
                    f"{PATIENCE_S:.0f} s, the first is {pending[0].entity}; try again",
                    retriable=True,
                )
            if pending:
                # Writers that met once shouldn't meet again.
                rounds += 1
                time.sleep(random.uniform(0, min(0.5, 0.005 * 2**rounds)))
        with self._state_lock:
            table = self._refresh()
            self._reread(table, dict.fromkeys(a.entity for a in batch))
        self._poke.set()

    def _alter_broker(
        self, broker: str, ops: Mapping[str, str | None], who: str, tool: str
    ) -> None:
        """What else the broker's znode holds stays."""
        name = broker or "<default>"
        path = f"{BROKERS}/{name}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            node = self._client.nodes([path])[path]
            config = decode_config(node.data if node else None)
            changed = {key: value for key, value in ops.items() if config.get(key) != value}
            if not changed:
                break
            new = {k: v for k, v in {**config, **changed}.items() if v is not None}
            event = broker_event(broker, config, changed, who, tool)
            data = encode_config(new)
            verb, version = ("create", -1) if node is None else ("set", node.version)
            steps = [
                Step(verb, path, data, version),
                Step(
                    "sequence",
                    f"{CHANGES[KAFKA_HOME]}/{CHANGE_PREFIX}",
                    encode_notice(f"brokers/{name}"),
                ),
                self._history.audit_step(event),
            ]
            outcome = self._client.commit([steps])[0]
            if outcome is None:
                break
            if time.monotonic() > deadline:
                raise StoreError(f"{self.url}: broker settings couldn't be altered", retriable=True)
        with self._state_lock:
            self._refresh()
            self._publish_brokers(self._read_brokers())
        self._poke.set()

    def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""
        self._check_open()
        outcome: BaseException | None = Conflict()
        deadline = time.monotonic() + PATIENCE_S
        while outcome is not None:
            outcome = self._client.commit([[self._history.audit_step(event)]])[0]
            if isinstance(outcome, Interrupted) and time.monotonic() > deadline:
                raise StoreError(f"{self.url}: the audit line couldn't be kept", retriable=True)
        self._history.prune_audit()

    def lease(self, name: str, owner: str, ttl_ms: int) -> ZkLease | None:
        """Take a lease, or None while somebody else holds it; by ZooKeeper's own clock."""
        self._check_open()
        return take(self._client, name, owner, ttl_ms)

    # --- the rest

    def _after_delivery(self) -> None:
        """Write changes that came past Headgate into the history, and purge old notifications."""
        with self._state_lock:
            foreign, self._foreign = self._foreign, []
        try:
            self._history.record_foreign(foreign)
            self._history.purge_notices(CHANGES[OWN_HOME])
        except StoreError as exc:
            log.warning("changes made past Headgate aren't in its history: %s", exc)

    def _release(self) -> None:
        self._client.close()
