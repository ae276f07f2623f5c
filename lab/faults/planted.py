"""
A store with a fault in it: what the checker is tried with.

Each is the SQLite store with one mistake that somebody could make.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from headgate.errors import StoreMovedOn
from headgate.quota.alteration import AlterResult, Op, QuotaAlteration
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable
from headgate.store import HistoryEntry, Watch
from headgate.store.identity import StoreIdentity
from headgate.store.sqlite.store import SqliteStore

#: How long a mistaken store dawdles where it should hold a lock, seconds.
DAWDLE_S = 0.003


class LostUpdate(SqliteStore):
    """It reads an entity, and writes all of it back with the change: others' are overwritten."""

    def alter(self, alterations: Sequence[QuotaAlteration], **more: Any) -> list[AlterResult]:
        whole = []
        for entity, ops in alterations:
            now: dict[QuotaKey, float | None] = dict(self.snapshot().entities.get(entity, {}))
            time.sleep(DAWDLE_S)
            now.update({op.key: op.value for op in ops})
            whole.append(QuotaAlteration(entity, tuple(Op(k, v) for k, v in now.items())))
        return super().alter(whole, **more)


class UncheckedRevision(SqliteStore):
    """It compares the revision, and writes without it."""

    def alter(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        at_revision: int | None = None,
        **more: Any,
    ) -> list[AlterResult]:
        identity = self.home.identity()
        if at_revision is not None and identity is not None and identity.revision != at_revision:
            raise StoreMovedOn(f"at {identity}")
        time.sleep(DAWDLE_S)
        return super().alter(alterations, **more)


class Unwritten(SqliteStore):
    """It acknowledges a change now and then that it doesn't write."""

    count = itertools.count(1)

    def alter(self, alterations: Sequence[QuotaAlteration], **more: Any) -> list[AlterResult]:
        if more.get("at_revision") is None and next(self.count) % 10 == 0:
            return [AlterResult(alteration.entity, None) for alteration in alterations]
        return super().alter(alterations, **more)


class Twice(SqliteStore):
    """It makes a change again, as one does whose answer was lost."""

    count = itertools.count(1)

    def alter(self, alterations: Sequence[QuotaAlteration], **more: Any) -> list[AlterResult]:
        done = super().alter(alterations, **more)
        if next(self.count) % 5 == 0:
            time.sleep(DAWDLE_S)
            super().alter(alterations, **{**more, "at_revision": None})
        return done


class Lies(SqliteStore):
    """It says that it refused what it did."""

    count = itertools.count(1)

    def alter(self, alterations: Sequence[QuotaAlteration], **more: Any) -> list[AlterResult]:
        done = super().alter(alterations, **more)
        if next(self.count) % 20 == 0:
            raise StoreMovedOn("nothing was changed")
        return done


class OtherOrder(SqliteStore):
    """Its history has changes in another order than they were made."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        read = self.history.entries

        def entries(**asked: Any) -> list[HistoryEntry]:
            found = read(**asked)
            return [*found[:-8], *reversed(found[-8:])]

        self.history: Any = SimpleNamespace(entries=entries)


class Stale(SqliteStore):
    """It shows quotas of a while ago."""

    old: tuple[float, QuotaTable] | None = None

    def snapshot(self) -> QuotaTable:
        if self.old is None or time.monotonic() > self.old[0]:
            self.old = time.monotonic() + 0.05, super().snapshot()
        return self.old[1]


class OldRevision(SqliteStore):
    """It shows a revision of a while ago."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        read = self.home.identity

        def identity() -> StoreIdentity | None:
            found = read()
            return None if found is None else found._replace(revision=max(0, found.revision - 1))

        self.home.identity = identity  # type: ignore[method-assign]


class Torn(SqliteStore):
    """It reads an entity's keys one after the other."""

    def snapshot(self) -> QuotaTable:
        first = super().snapshot()
        time.sleep(DAWDLE_S)
        second = super().snapshot()
        torn = {
            entity: {
                key: value
                for key in {**values, **second.entities.get(entity, {})}
                for table in [first if str(key) < "p" else second]
                if (value := table.get(entity, key)) is not None
            }
            for entity, values in first.entities.items()
        }
        return QuotaTable.of(torn, second.version)


class Deaf(SqliteStore):
    """Its watches are told how it was when they began, and no more."""

    def watch(self, callback: Callable[[QuotaTable, Any], None]) -> Watch:
        count = itertools.count()
        return super().watch(lambda *event: callback(*event) if next(count) == 0 else None)


class Hasty(SqliteStore):
    """Its watches see a change, what was before it, and the change again."""

    def watch(self, callback: Callable[[QuotaTable, Any], None]) -> Watch:
        told: list[QuotaTable] = []

        def twice(table: QuotaTable, delta: Any) -> None:
            told.append(table)
            callback(table, delta)
            if len(told) == 2:
                callback(told[0], delta)
                callback(table, delta)

        return super().watch(twice)


#: Each with the laws of which one, at least, has to find it.
PLANTED: dict[type[SqliteStore], set[str]] = {
    LostUpdate: {"other"},
    UncheckedRevision: {"not linearizable", "revision"},
    Unwritten: {"missing"},
    Twice: {"twice"},
    Lies: {"refused"},
    OtherOrder: {"order"},
    Stale: {"not linearizable", "read"},
    OldRevision: {"not linearizable"},
    Torn: {"not linearizable", "read"},
    Deaf: {"watch"},
    Hasty: {"watch"},
}
