"""The simulated store keeps the contract of all stores, and answers as SQLite's does."""

from __future__ import annotations

import itertools
import random
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.suite import Moments, Opener, StoreContract, called
from headgate.clock import now_ms
from headgate.errors import ApiError, StoreError
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_IDS, REQUEST
from headgate.store import AuditEvent, QuotaStore
from headgate.store.identity import StoreIdentity
from headgate.store.sqlite.store import SqliteStore
from simulation.stores import KAFKA, SQLITE, ZOOKEEPER, Home, SimHome, SimStore


def new_id() -> str:
    return secrets.token_hex(8)


class Simulated(StoreContract):
    """A home of some flavour, with real threads and the real clock: the contract is about these."""

    flavour = SQLITE
    fewest_steps = 1

    @pytest.fixture
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> Moments:
        moments = Moments()
        called(monkeypatch, moments.passed, SimHome, "call")
        return moments

    @pytest.fixture
    def changing(self, reading: Moments) -> Moments:
        return reading

    @pytest.fixture
    def dying(self, reading: Moments) -> Moments:
        return reading

    @pytest.fixture
    def home(self) -> Home:
        return Home(self.flavour._replace(poll_s=0.05), new_id)

    @pytest.fixture
    def empty_home(self, home: Home) -> Callable[[], None]:
        return lambda: home.put(None)

    @pytest.fixture
    def open_home(self, home: Home) -> Iterator[Opener]:
        opened: list[QuotaStore] = []

        def opener(*, create: bool = True) -> QuotaStore:
            opened.append(SimStore(home, create=create, clock_ms=now_ms))
            return opened[-1]

        yield opener
        for store in opened:
            store.close()


class TestLikeSqlite(Simulated):
    polls = True


class TestLikeZooKeeper(Simulated):
    flavour = ZOOKEEPER


class TestLikeKafka(Simulated):
    flavour = KAFKA


# --- the same operations give the same on both


class Pair:
    """
    Two stores on one home, opened the same way.

    Args:
        now: the monotonic clock, and by how much the wall clock differs, ms; the test sets both.
    """

    def __init__(self, now: list[int]) -> None:
        self.now = now
        self.stores: list[Any] = []
        self.leases: list[Any] = []

    def clock_ms(self) -> int:
        return sum(self.now)

    def opened(self, create: bool) -> Any:
        store = self.open(create)
        store.leases._monotonic = lambda: self.now[0] / 1000
        return store

    def open(self, create: bool) -> Any:
        raise NotImplementedError

    def backup(self) -> Any:
        raise NotImplementedError

    def put(self, backup: Any) -> None:
        raise NotImplementedError


class SimPair(Pair):
    def __init__(self, now: list[int]) -> None:
        super().__init__(now)
        self.home = Home(SQLITE, new_id)

    def open(self, create: bool) -> Any:
        return SimStore(self.home, create=create, clock_ms=self.clock_ms)

    def backup(self) -> Any:
        return self.home.backup()

    def put(self, backup: Any) -> None:
        self.home.put(backup)


class SqlitePair(Pair):
    def __init__(self, now: list[int], folder: Path) -> None:
        super().__init__(now)
        self.path = folder / "quotas.db"
        self.copies = (folder / f"copy{n}" for n in itertools.count())

    def open(self, create: bool) -> Any:
        return SqliteStore(self.path, create=create, clock_ms=self.clock_ms, resolve=lambda _: True)

    def backup(self) -> Any:
        if not self.path.exists():
            return None
        copied = next(self.copies)
        with sqlite3.connect(self.path) as source, sqlite3.connect(copied) as target:
            source.backup(target)
        source.close()
        target.close()
        return copied

    def put(self, backup: Any) -> None:
        for name in ("quotas.db-wal", "quotas.db-shm"):
            self.path.with_name(name).unlink(missing_ok=True)
        if backup is None:
            self.path.unlink(missing_ok=True)
            return
        placed = self.path.with_name("placed")
        placed.write_bytes(backup.read_bytes())
        placed.replace(self.path)


ENTITIES = [
    QuotaEntity.of(user="alice"),
    QuotaEntity.of(user=DEFAULT),
    QuotaEntity.of(user="alice", client_id="etl"),
    QuotaEntity({"GROUP": "g"}),
]


def some_alterations(rng: random.Random) -> list[QuotaAlteration]:
    keys = (PRODUCER, CONSUMER, REQUEST, PRODUCER_IDS)
    return [
        QuotaAlteration(
            rng.choice(ENTITIES),
            tuple(
                Op(key, rng.choice([None, 1.0, 2.0, 3.0, 1.5, -1.0]))
                for key in rng.sample(keys, rng.randint(1, 3))
            ),
        )
        for _ in range(rng.randint(1, 3))
    ]


class Told:
    """What a run gave, with random names in the order in which they came."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, given: str) -> str:
        return self._names.setdefault(given, f"name {len(self._names)}") if given else ""

    def identity(self, found: StoreIdentity | None) -> Any:
        if found is None:
            return None
        return (self.name(found.id), found.revision, found.succeeds)

    def error(self, error: Exception, url: str) -> Any:
        text = str(error).replace(url, "URL").replace(url.partition(":")[2], "PATH")
        text = re.sub("[0-9a-f]{16}", lambda found: self.name(found[0]), text)
        if "no such file" in text:
            text = "missing"
        return (type(error).__name__, getattr(error, "retriable", None), text)

    def of(self, value: Any) -> Any:
        if isinstance(value, StoreIdentity):
            return self.identity(value)
        if isinstance(value, list):
            return [self.of(one) for one in value]
        if hasattr(value, "change") and hasattr(value, "before"):  # an entry of the history
            return (*(getattr(value, n) for n in ("t_ms", "who", "entity", "key", "before",
                    "after", "message")), self.name(value.change))  # fmt: skip
        if hasattr(value, "error"):
            return None if value.error is None else value.error.message
        if hasattr(value, "epoch"):
            return (value.name, value.owner, value.epoch)
        return value


def run(seed: int, pair: Pair) -> list[Any]:
    """Do the operations of a seed; return what each gave."""
    rng = random.Random(seed)
    told = Told()
    seen: list[Any] = []
    pair.stores += [pair.opened(True), pair.opened(True)]
    kept: list[Any] = [pair.backup()]

    def one(store: Any) -> Any:
        what = rng.randrange(16)
        if what < 5:
            based = rng.choice([None, None, 0, 2, 5])
            asked = some_alterations(rng)
            return store.alter(asked, who="ops", message="why", at_revision=based)
        if what == 5:
            value = rng.choice([None, "1", "7", "-1"])
            broker = rng.choice(["", "1", "x"])
            return store.broker_settings.alter(broker, {"max.connections": value}, who="ops")
        if what == 6:
            return {b: dict(c) for b, c in store.broker_settings.now().items()}
        if what == 7:
            return store.history.entries(limit=rng.choice([None, 0, 3]))
        if what == 8:
            found = store.home.identity()
            if found is not None and rng.random() < 0.5:
                store.home.accept(found)
            return found
        if what == 9:
            name, owner = rng.choice("xy"), rng.choice(["one", "two"])
            lease = store.leases.take(name, owner, rng.choice([500, 1500]))
            if lease is not None:
                pair.leases.append(lease)
            return lease
        if what in (10, 11) and pair.leases:
            lease = rng.choice(pair.leases)
            return rng.choice([lease.renew, lease.held, lease.release])()
        if what == 12:
            store.history.audit(AuditEvent("eve", "admin", "alter", "refused"))
            return [event.action for event in store.history.audit_log(limit=2)]
        if what == 13 and rng.random() < 0.3:
            return store.history.prune(rng.randint(0, 3))
        if what == 14:
            kept.append(pair.backup())
            return None
        if what == 15 and rng.random() < 0.3:
            pair.put(rng.choice([None, *kept]))
            return None
        if what == 13 and rng.random() < 0.2:
            return store.home.succeed(StoreIdentity("a" * 16, 3))
        return dict(store.snapshot().entities)

    for _ in range(80):
        pair.now[0] += rng.choice([0, 1, 400, 1000])
        pair.now[1] += rng.choice([*[0] * 9, -400, -3_000, 90_000])
        number = rng.randrange(2)
        store = pair.stores[number]
        if rng.random() < 0.05:
            store.close()
            store = pair.stores[number] = pair.opened(True)
        try:
            seen.append(told.of(one(store)))
        except (StoreError, ApiError) as error:
            seen.append(told.error(error, store.url))
    for store in pair.stores:
        store.close()
    return seen


@pytest.mark.parametrize("seed", range(40))
def test_the_same_operations_give_the_same_as_on_sqlite(tmp_path: Path, seed: int) -> None:
    simulated, real = (
        run(seed, SimPair([1_000_000, 0])),
        run(seed, SqlitePair([1_000_000, 0], tmp_path)),
    )
    for number, (one, other) in enumerate(zip(simulated, real, strict=True)):
        assert one == other, number
