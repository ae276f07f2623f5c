"""
What pages draw: rows of quota-ids with their bars, levels of precedence, use over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from headgate.console.recent import Point
from headgate.live.picture import ClientUse, EffectiveQuotaOf, Picture, QuotaUse
from headgate.live.why import QuotaWhy, Rung, ladder
from headgate.quota.precedence import PRECEDENCE
from headgate.words import figures, what_of

LIMIT_AT: Final = 70.0
"""Where a bar marks the limit, if its width is 100; the rest shows use beyond the limit."""
LONGEST_LINK: Final = 2_000
"""Characters of principal and client-id in a link: servers and proxies refuse long addresses."""


class QuotaIdRow(NamedTuple):
    """
    A quota-id over all brokers.

    Args:
        use: at the broker where it is throttled, or has the least room.
        broker_id: that broker.
        brokers: at how many brokers it is used.
        held: connections that wait, at all of them.
        held_until_ms: when the last of these goes on.
        held_since_ms: since when it has been throttled; 0: it isn't.
        clients: the clients charged to it; a client of several brokers is here once.
    """

    use: QuotaUse
    broker_id: int
    brokers: int
    held: int
    held_until_ms: int
    held_since_ms: int
    clients: tuple[ClientUse, ...]

    @property
    def throttled(self) -> bool:
        """Whether a connection waits now, or one was throttled within ``picture.PAUSE_MS``."""
        return bool(self.held or self.held_since_ms)

    @property
    def fill(self) -> str:
        """How long its bar is, of 100."""
        return figures(min(100.0, (self.use.utilisation or 0.0) * LIMIT_AT))

    @property
    def owner(self) -> tuple[str, str | None] | None:
        """Principal and client-id whose page tells more; None: none, or too long for a link."""
        use = self.use
        if use.user:
            return linkable(use.user, use.client_id or None)
        return linkable(*_pair(self.clients[0])) if self.clients else None


def _pair(client: ClientUse) -> tuple[str, str]:
    return client.principal, client.client_id


def linkable(user: str, client_id: str | None) -> tuple[str, str | None] | None:
    """Return the principal and client-id if a link can hold both."""
    return (user, client_id) if len(user) + len(client_id or "") <= LONGEST_LINK else None


def rows(picture: Picture) -> list[QuotaIdRow]:
    """Return every quota-id: first what waits, the longest first; then by room, the least first."""
    joined: dict[tuple[str, str, str, str], list[tuple[int, QuotaUse]]] = {}
    for broker in picture.brokers:
        for use in broker.quotas:
            quota_id = (use.key, use.user, use.client_id, use.ip)
            joined.setdefault(quota_id, []).append((broker.broker_id, use))
    return sorted(map(_row, joined.values()), key=_order)


def _row(uses: Sequence[tuple[int, QuotaUse]]) -> QuotaIdRow:
    broker_id, worst = uses[0]
    if len(uses) == 1:
        return QuotaIdRow(
            worst, broker_id, 1, worst.held, worst.held_until_ms, worst.held_since_ms, worst.clients
        )
    broker_id, worst = max(uses, key=lambda pair: _hardest(pair[1]))
    since = [use.held_since_ms for _, use in uses if use.held_since_ms]
    return QuotaIdRow(
        worst,
        broker_id,
        len(uses),
        sum(use.held for _, use in uses),
        max(use.held_until_ms for _, use in uses),
        min(since, default=0),
        _clients(client for _, use in uses for client in use.clients),
    )


def _clients(clients: Iterable[ClientUse]) -> tuple[ClientUse, ...]:
    """Return each client once, with the connections of all brokers."""
    found: dict[tuple[str, str], ClientUse] = {}
    for client in clients:
        old = found.get(_pair(client))
        if old is not None:
            addresses = dict(old.addresses)
            for address, count in client.addresses:
                addresses[address] = addresses.get(address, 0) + count
            client = ClientUse(
                *_pair(client),
                old.connections + client.connections,
                old.held + client.held,
                max(old.held_until_ms, client.held_until_ms),
                tuple(addresses.items()),
                max(old.other_addresses, client.other_addresses),
            )
        found[_pair(client)] = client
    return tuple(sorted(found.values(), key=lambda client: (-client.held, -client.connections)))


def _hardest(use: QuotaUse) -> tuple[bool, int, float]:
    """Sort key: by what is left to wait, which a rate that has fallen doesn't tell."""
    return bool(use.held), use.held_until_ms, use.utilisation or 0.0


def _order(row: QuotaIdRow) -> tuple[bool, int, float, str, str]:
    use = row.use
    return not row.throttled, -row.held_until_ms, -(use.utilisation or 0.0), use.user, use.client_id


def matching(rows: Iterable[QuotaIdRow], find: str) -> list[QuotaIdRow]:
    """Return the rows that have a text in a name, address or kind of quota, whatever its case."""
    text = find.casefold()
    return [
        row
        for row in rows
        if any(
            text in part.casefold()
            for part in (row.use.user, row.use.client_id, row.use.ip, what_of(row.use.key))
        )
    ]


def connections(picture: Picture) -> list[ClientUse]:
    """Return the connected clients, each once: most waiting connections first."""
    by_broker: list[ClientUse] = []
    for broker in picture.brokers:
        once: dict[tuple[str, str], ClientUse] = {}
        for client in (client for use in broker.quotas for client in use.clients):
            old = once.get(_pair(client))
            if old is None or old.held < client.held:
                once[_pair(client)] = client
        by_broker.extend(once.values())
    return list(_clients(by_broker))


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
