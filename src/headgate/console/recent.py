"""
The last hour's use of each quota-id, kept in memory: what a tenant's page draws.
"""

from __future__ import annotations

import math
from array import array
from typing import Final, NamedTuple

from headgate.live.picture import Picture, QuotaUse

POINTS: Final = 360
"""An hour of pictures, 10 seconds apart."""
MOST: Final = 5_000
"""Quota-ids, of 4 kB each. Pictures list throttled ones first, then those with the least room."""
APART_MS: Final = 9_000
_NOTHING: Final = array("f", [math.nan]) * POINTS

Id = tuple[str, str, str, str]
"""Key, user tag, client-id tag, address."""


class Point(NamedTuple):
    """One moment of a quota-id: at the broker that had the least room."""

    at_ms: int
    rate: float
    limit: float | None
    held: int


def fullness(rate: float, limit: float | None) -> tuple[bool, float, float]:
    """
    Return a sort key, greatest for the broker with the least room: its use is what is drawn.

    A broker that limits nobody tells less than one that does; of such, the busiest one counts.
    """
    return limit is not None, rate / limit if limit else 0.0, rate


class _CachedAnswer:
    __slots__ = ("held", "limit", "rate")

    def __init__(self) -> None:
        self.rate, self.limit, self.held = _NOTHING[:], _NOTHING[:], _NOTHING[:]


class Recent:
    """A ring of points for every quota-id."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._count = 0
        self._kept: dict[Id, _CachedAnswer] = {}

    def add(self, picture: Picture) -> None:
        """Keep a picture of everybody; one that comes too soon after the last is left out."""
        if self._times and picture.at_ms - self._times[(self._count - 1) % POINTS] < APART_MS:
            return
        place = self._count % POINTS
        self._count += 1
        if len(self._times) < POINTS:
            self._times.append(picture.at_ms)
        else:
            self._times[place] = picture.at_ms
        for kept in self._kept.values():
            kept.rate[place] = kept.limit[place] = kept.held[place] = math.nan
        for broker in picture.brokers:
            for use in broker.quotas:
                self._note(place, use)
        if place == 0:  # once an hour
            gone = [i for i, kept in self._kept.items() if all(map(math.isnan, kept.rate))]
            for quota_id in gone:
                del self._kept[quota_id]

    def _note(self, place: int, use: QuotaUse) -> None:
        quota_id = (use.key, use.user, use.client_id, use.ip)
        kept = self._kept.get(quota_id)
        if kept is None:
            if len(self._kept) >= MOST:
                return
            kept = self._kept[quota_id] = _CachedAnswer()
        old_rate, old_limit = kept.rate[place], kept.limit[place]
        old = None if math.isnan(old_limit) else old_limit
        if math.isnan(old_rate) or fullness(use.rate, use.limit) > fullness(old_rate, old):
            kept.rate[place] = use.rate
            kept.limit[place] = math.nan if use.limit is None else use.limit
        held = kept.held[place]
        kept.held[place] = use.held + (0 if math.isnan(held) else held)

    def of(self, quota_id: Id) -> list[Point]:
        """Return the points of a quota-id, oldest first; moments without use are left out."""
        kept = self._kept.get(quota_id)
        if kept is None:
            return []
        points = []
        for number in range(max(0, self._count - POINTS), self._count):
            place = number % POINTS
            rate, limit = kept.rate[place], kept.limit[place]
            if not math.isnan(rate):
                points.append(
                    Point(
                        self._times[place],
                        rate,
                        None if math.isnan(limit) else limit,
                        int(kept.held[place]),
                    )
                )
        return points
