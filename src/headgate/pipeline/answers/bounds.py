"""
Compute the least and the most throttling of a plan whose requests have several limits.

Each limit is replayed alone, and has rows of its own in ``what_if``: a broker's byte rate, a
cluster-wide one, shares; in a journal request percentage and producer ids too. A client is told the
longest wait of a request. Which request that was isn't in sums, so what a client was told in all is
at least what its hardest limit told it, and at most what all of them did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

# Charged for the same requests as another type is; request percentage for all there are.
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
