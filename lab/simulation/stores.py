"""A stand-in for what keeps quotas: one home, and the stores that machines have open on it."""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from headgate.errors import StoreError
from headgate.quota.alteration import AlterResult, Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable, TableDelta, table_delta
from headgate.store import watched
from headgate.store.base import (
    AuditEvent,
    ChangeOrigin,
    HistoryEntry,
    KeyChange,
    Recorded,
    StoreChange,
)
from headgate.store.broker_rules import Told
from headgate.store.home import StoreHome
from headgate.store.identity import StoreIdentity, moved_on, replaced
from headgate.store.leases import NOBODYS, Decide, LeaseRecord
from headgate.store.watched import QuotaStore

KEEP_AUDIT: Final = 10_000


class Flavour(NamedTuple):
    """
    What tells the kinds of stores apart, as a gateway sees them.

    Args:
        name: of the kind.
        whole: one transaction for all entities of a call; else one for each.
        announces: changes are announced; else looked for.
        poll_s: how often a watch looks for what nothing announced, seconds.
    """

    name: str
    whole: bool
    announces: bool
    poll_s: float


SQLITE: Final = Flavour("sqlite", whole=True, announces=False, poll_s=0.2)
ZOOKEEPER: Final = Flavour("zookeeper", whole=False, announces=True, poll_s=10.0)
KAFKA: Final = Flavour("kafka", whole=False, announces=True, poll_s=5.0)
FLAVOURS: Final = (SQLITE, ZOOKEEPER, KAFKA)


@dataclass
class Contents:
    """What a home holds; a backup is a copy of it."""

    identity: StoreIdentity
    table: QuotaTable = field(default_factory=QuotaTable)
    log: list[HistoryEntry] = field(default_factory=list)
    pruned: int = 0
    brokers: dict[str, dict[str, str]] = field(default_factory=dict)
    audit: list[AuditEvent] = field(default_factory=list)
    leases: dict[str, LeaseRecord] = field(default_factory=dict)
    commits: int = 0

    @property
    def seq(self) -> int:
        """The number of the latest change there ever was."""
        return self.pruned + len(self.log)

    def count(self) -> None:
        """Make the revision grow."""
        self.identity = self.identity._replace(revision=self.identity.revision + 1)

    def note(self, event: AuditEvent) -> None:
        """Keep an audit line."""
        self.audit = [*self.audit, event][-KEEP_AUDIT:]

    def set(self, alteration: QuotaAlteration, t_ms: int, origin: ChangeOrigin) -> bool:
        """Set and clear keys of one entity, and log it; return whether that changed anything."""
        entity, ops = alteration
        changed = False
        for key, value in ops:
            before = self.table.get(entity, key)
            if before == value:
                continue
            self.table, _ = self.table.apply([QuotaAlteration(entity, (Op(key, value),))])
            recorded = Recorded(t_ms, origin, [KeyChange(key, before, value)])
            self.log += recorded.entries(entity)
            changed = True
        return changed


class View(NamedTuple):
    """What a reader sees of a home: nothing in it changes any more."""

    place: int
    commits: int
    identity: StoreIdentity
    table: QuotaTable
    brokers: dict[str, dict[str, str]]
    pruned: int
    seq: int


class Home:
    """
    The place where quotas are kept, with any number of stores open on it.

    Args:
        flavour: which kind it is of.
        new_id: makes the id of a new store.

    Attributes:
        contents: what it holds; None: it is missing, or was emptied.
        place: grows when something else is put in its place.
        announce: called with each store that is to hear of a change.
    """

    def __init__(self, flavour: Flavour, new_id: Callable[[], str]) -> None:
        self.lock = threading.RLock()
        self.flavour = flavour
        self._new_id = new_id
        self.contents: Contents | None = None
        self.place = 0
        self.stores: list[SimStore] = []
        self.announce: Callable[[SimStore], None] = lambda store: store.poke()
        self._places = itertools.count(1)

    def make(self) -> None:
        """Make what is missing: a store of its own."""
        if self.contents is None:
            self.contents = Contents(StoreIdentity(self._new_id(), 0))
            self.place = next(self._places)

    def view(self) -> View | None:
        """Return what a reader sees now; None: nothing is there."""
        held = self.contents
        if held is None:
            return None
        brokers = {broker: dict(config) for broker, config in held.brokers.items()}
        return View(
            self.place, held.commits, held.identity, held.table, brokers, held.pruned, held.seq
        )

    def backup(self) -> Contents | None:
        """Return a copy of what it holds."""
        return copy.deepcopy(self.contents)

    def put(self, contents: Contents | None) -> None:
        """Have something else in its place: a backup, another store, or nothing."""
        self.contents = copy.deepcopy(contents)
        self.place = next(self._places)

    def committed(self) -> None:
        """A transaction is done: tell who watches."""
        assert self.contents is not None
        self.contents.commits += 1
        if self.flavour.announces:
            for store in list(self.stores):
                self.announce(store)


class Line(Protocol):
    """A machine's line to a home: it may wait before a call and after it, and break either time."""

    def before(self, kind: str) -> None:
        """The call is on its way."""
        ...

    def after(self, kind: str) -> None:
        """It was done; the answer is on its way."""
        ...


class Direct:
    """A line without faults."""

    def before(self, kind: str) -> None:
        """Nothing happens."""

    def after(self, kind: str) -> None:
        """Nothing happens."""


class SimHome(StoreHome):
    """
    A home as one store has it open, over a line.

    Args:
        place: where.
        line: to there.
        clock_ms: of the machine.
        store: that has it open.
    """

    def __init__(
        self, place: Home, line: Line, clock_ms: Callable[[], int], store: SimStore
    ) -> None:
        super().__init__(f"{place.flavour.name}:home", clock_ms)
        self.place = place
        self._line = line
        self._store = store
        self._write_lock = watched.threading.Lock()  # simulated where threads are
        place.stores.append(store)

    def call(self, kind: str, work: Callable[[], Any]) -> Any:
        """Call the home."""
        self._line.before(kind)
        result = work()
        self._line.after(kind)
        return result

    def missing(self) -> StoreError:
        """Return the error of a home that isn't there."""
        if self.known is not None:
            return replaced(self.url, self.known, None)
        return StoreError(
            f"the quota store {self.url}: there is no such file; a command that changes quotas "
            "makes one"
        )

    def read_identity(self) -> StoreIdentity | None:
        """See ``StoreHome``."""
        held: Contents | None = self.call("identity", lambda: self.place.contents)
        return None if held is None else held.identity

    def make_whole(self) -> None:
        """See ``StoreHome``."""

        def make() -> None:
            if self.place.contents is None and self.known is not None:
                raise self.missing()
            self.place.make()

        self.call("make", make)

    def write_succeeds(self, succeeds: tuple[tuple[str, int], ...]) -> None:
        """See ``StoreHome``."""

        def write(held: Contents) -> None:
            held.identity = held.identity._replace(succeeds=succeeds)
            held.count()

        self.transaction("alter", write)

    def transaction(self, kind: str, work: Callable[[Contents], Any]) -> Any:
        """Do something in one piece; ``work`` raises before it changes anything, or does all."""
        self.prepare()

        def inside() -> Any:
            with self.place.lock:  # where threads are real, other stores of this home have theirs
                held = self.place.contents
                if held is None:
                    raise self.missing()
                self.check_same(held.identity)
                result = work(held)
                self.place.committed()
                return result

        with self._write_lock:
            result = self.call(kind, inside)
        self.poke.set()
        return result

    def release(self) -> None:
        """See ``StoreHome``."""
        with contextlib.suppress(ValueError):
            self.place.stores.remove(self._store)


class SimHistory:
    """The history of a home, as one store of it sees it. See ``StoreHistory``."""

    def __init__(self, home: SimHome, refresh: Callable[[], object]) -> None:
        self._home = home
        self._refresh = refresh

    def entries(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """See ``StoreHistory``."""
        self._home.check_open()
        with self._home.lock:
            self._refresh()
            held = self._home.call("history", self._home.place.backup)
            if held is None:
                raise self._home.missing()
            found = [one for one in held.log if entity is None or one.entity == entity]
            return found if limit is None else found[len(found) - min(limit, len(found)) :]

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """See ``StoreHistory``."""
        self._home.check_open()
        with self._home.lock:
            self._refresh()
            held = self._home.place.contents
            found = list(held.audit) if held else []
            return found if limit is None else found[len(found) - min(limit, len(found)) :]

    def audit(self, event: AuditEvent) -> None:
        """See ``StoreHistory``."""
        line = event.at(self._home.clock_ms())
        self._home.transaction("audit", lambda held: held.note(line))

    def prune(self, keep: int) -> int:
        """See ``SqliteHistory``."""

        def write(held: Contents) -> int:
            gone = max(len(held.log) - keep, 0)
            held.log = held.log[gone:]
            held.pruned += gone
            return gone

        count: int = self._home.transaction("alter", write)
        return count


class SimStore(QuotaStore):
    """
    A store as a gateway has it open: the product's own rules over a home that is simulated.

    Args:
        place: where.
        line: to there.
        create: make the home if it is missing.
        clock_ms: of the machine.
    """

    home: SimHome
    history: SimHistory

    def __init__(
        self,
        place: Home,
        line: Line | None = None,
        *,
        create: bool = True,
        clock_ms: Callable[[], int],
    ) -> None:
        home = SimHome(place, line or Direct(), clock_ms, self)
        super().__init__(
            home,
            SimHistory(home, self._refresh),
            self._alter_broker,
            SimLeases(home),
            place.flavour.poll_s,
            lambda _: True,
        )
        self._token = (-1, -1)
        self._base = 0
        self._begin(create, self._refresh)

    def poke(self) -> None:
        """Look for changes now."""
        self.home.poke.set()

    # --- reading

    def _refresh(self) -> QuotaTable:
        with self.home.lock:
            found: View | None = self.home.call("read", self.home.place.view)
            if found is None:
                raise self.home.missing()
            token = (found.place, found.commits)
            if self._table is not None and token == self._token:
                return self._table
            self.home.check(found.identity)
            table = self._catch_up(found, same=found.place == self._token[0])
            self._token = token
            self.broker_settings.publish(found.brokers)
            return table

    def _catch_up(self, held: View, *, same: bool) -> QuotaTable:
        old = self._table
        if old is not None and same and old.version - self._base >= held.pruned:
            if held.seq == old.version - self._base:
                return old
        elif old is not None and self._base + held.seq <= old.version:
            self._base = old.version + 1 - held.seq
        table = held.table.with_version(self._base + held.seq)
        delta = TableDelta((), 0, 0) if old is None else table_delta(old, table)
        return self._publish(table, delta)

    # --- changing

    def _alter(self, change: StoreChange) -> list[AlterResult]:
        (results, accepted), origin, validate_only, at_revision, _ = change
        if validate_only or not accepted:
            return results
        whole = self.home.place.flavour.whole
        done = 0
        for some in [accepted] if whole else [[one] for one in accepted]:
            expected = None if at_revision is None else at_revision + done

            def write(
                held: Contents,
                some: list[QuotaAlteration] = some,
                expected: int | None = expected,
                done: int = done,
            ) -> bool:
                if expected is not None and held.identity.revision != expected:
                    raise moved_on(self.url, expected - done, held.identity, done)
                t_ms = self.home.clock_ms()
                changed = [held.set(one, t_ms, origin) for one in some].count(True) > 0
                if changed:
                    held.count()
                return changed

            done += self.home.transaction("alter", write)
        return results

    def _alter_broker(self, broker: str, ops: Mapping[str, str | None], told: Told) -> None:
        def write(held: Contents) -> None:
            now = dict(held.brokers.get(broker, {}))
            changed = {key: value for key, value in ops.items() if now.get(key) != value}
            if not changed:
                return
            after = {k: v for k, v in {**now, **changed}.items() if v is not None}
            held.brokers = {b: c for b, c in {**held.brokers, broker: after}.items() if c}
            held.count()
            held.note(told(now, changed))

        self.home.transaction("alter", write)


class SimLeases:
    """The leases of a home, as one store of it sees them."""

    def __init__(self, home: SimHome) -> None:
        self._home = home

    def look(self, name: str) -> LeaseRecord:
        """See ``LeaseHome``."""
        found: LeaseRecord = self._home.transaction(
            "lease", lambda held: held.leases.get(name, NOBODYS)
        )
        return found

    def change(self, name: str, decide: Decide) -> bool:
        """See ``LeaseHome``."""

        def write(held: Contents) -> bool:
            before = held.leases.get(name, NOBODYS)
            wanted = decide(before)
            if wanted is not None:
                owner, epoch, ttl_ms = wanted
                mark = max(self._home.clock_ms() + ttl_ms, before.mark + 1)
                held.leases[name] = LeaseRecord(owner, epoch, mark, ttl_ms)
            return wanted is not None

        kept: bool = self._home.transaction("lease", write)
        return kept
