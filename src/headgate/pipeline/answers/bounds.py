"""
Compute the least and the most throttling of a plan whose requests have several limits.

Each limit is replayed alone, and has rows of its own in ``what_if``: a broker's byte rate, a
cluster-wide one, shares; in a journal request percentage and producer ids too. For each request, a
client is told the longest wait among its limits. Sums don't say which waits were of the same
request. So a client's throttle time is at least that of its hardest limit, and at most the sum of
all limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

# Types that are charged for the same requests as another type; ``_ALL`` is for all requests.
_SAME: Final = {"producer_ids_rate": "producer_byte_rate"}
_ALL: Final = "request_percentage"
SUMS: Final = ("throttled_requests", "throttle_time_ms", "delayed_bytes")


@dataclass(frozen=True, slots=True)
class Bounds:
    """
    What a plan does with all its limits together.

    Args:
        least: of each of ``SUMS``.
        most: likewise.
    """

    least: tuple[int, ...]
    most: tuple[int, ...]

    @property
    def is_exact(self) -> bool:
        """Whether there is nothing between them."""
        return self.least == self.most


def overlaps(quota_types: Iterable[str]) -> bool:
    """Say whether some of these types are charged for the same requests."""
    return any(":" in t or t == _ALL or t in _SAME for t in quota_types)


def bounds_by_plan(rows: Iterable[Mapping[str, Any]]) -> dict[str, Bounds]:
    """
    Return the bounds of each plan.

    Args:
        rows: of WHAT_IF, or sums of them by plan, quota_type, principal and client_id. Brokers
            aren't told apart: a cluster-wide rate's rows have none.
    """
    # By plan and client, by the quota type that the same requests are charged to, by limit.
    cells: dict[tuple[Any, ...], dict[str, dict[str, list[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: [0] * len(SUMS)))
    )
    for row in rows:
        quota_type = row["quota_type"]
        base = quota_type.partition(":")[0]
        cell = cells[row["plan"], row["principal"], row["client_id"]]
        sums = cell[_SAME.get(base, base)][quota_type]
        for i, name in enumerate(SUMS):
            sums[i] += row[name] or 0
    zeros = (0,) * len(SUMS)
    found: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for (plan, *_), families in cells.items():
        least, most = zeros, zeros
        every = zeros
        for family, limits in families.items():
            longest = tuple(max(column) for column in zip(*limits.values(), strict=True))
            most = _plus(most, *limits.values())
            if family == _ALL:
                every = longest
            else:
                least = _plus(least, longest)
        least = tuple(map(max, least, every))
        before = found.get(plan, (zeros, zeros))
        found[plan] = _plus(before[0], least), _plus(before[1], most)
    return {plan: Bounds(*both) for plan, both in found.items()}


def _plus(*parts: Iterable[int]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*parts, strict=True)))
