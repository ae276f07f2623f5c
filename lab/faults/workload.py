"""
What writers do to a store while it is under faults, and the logs that they leave.

A log has a line when a call begins and one when it is answered, so a process that is killed leaves
a call whose outcome nobody knows. The times are those of one clock that all processes share.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from faults.checker import Audit, Entry, Operation, Values
from headgate.errors import StoreError, StoreMovedOn
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity, entity_from_path
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable
from headgate.store import QuotaStore

Opener = Callable[[], QuotaStore]


class Plan(NamedTuple):
    """
    What a writer does.

    Args:
        entities: paths of those it changes.
        groups: keys that one change may set together.
        stop: it goes on until this file is there.
        pause_s: it waits up to so long between two calls, seconds.
    """

    entities: Sequence[str]
    groups: Sequence[Sequence[str]]
    stop: Path
    pause_s: float = 0.0


class Log:
    """Lines of JSON, each in the file before ``write`` returns: a kill takes none of them."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def write(self, **line: Any) -> None:
        os.write(self._file, json.dumps({**line, "t": time.monotonic_ns()}).encode() + b"\n")


class Writer:
    """
    Changes, reads, and asks for the revision, at random.

    Args:
        name: its own; a number that no other writer has stands behind its last dash.
        store: already open.
        plan: what it does.
        log: where it tells.
        seed: what chance begins with.
    """

    def __init__(self, name: str, store: QuotaStore, plan: Plan, log: Log, seed: int) -> None:
        self._name = name
        self._store = store
        self._plan = plan
        self._log = log
        self._chance = random.Random(f"{seed} {name}")
        self._number = int(name.rpartition("-")[2])
        self._count = 0

    def run(self) -> None:
        """Go on until the file says stop."""
        while not self._plan.stop.exists():
            self.once()
            if self._plan.pause_s:
                time.sleep(self._chance.uniform(0, self._plan.pause_s))

    def once(self) -> None:
        """Make one call, or two where a change is based on a revision."""
        drawn = self._chance.random()
        if drawn < 0.45:
            self.alter(None)
        elif drawn < 0.65:
            at = self.revision()
            if at is not None:
                self.alter(at)
        else:
            self.read()

    def alter(self, at: int | None) -> None:
        """Set a value that nobody else sets, and sometimes another, or remove one."""
        self._count += 1
        value = float(self._number * 100_000 + self._count)
        keys = list(self._chance.choice(self._plan.groups))
        self._chance.shuffle(keys)
        ops: dict[str, float | None] = {keys[0]: value}
        if len(keys) > 1 and self._chance.random() < 0.5:
            ops[keys[1]] = value if self._chance.random() < 0.5 else None
        entity = self._chance.choice(self._plan.entities)
        asked = QuotaAlteration(
            entity_from_path(entity), tuple(Op(QuotaKey.parse(k), v) for k, v in ops.items())
        )
        id_ = f"{self._name}:{self._count}"
        self._log.write(id=id_, kind="alter", entity=entity, ops=ops, at=at)
        try:
            [result] = self._store.alter([asked], who=self._name, message=id_, at_revision=at)
        except StoreMovedOn as exc:
            self._log.write(id=id_, outcome="refused", said=str(exc))
        except StoreError as exc:
            self._log.write(id=id_, outcome="unknown", said=str(exc))
        else:
            said = "" if result.error is None else str(result.error)
            self._log.write(id=id_, outcome="refused" if said else "ok", said=said)

    def read(self) -> None:
        """See all quotas."""
        found = self._asked("read", lambda: values_in(self._store.snapshot(), self._plan.entities))
        if found is not None:
            self._log.write(id=self._id(), outcome="ok", found=found)

    def revision(self) -> int | None:
        """See the revision."""
        identity = self._asked("revision", self._store.home.identity)
        if identity is not None:
            self._log.write(id=self._id(), outcome="ok", revision=identity.revision)
        return None if identity is None else int(identity.revision)

    def _id(self) -> str:
        return f"{self._name}:{self._count}"

    def _asked(self, kind: str, call: Callable[[], Any]) -> Any:
        self._count += 1
        self._log.write(id=self._id(), kind=kind)
        try:
            return call()
        except StoreError as exc:
            self._log.write(id=self._id(), outcome="unknown", said=str(exc))
            return None


def values_in(table: QuotaTable, entities: Sequence[str]) -> dict[str, Values]:
    """Return the quotas of these entities, as logs have them."""
    found = {e.path: {k.name: v for k, v in values.items()} for e, values in table.entities.items()}
    return {path: found[path] for path in entities if path in found}


# --- as processes


def opened(opener: Opener, until: Path) -> QuotaStore | None:
    """Open a store, over and over where it is out of reach; None when it is time to stop."""
    while not until.exists():
        with suppress(StoreError):
            return opener()
        time.sleep(0.05)
    return None


def write(opener: Opener, name: str, plan: Plan, log: Path, seed: int) -> None:
    """Be a writer until the file says stop; a process runs this."""
    store = opened(opener, plan.stop)
    if store is not None:
        Writer(name, store, plan, Log(log), seed).run()
        store.close()


def watch(opener: Opener, plan: Plan, log: Path) -> None:
    """Log what a watch is told until the file says stop; a process runs this."""
    store = opened(opener, plan.stop)
    if store is not None:
        told = Log(log)
        store.watch(lambda table, _delta: told.write(found=values_in(table, plan.entities)))
        while not plan.stop.exists():
            time.sleep(0.02)
        store.close()


# --- reading what they left


def lines(log: Path) -> Iterator[dict[str, Any]]:
    """Return a log's lines; the last one may lack its end."""
    with suppress(FileNotFoundError):
        for line in log.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)


def operations_of(logs: Sequence[Path]) -> list[Operation]:
    """Return the operations of all writers."""
    found: dict[str, dict[str, Any]] = {}
    for line in (line for log in logs for line in lines(log)):
        if "kind" in line:
            found[line["id"]] = {**line, "began": line["t"], "ended": None, "outcome": "unknown"}
        else:
            found[line["id"]].update(line, ended=line["t"])
    fields = set(Operation._fields)
    return [
        Operation(**{name: value for name, value in one.items() if name in fields})
        for one in found.values()
    ]


def audit_of(store: QuotaStore, first_revision: int, entities: Sequence[str]) -> Audit:
    """Return what a store says in the end."""
    entries = [
        Entry(h.message, h.entity.path, h.key.name, h.before, h.after)
        for h in store.history.entries()
    ]
    identity = store.home.identity()
    assert identity is not None
    final = values_in(store.snapshot(), entities)
    mine = [entry for entry in entries if entry.entity in entities]
    return Audit(mine, final, first_revision, identity.revision)


def events_of(log: Path) -> list[Mapping[str, Values]]:
    """Return what a watch was told."""
    return [line["found"] for line in lines(log)]


def entities(count: int, prefix: str) -> list[str]:
    """Return paths of users that nobody else has."""
    return [QuotaEntity.of(user=f"{prefix}-{n}").path for n in range(count)]
