"""Who used most: what is added up, over how much of the journal, and how rows are ordered."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, PRODUCER_SHARES
from headgate.usage import sums
from headgate.usage.format import Event, Origin
from headgate.usage.sums import FIGURES, JournalSums, Ranking, UseRow
from kit.journals import traffic, write_journal

NOW = 1_800_000_000_000
ALL = NOW - 86_400_000.0


def origin(kind: str, key: str, user: str = "alice", principal: str | None = None) -> Origin:
    return Origin(
        kind, key, 1, "L", user, "", None, principal or user, "x", "10.0.0.9", "c", 0, 11, 11, 1000
    )


def ranked(folder: Path, since_ms: float = ALL, who: str = "user") -> dict[str, UseRow]:
    rows = Ranking(JournalSums(folder).since(since_ms).rows, who).select()
    return {row.name: row for row in rows}


def test_bytes_time_and_waits_are_those_of_the_events(tmp_path: Path) -> None:
    sent, events = traffic(NOW)
    write_journal(tmp_path, events)
    wanted = Counter[str]()
    count = Counter[str]()
    for _, who, _, size in sent:
        wanted[who] += size
        count[who] += 1
    found = ranked(tmp_path)
    assert {name: row.produced_bytes for name, row in found.items()} == wanted
    assert {name: row.throttled for name, row in found.items()} == count
    assert {name: row.waited_ms / 3 for name, row in found.items()} == count
    assert list(found) == [name for name, _ in wanted.most_common()]  # most bytes first


def test_each_kind_of_event_adds_what_it_means(tmp_path: Path) -> None:
    at = NOW - 1_000.0
    produce, request, fetch = "producer_byte_rate", "request_percentage", "consumer_byte_rate"
    write_journal(
        tmp_path,
        [
            Event(origin("start", ""), at),
            # A produce that two quotas throttle: the longer wait is told, and counted.
            Event(origin("record", produce), at, 1_000.0, 10.0, 40, 90, 0, 1_000),
            Event(origin("record", request), at, 12.5, 10.0, 90, 90, 0, 1_000),
            Event(origin("unrecord", produce), at, 100.0, 10.0),
            # Bytes that no quota applies to.
            Event(origin("norecord", produce, "", "alice"), at, 70.0, float("inf")),
            Event(origin("told", produce), at, None, None, 90, 90),  # was counted with its decision
            # A mutation: refused, then told; the tokens weren't taken.
            Event(origin("strict", "controller_mutation_rate"), at, 3.0, 1.0, 500, 500),
            Event(origin("told", "controller_mutation_rate"), at, None, 1.0, 500, 500),
            # Without a quota.
            Event(origin("record", fetch, "", "bob"), at, 77.0, float("inf"), 0, 0, 0, 77),
            Event(origin("held", fetch, "", "bob"), at, 250.0),
            Event(origin("connection", "connection_creation_rate"), at, 1.0),
        ],
    )
    assert ranked(tmp_path) == {
        "alice": UseRow("alice", "", 970.0, 0.0, 125.0, 2, 90 + 500),
        "bob": UseRow("bob", "", 0.0, 77.0, 0.0, 1, 250),  # held
    }
    assert set(ranked(tmp_path, who="quota-id")) == {"alice", ""}


def test_a_period_begins_where_it_says(tmp_path: Path) -> None:
    sent, events = traffic(NOW)
    write_journal(tmp_path, events[:1500])
    write_journal(tmp_path, events[1500:], 1501)
    reader = JournalSums(tmp_path)
    # Whichever period was asked for before, sums are those of this one.
    for since in (sent[2000][0], sent[700][0], sent[1499][0], sent[1500][0], 0, sent[2000][0]):
        found = Ranking(reader.since(float(since)).rows, "user").whole
        assert found.produced_bytes == sum(size for at, _, _, size in sent if at >= since)


def test_what_is_too_much_is_read_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, events = traffic(NOW)
    for n in range(0, 3000, 500):
        write_journal(tmp_path, events[n : n + 500], n + 1)
    reader = JournalSums(tmp_path)
    for read in range(6):
        # No time for a file: the one that isn't known ends the reading.
        found = reader.since(ALL, -1.0)
        assert (found.read, found.files, found.is_whole) == (read, 6, False)
        produced = Ranking(found.rows).whole.produced_bytes
        assert produced == sum(size for *_, size in sent[3000 - 500 * read :])
        _read_one_more(reader, monkeypatch)
    monkeypatch.setattr(sums, "read_file", lambda _: pytest.fail("a closed file is read once"))
    whole = reader.since(ALL, -1.0)
    assert whole.is_whole
    assert whole.since_ms == sent[0][0]  # the journal begins later than the period
    assert Ranking(whole.rows).whole.produced_bytes == sum(size for *_, size in sent)


def _read_one_more(reader: JournalSums, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read one file more: the clock says that the time is over once it was read."""
    ticks = iter([0.0, 1.0, *[3.0] * 100])
    with monkeypatch.context() as patch:
        patch.setattr(sums.time, "monotonic", lambda: next(ticks))
        reader.since(ALL, 2.0)


def test_sums_of_the_latest_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, events = traffic(NOW)
    for n in range(0, 3000, 500):
        write_journal(tmp_path, events[n : n + 500], n + 1)
    monkeypatch.setattr(sums, "MOST_ROWS", 7)  # two files' of three principals each
    reader = JournalSums(tmp_path)
    whole = Ranking(reader.since(ALL).rows).whole
    latest = sorted(path.name for path in tmp_path.iterdir())[-2:]
    for _ in range(2):
        assert sorted(path.name for path, _ in reader._kept) == latest
        assert Ranking(reader.since(ALL).rows).whole == whole
    for path in tmp_path.iterdir():
        path.unlink()
    reader.since(ALL)
    assert reader._kept == {}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    _, events = traffic(NOW)
    write_journal(tmp_path, events)
    (path,) = tmp_path.iterdir()
    path.rename(path.with_suffix(".parquet"))
    with pytest.raises(OSError, match=f"{path.stem}.parquet: "):
        JournalSums(tmp_path).since(ALL)


def test_an_open_file_is_read_as_it_grows_and_a_lost_one_is_none(tmp_path: Path) -> None:
    _, events = traffic(NOW)
    write_journal(tmp_path, events[:1000])
    (closed,) = tmp_path.iterdir()
    reader = JournalSums(tmp_path)
    closed.rename(closed.with_suffix(".open"))
    before = Ranking(reader.since(ALL).rows).whole
    assert reader._kept == {}
    closed.with_suffix(".open").unlink()
    write_journal(tmp_path, events[:2000])
    assert Ranking(reader.since(ALL).rows).whole.throttled == 2000 > before.throttled
    with pytest.raises(OSError, match="gone"):
        JournalSums(tmp_path / "gone").since(ALL)
    assert ranked(tmp_path, NOW + 1.0) == {}


def test_bytes_that_several_quotas_limit_are_counted_once(tmp_path: Path) -> None:
    at, plain, whole, shares = NOW - 1_000.0, PRODUCER.name, PRODUCER_BPS.name, PRODUCER_SHARES.name
    write_journal(
        tmp_path,
        [
            # Alice has a cluster-wide quota for a part of what she sends, and shares for less.
            Event(origin("norecord", plain, "", "alice"), at, 45.0, float("inf")),
            Event(origin("record", whole, "alice"), at, 40.0, 1e6, 0, 0),
            Event(origin("record", shares, "alice"), at, 30.0, 1e6, 0, 0),
            # Bob's quota was per broker before it was cluster-wide.
            Event(origin("record", plain, "bob"), at, 60.0, 1e6, 0, 0),
            Event(origin("norecord", plain, "", "bob"), at, 5.0, float("inf")),
            Event(origin("record", whole, "bob"), at, 5.0, 1e6, 0, 0),
        ],
    )
    assert {n: row.produced_bytes for n, row in ranked(tmp_path).items()} == {
        "alice": 45.0, "bob": 65.0,
    }  # fmt: skip
    assert {n: row.produced_bytes for n, row in ranked(tmp_path, who="quota-id").items()} == {
        "alice": 40.0, "bob": 60.0, "": 10.0,
    }  # fmt: skip


def test_a_held_fetch_counts_where_its_user_fetched_most(tmp_path: Path) -> None:
    at, fetch = NOW - 1_000.0, CONSUMER.name
    write_journal(
        tmp_path,
        [
            Event(origin("record", fetch, "alice"), at, 9.0, 1e6, 0, 0),
            Event(replace(origin("record", fetch, "alice"), quota_client_id="x"), at, 10.0, 1e6),
            Event(origin("held", fetch, "", "alice"), at, 300.0),
            Event(origin("held", fetch, "", "alice"), at, 20.0),
            Event(origin("held", fetch, "", "carol"), at, 1.0),
        ],
    )
    rows = Ranking(JournalSums(tmp_path).since(ALL).rows).select("waited_ms")
    assert [(*row[:2], row.throttled, row.waited_ms) for row in rows] == [
        ("alice", "x", 2, 320), ("", "", 1, 1), ("alice", "", 0, 0),
    ]  # fmt: skip


def test_another_journal_in_its_place_is_read(tmp_path: Path) -> None:
    """Its files have the names of those that were there, since numbers begin at 1 again."""
    _, events = traffic(NOW)
    reader = JournalSums(tmp_path)
    for last in (1000, 2500):
        for path in tmp_path.iterdir():
            path.unlink()
        write_journal(tmp_path, events[:last])
        assert Ranking(reader.since(ALL).rows).whole.throttled == last


TENANTS = {"payments": ["alice", "carol"], "search": ["bob"]}
ROWS = pa.table(
    {
        "quota_user": ["alice", "", "", "bob"], "quota_client_id": ["", "etl", "", "ETL-2"],
        "principal": ["alice", "carol", "dave", "bob"],
        "produced_bytes": [5.0, 7.0, 1.0, 0.0], "fetched_bytes": [0.0, 0.0, 0.0, 9.0],
        "request_ms": [1.0] * 4, "throttled": [0.0, 2.0, 0.0, 0.0], "waited_ms": [0.0, 8.0, 0, 0],
    }
)  # fmt: skip


def test_rows_are_about_quota_ids_users_or_tenants() -> None:
    def names(who: str, sort: str = "produced_bytes", find: str = "") -> list[tuple[str, str]]:
        return [row[:2] for row in Ranking(ROWS, who, TENANTS).select(sort, find)]

    assert names("quota-id") == [("", "etl"), ("alice", ""), ("", ""), ("bob", "ETL-2")]
    assert names("quota-id", "fetched_bytes")[0] == ("bob", "ETL-2")
    assert names("quota-id", find="etl") == [("", "etl"), ("bob", "ETL-2")]
    assert names("user", "waited_ms") == [("carol", ""), ("alice", ""), ("bob", ""), ("dave", "")]
    assert names("tenant") == [("payments", ""), ("", ""), ("search", "")]
    both = Ranking(ROWS, "tenant", {**TENANTS, "audit": ["alice"]})
    assert {row.name: row.produced_bytes for row in both.select()} == {
        "payments": 12.0, "audit": 5.0, "": 1.0, "search": 0.0,
    }  # fmt: skip
    assert both.whole.produced_bytes == 13.0
    assert Ranking(ROWS, "tenant", TENANTS).select()[0].produced_bytes == 12.0
    own = Ranking(ROWS, "quota-id", principals=["carol", "nobody"])
    assert [row.client_id for row in own.select()] == ["etl"]
    assert own.whole.waited_ms == 8.0
    assert Ranking(ROWS, principals=[]).select() == []
    assert Ranking(ROWS.slice(0, 0), "tenant", TENANTS).whole == UseRow("", "", 0, 0, 0, 0, 0)


def test_figures_are_fields_of_a_row() -> None:
    assert UseRow._fields[2:] == FIGURES
