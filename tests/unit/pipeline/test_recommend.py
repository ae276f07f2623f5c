"""Proposals from what was observed; no Spark."""

from __future__ import annotations

import pytest

from headgate.pipeline.advice import Advice, Observed, figure, round_up
from headgate.pipeline.proposals import propose
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.recommend import plan_of, rows_of
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable

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


def test_the_plan_holds_single_values_and_rows_say_what_is_replayed() -> None:
    current = Quotas.of(QuotaTable.of({QuotaEntity.of(user="a"): {PRODUCER: 1.0}}))
    dead = [(P, QuotaEntity.of(user="gone"), 3.0)]
    found = propose([seen("a", "", 1000.0, 1.0)], current.tables[0], {}, dead, Advice())
    plan = plan_of(found, current)
    assert plan.tables[0].get(QuotaEntity.of(user="a"), PRODUCER) == 1200.0
    sums = {("current", P, "a", ""): (5, 700), ("recommended", P, "a", ""): (1, 20)}
    rows = rows_of(found, sums, Advice())
    assert rows[0][:9] == (P, "{user=a}", "a", None, False, False, "set", 1.0, 1200.0)
    assert rows[0][13:17] == (5, 700, 1, 20)
    assert rows[1][6] == "remove"
    assert rows[1][13:17] == (0, 0, None, None)
