"""
When the bytes of a client came into being.

Where a client was seen with nothing to send, all that had arrived had been charged. Between two
such moments it had more than it was allowed to send, and the bytes arrived at once or evenly: what
it sent before the first wait tells which.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf
from typing import Final

from headgate.demand.rhythm import OVERHEAD_BYTES, ChargeSequence, quantile

IDLE_MS: Final = 30.0
"""A shorter pause may come from a slow machine, not from the client."""
_TIMES_BASE: Final = 8.0
"""A pause is the client's own if it is this many times as long as its short ones."""
_SMALL: Final = 0.3
"""Requests of less than this share of the full size weren't filled: there was no more to send."""
_SMALL_RUN: Final = 5


class Arrivals:
    """
    A client's bytes by time: those of records, without what requests add.

    Args:
        times_ms: ascending; two that are equal are a jump.
        totals: bytes that had arrived by then.
    """

    __slots__ = ("times_ms", "totals")

    def __init__(self, times_ms: Sequence[float], totals: Sequence[float]) -> None:
        self.times_ms = tuple(times_ms)
        self.totals = tuple(totals)

    @property
    def total(self) -> float:
        """All that ever arrives."""
        return self.totals[-1]

    def by(self, t_ms: float) -> float:
        """Return the bytes that had arrived by a time."""
        times, totals = self.times_ms, self.totals
        at = bisect_right(times, t_ms)
        if not at:
            return 0.0
        if at == len(times):
            return totals[-1]
        before, after = times[at - 1], times[at]
        return totals[at - 1] + (totals[at] - totals[at - 1]) * (t_ms - before) / (after - before)

    def when(self, total: float) -> float:
        """Return when this many bytes have arrived, ms; infinite: never."""
        times, totals = self.times_ms, self.totals
        at = bisect_left(totals, total)
        if at == len(totals):
            return inf
        if not at or totals[at] == totals[at - 1]:
            return times[at]
        part = (total - totals[at - 1]) / (totals[at] - totals[at - 1])
        return times[at - 1] + part * (times[at] - times[at - 1])


def payload(amount: float) -> float:
    """Return the bytes of records in a request."""
    return max(amount - OVERHEAD_BYTES, amount / 2)


def idle_limit(lane: ChargeSequence) -> float:
    """Return the pause from which on a client had nothing to send, ms."""
    waits, pauses = lane.waits_ms, lane.pauses_ms
    waited = [pauses[i] for i in range(1, len(pauses)) if waits[i - 1] > 0]
    base = min(quantile(waited, 0.25), quantile(pauses[1:], 0.25))
    return max(IDLE_MS, _TIMES_BASE * base)


def caught_up(lane: ChargeSequence, *, by_pauses: bool = True) -> list[int]:
    """
    Return the charges after which a client had nothing more to send.

    They are those that a long pause followed, and runs of requests that weren't full.

    Args:
        lane: the charges.
        by_pauses: pauses count. A slow machine makes some too, but no requests that aren't full.
    """
    waits, pauses, amounts = lane.waits_ms, lane.pauses_ms, lane.amounts
    limit = idle_limit(lane) if by_pauses else inf
    full = quantile([amounts[i] for i in range(len(amounts)) if waits[i] > 0], 0.9)
    found = []
    run = 0
    for i, wait in enumerate(waits):
        run = run + 1 if wait <= 0 and amounts[i] < _SMALL * full else 0
        paused = i + 1 < len(pauses) and pauses[i + 1] > limit
        if paused or run >= _SMALL_RUN:
            found.append(i)
    return found


def known(lane: ChargeSequence, met: Sequence[int]) -> tuple[list[float], list[float]]:
    """
    Return the arrivals as far as charges tell them.

    Args:
        lane: the charges.
        met: those after which nothing was left to send, ascending.

    Returns:
        Times and totals, up to the last of ``met``.
    """
    times, totals = [], []
    usual = quantile([lane.amounts[i] for i in met], 0.5)
    total, after = 0.0, 0
    for until in met:
        first, came = after, total
        for i in range(first, until + 1):
            total += payload(lane.amounts[i])
        if until > first and _at_once(lane, first, until, usual, total - came):
            times += [max(lane.times_ms[first] - 1.0, 0.0)] * 2
            totals += [came, total]
        else:
            start = lane.times_ms[first]
            if first and start - lane.times_ms[first - 1] > IDLE_MS and until > first:
                times.append(start)
                totals.append(came)
            times.append(lane.times_ms[until])
            totals.append(total)
        after = until + 1
    return times, totals


def _at_once(lane: ChargeSequence, first: int, until: int, usual: float, came: float) -> bool:
    """Say whether what a client sent from one charge to another had come at once."""
    at, sent = first, payload(lane.amounts[first])
    while lane.waits_ms[at] <= 0 and at < until:
        at += 1
        sent += payload(lane.amounts[at])
    if at == until:
        return False
    if at == first:
        return sent >= 3 * usual
    pace = sent / max(lane.times_ms[at] - lane.times_ms[first], 1.0)
    return pace >= 3 * came / max(lane.times_ms[until] - lane.times_ms[first], 1.0)
