"""
History and audit lines in the ZooKeeper home; removes old notifications.

A change by Headgate writes its entry in its own transaction. A change made without Headgate is
recorded by a process that watches, as made by ``unknown``, and only once, however many processes
watch. ZooKeeper keeps its data in memory, so history and audit are bounded: the latest 1,000
entries per entity, 10,000 audit lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

from headgate.errors import InvalidQuota
from headgate.quota.entity import QuotaEntity, entity_from_path
from headgate.store.base import (
    FOREIGN,
    AuditEvent,
    HistoryEntry,
    KeyChange,
    json_bytes,
    read_audit,
)
from headgate.store.home import log
from headgate.store.zookeeper.change import (
    decode_history,
    encode_history,
    history_path,
    unchanged_step,
)
from headgate.store.zookeeper.home import ZkHome
from headgate.store.zookeeper.layout import AUDIT, CHANGE_PREFIX, HISTORY, history_node, sequence
from headgate.store.zookeeper.znodes import Interrupted, TransactionStep, Znode

#: Entries kept per entity, and audit lines kept.
KEEP_ENTRIES = 1_000
KEEP_AUDIT = 10_000
#: How long Headgate's notifications stay; Kafka's stay as long (ZkNodeChangeNotificationListener).
NOTICE_LIFE_MS = 15 * 60 * 1_000
#: How often an entry is tried while other writers come between.
MAX_ATTEMPTS = 20
#: Entries or audit lines that are read together when a recent one is looked for, latest first.
LOOK_BACK = 20
#: A folder is truncated once it has this many more than it should, so that this is rare.
SLACK = 100


class ForeignChange(NamedTuple):
    """
    A change that seems to have been made without Headgate.

    Attributes:
        path: the entity's.
        t_ms: when it was announced.
        since: id of the transaction (zxid) as of which the values before it were read.
        zxid: the transaction that made the values after it; where the znode is gone, one by which
            it had been deleted.
        changed: keys, before and after.
    """

    path: str
    t_ms: int
    since: int
    zxid: int
    changed: list[KeyChange]


class ZkHistory:
    """History, audit and old notifications, over one connection. See ``StoreHistory``."""

    def __init__(self, home: ZkHome) -> None:
        self._home = home
        self._client = home.client
        self._swept_ms = 0

    # --- history

    def entries(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """Return the changes, oldest first in the order of ZooKeeper's transactions."""
        self._home.check_open()
        if entity is None:
            folders = [f"{HISTORY}/{name}" for name in self._client.children([HISTORY])[HISTORY]]
        else:
            folders = [history_node(entity.path)]
        names = self._client.children(folders)
        found = self._client.nodes(f"{f}/{name}" for f in folders for name in names[f])
        ordered = sorted(
            ((_moment(path, node), path, node) for path, node in found.items() if node),
            key=lambda found: found[:2],
        )
        entries: list[HistoryEntry] = []
        for _, path, node in ordered:
            recorded = decode_history(node.data)
            if recorded is None:
                continue
            try:
                about = entity_from_path(history_path(path.rpartition("/")[0]))
            except InvalidQuota as exc:
                log.warning("%s is passed over: %s", path, exc)
                continue
            entries += recorded.entries(about)
        return entries if limit is None else entries[len(entries) - min(limit, len(entries)) :]

    def holds(self, path: str, change: str) -> bool:
        """Whether an entity's history has an entry of a change, by the name of that change."""
        self._client.sync()  # a new connection's server may be behind
        folder = history_node(path)
        names = self._client.children([folder])[folder]
        nodes = self._client.nodes(f"{folder}/{name}" for name in names if name.startswith("e_"))
        recorded = (decode_history(node.data) for node in nodes.values() if node)
        return any(entry is not None and entry.origin.change == change for entry in recorded)

    def record_foreign(self, changes: Iterable[ForeignChange]) -> None:
        """Write changes that no history entry accounts for."""
        for change in changes:
            for _ in range(MAX_ATTEMPTS):
                if self._record(change):
                    break
            else:
                log.warning(
                    "%s keeps changing: what was changed there past Headgate isn't in its history",
                    change.path,
                )

    def _record(self, change: ForeignChange) -> bool:
        """Write the part of a change that the history lacks; False if it has to be tried again."""
        folder = history_node(change.path)
        # Each entry raises the folder's version: of two processes that find at the same time that
        # an entry is missing, only one can write it.
        known = self._folder(folder)
        names = self._client.children([folder])[folder]
        # Named by the transaction: of several processes that watch, one records it, the others
        # find it recorded.
        name = f"x_{change.zxid}"
        if name in names:
            return True
        changed = _unaccounted(change, self._since(folder, names, change.since))
        if not changed:
            return True
        entry = encode_history(change.t_ms, FOREIGN, changed)
        steps = [
            unchanged_step(folder, known),
            TransactionStep("create", f"{folder}/{name}", entry),
        ]
        return self._client.commit([steps])[0] is None

    def _since(
        self, folder: str, names: Sequence[str], zxid: int
    ) -> list[tuple[int, Sequence[KeyChange]]]:
        """Return the entries since a transaction (and a few more), in order: moment and changes."""
        ours = [f"{folder}/{name}" for name in names if name.startswith("e_")]
        others = [name for name in names if (_transaction(name) or 0) > zxid]
        found = self._client.nodes(f"{folder}/{name}" for name in others)
        while ours:
            part = self._client.nodes(ours[-LOOK_BACK:])
            del ours[-LOOK_BACK:]
            found.update(part)
            if any(node is not None and node.czxid <= zxid for node in part.values()):
                break
        return sorted(
            (_moment(path, node), recorded.changes)
            for path, node in found.items()
            if node and (recorded := decode_history(node.data))
        )

    def _folder(self, path: str) -> Znode | None:
        return self._client.nodes([path])[path]

    def prune(self, nodes: Mapping[str, Znode | None]) -> None:
        """Truncate the histories among these znodes to their latest entries."""
        for path, node in nodes.items():
            if node and node.children > KEEP_ENTRIES + SLACK and path.startswith(f"{HISTORY}/"):
                self._cut(path, KEEP_ENTRIES)

    def _cut(self, folder: str, keep: int) -> None:
        names = self._client.children([folder])[folder]
        nodes = self._client.nodes(f"{folder}/{name}" for name in names)
        by_age = sorted((node.czxid, path) for path, node in nodes.items() if node)
        old = [path for _, path in by_age[: len(by_age) - keep]]
        self._client.commit([[TransactionStep("delete", path)] for path in old])

    # --- audit

    def audit_step(self, event: AuditEvent) -> TransactionStep:
        """Return the step that keeps an audit line."""
        return TransactionStep("sequence", f"{AUDIT}/a_", json_bytes(asdict(event)))

    def audit(self, event: AuditEvent) -> None:
        """Keep an audit line, and remove all but the latest."""
        self._home.prepare()
        step = self.audit_step(event.at(self._home.clock_ms()))
        self._home.insist("the audit line couldn't be kept", lambda: self._keep_audit(step))
        node = self._client.nodes([AUDIT])[AUDIT]
        if node is not None and node.children > KEEP_AUDIT + SLACK:
            self._cut(AUDIT, KEEP_AUDIT)

    def _keep_audit(self, step: TransactionStep) -> bool:
        """Keep an audit line; False if it has to be tried again."""
        [outcome] = self._client.commit([[step]])
        if isinstance(outcome, Interrupted):
            self._client.sync()  # a new connection's server may be behind
            names = self._client.children([AUDIT])[AUDIT][-LOOK_BACK:]
            nodes = self._client.nodes(f"{AUDIT}/{name}" for name in names).values()
            return any(node is not None and node.data == step.data for node in nodes)
        return outcome is None

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return audit lines, oldest first."""
        self._home.check_open()
        names = self._client.children([AUDIT])[AUDIT]
        if limit is not None:
            names = names[len(names) - min(limit, len(names)) :]
        nodes = self._client.nodes(f"{AUDIT}/{name}" for name in names)
        lines = [node.data for node in nodes.values() if node and node.data]
        return [event for line in lines if (event := read_audit(line)) is not None]

    # --- notifications

    def purge_notices(self, folder: str) -> None:
        """Delete Headgate's old notifications, except the newest; every five minutes at most."""
        now = self._home.clock_ms()
        if now - self._swept_ms < NOTICE_LIFE_MS // 3:
            return
        self._swept_ms = now
        names = [n for n in self._client.children([folder])[folder] if n.startswith(CHANGE_PREFIX)]
        nodes = self._client.nodes(f"{folder}/{name}" for name in names)
        newest = max((sequence(name) for name in names), default=-1)
        old = [
            path
            for path, node in nodes.items()
            if node and now - node.mtime_ms > NOTICE_LIFE_MS and sequence(path) != newest
        ]
        self._client.commit([[TransactionStep("delete", path)] for path in old])


def _moment(path: str, node: Znode) -> int:
    """Return the transaction that made the change that an entry records."""
    found = _transaction(path.rpartition("/")[2])
    return node.czxid if found is None else found


def _transaction(name: str) -> int | None:
    """Return the transaction in an entry's name (``x_ZXID``); None: it has another name."""
    prefix, _, digits = name.partition("_")
    return int(digits) if prefix == "x" and digits.isdecimal() else None


def _unaccounted(
    change: ForeignChange, entries: Sequence[tuple[int, Sequence[KeyChange]]]
) -> list[KeyChange]:
    """
    Return the part of a change that the history doesn't hold yet.

    A watch may see two changes as one, or a foreign change together with an earlier one by
    Headgate.

    Args:
        change: as it was seen.
        entries: moments and changes of the entity's history, oldest first.
    """
    left = []
    for key, before, after in change.changed:
        value = before
        later: KeyChange | None = None
        for moment, changed in entries:
            for each in changed:
                if each.key != key or moment <= change.since:
                    continue
                if moment <= change.zxid:
                    value = each.after
                elif later is None:
                    later = each
        # A process that saw several changes as one may have recorded this one with the last.
        if value != after and later != (key, value, after):
            left.append(KeyChange(key, value, after))
    return left
