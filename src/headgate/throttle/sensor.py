"""
The sampled rate: what a sensor observed over the last N windows, bit for bit as Kafka's.

A sensor keeps up to N + 1 samples of W ms each (11 x 1 s by default). A sample starts at the first
event that finds the current one W old: windows are not aligned to the clock, and there are no
empty ones. Measuring first empties samples whose last event is N x W old, then divides the sum by
the time since the oldest sample's start, padded to N - 1 whole windows. So a burst at one instant
counts as if it had taken N - 1 windows, and a rate never looks high merely because a sensor is
young.

A sensor sums in one of two ways. Sums of whole numbers below 2^53 don't depend on their order, so
as long as all amounts are whole the sum is kept as it goes. From the first other amount on, doubles
are summed in Kafka's order at every measurement.

Source: SampledStat, WindowedSum, Rate (org.apache.kafka.common.metrics.stats), Kafka >= 3.8.
"""

from __future__ import annotations

from array import array
from typing import Final

from headgate.throttle.java import divide, java_round, to_int32

NEVER: Final = -(1 << 70)
"""Earlier than any clock."""
MOST_EXACT: Final = 8_796_093_022_208.0
"""2^43: a sample's sum must stay below this to be exact, 2^53 over at most 1,024 samples."""
LIBRARY_WINDOWS: Final = (2, 30_000)
"""Samples, and ms of each, of Kafka's rates that no quota checks: ``metrics.num.samples`` and
``metrics.sample.window.ms``."""
_MOST_EXACT_SAMPLES: Final = 1_000


class SampledRate:
    """
    One sampled rate.

    Args:
        num_samples: N, windows that count (quota.window.num), at least 1.
        window_ms: W, one window's length in ms (quota.window.size.seconds x 1000), at least 1.

    Attributes:
        value: sum of the current sample; a whole number while sums are exact.
        others: sum of all other samples while sums are exact.
        last_ms: time of the current sample's last event.
        oldest_ms: start of the oldest sample, as of the last measurement.
        quick_until: before this time (and not before last_ms) a whole amount changes nothing but
            ``value`` and ``last_ms``.
    """

    __slots__ = (
        "_current",
        "_exact",
        "_lasts",
        "_pad_ms",
        "_span_ms",
        "_starts",
        "_values",
        "last_ms",
        "num_samples",
        "oldest_ms",
        "others",
        "quick_until",
        "value",
        "window_ms",
    )

    def __init__(self, num_samples: int = 11, window_ms: int = 1000) -> None:
        # What most charges read comes last, beside what subclasses add.
        # Arrays: lists of as many numbers take three times the memory.
        self._starts = array("q")
        self._lasts = array("q")
        self._values = array("d")
        self._current = 0
        self._exact = True
        self.oldest_ms = 0
        self.others = 0.0
        self.value = 0.0
        self.last_ms = 0
        self.configure(num_samples, window_ms)

    def configure(self, num_samples: int, window_ms: int) -> None:
        """Change N and W (ms); samples are kept and judged by the new values from now on."""
        if num_samples < 1 or window_ms < 1:
            raise ValueError(f"need 1 sample of 1 ms at least, not {num_samples} of {window_ms} ms")
        self.num_samples = num_samples
        self.window_ms = window_ms
        self._span_ms = num_samples * window_ms
        self._pad_ms = (num_samples - 1) * window_ms
        self.quick_until = NEVER
        if num_samples > _MOST_EXACT_SAMPLES:
            self._exact = False

    def record(self, amount: float, now_ms: int) -> None:
        """
        Add an amount to the sample of now.

        Args:
            amount: units charged; negative takes back; 0 counts as an event.
            now_ms: the event's time.
        """
        if self.last_ms <= now_ms < self.quick_until and amount % 1.0 == 0.0:
            value = self.value + amount
            if -MOST_EXACT < value < MOST_EXACT:
                self.value = value
                self.last_ms = now_ms
                return
        self._add(amount, now_ms)
        # The next measurement decides again what is purged, so no shortcut is valid before it.
        self.quick_until = NEVER

    def measure(self, now_ms: int) -> float:
        """Return the rate per second at now; empties old samples, as Kafka's measure does."""
        return self.charge(None, now_ms)[0]

    def charge(self, amount: float | None, now_ms: int) -> tuple[float, int]:
        """
        Record an amount (None: nothing) and measure.

        Returns:
            The rate in units per second, and the window it was measured over in ms.
        """
        if amount is not None:
            self._add(amount, now_ms)
        starts = self._starts
        current = self._current
        if not starts:
            # Rate.windowSize asks for the oldest sample, which makes one where there is none.
            starts.append(now_ms)
            self._lasts.append(now_ms)
            self._values.append(0.0)
            self.last_ms = now_ms
        lasts = self._lasts
        lasts[current] = self.last_ms
        span = self._span_ms
        first = min(lasts)
        if now_ms - first >= span:
            at = lasts.index(first)
            if self._exact and at != current:
                # A sensor in steady use has one sample to empty at a time.
                starts[at] = lasts[at] = now_ms
                self.others -= self._values[at]
                self._values[at] = 0.0
                first = min(lasts)
            if now_ms - first >= span:
                self._purge(now_ms - span, now_ms)
                first = min(lasts)
        self.oldest_ms = oldest = min(starts)
        if self._exact:
            total = self.others + self.value
            # A record before `until` neither opens a sample nor lets one grow too old. Where the
            # clock has stepped back behind a sample, nothing is quick.
            until = starts[current] + self.window_ms
            if first + span < until:
                until = first + span
            self.quick_until = until if oldest <= now_ms else NEVER
        else:
            values = self._values
            values[current] = self.value
            total = 0.0
            for value in values:
                total += value
        elapsed = now_ms - oldest
        pad = self._pad_ms
        if elapsed < pad:
            window = self.window_ms
            if elapsed >= 0:
                elapsed = pad + elapsed % window
            else:
                elapsed = _padded(elapsed, self.num_samples, window)
        return total / ((elapsed if elapsed > 1 else 1) / 1000.0), elapsed if elapsed > 1 else 1

    @property
    def exact(self) -> bool:
        """Whether all amounts were whole numbers: ``others`` and ``value`` are the sum."""
        return self._exact

    @property
    def total(self) -> float:
        """The sum of all samples, old ones included that the next measurement empties."""
        if self._exact:
            return self.others + self.value
        return sum(self._values) - self._values[self._current] + self.value

    def peek(self, now_ms: int) -> tuple[float, int]:
        """
        Return what :meth:`charge` of None would, and change nothing.

        Differs from Kafka's metrics, whose reading empties samples (`docs: differences`).
        """
        starts = self._starts
        if not starts:
            return 0.0, _padded(0, self.num_samples, self.window_ms)
        total = 0.0
        oldest = now_ms
        for i, start in enumerate(starts):
            here = i == self._current
            if now_ms - (self.last_ms if here else self._lasts[i]) >= self._span_ms:
                start = now_ms
            else:
                total += self.value if here else self._values[i]
            if i == 0 or start < oldest:
                oldest = start
        window = _padded(now_ms - oldest, self.num_samples, self.window_ms)
        return total / (window / 1000.0), window

    def _add(self, amount: float, now_ms: int) -> None:
        """Record an amount, opening a sample where the current one is complete."""
        starts = self._starts
        if not starts:
            starts.append(now_ms)
            self._lasts.append(now_ms)
            self._values.append(0.0)
        elif now_ms - starts[self._current] >= self.window_ms:
            self._advance(now_ms)
        if self._exact:
            if amount % 1.0 == 0.0:
                value = self.value + amount
                if -MOST_EXACT < value < MOST_EXACT:
                    self.value = value
                    self.last_ms = now_ms
                    return
            self._exact = False
        self.value += amount
        self.last_ms = now_ms

    def _advance(self, now_ms: int) -> None:
        """Make the next of the N + 1 slots the current sample, empty."""
        current = self._current
        values = self._values
        values[current] = self.value
        self._lasts[current] = self.last_ms
        current = (current + 1) % (self.num_samples + 1)
        if current >= len(values):
            current = len(values)
            self._starts.append(now_ms)
            self._lasts.append(now_ms)
            values.append(0.0)
            if self._exact:
                self.others += self.value
        else:
            self._starts[current] = now_ms
            self._lasts[current] = now_ms
            if self._exact:
                self.others += self.value - values[current]
            values[current] = 0.0
        self._current = current
        self.value = 0.0

    def _purge(self, obsolete_ms: int, now_ms: int) -> None:
        """Empty samples whose last event isn't later than obsolete_ms; they restart at now."""
        starts, lasts, values = self._starts, self._lasts, self._values
        current = self._current
        values[current] = self.value
        removed = 0.0
        for i, last in enumerate(lasts):
            if last <= obsolete_ms:
                starts[i] = lasts[i] = now_ms
                if i == current:
                    self.value = 0.0
                    self.last_ms = now_ms
                else:
                    removed += values[i]
                values[i] = 0.0
        if self._exact:
            self.others -= removed


def _padded(elapsed_ms: int, num_samples: int, window_ms: int) -> int:
    """Return Rate.windowSize for an elapsed time, with Java's division and its int cast."""
    full = elapsed_ms // window_ms if elapsed_ms >= 0 else -(-elapsed_ms // window_ms)
    full = to_int32(full)
    if full < num_samples - 1:
        elapsed_ms += (num_samples - 1 - full) * window_ms
    return max(elapsed_ms, 1)


def throttle_time_ms(rate: float, bound: float, window_ms: int) -> int:
    """
    Return the delay that brings a sampled rate back to its bound.

    Adding X ms of silence to a window W turns rate O into O * W / (W + X).
    Setting that equal to the bound T gives X = (O - T) / T * W.

    Args:
        rate: observed rate, in units per second.
        bound: the quota, in the same units.
        window_ms: time the samples cover, including the part of the current one that has passed.
            Not the size of one sample.

    Returns:
        Whole milliseconds, rounded half up; negative below the bound, 0 for NaN, Java's largest
        long for a bound of 0. Not capped: the caller knows which cap applies.

    Source: KIP-612 "Proposed Changes"; QuotaUtils.throttleTime in Apache Kafka.
    """
    return java_round(divide(rate - bound, bound) * window_ms)
