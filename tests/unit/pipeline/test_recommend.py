"""Proposals from what was observed; no Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.pipeline.answers.advice import (
    MAX_REQUEST_BYTES,
    Advice,
    Observed,
    Wants,
    figure,
    floor,
    round_up,
)
from headgate.pipeline.answers.proposals import propose
from headgate.pipeline.answers.recommend import scaffold
from headgate.pipeline.answers.trial import Tried, plans_of
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.schema import RECOMMEND
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, QuotaType
from headgate.quota.table import QuotaTable
from headgate.throttle.java import UNLIMITED
from headgate.throttle.manager import ClientQuotaManager

P = "producer_byte_rate"
BARE = Advice(max_request_bytes=0)


def seen(
    user: str, client: str, percentile: float, current: float | None = None, growth: float = 0.0
) -> Observed:
    return Observed(P, user, client, percentile, percentile * 2, growth, current)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.0, 0.0),
        (0.311, 0.32),
        (12.0, 12.0),
        (12.1, 13.0),
        (99.1, 100.0),
        (1300.0, 1300.0),
        (1_049_000.0, 1_100_000.0),
    ],
)
def test_figures_are_rounded_up_to_two_digits(value: float, rounded: float) -> None:
    assert round_up(value) == rounded


def test_growth_raises_a_figure_up_to_tenfold_and_never_lowers_it() -> None:
    advice = Advice(headroom=1.0, horizon_days=10, max_request_bytes=0)
    assert figure(seen("a", "", 1000.0, growth=0.1), advice) == 2600.0
    assert figure(seen("a", "", 1000.0, growth=-0.1), advice) == 1000.0
    assert figure(seen("a", "", 1000.0, growth=9.0), advice) == 10_000.0


def test_a_limit_near_the_figure_is_kept() -> None:
    (keep,) = propose([seen("a", "", 1000.0, 1250.0)], QuotaTable(), {}, [], BARE)
    assert (keep.action, keep.recommended) == ("keep", 1250.0)
    assert keep.reason.endswith("near enough")


def test_alike_entities_get_a_default() -> None:
    found = propose([seen(u, "", 1000.0) for u in "abcd"], QuotaTable(), {}, [], BARE)
    default = found[-1]
    assert (default.action, default.entity) == ("default", QuotaEntity.of(user=DEFAULT))
    assert default.recommended == 1200.0
    assert default.reason == (
        "4 of 4 need between 1,200 and 1,200: a default of 1,200 serves them all"
    )
    table = QuotaTable.of({QuotaEntity.of(user=DEFAULT): {PRODUCER: 5.0}})
    again = propose([seen(u, "", 1000.0) for u in "abcd"], table, {}, [], BARE)
    assert {p.action for p in again} == {"set"}


def test_idle_pair_quotas_of_a_user_are_merged() -> None:
    table = QuotaTable.of(
        {QuotaEntity.of(user="a", client_id=c): {PRODUCER: 90_000.0} for c in "xy"}
    )
    found = propose(
        [seen("a", "x", 1000.0, 90_000.0), seen("a", "y", 500.0, 90_000.0)], table, {}, [], BARE
    )
    merge = found[-1]
    assert (merge.action, merge.entity) == ("merge", QuotaEntity.of(user="a"))
    assert merge.recommended == 1800.0


A, AX, AY = (QuotaEntity.of(user="a", client_id=c) for c in (None, "x", "y"))


def test_single_values_are_tried_together_and_other_actions_by_themselves() -> None:
    table = QuotaTable.of({AX: {PRODUCER: 90_000.0}, AY: {PRODUCER: 90_000.0}})
    current = Quotas.of(table, "current")
    dead = [(P, QuotaEntity.of(user="gone"), 3.0)]
    use = [seen("a", "x", 1000.0, 90_000.0), seen("a", "y", 500.0, 90_000.0)]
    found = propose(use, table, {}, dead, BARE)
    assert [p.action for p in found] == ["set", "set", "merge", "remove"]
    recommended, merge = plans_of(found, current)
    assert (recommended.name, merge.name) == ("recommended", "merge")
    assert recommended.tables[0].entities == {AX: {PRODUCER: 1200.0}, AY: {PRODUCER: 600.0}}
    assert merge.tables[0].entities == {A: {PRODUCER: 1800.0}}
    throttled = {
        ("current", P, "a", "x"): (5, 700),
        ("current", P, "a", "y"): (2, 30),
        ("recommended", P, "a", "x"): (1, 20),
        ("merge", P, "a", ""): (3, 90),
    }
    sharers = {(P, "a", c): [("a", c, 100.0)] for c in "xy"}
    tried = Tried([current, recommended, merge], throttled, sharers)
    rows = [tuple(row.values()) for row in tried.rows(found, BARE)]
    assert rows[0][:9] == (P, "{user=a, client-id=x}", "a", "x", False, False, "set", 9e4, 1200.0)
    assert [row[13:17] for row in rows] == [
        (5, 700, 1, 20),
        (2, 30, 0, 0),
        (7, 730, 3, 90),
        (0, 0, 0, 0),
    ]


def test_what_cant_be_replayed_is_said_to_be_unknown() -> None:
    use = [Observed("request_percentage", "a", "", 0.31, 0.5, 0.0, None)]
    found = propose(
        use, QuotaTable(), {}, [], Advice(types=("request_percentage",), max_request_bytes=0)
    )
    assert found[0].recommended == 0.38
    assert found[0].reason == (
        "95% of the time at most 0.31 % of a thread over 10 s (peak 0.5), times 1.2, rounded up: "
        "0.38; no limit now"
    )
    current = Quotas.of(QuotaTable(), "current")
    tried = Tried([current, *plans_of(found, current)], {("current", P, "a", ""): (1, 1)}, {})
    assert tuple(tried.rows(found, BARE)[0].values())[13:17] == (None, None, None, None)


@pytest.mark.parametrize(("share", "unseen"), [(0.5, False), (0.98, True)])
def test_what_a_client_held_most_of_the_time_would_have_sent_isnt_seen(
    share: float, unseen: bool
) -> None:
    current = Quotas.of(QuotaTable.of({A: {PRODUCER: 1000.0}}), "current")
    for percentile, action in ((1500.0, "set"), (1000.0, "keep")):
        use = [replace(seen("a", "", percentile, 1000.0), held=share)]
        found = propose(use, current.tables[0], {}, [], BARE)
        sums = {("current", P, "a", ""): (9, 800), ("recommended", P, "a", ""): (0, 0)}
        tried = Tried([current, *plans_of(found, current)], sums, {})
        (row,) = (tuple(row.values()) for row in tried.rows(found, BARE))
        told = dict(zip(RECOMMEND.names, row, strict=True))
        assert (told["action"], told["held_share"]) == (action, share)
        assert ("told to wait 98% of the time" in told["reason"]) == unseen
        then = None if unseen and action == "set" else 0
        assert told["throttled_requests_recommended"] == then
        assert told["throttle_time_ms_recommended"] == then
        assert told["throttle_time_ms_current"] == 800


def test_what_a_throttled_client_wants_counts_in_place_of_what_it_was_let() -> None:
    held = replace(seen("a", "", 1000.0, 500.0), held=0.9)
    known = replace(held, wants=Wants("rate-bound", 4000.0, 3900.0, 4100.0, ""))
    (told,) = propose([known], QuotaTable(), {}, [], BARE)
    assert told.recommended == 4800.0
    assert "rate-bound: it wants 4,000 B/s, which counts in place of that, times 1.2" in told.reason
    assert told.hides == "; told to wait 90% of the time"
    open_ended = replace(held, wants=Wants("saturated", None, 1000.0, None, "always muted"))
    (told,) = propose([open_ended], QuotaTable(), {}, [], BARE)
    assert told.recommended == 1200.0
    assert "saturated: it wants at least 1,000 B/s, not known better because" in told.reason
    tried = Tried([Quotas.of(QuotaTable(), name) for name in ("current", "recommended")], {}, {})
    row = tried.rows([told], BARE)[0]
    assert (row["demand"], row["wanted_per_s"], row["wanted_least_per_s"]) == (
        "saturated",
        None,
        1000.0,
    )


def test_one_large_request_isnt_throttled_by_what_an_idle_client_is_given() -> None:
    (idle,) = propose([seen("a", "", 3.0)], QuotaTable(), {}, [], Advice())
    assert (idle.action, idle.recommended) == ("set", 110_000.0)
    assert idle.reason == (
        "95% of the time at most 3 B/s over 10 s (peak 6), times 1.2, rounded up: 3.6, raised to "
        "the floor of 110,000, at which one request of 1,048,576 bytes in 10 s isn't throttled; no "
        "limit now"
    )
    # By Kafka's own arithmetic: alone in the window it isn't throttled; by the bare need, for days.
    for limit, waits in ((110_000.0, False), (4.0, True)):
        sensor = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE)
        sensor.update_quota(A, limit, 0)
        told = sensor.record("a", "c", float(MAX_REQUEST_BYTES), 100_000).throttle_time_ms
        assert (told > 0) is waits
    assert told > 3 * 86_400_000 * 0.9


@pytest.mark.parametrize(
    ("current", "action", "value"),
    [
        (5.0, "set", 110_000.0),  # a large request would wait for days
        (15_000.0, "set", 110_000.0),  # for more than a minute
        (16_000.0, "keep", 16_000.0),
        (60_000.0, "keep", 60_000.0),
        (100_000.0, "keep", 100_000.0),  # near enough
        (500_000.0, "set", 110_000.0),
    ],
)
def test_the_floor_raises_no_limit_that_is_enough(
    current: float, action: str, value: float
) -> None:
    (p,) = propose([seen("a", "", 3.0, current)], QuotaTable(), {}, [], Advice())
    assert (p.action, p.recommended) == (action, value)
    if (current, action) == (60_000.0, "keep"):
        assert p.reason.endswith(
            "3.6, below the floor of 110,000, at which one request of 1,048,576 bytes in 10 s "
            "isn't throttled; 60,000 now from a less specific entity, which is enough and spares "
            "such a request"
        )


def test_other_types_have_floors_of_their_own_and_shorter_windows_a_higher_one() -> None:
    assert floor("request_percentage", Advice()) == 1.0
    assert floor("controller_mutation_rate", Advice()) == 1.0
    assert floor("consumer_byte_rate", Advice(window_s=3)) == 350_000.0
    assert floor("request_percentage", BARE) == floor(P, BARE) == 0.0


def test_splits_merges_and_defaults_keep_to_the_floor() -> None:
    table = QuotaTable.of({AX: {PRODUCER: 90_000.0}, AY: {PRODUCER: 90_000.0}})
    use = [seen("a", "x", 10.0, 90_000.0), seen("a", "y", 5.0, 90_000.0)]
    merge = propose(use, table, {}, [], Advice())[-1]
    assert (merge.action, merge.recommended) == ("merge", 110_000.0)
    assert "one quota of 110,000, the floor, serves them all" in merge.reason
    default = propose([seen(u, "", 3.0) for u in "bcd"], QuotaTable(), {}, [], Advice())[-1]
    assert (default.action, default.recommended) == ("default", 110_000.0)
    assert default.reason == (
        "3 of 3 need between 3.6 and 3.6, at most the floor of 110,000, at which one request of "
        "1,048,576 bytes in 10 s isn't throttled: a default of 110,000 serves them all"
    )


@pytest.mark.parametrize(
    ("span", "active", "enough"),
    [(59, 59, False), (60, 60, True), (86_400, 9, False), (86_400, 10, True), (None, None, True)],
)
def test_who_was_hardly_seen_is_given_no_figure(
    span: int | None, active: int | None, enough: bool
) -> None:
    short = replace(seen("a", "", 1000.0, 700.0), span_s=span, active_s=active)
    others = [seen(u, "", 1000.0) for u in "bc"]
    found = propose([short, *others], QuotaTable(), {}, [], Advice())
    mine = found[0]
    assert mine.action == ("set" if enough else "wait")
    assert (mine.recommended is None) is not enough
    # It isn't counted among those who could share a default either.
    assert any(p.action == "default" for p in found) is enough
    if not enough:
        assert mine.reason == (
            f"too little history: {active} seconds with use, in {span:,} s from first to last; a "
            "figure needs 10 in 60 s; 700 now from a less specific entity"
        )
        current = Quotas.of(QuotaTable.of({A: {PRODUCER: 700.0}}), "current")
        (plan,) = plans_of([mine], current)
        assert plan.tables[0].entities == current.tables[0].entities


def test_a_default_takes_the_place_of_quotas_that_say_about_the_same() -> None:
    table = QuotaTable.of({QuotaEntity.of(user="a"): {PRODUCER: 1.0}})
    found = propose([seen(u, "", 1000.0) for u in "abc"], table, {}, [], BARE)
    default = found[-1]
    assert default.instead == (A,)
    assert default.reason.endswith("serves them all, in place of 1 quotas of their own")
    (_, plan) = plans_of(found, Quotas.of(table))
    assert plan.tables[0].entities == {QuotaEntity.of(user=DEFAULT): {PRODUCER: 1200.0}}


def test_without_any_quota_use_is_seen_by_user() -> None:
    table = QuotaTable.of({QuotaEntity.of(client_id="x"): {CONSUMER: 5.0}})
    made = scaffold(Quotas.of(table), (P, "consumer_byte_rate")).tables[0]
    assert made.for_key(PRODUCER) == {QuotaEntity.of(user=DEFAULT): UNLIMITED}
    assert made.for_key(CONSUMER) == {QuotaEntity.of(client_id="x"): 5.0}
