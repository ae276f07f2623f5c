"""How clients would go in a closed loop, and what would be enough, by a journal's last hour."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.console import foretold
from headgate.console import what_if as tried
from headgate.console.foretold import Between, Foretold
from headgate.console.what_if import what_if, what_is_enough
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, REQUEST
from headgate.quota.plan import Plan, plan_of
from headgate.quota.table import QuotaTable, TableChange
from kit.journals import application, write_journal

NOW = 1_800_000_000_000
ETL = QuotaEntity.of(user="alice", client_id="etl")
ALICE = QuotaEntity.of(user="alice")
RATE, LIMIT = 606_000.0, 300_000.0
PRESENT = QuotaTable({ETL: {PRODUCER: LIMIT}})


def plan(table: QuotaTable, entity: QuotaEntity, value: float | None) -> Plan:
    return plan_of(table, [TableChange(entity, PRODUCER, table.get(entity, PRODUCER), value)])


@pytest.fixture
def throttled(tmp_path: Path) -> Path:
    """A journal of an application that makes twice what it may send."""
    write_journal(tmp_path, application("alice", "etl", RATE, LIMIT, NOW - 300_000, 300))
    return tmp_path


def test_a_throttled_client_is_said_to_go_at_what_it_makes_and_never_to_wait(
    throttled: Path,
) -> None:
    found = what_if(throttled, plan(PRESENT, ETL, 2e6), NOW)
    assert found.rows[0].hides  # a replay doesn't know
    (row,) = found.foretold
    assert (row.user, row.client_id, row.is_changed) == ("alice", "etl", True)
    assert row.rate_per_s is not None and row.rate_per_s.figure is not None
    assert row.rate_per_s.figure == pytest.approx(RATE, rel=0.03)
    assert row.never_waits
    assert row.sentence.startswith("would go at 6") and row.sentence.endswith("and never wait")


def test_one_that_still_gets_too_little_is_said_to_wait(throttled: Path) -> None:
    (row,) = what_if(throttled, plan(PRESENT, ETL, 400_000.0), NOW).foretold
    assert row.rate_per_s is not None
    assert row.rate_per_s.least <= 400_000.0 <= (row.rate_per_s.most or 0)
    assert not row.never_waits
    assert "and wait for" in row.sentence


def test_what_is_enough_is_what_it_makes_and_under_it_nobody_waits(throttled: Path) -> None:
    found = what_is_enough(throttled, PRESENT, ETL, PRODUCER, NOW)
    assert found.value is not None and RATE <= found.value <= 1.3 * RATE
    assert not found.reason and [row.never_waits for row in found.rows] == [True]
    sent = application("alice", "etl", RATE, found.value, NOW, 300)
    assert not any(event.throttle_time_ms for event in sent)


def test_who_shares_a_quota_id_is_touched(tmp_path: Path) -> None:
    begin = NOW - 300_000
    both = sorted(
        (event for name in ("app", "etl")
         for event in application("alice", name, 100_000.0, 1e6, begin, 290, ("alice", ""))),
        key=lambda event: event.t_ms,
    )  # fmt: skip
    write_journal(tmp_path, both)
    found = what_if(tmp_path, plan(QuotaTable({ALICE: {PRODUCER: 1e6}}), ETL, 50_000.0), NOW)
    assert [(row.client_id, row.is_changed) for row in found.foretold] == [
        ("etl", True), ("", False),
    ]  # fmt: skip
    assert [row.never_waits for row in found.foretold] == [False, True]


def test_of_too_short_a_time_nothing_is_foretold(tmp_path: Path) -> None:
    write_journal(tmp_path, application("alice", "etl", RATE, LIMIT, NOW - 60_000, 40))
    (row,) = what_if(tmp_path, plan(PRESENT, ETL, 2e6), NOW).foretold
    assert row.rate_per_s is None
    assert row.sentence.startswith("can't be foretold: the journal holds 39.")
    assert row.sentence.endswith("s of it, too little")
    found = what_is_enough(tmp_path, PRESENT, ETL, PRODUCER, NOW)
    assert found.value is None and "too little" in found.reason


def test_a_client_that_was_always_muted_has_an_interval_and_its_reason(tmp_path: Path) -> None:
    events = application("alice", "etl", RATE, LIMIT, NOW - 600_000, 400)[300:]
    write_journal(tmp_path, events)
    (row,) = what_if(tmp_path, plan(PRESENT, ETL, 2e6), NOW).foretold
    assert row.rate_per_s is not None and row.rate_per_s.figure is None
    assert "it isn't known better, because" in row.sentence
    found = what_is_enough(tmp_path, PRESENT, ETL, PRODUCER, NOW)
    assert found.value is None and "they want 3" in found.reason


def test_what_is_no_rate_of_bytes_or_has_no_request_is_said(throttled: Path) -> None:
    found = what_is_enough(throttled, PRESENT, ALICE, REQUEST, NOW)
    assert found.value is None and "only rates of bytes" in found.reason
    found = what_is_enough(throttled, PRESENT, QuotaEntity.of(user="bob"), PRODUCER, NOW)
    assert found.value is None and "no request" in found.reason
    found = what_is_enough(throttled, PRESENT, ETL, PRODUCER, NOW, principals=("bob",))
    assert found.value is None and "no request" in found.reason


def test_what_wasnt_looked_at_is_said(throttled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foretold, "MOST_CHARGES", 100)
    (row,) = what_if(throttled, plan(PRESENT, ETL, 2e6), NOW).foretold
    assert "only its latest charges are looked at" in row.sentence


def test_of_more_than_is_read_enough_names_the_time_it_knows(
    throttled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = tried.read_hour(throttled, {PRODUCER.type}, NOW, tried.MOST_EVENTS)
    monkeypatch.setattr(tried, "read_hour", lambda *_: hour._replace(is_whole=False))
    found = what_is_enough(throttled, PRESENT, ETL, PRODUCER, NOW)
    assert found.value is not None and found.since_ms == hour.since_ms


def test_what_others_share_isnt_foretold_by_a_part_of_its_clients(tmp_path: Path) -> None:
    shared = QuotaEntity.of(client_id="etl")
    events = application("alice", "etl", RATE, LIMIT, NOW - 300_000, 300, ("", "etl"))
    write_journal(tmp_path, events)
    wanted = plan(QuotaTable({shared: {PRODUCER: LIMIT}}), shared, 2e6)
    assert what_if(tmp_path, wanted, NOW).foretold
    found = what_if(tmp_path, wanted, NOW, principals=("alice",))
    assert not found.foretold and found.not_foretold == 1


def test_a_damaged_file_is_an_error_that_names_it(throttled: Path) -> None:
    damaged = throttled / "w-9-0000000000000000.parquet"
    damaged.write_bytes(b"PAR1 nothing PAR1")
    os.utime(damaged, (NOW / 1000, NOW / 1000))
    with pytest.raises(OSError, match=r"w-9-0000000000000000\.parquet is damaged"):
        what_is_enough(throttled, PRESENT, ETL, PRODUCER, NOW)


def test_what_nothing_bounds_is_said_as_at_least() -> None:
    row = Foretold(
        PRODUCER.name, "a", "", 1, None, 90_000.0, True, Between(None, 5e5, None),
        Between(None, 2_000.0, None), "it waits",
    )  # fmt: skip
    assert row.sentence == (
        "would go at 500 kB/s or more and wait for 2 s or more in 1 min 30 s; it isn't known "
        "better, because it waits"
    )
