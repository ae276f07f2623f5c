"""Quotas that end: the former value returns at its time, once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST, QuotaKey
from headgate.store.base import EndingQuota
from headgate.store.sqlite import rows
from headgate.store.sqlite.store import SqliteStore

BOB = QuotaEntity.of(user="bob")
FRIDAY = 1_000_000


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "quotas.db", clock_ms=clock) as made:
        made.alter([QuotaAlteration(BOB, (Op(PRODUCER, 300.0),))], who="ada")
        yield made


def put(
    store: SqliteStore, value: float | None, until_ms: int | None = None, key: QuotaKey = PRODUCER
) -> None:
    [result] = store.alter(
        [QuotaAlteration(BOB, (Op(key, value),))], who="bea", tool="t", message="the fair",
        until_ms=until_ms,
    )  # fmt: skip
    assert result.error is None


def value(store: SqliteStore, key: QuotaKey = PRODUCER) -> float | None:
    return store.snapshot().get(BOB, key)


def test_at_its_time_the_former_value_returns_with_a_reason(
    store: SqliteStore, clock: Clock
) -> None:
    put(store, 600.0, FRIDAY)
    put(store, 20.0, FRIDAY + 5, REQUEST)  # there was none
    name = store.history.entries()[-2].change
    assert store.ends.kept()[0] == EndingQuota(
        BOB, PRODUCER, 600.0, 300.0, FRIDAY, "bea", name, "the fair"
    )
    clock.now_ms = FRIDAY - 1
    store.ends.end_due()
    assert value(store) == 600.0
    clock.now_ms = FRIDAY
    revision = store.home.identify().revision
    store.ends.end_due()
    assert (value(store), value(store, REQUEST)) == (300.0, 20.0)
    assert store.home.identify().revision == revision + 1
    entry = store.history.entries()[-1]
    assert (entry.t_ms, entry.before, entry.after) == (FRIDAY, 600.0, 300.0)
    assert (entry.who, entry.tool) == ("bea", "headgate until")
    assert entry.message == f"end of {name}: the fair" and entry.change not in ("", name)
    clock.now_ms += 5
    store.ends.end_due()
    assert value(store, REQUEST) is None
    assert store.ends.kept() == []
    count = len(store.history.entries())
    store.ends.end_due()
    assert len(store.history.entries()) == count


def test_a_removal_may_end_too(store: SqliteStore, clock: Clock) -> None:
    put(store, None, FRIDAY)
    assert value(store) is None
    clock.now_ms = FRIDAY
    store.ends.end_due()
    assert value(store) == 300.0


@pytest.mark.parametrize("later", [500.0, 600.0, None])
def test_what_is_changed_later_stays(store: SqliteStore, clock: Clock, later: float | None) -> None:
    put(store, 600.0, FRIDAY)
    put(store, later)  # also where it is the same value: it is to stay now
    assert store.ends.kept() == []
    clock.now_ms = FRIDAY
    store.ends.end_due()
    assert value(store) == later


def test_another_end_brings_back_what_the_first_one_would_have(
    store: SqliteStore, clock: Clock
) -> None:
    put(store, 600.0, FRIDAY)
    put(store, 600.0, FRIDAY + 10)
    put(store, 700.0, FRIDAY + 20)
    [end] = store.ends.kept()
    assert (end.value, end.former, end.until_ms) == (700.0, 300.0, FRIDAY + 20)
    put(store, 300.0, FRIDAY + 30)  # which is what would return
    assert store.ends.kept() == []


def test_who_knows_no_ends_changes_what_stays(store: SqliteStore, clock: Clock) -> None:
    """An earlier release writes the quota alone, and leaves the record of the end."""
    put(store, 600.0, FRIDAY)
    with store.home.transaction() as db:
        rows.set_key(db, BOB.path, PRODUCER.name, 450.0, (5, "", "", "", ""))
    assert store.ends.kept() == []
    clock.now_ms = FRIDAY
    store.ends.end_due()
    assert value(store) == 450.0


def test_of_many_at_once_one_ends_it(tmp_path: Path, store: SqliteStore, clock: Clock) -> None:
    put(store, 600.0, FRIDAY)
    clock.now_ms = FRIDAY
    others = [SqliteStore(tmp_path / "quotas.db", clock_ms=clock) for _ in range(4)]
    begin = threading.Barrier(len(others))

    def end(other: SqliteStore) -> None:
        begin.wait()
        other.ends.end_due()

    with ThreadPoolExecutor(len(others)) as pool:
        list(pool.map(end, others))
    assert [entry.after for entry in store.history.entries()] == [300.0, 600.0, 300.0]
    for other in others:
        other.close()


def test_an_end_that_breaks_off_changes_nothing(
    store: SqliteStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 600.0, FRIDAY)
    clock.now_ms = FRIDAY
    with monkeypatch.context() as broken:

        def fails(*_: object) -> None:
            raise KeyboardInterrupt

        broken.setattr(rows, "drop_ends", fails)
        with pytest.raises(KeyboardInterrupt):
            store.ends.end_due()
    assert value(store) == 600.0 and len(store.ends.kept()) == 1
    store.ends.end_due()
    assert value(store) == 300.0


def test_who_watches_or_changes_anything_ends_what_is_due(
    tmp_path: Path, store: SqliteStore, clock: Clock
) -> None:
    put(store, 600.0, FRIDAY)
    clock.now_ms = FRIDAY
    put(store, 1.0, key=CONSUMER)
    assert value(store) == 300.0
    put(store, 600.0, FRIDAY + 1)
    with SqliteStore(tmp_path / "quotas.db", create=False, poll_ms=10, clock_ms=clock) as gateway:
        ended = threading.Event()

        def seen(table: object, _delta: object) -> None:
            if table.get(BOB, PRODUCER) == 300.0:  # type: ignore[attr-defined]
                ended.set()

        gateway.watch(seen)
        assert not ended.is_set()
        clock.now_ms = FRIDAY + 1
        assert ended.wait(60)


def test_a_time_that_has_passed_is_refused(store: SqliteStore) -> None:
    with pytest.raises(ConfigError, match=r"until 1970-01-01 00:00:01 UTC: that has passed"):
        put(store, 600.0, 1_000)
    with pytest.raises(ConfigError, match="after the year 9999"):
        put(store, 600.0, 10**30)
    assert value(store) == 300.0


def test_a_file_without_ends_is_as_earlier_releases_know_it(store: SqliteStore) -> None:
    put(store, 400.0)
    tables = store.home.reader.db.execute("SELECT name FROM sqlite_master WHERE name = 'ending'")
    assert tables.fetchall() == []
    assert store.ends.kept() == []


def test_another_kind_of_store_says_that_it_has_no_place(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ends", None)
    for validate_only in (True, False):
        with pytest.raises(ConfigError, match="has no place for the end of a quota; nothing"):
            store.alter(
                [QuotaAlteration(BOB, (Op(PRODUCER, 1.0),))], until_ms=FRIDAY,
                validate_only=validate_only,
            )  # fmt: skip
    assert value(store) == 300.0
