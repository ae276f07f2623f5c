"""
Rate, throttle time and finish under a limit, as a figure or an interval.

All models that agree with the rhythms are played. Where they come to nearly the same, the best one
gives the figure. Where they don't, there is no figure, but an interval and the reason. An interval
is wider than what the models span, by how much a second run of the same client may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

from headgate.demand.models import UNKNOWN, ClientModel, Model, read
from headgate.demand.play import Played, play
from headgate.demand.rhythm import Charge, lanes_of

NARROW: Final = {"rate": 0.12, "throttle": 0.24, "finish": 0.12}
"""Models that differ by less than this share tell a figure."""
_BURST: Final = 0.3
"""If runs a little ahead or behind differ by more than this share, the rate has no figure."""
MARGINS: Final = {"rate": (0.05, 0.0), "throttle": (0.2, 1_000.0), "finish": (0.08, 2_000.0)}
"""What an interval has on top, relative and absolute (ms): what bench/pipeline/predict.py saw."""
EDGE: Final = "a burst after a wait may fall before the end of the observation, or after it"
_SHAKES: Final = ((0.8, 2.0), (1.25, -1.0), (1.0, -2.0))
WITHHELD: Final = "throttled fetches were answered empty: what they would have had isn't recorded"


class Span(NamedTuple):
    """
    A figure and its interval.

    Attributes:
        figure: None where it can't be known.
        least, most: between which it lies; infinite: nothing bounds it.
    """

    figure: float | None
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class QuotaIdDemand:
    """
    What the clients of one quota-id want.

    Attributes:
        kind: saturated, rate-bound, fixed work, mixed or unknown.
        clients: their models.
        wanted: bytes per second without a limit.
        seen: bytes per second, from the first charge to the end, or to the last charge of what
            ended.
        throttle_ms: told in that time.
        end_ms: the end of the observation, from the first charge on.
        reason: why what is wanted isn't known; "" where it is.
    """

    kind: str
    clients: tuple[ClientModel, ...]
    wanted: Span
    seen: float
    throttle_ms: float
    end_ms: float
    reason: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """
    How a quota-id's clients would fare under a limit.

    Attributes:
        rate: bytes per second, to the end of the observation, or to the finish where all end.
        throttle_ms: throttle time that requests are told in that time, summed.
        finish_ms: when those that end are done, from the first charge on; None: none ends.
        reason: why there is no figure; "" where there is one.
    """

    rate: Span
    throttle_ms: Span
    finish_ms: Span | None
    reason: str


def infer(
    charges: Sequence[Charge], end_ms: float, *, gated: bool, withheld: bool = False
) -> QuotaIdDemand:
    """
    Say what the clients of one quota-id on one broker want.

    Args:
        charges: in order, one at least.
        end_ms: when the observation ended, epoch ms.
        gated: they fetch.
        withheld: throttled fetches were answered empty, and their bytes aren't among the charges.
    """
    lanes = lanes_of(charges, gated=gated)
    until = max(end_ms - charges[0].t_ms, 1.0)
    clients = tuple(read(lane, until) for lane in lanes)
    kinds = {client.kind for client in clients}
    kind = kinds.pop() if len(kinds) == 1 else "mixed"
    reasons = list(dict.fromkeys(client.reason for client in clients if client.reason))
    if withheld:
        kind, reasons = UNKNOWN, [WITHHELD]
    least = sum(client.wanted_least for client in clients)
    most = inf if withheld else sum(client.wanted_most for client in clients)
    known = [client.wanted for client in clients if client.wanted is not None]
    figure = sum(known) if len(known) == len(clients) and not withheld else None
    ends = all(client.least.ends for client in clients)
    last = max(lane.times_ms[-1] for lane in lanes) if ends else until
    return QuotaIdDemand(
        kind,
        clients,
        Span(figure, least, most),
        sum(lane.total for lane in lanes) / max(last, 1.0) * 1000.0,
        sum(lane.throttle_ms for lane in lanes),
        until,
        "; ".join(reasons),
    )


def forecast(
    demand: QuotaIdDemand, bound: float | None, *, gated: bool, **windows: int
) -> Forecast:
    """
    Say how clients would fare under a limit.

    Args:
        demand: what they want.
        bound: the limit, bytes per second; None: none.
        gated: they fetch.
        windows: ``num_samples`` and ``window_ms``, as `play` takes them.
    """

    def played(models: Iterable[Model]) -> Played:
        return play(list(models), bound, demand.end_ms, gated=gated, **windows)

    clients = demand.clients
    runs = [played(c.least for c in clients), played(c.most for c in clients)]
    likely = [client.best or client.least for client in clients]
    if all(client.best is not None for client in clients):
        runs.insert(0, played(likely))
    withheld = demand.reason == WITHHELD
    # A millisecond may decide in which window a request counts, and so when the next burst comes.
    shaken = [played(_shaken(model, *by) for model in likely) for by in _SHAKES]
    near = [*runs, *shaken]
    longest = max(run.longest_ms for run in near)
    rate = _span(
        [run.rate for run in runs],
        "rate",
        max(run.grain for run in runs),
        (min(run.early for run in near), max(run.late for run in near)),
    )
    throttle = _span(
        [run.throttle_ms for run in runs],
        "throttle",
        longest,
        (min(run.throttle_early_ms for run in near), max(run.throttle_late_ms for run in near)),
    )
    if bound is None:
        throttle = Span(0.0, 0.0, 0.0)
    finishes = [run.finish_ms for run in runs]
    finish = None
    if any(client.least.ends or client.least.catches_up for client in clients):
        told = [inf if f is None else f for f in finishes]
        finish = _span(told, "finish", longest)
    if finish is not None and all(run.work for run in runs):
        # Work that ends has the rate that its finish gives.
        soonest = runs[0].work / finish.least * 1000.0 if finish.least else inf
        latest = runs[0].work / finish.most * 1000.0
        rate = Span(rate.figure, min(rate.least, latest), max(rate.most, soonest))
    if withheld:
        rate = Span(None, 0.0, inf if bound is None else max(rate.most, 2 * bound))
        throttle = Span(None, 0.0, inf) if bound is not None else throttle
    vague = rate.figure is None or throttle.figure is None
    vague = vague or (finish is not None and finish.figure is None)
    return Forecast(rate, throttle, finish, (demand.reason or EDGE) if vague else "")


def _shaken(model: Model, faster: float, later_ms: float) -> Model:
    """Return a model whose pauses differ a little; those after waits by ``later_ms``."""
    return replace(
        model,
        between_ms=tuple(pause / faster for pause in model.between_ms),
        after_wait_ms=tuple(max(pause + later_ms, 0.0) for pause in model.after_wait_ms),
    )


def _span(
    values: Sequence[float], of: str, grain: float, reached: tuple[float, float] = (inf, 0.0)
) -> Span:
    """
    Return the span of what models came to.

    Args:
        values: of the models; of three or more the first is the best one's.
        of: what they are.
        grain: what one request more or fewer would change.
        reached: the least and the most of runs that are a little behind or ahead.
    """
    share, more = MARGINS[of]
    low, high = min(values), max(values)
    least, most = min(low, reached[0]), max(high, reached[1])
    if high == inf:
        return Span(None, max(low * (1 - share) - more - grain, 0.0), inf)
    figure = values[0] if len(values) > 2 else (low + high) / 2
    narrow = high - low <= max(NARROW[of] * high, more)
    if of == "rate":
        narrow = narrow and most - least <= _BURST * most
    least, most = max(least * (1 - share) - more - grain, 0.0), most * (1 + share) + more + grain
    return Span(figure if narrow else None, least, most)
