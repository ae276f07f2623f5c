"""What is inferred about simulated clients, and what is forecast, against what then happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import pytest

from headgate.demand.forecast import Forecast, Span, forecast, infer
from headgate.demand.models import BRIEF, FIXED_WORK, RATE_BOUND, SATURATED
from headgate.demand.rhythm import Answer, Charge, with_answers
from kit.throttled_clients import (
    START_MS,
    Application,
    Eager,
    Player,
    backlog,
    bursts,
    run,
    steady,
)

A = 100_000.0
SECONDS = 30.0


class Case(NamedTuple):
    """Clients; what they are; whether they fetch; whether they end."""

    make: Callable[[], Sequence[Player]]
    kind: str
    gated: bool = False
    ends: bool = False


def paced(times: float) -> Case:
    """An application that makes several times the quota, or a part of it."""
    return Case(lambda: [Application(steady(times * A, SECONDS))], RATE_BOUND)


CASES = {
    "eager": Case(lambda: [Eager(16_384, 0.2)], SATURATED),
    "one at a time": Case(lambda: [Eager(10_000, 20)], SATURATED),
    "half": paced(0.5),
    "a little more": paced(1.2),
    "twice": paced(2),
    "four times": paced(4),
    "bursts": Case(lambda: [Application(bursts(400_000, 5, SECONDS))], RATE_BOUND),
    "job": Case(lambda: [Eager(16_384, 0.3, work=20 * A)], FIXED_WORK, ends=True),
    "catching up": Case(
        lambda: [Application(backlog(int(16 * A), 0.2 * A, SECONDS), batch=50_000, linger_ms=0)],
        FIXED_WORK,
        gated=True,
    ),
}
FEW = ("one at a time", "twice", "job")


def found(name: str, bound: float | None) -> tuple[Forecast, float, float, float]:
    """Forecast a case from a run under A; return that, and rate, throttle and finish of a run."""
    case = CASES[name]
    seen = run(case.make, A, SECONDS, gated=case.gated, seed=1)
    demand = infer(seen, START_MS + SECONDS * 1000, gated=case.gated)
    said = forecast(demand, bound, gated=case.gated)
    long = SECONDS * (8 if case.ends else 1)
    then = run(case.make, bound, long, gated=case.gated, seed=2)
    last = then[-1].t_ms - then[0].t_ms
    whole = sum(c.amount for c in then) / (last if case.ends else SECONDS * 1000) * 1000
    return said, whole, sum(c.throttle_ms for c in then), last


def holds(span: Span, value: float) -> bool:
    return span.least <= value <= span.most


def check(name: str, bound: float | None) -> float | None:
    """Check the intervals, and return the error of the rate's figure; None: there is none."""
    said, rate, throttle, last = found(name, bound)
    assert holds(said.rate, rate), (name, bound, said, rate)
    assert holds(said.throttle_ms, throttle), (name, bound, said, throttle)
    if CASES[name].ends:
        assert said.finish_ms is not None
        assert holds(said.finish_ms, last)
    vague = None in (said.rate.figure, said.throttle_ms.figure)
    assert not vague or said.reason
    return None if said.rate.figure is None else abs(said.rate.figure - rate) / rate


@pytest.mark.parametrize("bound", [A / 2, 2 * A, None])
@pytest.mark.parametrize("name", FEW)
def test_a_forecast_from_one_quota_holds_under_another(name: str, bound: float | None) -> None:
    error = check(name, bound)
    assert error is None or error <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_all_kinds_of_clients_under_all_quotas(name: str) -> None:
    errors = [check(name, bound) for bound in (A / 4, A / 2, A, 2 * A, 3 * A, 8 * A, None)]
    told = [error for error in errors if error is not None]
    assert len(told) >= 2
    assert median(told) <= 0.03
    assert max(told) <= 0.1


@pytest.mark.parametrize("name", CASES)
def test_what_a_client_is_shows_in_its_rhythm(name: str) -> None:
    case = CASES[name]
    seen = run(case.make, A, SECONDS, gated=case.gated)
    assert infer(seen, START_MS + SECONDS * 1000, gated=case.gated).kind == case.kind


def test_a_saturated_client_gets_an_interval_and_a_reason_above_its_quota() -> None:
    seen = run(CASES["eager"].make, A, SECONDS)
    demand = infer(seen, START_MS + SECONDS * 1000, gated=False)
    assert demand.wanted.figure is None
    assert demand.reason == BRIEF
    for bound in (2 * A, 8 * A, None):
        said = forecast(demand, bound, gated=False)
        assert said.rate.figure is None
        assert said.reason == BRIEF
        assert said.rate.most > 1.5 * said.rate.least
    # Below its quota it will be throttled whatever it wants.
    less = forecast(demand, A / 2, gated=False)
    assert less.rate.figure is not None
    assert less.reason == ""


def test_a_journal_that_begins_amid_throttling_tells_no_pace() -> None:
    whole = run(CASES["twice"].make, A, SECONDS)
    late = [charge for charge in whole if charge.t_ms > START_MS + 15_000]
    demand = infer(late, START_MS + SECONDS * 1000, gated=False)
    said = forecast(demand, None, gated=False)
    assert demand.reason
    assert said.rate.figure is None
    assert holds(said.rate, 2 * A)


def test_a_client_that_is_throttled_once_has_no_figure() -> None:
    charges = [Charge(START_MS, 4 * A, 0, 0, "c"), Charge(START_MS + 5, 8 * A, 2_000, 2_000, "c")]
    demand = infer(charges, START_MS + 3_000, gated=False)
    assert demand.kind == "unknown"
    assert demand.reason == "only 2 requests were seen"
    assert demand.wanted.figure is None


def test_withheld_fetches_leave_everything_open() -> None:
    charges = [Charge(START_MS + n * 100, 90, 100, 100, "c") for n in range(50)]
    demand = infer(charges, START_MS + 6_000, gated=True, withheld=True)
    said = forecast(demand, A, gated=True)
    assert (demand.kind, said.rate.figure, said.rate.least) == ("unknown", None, 0.0)
    assert "isn't recorded" in said.reason


@pytest.mark.parametrize("seconds", [14, 16, 20])
def test_a_slow_start_is_no_pace_of_a_client_that_was_seen_to_catch_up(seconds: int) -> None:
    """On a busy machine a reader's first fetches were steady, and later ones quicker."""

    def reader(slow_start: tuple[float, float]) -> Callable[[], Sequence[Player]]:
        came = backlog(int(12 * A), 0.2 * A, seconds)
        return lambda: [Application(came, batch=50_000, linger_ms=0, slow_start=slow_start)]

    seen = run(reader((3_000, 120)), A, seconds, gated=True)
    demand = infer(seen, START_MS + seconds * 1000, gated=True)
    assert demand.kind == FIXED_WORK
    for bound in (A / 2, 2 * A, 8 * A, None):
        then = run(reader((0, 0)), bound, seconds, gated=True, seed=2)
        said = forecast(demand, bound, gated=True)
        assert holds(said.rate, sum(c.amount for c in then) / seconds)
        assert holds(said.throttle_ms, sum(c.throttle_ms for c in then))
        if bound is None or bound > A:
            assert said.rate.most < 1.5 * A


def test_clients_of_one_quota_share_its_sensor() -> None:
    def make() -> list[Player]:
        return [Application(steady(0.3 * A, SECONDS)) for _ in range(5)]

    seen = run(make, A, SECONDS)
    demand = infer(seen, START_MS + SECONDS * 1000, gated=False)
    assert len(demand.clients) == 5
    for bound in (A / 2, 8 * A):
        then = run(make, bound, SECONDS, seed=2)
        rate = sum(c.amount for c in then) / SECONDS
        said = forecast(demand, bound, gated=False)
        assert said.rate.figure is not None
        assert abs(said.rate.figure - rate) <= 0.05 * rate


def test_a_client_that_connects_again_is_one_client() -> None:
    seen = run(CASES["twice"].make, A, SECONDS)
    half = len(seen) // 2
    again = [c._replace(connection="c9") if n >= half else c for n, c in enumerate(seen)]
    demand = infer(again, START_MS + SECONDS * 1000, gated=False)
    assert len(demand.clients) == 1
    assert demand.wanted == infer(seen, START_MS + SECONDS * 1000, gated=False).wanted


def test_an_answer_belongs_to_the_charge_that_it_names() -> None:
    charges = [
        Charge(START_MS, 9_000, 500, 900, "c1"),  # another quota's throttle is told
        Charge(START_MS + 900, 9_000, 400, 400, "c1"),  # its broker is slow
        Charge(START_MS + 900, 9_000, 400, 400, "c2"),
        Charge(START_MS + 1_400, 9_000, 300, 300, "c1"),  # acks=0: told as it passes
        Charge(START_MS + 1_400, 90, 0, 0, "c1"),
    ]
    answers = [
        Answer(START_MS + 1_400, "c1", 0),
        Answer(START_MS + 900, "c1", 1_000),
        Answer(START_MS + 900, "c2", -3),  # the clock was set back
        Answer(START_MS + 77, "c2", 5),  # its charge isn't looked at
    ]
    told = [charge.answered_ms for charge in with_answers(charges, answers)]
    assert told == [None, START_MS + 1_900, START_MS + 900, START_MS + 1_400, None]
