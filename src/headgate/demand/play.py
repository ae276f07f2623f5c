"""
Models in a closed loop against a manager: a client that is told to wait sends later.

The manager is Kafka's own (``throttle.manager``), asked at each request's time, in order of time.
Clients of a quota-id share its sensor. Fetches also share one gate: after a throttle nobody of the
quota-id is served before it is over, and then in turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Final

from headgate.demand.models import Model
from headgate.demand.rhythm import OVERHEAD_BYTES
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.manager import ClientQuotaManager

MOST_REQUESTS: Final = 100_000
"""Requests that one play goes through: half a second of work. A longer one is scaled up."""
AHEAD: Final = 0.09
"""How far a run may be ahead or behind another of the same client, by time: a millisecond decides
in which second a request counts, so the next burst comes a second of eleven sooner or later."""
_LONGEST: Final = 20.0
"""Clients that end are played on for this many times the observation."""


@dataclass(frozen=True, slots=True)
class Played:
    """
    How clients fared.

    Attributes:
        rate: bytes per second, to the end of the observation, or to the finish where all end.
        early, late: the same, of a run that is a little behind, or ahead.
        throttle_ms: throttle time told, summed over requests, in that time.
        throttle_early_ms, throttle_late_ms: likewise.
        finish_ms: when the last of those that end was done, from the first charge on; None: none
            ends, or not within twenty times the observation.
        grain: what the rate would differ by had one request more been charged, or one fewer.
        longest_ms: the longest that a request was told.
        work: bytes until the finish, where all end; 0 where not.
    """

    rate: float
    early: float
    late: float
    throttle_ms: float
    throttle_early_ms: float
    throttle_late_ms: float
    finish_ms: float | None
    grain: float
    longest_ms: float
    work: float = 0.0


class _Player:
    """
    One model as it is played.

    Args:
        model: the client.
        most: bytes that one request may have.
    """

    def __init__(self, model: Model, most: float) -> None:
        self.model = model
        self.most = most
        self.sent = 0.0
        self.requests = 0
        self.waits = 0
        self.done_ms: float | None = None
        self.ends = model.ends or model.catches_up

    def ready(self, free_ms: float, waited: bool) -> float:
        """Return when the next request is charged if it may be sent from ``free_ms`` on, or inf."""
        model = self.model
        if waited:
            pause = model.after_wait_ms[self.waits % len(model.after_wait_ms)]
            self.waits += 1
        else:
            pause = model.between_ms[self.requests % len(model.between_ms)]
        t_ms = free_ms + pause
        arrivals = model.arrivals
        if arrivals is None:
            return t_ms if self.sent < model.work else inf
        wanted = min(max(model.usual - OVERHEAD_BYTES, model.usual / 2), self.most)
        left = arrivals.total - self.sent
        if left < 1.0:
            return inf
        return max(t_ms, arrivals.when(self.sent + min(wanted, left)))

    def take(self, t_ms: float) -> float:
        """Send a request; return the bytes it is charged."""
        model = self.model
        size = min(model.sizes[self.requests % len(model.sizes)], self.most)
        self.requests += 1
        arrivals = model.arrivals
        if arrivals is None:
            size = min(size, model.work - self.sent)
            self.sent += size
            if self.sent >= model.work:
                self.done_ms = t_ms
            return size
        there = arrivals.by(t_ms) - self.sent
        records = max(min(there, max(size - OVERHEAD_BYTES, size / 2)), 1.0)
        self.sent += records
        behind = there - records if model.catches_up else arrivals.total - self.sent
        if self.done_ms is None and self.ends and behind < (model.usual if model.catches_up else 1):
            self.done_ms = t_ms
        return records + min(OVERHEAD_BYTES, records)


def play(
    models: Sequence[Model],
    bound: float | None,
    end_ms: float,
    *,
    gated: bool,
    num_samples: int = 11,
    window_ms: int = 1000,
) -> Played:
    """
    Play clients of one quota-id under a limit.

    Args:
        models: the clients.
        bound: bytes per second; None: none.
        end_ms: until when they are played, from the first charge on.
        gated: they fetch.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.
    """
    kind = QuotaType.CONSUMER_BYTE_RATE if gated else QuotaType.PRODUCER_BYTE_RATE
    manager = ClientQuotaManager(kind, num_samples=num_samples, window_ms=window_ms)
    if bound is not None:
        manager.update_quota(QuotaEntity.of(user="clients"), bound, 0)
    most = inf
    if gated and bound is not None:
        most = bound * (num_samples - 1) * window_ms / 1000.0
    players = [_Player(model, most) for model in models]
    all_end = all(player.model.ends for player in players)
    stop_ms = end_ms * (_LONGEST if any(player.ends for player in players) else 1 + AHEAD)
    order = count()  # no two entries are compared beyond it
    queue = [(p.model.start_ms, next(order), False, p) for p in players]
    heapq.heapify(queue)
    gate = at_ms = 0.0
    told = _Sums((end_ms * (1 - AHEAD), end_ms, end_ms * (1 + AHEAD)))
    requests = 0
    largest = longest = 0.0
    while queue and requests < MOST_REQUESTS:
        at_ms, _, held, player = heapq.heappop(queue)
        if at_ms > stop_ms:
            break
        if gated and gate > at_ms:
            heapq.heappush(queue, (gate, next(order), True, player))
            continue
        if held:
            # The request was there when the gate opened: what is left is the broker's answer.
            at_ms += min(player.model.after_wait_ms)
        amount = player.take(at_ms)
        now = round(at_ms)
        wait = manager.record("clients", "", float(round(amount)), now).throttle_time_ms
        wait = max(wait, 0)
        requests += 1
        told.add(at_ms, amount, wait)
        if wait > longest:
            longest = wait
        if wait and amount > largest:
            largest = amount
        if wait and gated:
            gate = max(gate, at_ms + wait)
        free_ms = at_ms + (max(wait, player.model.answer_ms) if wait else 0)
        next_ms = player.ready(free_ms, wait > 0)
        if next_ms < inf:
            heapq.heappush(queue, (next_ms, next(order), False, player))
        if all(p.done_ms is not None for p in players if p.ends) and at_ms > told.ends_ms[-1]:
            break
    if requests >= MOST_REQUESTS:
        told.extend(at_ms)
    done = [p.done_ms for p in players if p.ends and p.done_ms is not None]
    finish = max(done) if done and len(done) == sum(p.ends for p in players) else None
    if all_end and finish is not None:
        rate, throttle = told.amounts[-1] / max(finish, 1.0) * 1000.0, told.throttle_ms[-1]
        work = told.amounts[-1]
        return Played(
            rate, rate, rate, throttle, throttle, throttle, finish, 0.0, float(longest), work
        )
    early, rate, late = (amount / max(end_ms, 1.0) * 1000.0 for amount in told.amounts[:3])
    before, throttle, after = told.throttle_ms[:3]
    grain = largest / max(end_ms, 1.0) * 1000.0
    return Played(rate, early, late, throttle, before, after, finish, grain, float(longest))


class _Sums:
    """
    Bytes and throttle time by some moments, and of the whole play.

    Args:
        ends_ms: the moments, ascending.
    """

    def __init__(self, ends_ms: tuple[float, ...]) -> None:
        self.ends_ms = ends_ms
        self.amounts = [0.0] * (len(ends_ms) + 1)
        self.throttle_ms = [0.0] * (len(ends_ms) + 1)

    def add(self, at_ms: float, amount: float, wait_ms: float) -> None:
        """Count a request."""
        for n, end_ms in enumerate((*self.ends_ms, inf)):
            if at_ms <= end_ms:
                self.amounts[n] += amount
                self.throttle_ms[n] += wait_ms

    def extend(self, at_ms: float) -> None:
        """Go on to each moment at the pace so far, from where the play stopped."""
        for n, end_ms in enumerate(self.ends_ms):
            scale = max(end_ms / max(at_ms, 1.0), 1.0)
            self.amounts[n] *= scale
            self.throttle_ms[n] *= scale
