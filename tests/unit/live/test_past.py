"""What journals tell about a past moment: rates, waits, who shared, which quotas were set."""

from __future__ import annotations

from typing import Any

from headgate.live.past import SEEN_MS, Past
from headgate.live.picture import Picture, QuotaUse
from headgate.live.why import why
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER_BPS
from headgate.quota.table import QuotaTable
from headgate.usage.format import Event, Origin
from headgate.usage.rows import batch_of

T = 1_700_000_000_000.0


def origin(kind: str, key: str, client: str = "etl", principal: str = "alice", **more: Any) -> Any:
    return Origin(
        kind, key, 1, "SASL", "", "etl", ":etl", principal, client, "10.0.0.1",
        more.pop("connection", f"{principal}-1"), num_samples=11, window_ms=1_000, rule="sampled",
        **more,
    )  # fmt: skip


def quota(t_ms: float, value: float, *, kind: str = "quota") -> Event:
    if kind == "start":
        return Event(Origin("start", broker_id=1), t_ms)
    return Event(Origin("quota", "consumer_byte_rate", 1, entity="clients/etl", value=value), t_ms)


def seen(at_ms: float, *events: Event, worker: str = "w1", table: QuotaTable | None = None) -> Any:
    past = Past(int(at_ms), "alice", "etl")
    past.take(batch_of(events, worker, 1))
    return past.picture(table)


def use(picture: Picture) -> QuotaUse:
    [broker] = picture.brokers
    [found] = broker.quotas
    return found


CONSUMED = origin("record", "consumer_byte_rate")
OTHERS = origin("record", "consumer_byte_rate", principal="bob")


def test_charges_of_all_who_share_are_summed_and_those_taken_back_are_not() -> None:
    found = use(
        seen(
            T + 1_000,
            Event(CONSUMED, T, 60_000.0, 5_000.0, 0, 0),
            Event(OTHERS, T + 500, 30_000.0, 5_000.0, 4_000, 4_000, 0),
            Event(origin("unrecord", "consumer_byte_rate"), T + 600, 10_000.0, 5_000.0),
        )
    )
    assert (found.client_id, found.quota, found.rate) == ("etl", 5_000.0, 8_000.0)
    assert [(c.principal, c.connections, c.held) for c in found.clients] == [
        ("bob", 1, 1),
        ("alice", 1, 0),
    ]
    assert (found.held_since_ms, found.throttled, found.throttled_ms) == (T + 500, 1, 4_000)


def test_a_throttle_begins_with_the_charge_and_counts_as_it_is_told() -> None:
    events = (
        Event(CONSUMED, T, 60_000.0, 5_000.0, 4_000, 4_000),
        Event(origin("told", "consumer_byte_rate"), T + 300, None, 5_000.0, 3_700, 3_700, 0),
    )
    for count, (times, ms) in enumerate([(0, 0), (1, 3_700)], 1):
        found = use(seen(T + 1_000, *events[:count]))
        assert (found.held, found.held_since_ms, found.held_until_ms) == (1, T, T + 4_000)
        assert (found.throttled, found.throttled_ms) == (times, ms)


def test_a_fetch_that_waited_is_held_until_its_wait_was_written_down() -> None:
    events = (
        Event(CONSUMED, T, 60_000.0, 5_000.0, 0, 0),
        Event(origin("held", "consumer_byte_rate"), T + 9_000, 7_000.0),
    )
    for at_ms, held in ((T + 1_999, 0), (T + 2_000, 1), (T + 8_999, 1), (T + 9_000, 0)):
        found = use(seen(at_ms, *events))
        assert (found.held, found.held_until_ms) == (held, (T + 9_000) * held)
    quiet = seen(T + 9_001 + SEEN_MS, *events)
    assert use(quiet).clients == ()


def test_a_throttle_that_another_quota_decided_is_not_this_ones() -> None:
    found = use(seen(T + 10, Event(CONSUMED, T, 60_000.0, 5_000.0, 100, 4_000)))
    assert (found.held, found.throttled) == (0, 0)


def test_the_quotas_are_those_of_the_gateway_that_began_last() -> None:
    past = Past(int(T), "alice", "etl")
    old = (quota(T - 900, 0, kind="start"), quota(T - 899, 1.0))
    new = (quota(T - 500, 0, kind="start"), quota(T - 499, 2.0), quota(T + 1, 3.0))
    past.take(batch_of(new, "a", 1))
    past.take(batch_of(old, "b", 1))
    found = past.picture()
    assert [(e.entity, e.value) for e in found.effective[0].entries] == [("clients/etl", 2.0)]
    assert found.note == ""
    without = seen(T, quota(T - 1, 4.0))
    assert without.effective[0].entries[0].value == 4.0
    assert "--quotas" in without.note
    assert why(without, "alice", "etl").sentence == (
        "alice/etl isn't held: clients/etl allows 4 B/s, it fetches nothing, and 4 B/s are left."
    )
    given = seen(T, quota(T - 1, 4.0), table=QuotaTable())
    assert given.effective == () and given.note == ""


def test_a_part_of_a_cluster_wide_quota_is_told_as_a_part() -> None:
    table = QuotaTable.of({QuotaEntity.of(client_id="etl"): {PRODUCER_BPS: 9e6}})
    event = Event(origin("record", "producer_byte_rate:bps"), T, 1_000.0, 3e6, 0, 0)
    picture = seen(T, event, table=table)
    assert (use(picture).quota, use(picture).split, use(picture).limit) == (9e6, 3e6, 3e6)
    assert (
        "clients/etl allows 9 MB/s in all, 3 MB/s of it here,"
        in why(picture, "alice", "etl").sentence
    )


def test_a_wait_is_told_by_its_own_moment_and_by_changes_since() -> None:
    events = (
        quota(T - 900, 0, kind="start"),
        quota(T - 899, 5_000.0),
        Event(CONSUMED, T, 90_000.0, 5_000.0, 8_000, 8_000),
    )
    when = "when the wait was told, 6 s before"
    assert why(seen(T + 6_000, *events), "alice", "etl").sentence == (
        f"alice/etl waits 2 s more, because clients/etl allows 5 kB/s and it fetched 9 kB/s {when}."
    )
    raised = why(seen(T + 6_000, *events, quota(T + 1_000, 20_000.0)), "alice", "etl")
    assert (
        "because clients/etl allowed 5 kB/s (20 kB/s now, raised 2023-11-14 22" in raised.sentence
    )
    gone = why(seen(T + 6_000, *events, quota(T + 1_000, float("nan"))), "alice", "etl")
    assert "under a quota that is gone (clients/etl: 5 kB/s, removed 2023-11-14 22" in gone.sentence
    later = why(seen(T + 900, *events, quota(T + 1_000, 20_000.0)), "alice", "etl")
    assert "allows 5 kB/s and it fetched" in later.sentence  # at that moment it wasn't changed yet
    # A journal that begins too late holds less than the wait was for.
    late = Event(CONSUMED, T, 10.0, 5_000.0, 2_200, 2_200)
    assert "allows 5 kB/s and it fetched 6 kB/s" in why(seen(T + 1, late), "alice", "etl").sentence
