"""
Which quota-ids have series of their own: a bounded number of the busiest.

Clients choose their names, so there may be any number of quota-ids. Half of the places are for
those that a quota was set for by name, so that clients that invent names can't push these out. A
quota-id keeps its place until it is clearly among the less busy, so that series don't come and go.

All quota-ids without a place are the rest: one sum for each quota type. A sum never falls. When a
quota-id gets series of its own, they begin at 0, and what was counted before stays in the rest.
When its series end, what they counted is added to the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass
from heapq import heappush, heappushpop
from typing import Final

from headgate.live.picture import PAUSE_MS

Tags = tuple[str, str]
Score = tuple[bool, float, float]
"""Throttled since the last ranking, utilisation, rate: the larger the busier."""

MOST: Final = 1_000
"""Quota-ids of each quota type and broker with series of their own, unless set otherwise."""
RANK_MS: Final = 10_000
"""The shortest time between two choices, where there are fewer places than quota-ids."""


@dataclass(slots=True)
class Counts:
    """
    Throttles told to one quota-id.

    Attributes:
        count, ms: requests told to wait, and how long together, in ms.
        rest_count, rest_ms: the part that is counted in the rest.
        ranked_ms: ``ms`` at the last ranking.
        drawing: ``Meters.drawings`` when it was made.
        since_ms: when the first began after a pause (``picture.PAUSE_MS``), epoch ms.
        until_ms: when the last of them is over.
    """

    drawing: int
    count: int = 0
    ms: int = 0
    rest_count: int = 0
    rest_ms: int = 0
    ranked_ms: int = 0
    since_ms: int = 0
    until_ms: int = 0

    def told(self, ms: int) -> None:
        """Count a throttle of this many ms, told now."""
        self.count += 1
        self.ms += ms

    def waits(self, ms: int, now_ms: int) -> None:
        """Note that a client is muted for this many ms from now on."""
        if now_ms - self.until_ms > PAUSE_MS:
            self.since_ms = now_ms
        if now_ms + ms > self.until_ms:
            self.until_ms = now_ms + ms

    def to_rest(self) -> None:
        """All of it is counted in the rest from now on."""
        self.rest_count, self.rest_ms = self.count, self.ms


class Chosen:
    """
    The quota-ids of one type that have series.

    Attributes:
        shown: these quota-ids.
        ranked_ms: when places were given last, epoch ms; None: all fit.
        rest_rates: by unit, the rate of all others together at that time.
        rest_ids: how many others there were.
        next: who has series from the next drawing on; None: those that have them now.
    """

    def __init__(self) -> None:
        self.shown: frozenset[Tags] = frozenset()
        self.ranked_ms: int | None = None
        self.rest_rates: dict[str, float] = {}
        self.rest_ids = 0
        self.next: frozenset[Tags] | None = None

    def due(self, now_ms: int) -> bool:
        """Whether it is time to choose again, as it is at once when the clock was set back."""
        return self.ranked_ms is None or not 0 <= now_ms - self.ranked_ms < RANK_MS


def choose(
    candidates: Iterable[tuple[Tags, Score, bool]], most: int, incumbents: Collection[Tags]
) -> Generator[None, None, frozenset[Tags]]:
    """
    Choose which quota-ids get a place; yields after each candidate.

    Args:
        candidates: quota-id, how busy it is, and whether a quota was set for it by name.
        most: places.
        incumbents: the quota-ids that have one.

    Returns:
        At most ``most``: half of the places are for the named ones if there are enough.
    """
    band = most + most // 4
    everybody: list[tuple[Score, Tags]] = []
    by_name: list[tuple[Score, Tags]] = []
    for tags, score, named in candidates:
        for heap, room in ((everybody, band), (by_name, band // 2 if named else 0)):
            if len(heap) < room:
                heappush(heap, (score, tags))
            elif room:
                heappushpop(heap, (score, tags))
        yield
    chosen = _best(by_name, most // 2, incumbents)
    others = [one for one in everybody if one[1] not in chosen]
    return frozenset(chosen | _best(others, most - len(chosen), incumbents))


def _best(ranked: list[tuple[Score, Tags]], places: int, incumbents: Collection[Tags]) -> set[Tags]:
    """Give three quarters of the places to the busiest, the others to incumbents first."""
    order = [tags for _, tags in sorted(ranked, reverse=True)]
    sure = places * 3 // 4
    open_ = sorted(order[sure:], key=lambda tags: tags not in incumbents)
    return {*order[:sure], *open_[: places - sure]}
