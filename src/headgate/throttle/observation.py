"""
What a split period showed of one quota-id on one broker; it travels between processes.
"""

from __future__ import annotations

from typing import NamedTuple


class Observation(NamedTuple):
    """
    What a period showed of one quota-id on one broker.

    Attributes:
        used_per_s: units charged, per second of the period.
        throttled: whether a charge was told to wait.
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
