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

import numpy as np

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
    cells: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: np.zeros(len(SUMS), np.int64)))
    )
    for row in rows:
        quota_type = row["quota_type"]
        base = quota_type.partition(":")[0]
        cell = cells[row["plan"], row["principal"], row["client_id"]]
        cell[_SAME.get(base, base)][quota_type] += [row[name] or 0 for name in SUMS]
    found: dict[str, Any] = defaultdict(lambda: np.zeros((2, len(SUMS)), np.int64))
    for (plan, *_), families in cells.items():
        longest = {family: np.max([*of.values()], axis=0) for family, of in families.items()}
        every = longest.pop(_ALL, 0)
        least = np.maximum(sum(longest.values()), every)
        most = sum(sum(of.values()) for of in families.values())
        found[plan] += [least, most]
    return {plan: Bounds(*map(tuple, both.tolist())) for plan, both in found.items()}
