"""
What pages draw: rows of quota-ids with their bars, levels of precedence, use over time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from headgate.console.recent import Point
from headgate.live.picture import ClientUse, EffectiveQuotaOf, Picture, QuotaUse
from headgate.live.quota_ids import clients_once, pair_of
from headgate.live.why import QuotaWhy, Rung, ladder
from headgate.quota.precedence import PRECEDENCE


def connections(picture: Picture) -> list[ClientUse]:
    """Return the connected clients, each once: most waiting connections first."""
    by_broker: list[ClientUse] = []
    for broker in picture.brokers:
        once: dict[tuple[str, str], ClientUse] = {}
        for client in (client for use in broker.quotas for client in use.clients):
            old = once.get(pair_of(client))
            if old is None or old.held < client.held:
                once[pair_of(client)] = client
        by_broker.extend(once.values())
    return list(clients_once(by_broker))


def ladders(picture: Picture) -> list[tuple[EffectiveQuotaOf, tuple[Rung, ...]]]:
    """Return KIP-55's levels for each quota key of the client that a picture was asked about."""
    found = []
    for quota in picture.effective:
        # Where no entry applies, the levels are computed with a quota-id without a limit.
        use = QuotaUse(quota.key) if quota.unlimited else None
        asked = QuotaWhy(quota.key, -1, quota.user, quota.client_id, quota.entries, use)
        found.append((quota, levels(asked, picture.user or "", picture.client_id)))
    return found


def levels(quota: QuotaWhy, user: str, client_id: str | None) -> tuple[Rung, ...]:
    """Return all levels; those that name a client-id have no entity where none was asked about."""
    rungs = {rung.number: rung for rung in ladder(quota, user, client_id)}
    for number in range(1, len(PRECEDENCE) + 1):
        rungs.setdefault(number, Rung(number, "", None, applies=False))
    return tuple(rungs[number] for number in sorted(rungs))


class UsePaths(NamedTuple):
    """
    Use over time as paths of an SVG that is 600 wide and 120 high.

    Args:
        line: the rate.
        area: what is below it.
        limit: the limit.
        held: left edge and width of each time through which connections waited.
        begin_ms, end_ms: the time at the left and at the right edge.
        peak: the highest rate.
        share: of the points, those at which connections waited.
        mean: the rate on average.
    """

    line: str
    area: str
    limit: str
    held: list[tuple[float, float]]
    begin_ms: int
    end_ms: int
    peak: float
    share: float
    mean: float


WIDTH: Final = 600
HEIGHT: Final = 120
_GAP_MS: Final = 35_000
"""A longer pause between points is a gap in the line."""


def chart(points: Sequence[Point]) -> UsePaths | None:
    """Return the chart of a quota-id's points; None for fewer than two."""
    if len(points) < 2:
        return None
    begin, end = points[0].at_ms, points[-1].at_ms
    span = max(1, end - begin)
    top = 1.08 * max(max(p.rate, p.limit or 0.0) for p in points) or 1.0

    def x(at_ms: int) -> float:
        return round((at_ms - begin) * WIDTH / span, 1)

    def y(value: float) -> float:
        return round(HEIGHT - value * HEIGHT / top, 1)

    line: list[str] = []
    area: list[str] = []
    limit: list[str] = []
    last: Point | None = None
    for point in points:
        left = x(point.at_ms)
        starts = last is None or point.at_ms - last.at_ms > _GAP_MS
        line.append(f"{'M' if starts else 'L'}{left},{y(point.rate)}")
        if starts:
            area.append(f"{'' if last is None else f'L{x(last.at_ms)},{HEIGHT}'}M{left},{HEIGHT}")
        area.append(f"L{left},{y(point.rate)}")
        if point.limit is not None:
            again = starts or last is None or last.limit is None
            limit.append(f"M{left},{y(point.limit)}" if again else f"H{left}V{y(point.limit)}")
        last = point
    area.append(f"L{WIDTH},{HEIGHT}")
    held, count = _held(points, x)
    return UsePaths(
        "".join(line), "".join(area), "".join(limit), held, begin, end,
        max(p.rate for p in points), count / len(points), fmean(p.rate for p in points),
    )  # fmt: skip


def _held(
    points: Sequence[Point], x: Callable[[int], float]
) -> tuple[list[tuple[float, float]], int]:
    """Return left edge and width of each wait without a pause, and how many points had one."""
    found: list[tuple[float, float]] = []
    count = 0
    for before, point in zip((None, *points), points, strict=False):
        if not point.held:
            continue
        count += 1
        left = x(point.at_ms)
        if before is not None and before.held and point.at_ms - before.at_ms <= _GAP_MS:
            begin, _ = found.pop()
            found.append((begin, round(left - begin, 1)))
        else:
            found.append((min(left, WIDTH - 2.0), 2.0))
    return found, count
