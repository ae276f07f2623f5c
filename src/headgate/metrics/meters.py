"""Count what isn't in a quota sensor: throttle times told, connections, bytes, closes, the journal.

Plain attributes, added to by the gateway as it works; no clock, no lock, no library. A worker has
one `Meters`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import exp
from typing import Final

from headgate.metrics.chosen import Chosen, Counts, Tags
from headgate.quota.key import QuotaType

SAMPLES: Final = 2
WINDOW_MS: Final = 30_000
"""Kafka's library windows (metrics.num.samples, metrics.sample.window.ms): means cover a minute."""


_TICK_MS: Final = 5_000
_DECAYS: Final = {
    f"{name}_minute": exp(-_TICK_MS / 60_000 / minutes)
    for name, minutes in (("one", 1), ("five", 5), ("fifteen", 15))
}
"""What is left of an average after five seconds, by its name in Kafka's Meter."""


class Mean:
    """
    The mean of what was recorded in the last samples; None where nothing was.

    Unlike Kafka's ``Avg`` it is never purged by reading, so a scrape changes nothing.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        # (start_ms, sum, count), oldest first.
        self._slots: list[tuple[int, float, int]] = []

    def record(self, value: float, now_ms: int) -> None:
        """Add a value."""
        if not self._slots or now_ms - self._slots[-1][0] >= WINDOW_MS:
            self._slots = [*self._slots[-SAMPLES:], (now_ms, value, 1)]
            return
        start, total, count = self._slots[-1]
        self._slots[-1] = (start, total + value, count + 1)

    def peek(self, now_ms: int) -> float | None:
        """Return the mean at now; changes nothing."""
        live = [slot for slot in self._slots if now_ms - slot[0] < SAMPLES * WINDOW_MS]
        count = sum(slot[2] for slot in live)
        return sum(slot[1] for slot in live) / count if count else None


class BlockedMeter:
    """
    The share of time in which accepting was blocked, as Kafka's Meter has it.

    A wait counts when it is over, whole. Each rate is an exponentially weighted average that moves
    every five seconds from the meter's start on; before the first time it is 0. Shares are of 1, as
    in Kafka, whatever AcceptorBlockedPercent's name says.

    Args:
        start_ms: epoch ms.

    Source: com.yammer.metrics.core.Meter and stats.EWMA (metrics-core 2.2.0), which Kafka uses with
    nanoseconds as event and rate unit (SocketServer, ConnectionQuotas.waitForConnectionSlot).
    """

    __slots__ = ("_blocked_ms", "_next_ms", "_rates", "_start_ms", "_uncounted_ms")

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._next_ms = start_ms + _TICK_MS
        self._blocked_ms = self._uncounted_ms = 0
        self._rates: list[float] | None = None

    def mark(self, blocked_ms: int, now_ms: int) -> None:
        """Note that accepting was blocked for so long until now."""
        self._tick(now_ms)
        self._blocked_ms += blocked_ms
        self._uncounted_ms += blocked_ms

    def peek(self, now_ms: int) -> dict[str, float]:
        """Return mean, one-, five- and fifteen-minute rates; changes none of them."""
        self._tick(now_ms)
        elapsed_ms = now_ms - self._start_ms
        mean = self._blocked_ms / elapsed_ms if self._blocked_ms and elapsed_ms > 0 else 0.0
        rates = self._rates or [0.0] * len(_DECAYS)
        return {"mean": mean, **dict(zip(_DECAYS, rates, strict=True))}

    def _tick(self, now_ms: int) -> None:
        """Move the averages once for every five seconds that have passed."""
        count = (now_ms - self._next_ms) // _TICK_MS + 1
        if count <= 0:
            return
        self._next_ms += count * _TICK_MS
        latest, self._uncounted_ms = self._uncounted_ms / _TICK_MS, 0
        if self._rates is None:
            self._rates = [latest] * len(_DECAYS)
        else:
            self._rates = [
                rate + (1.0 - decay) * (latest - rate)
                for rate, decay in zip(self._rates, _DECAYS.values(), strict=True)
            ]
        if count > 1:  # nothing was marked since
            self._rates = [
                rate * decay ** (count - 1)
                for rate, decay in zip(self._rates, _DECAYS.values(), strict=True)
            ]


@dataclass(slots=True)
class ListenerMeters:
    """
    One listener's counts. The gateway adds to the attributes directly.

    Attributes:
        connections: open now.
        muted: of these, muted now.
        accepted, requests: so far.
        bytes_in, bytes_out: relayed from and to clients.
        closed: by reason.
        throttle_time, ip_throttle_time: delays of accepting, ms.
        blocked: how much of the time accepting was blocked; None before there is an acceptor.
    """

    connections: int = 0
    muted: int = 0
    accepted: int = 0
    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    closed: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    throttle_time: Mean = field(default_factory=Mean)
    ip_throttle_time: Mean = field(default_factory=Mean)
    blocked: BlockedMeter | None = None


class Meters:
    """
    One worker's counts.

    Attributes:
        listeners: by name, made on first use.
        queue: muted channels by quota type.
        upstream_failures: by reason.
        usage_events, usage_dropped: of the journal.
        usage_damaged: files of the journal that were set aside.
        usage_removed: files of the journal that went because all together were too large.
        queued_bytes: held in memory for all connections of the process, beyond their minimum.
        fetches_held: fetches that waited for their quota-id's turn; fetch_held_ms: how long.
        loop_longest_ms, loop_slow: of the process's event loop, as ``loop.watcher`` has them.
        mutations_guessed: topics charged one mutation because nobody could tell their partitions.
        broker_up: whether the broker answers the gateway's own question.
        store_up: whether the store answers.
        store_version: of the table in force.
        split_expired: whether cluster-wide splits are out of date.
        throttle_times: means of what was told, by quota type and tags.
        throttled: what was told, by quota type, then by tags.
        throttled_in_all: requests and ms told so far by quota type, of forgotten quota-ids too.
        chosen: the quota-ids that have series of their own, by quota type.
        crowded: principals that have client-ids which are charged together.
        drawings: how often samples of all this were read.
    """

    def __init__(self) -> None:
        self.listeners: defaultdict[str, ListenerMeters] = defaultdict(ListenerMeters)
        self.queue: defaultdict[QuotaType, int] = defaultdict(int)
        self.upstream_failures: defaultdict[str, int] = defaultdict(int)
        self.usage_events = self.usage_dropped = self.usage_damaged = self.usage_removed = 0
        self.queued_bytes = 0
        self.mutations_guessed = 0
        self.loop_longest_ms = 0.0
        self.loop_slow = 0
        self.fetches_held = self.fetch_held_ms = 0
        self.broker_up = self.store_up = True
        self.store_version = 0
        self.split_expired = False
        self.throttle_times: dict[tuple[QuotaType, str, str], Mean] = {}
        self.throttled: defaultdict[QuotaType, dict[Tags, Counts]] = defaultdict(dict)
        self.throttled_in_all: dict[QuotaType, tuple[int, int]] = {}
        self.chosen: defaultdict[QuotaType, Chosen] = defaultdict(Chosen)
        self.crowded = 0
        self.drawings = 0

    def throttle(
        self, quota_type: QuotaType, user_tag: str, client_tag: str, ms: int, now_ms: int
    ) -> None:
        """
        Note a throttle that was told.

        Args:
            quota_type: the manager whose throttle won; only its mean is updated, as in Kafka.
            user_tag: the quota-id's user, raw; "" where it isn't part of it.
            client_tag: its client-id likewise.
            ms: what the client was told.
            now_ms: epoch ms.
        """
        self.waits(quota_type, user_tag, client_tag, ms, now_ms)
        self.throttle_times[quota_type, user_tag, client_tag].record(ms, now_ms)
        self.throttled[quota_type][user_tag, client_tag].told(ms)
        count, total = self.throttled_in_all.get(quota_type, (0, 0))
        self.throttled_in_all[quota_type] = (count + 1, total + ms)

    def waits(
        self, quota_type: QuotaType, user_tag: str, client_tag: str, ms: int, now_ms: int
    ) -> None:
        """Note that a client is muted from now on; arguments as for ``throttle``."""
        of_type, tags = self.throttled[quota_type], (user_tag, client_tag)
        counts = of_type.get(tags)
        if counts is None:
            counts = of_type[tags] = Counts(self.drawings)
            self.throttle_times.setdefault((quota_type, *tags), Mean())
        counts.waits(ms, now_ms)

    def forget(self, quota_type: QuotaType, user_tag: str, client_tag: str) -> None:
        """Drop the series of a quota-id whose sensors have expired."""
        self.throttle_times.pop((quota_type, user_tag, client_tag), None)
        self.throttled[quota_type].pop((user_tag, client_tag), None)
