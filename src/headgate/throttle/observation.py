"""What a split period showed of a quota-id: splits and shares are computed from it."""

from __future__ import annotations

from typing import NamedTuple


class Observation(NamedTuple):
    """
    What a period showed of one quota-id on one broker; it travels between processes.

    Attributes:
        used_per_s: units charged, per second of the period.
        throttled: whether a charge was told to wait, or the bucket was overdrawn when the period
            ended: while a large request is repaid nothing may be charged, and more is wanted.
        waited: part of the period, 0 to 1, in which the bucket was overdrawn.
        requests: how many charges there were; 0: not known.
        credit: units the bucket held when the period began; None: not known.
        overdrawn: whether it was (all but) empty when the period ended.
    """

    used_per_s: float
    throttled: bool
    waited: float = 0.0
    requests: int = 0
    credit: float | None = None
    overdrawn: bool = True
