"""
How a recommended figure is made: from what was observed, times growth and headroom, rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headgate.quota.entity import QuotaEntity

# Types for which values are proposed unless told otherwise: what a broker's log holds exactly.
BYTES: Final = ("producer_byte_rate", "consumer_byte_rate")
# All types that a value can be proposed for; the others are best read off a gateway's journal.
TYPES: Final = (*BYTES, "request_percentage", "controller_mutation_rate", "producer_ids_rate")
# What a type's figures are in, and the least value worth setting.
UNITS: Final = {
    "producer_byte_rate": ("B/s", 1.0),
    "consumer_byte_rate": ("B/s", 1.0),
    "request_percentage": ("% of a thread", 0.01),
    "controller_mutation_rate": ("partitions/s", 0.1),
    "producer_ids_rate": ("producer ids/s", 0.1),
}


@dataclass(frozen=True)
class Advice:
    """
    How figures are made.

    Args:
        percentile: of the rate over the quota window, 0..1.
        headroom: factor on top.
        horizon_days: how far growth is carried on.
        window_s: seconds the rate is taken over (quota.window.num - 1 whole windows).
        types: quota types to propose values for.
        tolerance: a current limit this near (relative) to the figure is kept.
        default_share: entities whose figures lie within this factor can share a default.
        split_share: a client with this share of a shared quota's use should have its own.
    """

    percentile: float = 0.95
    headroom: float = 1.2
    horizon_days: int = 30
    window_s: int = 10
    types: tuple[str, ...] = BYTES
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
    """
    One recommendation, before what it would have throttled is known.

    Args:
        quota_type: the type.
        entity: whose quota.
        action: set, keep, split, merge, default or remove.
        current: the limit in force.
        recommended: the limit to set; None where the action sets none.
        reason: one line that explains the numbers.
        percentile: observed, in the type's unit per second.
        peak: observed.
        growth_per_day: relative, as used in the figure.
        tags: the quota-ids it is about.
        instead: entities whose own quota goes with it.
    """

    quota_type: str
    entity: QuotaEntity
    action: str
    current: float | None
    recommended: float | None
    reason: str
    percentile: float | None = None
    peak: float | None = None
    growth_per_day: float = 0.0
    tags: tuple[tuple[str, str], ...] = ()
    instead: tuple[QuotaEntity, ...] = ()

    @property
    def plan(self) -> str:
        """Name of the plan it's tried in: single values together, other actions by kind."""
        return "recommended" if self.action in ("set", "keep") else self.action


def number(value: float) -> str:
    """Return a figure for a sentence: whole from 100 on, else three digits."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def round_up(value: float, least: float = 1.0) -> float:
    """Return ``value`` rounded up to two significant digits, at least ``least``."""
    if value <= least:
        return least
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(round(math.ceil(round(value / unit, 9)) * unit, 9))


def figure(seen: Observed, advice: Advice) -> float:
    """Return the value to recommend for one quota-id; growth never lowers it."""
    growth = max(1.0, (1.0 + seen.growth_per_day) ** advice.horizon_days)
    # More than tenfold growth isn't read off a few days.
    used = seen.percentile * min(growth, 10.0) * advice.headroom
    return round_up(used, UNITS[seen.quota_type][1])


def entity_of(user: str, client_id: str) -> QuotaEntity:
    """Return the entity of a quota-id's tags."""
    return QuotaEntity.of(user=user or None, client_id=client_id or None)
