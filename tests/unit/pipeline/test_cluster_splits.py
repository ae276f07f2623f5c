"""Splits of cluster-wide quotas: messages, fencing, and rounds from what journals show."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headgate.pipeline.cluster_splits import KEYS, Rounds, SeenInMessages, reduce_events
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_BPS
from headgate.quota.table import QuotaTable
from headgate.usage.format import Event, Origin, batch_of
from headgate.usage.splits import Fence, Split, decode, encode
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


def test_waits_of_several_connections_are_counted_once_where_they_overlap() -> None:
    events = [charge(1, 1000.0, 500.0, 400), charge(1, 1200.0, 100.0, 500)]
    events += [charge(1, 3000.0, 10.0, 0), charge(2, 1000.0, 7.0, 0)]
    other = Origin("record", "producer_byte_rate", 1, "L", "alice", "")
    events.append(Event(other, 1000.0, 999.0, 1.0, 5, 5))
    rows = reduce_events(pa.Table.from_batches([batch_of(events, "w", 1)]))
    assert rows == [
        {"quota_type": BPS, "quota_user": "alice", "quota_client_id": "", "broker_id": 1}
        | {"used": 610.0, "requests": 3, "throttled": 2, "waited_ms": 700.0}
        | {"waits_until_ms": 1700.0},
        {"quota_type": BPS, "quota_user": "alice", "quota_client_id": "", "broker_id": 2}
        | {"used": 7.0, "requests": 1, "throttled": 0, "waited_ms": 0.0, "waits_until_ms": 0.0},
    ]
    raw = encode_batch(batch_of(events, "w", 1))
    batch = pa.RecordBatch.from_pydict({"offset": [1, 2], "value": [raw, None]})
    (got,) = SeenInMessages()(iter([batch]))
    assert got.to_pylist() == rows


def test_splits_never_exceed_the_quota_and_follow_the_demand() -> None:
    rounds = Rounds(2000, (1, 2, 3))
    now = 100_000
    busy: list[float] = []
    for _ in range(6):  # all the traffic on broker 1, always waiting; nothing elsewhere
        events = [charge(1, now + i * 200.0, 600.0, 200) for i in range(10)]
        seen = reduce_events(pa.Table.from_batches([batch_of(events, "w", 1)]))
        splits = rounds.round(seen, TABLE, now, now + 2000, 5)
        now += 2000
        assert {(s.user, s.client_id, s.key, s.broker) for s in splits} == {
            ("alice", "", BPS, b) for b in (1, 2, 3)
        }
        assert sum(s.split for s in splits) <= 9000.0 * (1 + 1e-9)
        assert {(s.epoch, s.computed_ms, s.valid_ms) for s in splits} == {(5, now, 6000)}
        busy.append(next(s.split for s in splits if s.broker == 1))
    assert busy[-1] > 6000.0
    # A quota that goes takes its splits with it.
    assert rounds.round([], QuotaTable(), now, now + 2000, 5) == []


def test_only_quotas_written_for_all_brokers_are_split() -> None:
    assert set(KEYS) == {BPS, "consumer_byte_rate:bps"}
    everyone = QuotaTable.of({QuotaEntity.of(user=DEFAULT): {PRODUCER_BPS: 300.0}})
    seen = reduce_events(pa.Table.from_batches([batch_of([charge(1, 0.0, 1.0, 0, "zoe")], "w", 1)]))
    splits = Rounds(1000, (1, 2)).round(seen, everyone, 0, 1000, 1)
    assert {s.user for s in splits} == {"zoe"}
    assert sum(s.split for s in splits) == pytest.approx(300.0)
