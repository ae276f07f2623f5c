"""Proposals from what was observed; no Spark."""

from __future__ import annotations

import pytest

from headgate.pipeline.advice import Advice, Observed, figure, round_up
from headgate.pipeline.proposals import propose
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.recommend import Tried, plans_of, rows_of, scaffold
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from headgate.quota.table import QuotaTable
from headgate.throttle.java import UNLIMITED

P = "producer_byte_rate"


def seen(
    user: str, client: str, percentile: float, current: float | None = None, growth: float = 0.0
) -> Observed:
    return Observed(P, user, client, percentile, percentile * 2, growth, 9, current)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.0, 1.0),
        (0.3, 1.0),
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
    advice = Advice(headroom=1.0, horizon_days=10)
    assert figure(seen("a", "", 1000.0, growth=0.1), advice) == 2600.0
    assert figure(seen("a", "", 1000.0, growth=-0.1), advice) == 1000.0
    assert figure(seen("a", "", 1000.0, growth=9.0), advice) == 10_000.0


def test_a_limit_near_the_figure_is_kept() -> None:
    (keep,) = propose([seen("a", "", 1000.0, 1250.0)], QuotaTable(), {}, [], Advice())
    assert (keep.action, keep.recommended) == ("keep", 1250.0)
    assert keep.reason.endswith("near enough")


def test_alike_entities_get_a_default() -> None:
    found = propose([seen(u, "", 1000.0) for u in "abcd"], QuotaTable(), {}, [], Advice())
    default = found[-1]
    assert (default.action, default.entity) == ("default", QuotaEntity.of(user=DEFAULT))
    assert default.recommended == 1200.0
    assert default.reason == (
        "4 of 4 need between 1,200 and 1,200: a default of 1,200 serves them all"
    )
    table = QuotaTable.of({QuotaEntity.of(user=DEFAULT): {PRODUCER: 5.0}})
    again = propose([seen(u, "", 1000.0) for u in "abcd"], table, {}, [], Advice())
    assert {p.action for p in again} == {"set"}


def test_idle_pair_quotas_of_a_user_are_merged() -> None:
    table = QuotaTable.of(
        {QuotaEntity.of(user="a", client_id=c): {PRODUCER: 90_000.0} for c in "xy"}
    )
    found = propose(
        [seen("a", "x", 1000.0, 90_000.0), seen("a", "y", 500.0, 90_000.0)], table, {}, [], Advice()
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
    found = propose(use, table, {}, dead, Advice())
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
    rows = rows_of(found, tried, Advice())
    assert rows[0][:9] == (P, "{user=a, client-id=x}", "a", "x", False, False, "set", 9e4, 1200.0)
    assert [row[13:17] for row in rows] == [
        (5, 700, 1, 20),
        (2, 30, 0, 0),
        (7, 730, 3, 90),
        (0, 0, 0, 0),
    ]


def test_what_cant_be_replayed_is_said_to_be_unknown() -> None:
    use = [Observed("request_percentage", "a", "", 0.31, 0.5, 0.0, 1, None)]
    found = propose(use, QuotaTable(), {}, [], Advice(types=("request_percentage",)))
    assert found[0].recommended == 0.38
    assert found[0].reason == (
        "95% of the time at most 0.31 % of a thread over 10 s (peak 0.5), times 1.2, rounded up: "
        "0.38; no limit now"
    )
    current = Quotas.of(QuotaTable(), "current")
    tried = Tried([current, *plans_of(found, current)], {("current", P, "a", ""): (1, 1)}, {})
    assert rows_of(found, tried, Advice())[0][13:17] == (None, None, None, None)


def test_a_default_takes_the_place_of_quotas_that_say_about_the_same() -> None:
    table = QuotaTable.of({QuotaEntity.of(user="a"): {PRODUCER: 1.0}})
    found = propose([seen(u, "", 1000.0) for u in "abc"], table, {}, [], Advice())
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
