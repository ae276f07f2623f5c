"""Splits of cluster-wide quotas: messages, fencing, and rounds from what journals show."""

from __future__ import annotations

from math import inf
from typing import Any

import pyarrow as pa
import pytest

from headgate.pipeline.splits.cluster_splits import BPS as BPS_KEYS
from headgate.pipeline.splits.cluster_splits import (
    IDLE_MS,
    Rounds,
    SeenInMessages,
    Sight,
    reduce_events,
)
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_BPS, PRODUCER_SHARES
from headgate.quota.table import QuotaTable
from headgate.usage.format import Event, Origin
from headgate.usage.rows import batch_of
from headgate.usage.splits import Fence, Heartbeat, Split, decode, encode, encode_heartbeat
from headgate.usage.topic import encode as encode_batch

BPS = "producer_byte_rate:bps"
TABLE = QuotaTable.of({QuotaEntity.of(user="alice"): {PRODUCER_BPS: 9000.0, PRODUCER: 1.0}})


def charge(broker: int, at: float, amount: float, wait: int, user: str = "alice") -> Event:
    origin = Origin("record", BPS, broker, "L", user, "", f"{user}:", user, "c", api_key=0)
    return Event(origin, at, amount, 3000.0, wait, wait)


def test_messages_read_back_and_hold_names_raw() -> None:
    split = Split("a l/ic\u00e9", "", BPS, 3, 1234.5, 7, 1_000, 15_000)
    key, value = encode(split)
    assert key == (b'{"broker":3,"entity":{"user":"a l/ic\\u00e9"},"key":"producer_byte_rate:bps"}')
    assert value == b'{"computed_ms":1000,"epoch":7,"split":1234.5,"valid_ms":15000}'
    assert decode(key, value) == split
    assert split.valid_until_ms == 16_000


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"{}"), (b"{}", None), (b"{}", b"{}"), (b"x", b"y"), (b"[]", b"[]"), (b"\xff", b"1")],
)
def test_what_is_no_split_is_passed_over(key: bytes | None, value: bytes | None) -> None:
    assert decode(key, value) is None


def test_an_older_writer_is_shut_out() -> None:
    fence = Fence()
    split = Split("a", "", BPS, 1, 1.0, 4, 0, 0)
    assert fence.passes(split)
    assert fence.passes(split._replace(epoch=6))
    assert not fence.passes(split)
    assert fence.passes(split._replace(epoch=6))


def test_a_heartbeat_says_that_somebody_computes_and_is_fenced_alike() -> None:
    beat = Heartbeat(7, 1_000, 15_000)
    key, value = encode_heartbeat(beat)
    assert key == b'{"heartbeat":"splits"}'
    assert value == b'{"computed_ms":1000,"epoch":7,"valid_ms":15000}'
    assert decode(key, value) == beat
    assert beat.valid_until_ms == 16_000
    fence = Fence()
    assert fence.passes(beat)
    assert not fence.passes(beat._replace(epoch=6))


def test_shares_of_uncontested_capacity_are_written_as_null() -> None:
    free = Split("a", "", "producer_byte_rate:shares", 1, inf, 1, 0, 1)
    assert b'"split":null' in encode(free)[1]
    assert decode(*encode(free)) == free


WHO = {"quota_type": BPS, "quota_user": "alice", "quota_client_id": ""}
NO_WAITS = {"throttled": 0, "waited_ms": 0.0, "waits_from_ms": 0.0, "waits_until_ms": 0.0}


def reduced(events: list[Event]) -> list[dict[str, Any]]:
    return reduce_events(pa.Table.from_batches([batch_of(events, "w", 1)]))


def test_waits_of_several_connections_are_counted_once_where_they_overlap() -> None:
    events = [charge(1, 1000.0, 500.0, 400), charge(1, 1200.0, 100.0, 500)]
    events += [charge(1, 3000.0, 10.0, 0), charge(2, 1000.0, 7.0, 0)]
    other = Origin("record", "producer_byte_rate", 1, "L", "alice", "")
    events.append(Event(other, 1000.0, 999.0, 1.0, 5, 5))
    back = Origin("unrecord", BPS, 2, "L", "alice", "", "alice:", "alice", "c", api_key=1)
    events.append(Event(back, 1001.0, 3.0, 3000.0, None, None))
    rows = reduced(events)
    waits = {"throttled": 2, "waited_ms": 700.0, "waits_from_ms": 1000.0, "waits_until_ms": 1700.0}
    assert rows == [
        WHO | {"broker_id": 1, "slot_ms": 1000, "used": 600.0, "requests": 2} | waits,
        WHO | {"broker_id": 1, "slot_ms": 3000, "used": 10.0, "requests": 1} | NO_WAITS,
        WHO | {"broker_id": 2, "slot_ms": 1000, "used": 4.0, "requests": 1} | NO_WAITS,
    ]
    raw = encode_batch(batch_of(events, "w", 1))
    batch = pa.RecordBatch.from_pydict({"offset": [1, 2], "value": [raw, None]})
    (got,) = SeenInMessages()(iter([batch]))
    assert got.to_pylist() == rows


def test_a_period_is_one_of_the_events_time_however_they_come() -> None:
    events = [charge(1, 10_000.0 + i * 100.0, 50.0, 0) for i in range(60)]
    whole, pieces = Sight(), Sight()
    for row in reduced(events):
        whole.take(row)
    shown = [whole.show(10_000, 12_000), whole.show(12_000, 14_000), whole.show(14_000, 16_000)]
    assert [s.used_per_s for s in shown if s] == [500.0, 500.0, 500.0]
    for row in reduced(events[:25]):
        pieces.take(row)
    # The last half second isn't whole yet: it waits for the rest of its events.
    first = pieces.show(10_000, 12_000)
    for row in reduced(events[25:]):
        pieces.take(row)
    rest = [pieces.show(12_000, 14_000), pieces.show(14_000, 16_000)]
    assert [first, *rest] == shown
    # What comes too late counts in the next period.
    for row in reduced([charge(1, 15_900.0, 80.0, 0)]):
        pieces.take(row)
    late = pieces.show(16_000, 18_000)
    assert late is not None
    assert late.used_per_s == 40.0
    assert pieces.show(18_000, 20_000) is None


def test_waits_go_on_over_periods_and_overlap_between_messages_counts_once() -> None:
    sight = Sight()
    for row in reduced([charge(1, 1000.0, 9.0, 700)]) + reduced([charge(1, 1400.0, 9.0, 2600)]):
        sight.take(row)
    seen = [sight.show(start, start + 1000) for start in (1000, 2000, 3000, 4000, 5000)]
    assert [s.waited for s in seen if s] == [1.0, 1.0, 1.0]
    assert [s.overdrawn for s in seen if s] == [True, True, False]
    assert seen[3:] == [None, None]


def test_what_a_large_request_took_is_repaid_for_longer_than_one_throttle_tells() -> None:
    origin = Origin(
        "record", BPS, 1, "L", "alice", "", "alice:", "alice", "c", api_key=0,
        window_ms=1000, max_throttle_ms=2000,
    )  # fmt: skip
    sight = Sight()
    for row in reduced([Event(origin, 1000.0, 6000.0, 1000.0, 2000, 2000)]):
        sight.take(row)
    seen = [sight.show(start, start + 1000) for start in range(1000, 8000, 1000)]
    assert [s.throttled for s in seen if s] == [True] * 5  # 6,000 less the burst, 1,000 a second
    assert seen[5:] == [None, None]


def test_splits_never_exceed_the_quota_and_follow_the_demand() -> None:
    rounds = Rounds(2000, (1, 2, 3))
    now = 100_000
    busy: list[float] = []
    for _ in range(6):  # all the traffic on broker 1, always waiting; nothing elsewhere
        seen = reduced([charge(1, now + i * 200.0, 600.0, 200) for i in range(10)])
        now += 2000
        splits = rounds.round(seen, TABLE, now, 5)
        assert {(s.user, s.client_id, s.key, s.broker) for s in splits} == {
            ("alice", "", BPS, b) for b in (1, 2, 3)
        }
        assert sum(s.split for s in splits) <= 9000.0 * (1 + 1e-9)
        assert {s.quota for s in splits} == {9000.0}
        assert {(s.epoch, s.computed_ms, s.valid_ms) for s in splits} == {(5, now, 6000)}
        busy.append(next(s.split for s in splits if s.broker == 1))
    assert busy[-1] > 6000.0
    # A quota that goes takes its splits with it.
    assert rounds.round([], QuotaTable(), now + 2000, 5) == []


def test_a_round_without_traffic_renews_the_splits_until_the_quota_id_is_forgotten() -> None:
    rounds = Rounds(2000, (1, 2, 3), 1500)
    now = 100_000
    busy = rounds.round(reduced([charge(1, now - 2000.0, 600.0, 200)]), TABLE, now, 5)
    assert len(busy) == 3
    quiet = rounds.round([], TABLE, now + 2000, 5)
    assert {s.valid_until_ms for s in quiet} == {now + 2000 + 6000}
    last: list[Split] = []
    for later in range(now + 4000, now + IDLE_MS + 2000, 2000):
        last = rounds.round([], TABLE, later, 5)
        assert sum(s.split for s in last) == pytest.approx(9000.0)
    # Long quiet splits are equal parts: what a gateway falls back to when they are gone.
    assert [s.split for s in last] == pytest.approx([3000.0] * 3)
    assert rounds.round([], TABLE, now + IDLE_MS + 2000, 5) == []


def test_contested_capacity_is_divided_by_shares_and_free_capacity_is_not() -> None:
    shares = "producer_byte_rate:shares"
    table = QuotaTable.of(
        {
            QuotaEntity.of(user="alice"): {PRODUCER_SHARES: 3.0},
            QuotaEntity.of(user="bob"): {PRODUCER_SHARES: 1.0},
        }
    )
    rounds = Rounds(2000, (1, 2), 0, {shares: 8000.0})
    now = 100_000
    events = []
    for user in ("alice", "bob"):
        origin = Origin("record", shares, 1, "L", user, "", f"{user}:", user, "c", api_key=0)
        events += [Event(origin, now - 1000.0 + i, 900.0, 1.0, 0, 0) for i in range(10)]
    found = {(s.user, s.broker): s.split for s in rounds.round(reduced(events), table, now, 1)}
    assert found == {
        ("alice", 1): pytest.approx(4500.0),  # all it wants: less than three quarters
        ("bob", 1): pytest.approx(3500.0),
        ("alice", 2): inf,
        ("bob", 2): inf,
    }
    calm = rounds.round([], table, now + 2000, 1)
    assert {s.split for s in calm} == {inf}
    # Without a capacity the stream leaves it to the gateways.
    assert Rounds(2000, (1, 2), 0).round(reduced(events), table, now, 1) == []


def test_only_quotas_written_for_all_brokers_are_split() -> None:
    assert set(BPS_KEYS) == {BPS, "consumer_byte_rate:bps"}
    everyone = QuotaTable.of({QuotaEntity.of(user=DEFAULT): {PRODUCER_BPS: 300.0}})
    seen = reduced([charge(1, 0.0, 1.0, 0, "zoe")])
    splits = Rounds(1000, (1, 2)).round(seen, everyone, 10_000, 1)
    assert {s.user for s in splits} == {"zoe"}
    assert sum(s.split for s in splits) == pytest.approx(300.0)
