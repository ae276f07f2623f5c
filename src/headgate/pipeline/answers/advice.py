"""
How a recommended figure is made: from what was observed, times growth and headroom, rounded up.

A figure isn't below a floor: a client that hardly does anything still sends whole requests, and
one of B bytes, alone in the quota's window of W seconds, is throttled for B / limit - W seconds
(Kafka's `QuotaUtils.throttleTime`). At a few bytes a second, its own average, that's days.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.quota.entity import QuotaEntity

# Types for which values are proposed unless told otherwise: what a broker's log holds exactly.
BYTES: Final = ("producer_byte_rate", "consumer_byte_rate")
# All types that a value can be proposed for; the others are best read off a gateway's journal.
TYPES: Final = (*BYTES, "request_percentage", "controller_mutation_rate", "producer_ids_rate")
# What a type's figures are in, and the floor of those that aren't bytes: a tenth of a second of a
# thread in 10 s; ten topics or producers at once, as when an application starts.
UNITS: Final = {
    "producer_byte_rate": ("B/s", 0.0),
    "consumer_byte_rate": ("B/s", 0.0),
    "request_percentage": ("% of a thread", 1.0),
    "controller_mutation_rate": ("partitions/s", 1.0),
    "producer_ids_rate": ("producer ids/s", 1.0),
}
# The largest request of a producer that isn't told otherwise (`max.request.size`), and as much as a
# fetch takes of a partition (`max.partition.fetch.bytes`). A broker cuts larger fetches down to the
# quota, but not below one batch of records.
MAX_REQUEST_BYTES: Final = 1 << 20
# A limit in force at which one such request waits no longer than this is left as it is.
PATIENCE_S: Final = 60
WAITING_SHARE: Final = 0.05
"""Who was told to wait for more than this share of its time would have sent noticeably more."""
# A client that was told to wait for more than this share of its time would have sent more; how
# much more can't be seen.
HIDING_SHARE: Final = 0.5
NO_LONGER: Final = "which is no longer in force"
"""How a reason says that another limit was in force for a part of the time."""
MOST_LIMITS: Final = 3
"""Limits that were in force before, of which a reason names as many."""


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
        max_request_bytes: a request this large, alone in the window, must not be throttled;
            0 = figures have no floor.
        min_history_s: seconds from first to last use below which no figure is given.
        min_active_s: seconds with use below which no figure is given.
    """

    percentile: float = 0.95
    headroom: float = 1.2
    horizon_days: int = 30
    window_s: int = 10
    types: tuple[str, ...] = BYTES
    tolerance: float = 0.2
    default_share: float = 2.0
    split_share: float = 0.8
    max_request_bytes: int = MAX_REQUEST_BYTES
    min_history_s: int = 60
    min_active_s: int = 10


class Wants(NamedTuple):
    """
    What a throttled quota-id's clients would send without a limit (table DEMAND).

    Args:
        kind: saturated, rate-bound, ….
        per_s: bytes per second; None: not known.
        least, most: between which it lies; None: nothing bounds it.
        reason: why it isn't known.
    """

    kind: str
    per_s: float | None
    least: float
    most: float | None
    reason: str

    @property
    def words(self) -> str:
        """What it wants, for a sentence."""
        if self.per_s is not None:
            return f"{self.kind}: it wants {number(self.per_s)} B/s"
        bounds = f"at least {number(self.least)}"
        if self.most is not None:
            bounds = f"between {number(self.least)} and {number(self.most)}"
        return f"{self.kind}: it wants {bounds} B/s, not known better because {self.reason}"


@dataclass(frozen=True, slots=True)
class Observed:
    """
    What one quota-id used of one quota type, on its busiest broker.

    ``span_s`` is from its first to its last second with use, ``active_s`` how many there are, on
    all brokers; None = not known, which counts as long enough. ``held`` is the share of its time
    that it was told to wait, 0..1. ``wants`` is its inferred demand, if it had to wait; None =
    nothing was inferred. ``other_limits`` were in force for a part of the time, and aren't now;
    None = no limit.
    """

    quota_type: str
    user: str
    client_id: str
    percentile: float
    peak: float
    growth_per_day: float
    current: float | None
    span_s: int | None = None
    active_s: int | None = None
    held: float = 0.0
    wants: Wants | None = None
    other_limits: tuple[float | None, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """The quota type, and the quota-id's tags."""
        return self.quota_type, self.user, self.client_id

    @property
    def was(self) -> str:
        """Which other limits were in force for a part of the time, for a sentence; "" if none."""
        if not self.other_limits:
            return ""
        said = " and ".join(
            "none" if v is None else number(v) for v in self.other_limits[:MOST_LIMITS]
        )
        more = len(self.other_limits) - MOST_LIMITS
        said += f" and {more} others" if more > 0 else ""
        return f" (for a part of the time {said}, {NO_LONGER})"

    @property
    def entity(self) -> QuotaEntity:
        """The entity whose quota would be its own."""
        return entity_of(self.user, self.client_id)


@dataclass(frozen=True, slots=True)
class Proposal:
    """
    One recommendation, before what it would have throttled is known.

    Args:
        quota_type: the type.
        entity: whose quota.
        action: set, keep, split, merge, default, remove or wait (too little was seen).
        current: the limit in force.
        recommended: the limit to set; None where the action sets none.
        reason: one line that explains the numbers.
        percentile: observed, in the type's unit per second.
        peak: observed.
        growth_per_day: relative, as used in the figure.
        tags: the quota-ids it is about.
        instead: entities whose own quotas are removed along with it.
        held: the largest share of its time that one of them was told to wait, 0..1.
        wants: what was inferred about a single one's demand.
        tried_in: name of the plan it's tried in, where that isn't its action's.
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
    held: float = 0.0
    wants: Wants | None = None
    tried_in: str = ""

    @property
    def hides(self) -> str:
        """Why a replay can't say what another limit would have throttled; "" where it can."""
        if self.held <= HIDING_SHARE or self.recommended is None:
            return ""
        if self.wants is not None:
            return f"; told to wait {self.held:.0%} of the time"
        return (
            f"; told to wait {self.held:.0%} of the time: what it would have sent isn't seen, so "
            "it may need more"
        )

    @property
    def plan(self) -> str:
        """Name of the plan it's tried in: single values together, other actions by kind."""
        if self.tried_in:
            return self.tried_in
        return "recommended" if self.action in ("set", "keep", "wait") else self.action


def number(value: float) -> str:
    """Return a figure for a sentence: whole from 100 on, else three digits."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def round_up(value: float, least: float = 0.0) -> float:
    """Return the greater of ``value`` and ``least``, rounded up to two significant digits."""
    if value <= least:
        value = least
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(round(math.ceil(round(value / unit, 9)) * unit, 9))


def floor(quota_type: str, advice: Advice) -> float:
    """Return the least value to recommend, rounded up as figures are; 0 where there's none."""
    if not advice.max_request_bytes:
        return 0.0
    if quota_type in BYTES:
        return round_up(advice.max_request_bytes / advice.window_s)
    return UNITS[quota_type][1]


def why_floor(quota_type: str, advice: Advice) -> str:
    """Return the words for a figure that the floor has raised."""
    least = number(floor(quota_type, advice))
    if quota_type not in BYTES:
        return f"floor of {least} {UNITS[quota_type][0]}"
    return (
        f"floor of {least}, at which one request of {number(advice.max_request_bytes)} bytes in "
        f"{advice.window_s} s isn't throttled"
    )


def spares(limit: float, quota_type: str, advice: Advice) -> bool:
    """Say whether a limit below the floor may stay: one large request waits a minute at most."""
    least = floor(quota_type, advice)
    return least * advice.window_s / (advice.window_s + PATIENCE_S) <= limit < least


def need(seen: Observed, advice: Advice) -> float:
    """Return what a quota-id needs, whatever the floor; growth never lowers it."""
    growth = max(1.0, (1.0 + seen.growth_per_day) ** advice.horizon_days)
    # A throttled client's percentile shows its quota. So what it wants counts too, where known.
    wants = seen.wants.per_s if seen.wants is not None else None
    # More than tenfold growth isn't read off a few days.
    used = max(seen.percentile, wants or 0.0) * min(growth, 10.0) * advice.headroom
    return round_up(used, 1.0 if seen.quota_type in BYTES else 0.01)


def figure(seen: Observed, advice: Advice) -> float:
    """Return the value to recommend for one quota-id: what it needs, at least the floor."""
    return max(need(seen, advice), floor(seen.quota_type, advice))


def too_little(seen: Observed, advice: Advice) -> str:
    """Return why what was seen of a quota-id is too little for a figure; "" where it isn't."""
    span, active = seen.span_s, seen.active_s
    short = span is not None and span < advice.min_history_s
    if not short and (active is None or active >= advice.min_active_s):
        return ""
    return (
        f"too little history: {number(active or 0)} seconds with use, in {number(span or 0)} s "
        f"from first to last; a figure needs {advice.min_active_s} in {advice.min_history_s} s"
    )


def entity_of(user: str, client_id: str) -> QuotaEntity:
    """Return the entity of a quota-id's tags."""
    return QuotaEntity.of(user=user or None, client_id=client_id or None)
