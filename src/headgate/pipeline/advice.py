"""
How a recommended figure is made: from what was observed, times growth and headroom, rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headgate.quota.entity import QuotaEntity

# Types whose throttling a log can replay; only for these is a value proposed.
TYPES: Final = ("producer_byte_rate", "consumer_byte_rate")


@dataclass(frozen=True)
class Advice:
    """
    How figures are made.

    Args:
        percentile: of the rate over the quota window, 0..1.
        headroom: factor on top.
        horizon_days: how far growth is carried on.
        window_s: seconds the rate is taken over (quota.window.num - 1 whole windows).
        tolerance: a current limit this near (relative) to the figure is kept.
        default_share: entities whose figures lie within this factor can share a default.
        split_share: a client with this share of a shared quota's bytes should have its own.
    """

    percentile: float = 0.95
    headroom: float = 1.2
    horizon_days: int = 30
    window_s: int = 10
    tolerance: float = 0.2
    default_share: float = 2.0
    split_share: float = 0.8


@dataclass(frozen=True, slots=True)
class Observed:
    """What one quota-id used of one quota type, on its busiest broker."""

    quota_type: str
    user: str
    client_id: str
    percentile: float
    peak: float
    growth_per_day: float
    days: int
    current: float | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """One recommendation, before what it would have throttled is known."""

    quota_type: str
    entity: QuotaEntity
    action: str
    current: float | None
    recommended: float | None
    reason: str
    percentile: float | None = None
    peak: float | None = None
    growth_per_day: float = 0.0
    # quota-ids (tags) whose throttling the row reports
    tags: tuple[tuple[str, str], ...] = ()


def round_up(value: float) -> float:
    """Return ``value`` rounded up to two significant digits, at least 1."""
    if value <= 1:
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(math.ceil(round(value / unit, 9)) * unit)


def figure(seen: Observed, advice: Advice) -> float:
    """Return the value to recommend for one quota-id; growth never lowers it."""
    growth = max(1.0, (1.0 + seen.growth_per_day) ** advice.horizon_days)
    # More than tenfold growth isn't read off a few days.
    return round_up(seen.percentile * min(growth, 10.0) * advice.headroom)


def entity_of(user: str, client_id: str) -> QuotaEntity:
    """Return the entity of a quota-id's tags."""
    return QuotaEntity.of(user=user or None, client_id=client_id or None)
