"""Leases by no clock but the watcher's own: taken when seen unchanged for their whole length."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.errors import StoreError
from headgate.store.leases import (
    NOBODYS,
    Decide,
    Lease,
    LeaseRecord,
    LeaseTaker,
)
from headgate.store.sqlite.store import SqliteStore


class Clock:
    """Seconds, for a process of its own."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Home:
    """Records in memory; ``quicker`` is what somebody else does before a change."""

    def __init__(self) -> None:
        self.records: dict[str, LeaseRecord] = {}
        self.quicker: Callable[[], object] | None = None
        self.changes = 0

    def look(self, name: str) -> LeaseRecord:
        return self.records.get(name, NOBODYS)

    def change(self, name: str, decide: Decide) -> bool:
        quicker, self.quicker = self.quicker, None
        if quicker is not None:
            quicker()
        wanted = decide(self.look(name))
        if wanted is not None:
            self.changes += 1
            self.records[name] = LeaseRecord(wanted[0], wanted[1], self.changes, wanted[2])
        return wanted is not None


@pytest.fixture
def home() -> Home:
    return Home()


def held_by_one(home: Home, ttl_ms: int = 9_000) -> Lease:
    lease = LeaseTaker(home, Clock(50.0)).take("x", "one", ttl_ms)
    assert lease is not None
    return lease


def test_a_lease_is_taken_after_it_was_seen_unchanged_for_its_whole_length(home: Home) -> None:
    held_by_one(home)
    clock = Clock(7_000_000.0)  # of a machine that has run for long
    two = LeaseTaker(home, clock)
    assert two.take("x", "two", 9_000) is None  # it may have been renewed a moment ago
    clock.now_s += 8.9
    assert two.take("x", "two", 9_000) is None
    clock.now_s += 0.1
    lease = two.take("x", "two", 9_000)
    assert lease is not None
    assert lease.epoch == 2


def test_each_renewal_makes_who_waits_wait_for_the_whole_length_again(home: Home) -> None:
    one, clock = held_by_one(home), Clock(0.0)
    two = LeaseTaker(home, clock)
    for _ in range(20):
        assert two.take("x", "two", 9_000) is None
        clock.now_s += 8.9
        assert one.renew()
    assert two.take("x", "two", 9_000) is None
    clock.now_s += 9
    assert two.take("x", "two", 9_000) is not None
    assert not one.renew()


def test_the_length_is_the_holders_not_that_of_who_waits(home: Home) -> None:
    held_by_one(home, 30_000)
    clock = Clock(0.0)
    two = LeaseTaker(home, clock)
    assert two.take("x", "two", 1_000) is None
    clock.now_s += 29.9
    assert two.take("x", "two", 1_000) is None
    clock.now_s += 0.1
    assert two.take("x", "two", 1_000) is not None


def test_what_a_release_before_wrote_lasts_as_long_as_ones_own(home: Home) -> None:
    home.records["x"] = LeaseRecord("one", 3, 99, 0)
    clock = Clock(0.0)
    two = LeaseTaker(home, clock)
    assert two.take("x", "two", 1_000) is None
    clock.now_s += 1
    assert two.take("x", "two", 1_000) is not None


def test_a_renewal_in_the_last_moment_is_seen_before_the_lease_is_taken(home: Home) -> None:
    one, clock = held_by_one(home), Clock(0.0)
    two = LeaseTaker(home, clock)
    assert two.take("x", "two", 9_000) is None
    clock.now_s += 9
    home.quicker = one.renew
    assert two.take("x", "two", 9_000) is None
    assert one.renew()


def test_a_lease_that_was_given_up_or_is_ones_own_is_taken_at_once(home: Home) -> None:
    one = held_by_one(home)
    again = LeaseTaker(home, Clock(0.0)).take("x", "one", 9_000)
    assert again is not None
    assert not one.renew()
    again.release()
    assert LeaseTaker(home, Clock(0.0)).take("x", "two", 9_000) is not None


def test_an_older_copy_of_the_store_gives_nobody_a_lease_at_once(home: Home) -> None:
    """Found by the simulator: seeds 1083 and 1282."""
    for older in (NOBODYS, LeaseRecord("two", 1, 3, 9_000), LeaseRecord("", 1, 4, 0)):
        home.records["x"] = LeaseRecord("one", 5, 1_000, 9_000)
        clock = Clock(0.0)
        two = LeaseTaker(home, clock)
        assert two.take("x", "two", 9_000) is None
        home.records["x"] = older  # its holder serves, and hasn't looked yet
        assert two.take("x", "two", 9_000) is None
        clock.now_s += 8.9
        assert two.take("x", "two", 9_000) is None
        clock.now_s += 0.1
        assert two.take("x", "two", 9_000) is not None


def test_its_holder_counts_from_before_it_asked(home: Home) -> None:
    clock = Clock(0.0)
    lease = LeaseTaker(home, clock).take("x", "one", 9_000)
    assert lease is not None
    clock.now_s = 8.9
    assert lease.held()

    def slowly() -> None:
        clock.now_s += 5

    home.quicker = slowly
    assert lease.renew()
    clock.now_s = 17.8
    assert lease.held()
    clock.now_s = 17.9
    assert not lease.held()
    assert lease.renew()  # nobody took it
    assert lease.held()


def test_a_renewal_that_could_not_be_kept_is_no_loss(home: Home) -> None:
    one = held_by_one(home)
    home.change = lambda name, decide: False  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="couldn't be renewed"):
        one.renew()


def test_in_sqlite_no_wall_clock_ends_a_lease_or_keeps_it(tmp_path: Path) -> None:
    wall = [1_000_000, 1_000_000]
    stores = [
        SqliteStore(tmp_path / "quotas.db", clock_ms=lambda n=n: wall[n])  # type: ignore[misc]
        for n in (0, 1)
    ]
    clock = Clock(0.0)
    stores[1].leases = LeaseTaker(stores[1].leases._home, clock)
    one = stores[0].leases.take("x", "one", 10_000)
    assert one is not None
    wall[1] += 3_600_000
    assert stores[1].leases.take("x", "two", 10_000) is None
    for _ in range(5):  # as if no time had passed, by a clock that is set back and forward
        wall[0] -= 10_000
        assert one.renew()
        wall[0] += 10_000
        assert one.renew()
        clock.now_s += 9
        assert stores[1].leases.take("x", "two", 1_000) is None
    wall[1] -= 7_200_000
    clock.now_s += 10
    assert stores[1].leases.take("x", "two", 10_000) is not None
    assert not one.renew()
    for store in stores:
        store.close()


def test_each_renewal_in_sqlite_leaves_another_mark_though_the_clock_stands(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "quotas.db", clock_ms=lambda: 1_000_000)
    lease = store.leases.take("x", "one", 10_000)
    assert lease is not None
    marks = []
    for _ in range(3):
        assert lease.renew()
        with sqlite3.connect(tmp_path / "quotas.db") as db:
            marks.append(db.execute("SELECT expires_ms FROM lease").fetchone()[0])
        db.close()
    assert marks == sorted(set(marks))
    store.close()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE lease SET epoch = 'many'",
        "UPDATE lease SET epoch = -5",  # who saw the holder's would ignore the next ones
        "UPDATE lease SET epoch = 9223372036854775807",
        "UPDATE lease SET owner = x'00ff'",
        "UPDATE lease SET expires_ms = 'x'",
        "UPDATE state SET value = 9000000000000000000 WHERE name LIKE 'lease_ttl%'",
    ],
)
def test_a_row_that_was_edited_by_hand_and_holds_no_lease_is_given_to_nobody(
    tmp_path: Path, edit: str
) -> None:
    with SqliteStore(tmp_path / "quotas.db") as store:
        lease = store.leases.take("x", "one", 10)
        assert lease is not None
        with contextlib.closing(sqlite3.connect(tmp_path / "quotas.db")) as db, db:
            assert db.execute(edit).rowcount == 1
        for ask in (lease.renew, lease.held, lambda: store.leases.take("x", "two", 10)):
            with pytest.raises(StoreError, match=r"holds no lease: .*; delete both"):
                ask()
        with contextlib.closing(sqlite3.connect(tmp_path / "quotas.db")) as db, db:
            db.execute("DELETE FROM lease")
            db.execute("DELETE FROM state WHERE name LIKE 'lease_ttl%'")
        assert not lease.held()
