"""
What was true when a wait was told: the quota, and the use that was beyond it.

Both change while the client waits: the rate falls, and somebody may change the quota. `headgate
why` and the console say what was true then.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Used(NamedTuple):
    """
    The use of a quota-id at one moment.

    Attributes:
        quota: the quota in force, as it is set.
        rate: per second, of a sampled rate; None: a bucket decides.
        owed: what the bucket was overdrawn by, in its units; None: a rate decides.
    """

    quota: float
    rate: float | None
    owed: float | None


class Told(NamedTuple):
    """
    A wait.

    Attributes:
        key: name of the quota key.
        user_tag, client_tag: of the quota-id.
        at_ms: when the wait was told, epoch ms.
        bound: what the use was compared with: the quota, or a broker's part of it.
        used: the use then; None: it wasn't measured.
        closed: it was told to a connection that has closed since.
    """

    key: str
    user_tag: str
    client_tag: str
    at_ms: int
    bound: float
    used: Used | None = None
    closed: bool = False


def used_of(manager: Any, tags: tuple[str, str], now_ms: int) -> Used:
    """Return the use of a quota-id of a manager now; it changes nothing."""
    sensor, quota = manager.sensor(tags), manager.bound(tags)
    if sensor is None:
        return Used(quota, None, None)
    reading = sensor.peek(now_ms)
    if isinstance(reading, tuple):
        return Used(quota, reading[0], None)
    return Used(quota, None, max(-reading, 0.0))
