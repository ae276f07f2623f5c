"""
Kafka's own decisions, transcribed once more; not a line is shared with the product's throttle.

Sources: ``SampledStat``, ``WindowedSum``, ``Rate``, ``QuotaUtils.throttleTime``,
``DefaultQuotaCallback`` of Apache Kafka 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT = "<default>"
Level = tuple[str | None, str | None]
"""User and client-id of a quota's entity; ``DEFAULT`` or None where it has none."""
Quotas = Mapping[tuple[Level, str], float]


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


@dataclass(slots=True)
class KafkaRate:
    """A sampled rate: ``samples`` windows of ``window_ms`` count."""

    samples: int = 11
    window_ms: int = 1_000
    kept: list[_Sample] = field(default_factory=list)
    current: int = 0

    def record(self, amount: float, now_ms: int) -> None:
        """SampledStat.record."""
        if not self.kept:
            self.kept.append(_Sample(now_ms, now_ms))
        sample = self.kept[self.current]
        if now_ms - sample.start_ms >= self.window_ms:
            self.current = (self.current + 1) % (self.samples + 1)
            if self.current >= len(self.kept):
                sample = _Sample(now_ms, now_ms)
                self.kept.append(sample)
            else:
                sample = self.kept[self.current]
                sample.start_ms, sample.last_ms, sample.value = now_ms, now_ms, 0.0
        sample.value += amount
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """Rate.measure and Rate.windowSize: units per second, and ms."""
        expire = self.samples * self.window_ms
        if not self.kept:
            self.kept.append(_Sample(now_ms, now_ms))
        for sample in self.kept:
            if now_ms - sample.last_ms >= expire:
                sample.start_ms, sample.last_ms, sample.value = now_ms, now_ms, 0.0
        total = sum(sample.value for sample in self.kept)
        elapsed = now_ms - min(sample.start_ms for sample in self.kept)
        full = int(elapsed / self.window_ms)  # Java's division: towards zero
        if full < self.samples - 1:
            elapsed += (self.samples - 1 - full) * self.window_ms
        elapsed = max(elapsed, 1)
        return total / (elapsed / 1000.0), elapsed

    def decide(self, amount: float, bound: float, now_ms: int) -> int:
        """ClientQuotaManager.recordAndGetThrottleTimeMs."""
        self.record(amount, now_ms)
        rate, window = self.measure(now_ms)
        if rate <= bound:
            return 0
        return math.floor((rate - bound) / bound * window + 0.5)


def resolve(quotas: Quotas, user: str, client: str, key: str) -> tuple[tuple[str, str], float]:
    """Return whose sensor is charged, and its bound: DefaultQuotaCallback.quotaMetricTags."""
    levels: tuple[tuple[Level, tuple[str, str]], ...] = (
        ((user, client), (user, client)),
        ((user, DEFAULT), (user, client)),
        ((user, None), (user, "")),
        ((DEFAULT, client), (user, client)),
        ((DEFAULT, DEFAULT), (user, client)),
        ((DEFAULT, None), (user, "")),
        ((None, client), ("", client)),
        ((None, DEFAULT), ("", client)),
    )
    for level, tags in levels:
        value = quotas.get((level, key))
        if value is not None:
            return tags, value
    return ("", client), math.inf
