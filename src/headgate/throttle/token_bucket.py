"""
The token bucket: credit that grows at the quota's rate up to a burst, spent by each charge.

Where a sampled rate remembers a burst for N windows, a bucket forgives it as fast as the quota
refills: with a quota of 2/s, 30 at once leave -10 tokens in a bucket of 20, repaid after 5 s, while
the sampled rate stays at 3/s for 10 s.

Source: TokenBucket (org.apache.kafka.common.metrics.stats); KIP-599 "Proposed Changes";
ControllerMutationQuotaManager.throttleTimeMs.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import inf

from headgate.throttle.java import UNLIMITED, divide, java_round
from headgate.throttle.overrides import Tags
from headgate.throttle.sensor import SampledRate


@dataclass(slots=True, eq=False)
class TokenBucket:
    """
    A bucket of N x W seconds' worth of its quota.

    Args:
        bound: tokens per second; None: no quota (records do nothing).
        num_samples: N (controller.quota.window.num).
        window_ms: W in ms.
        tokens: what it holds at last_ms. Kafka starts with 0 at time 0, which epoch time fills at
            the first use; give the burst where the clock starts near 0.
        last_ms: the time of that.
    """

    bound: float | None
    num_samples: int = 11
    window_ms: int = 1000
    _: KW_ONLY
    tokens: float = 0.0
    last_ms: int = 0

    @property
    def burst(self) -> float:
        """The most it holds, in tokens: N x W seconds of the quota."""
        if self.bound is None:
            return UNLIMITED
        return self.num_samples * (self.window_ms / 1000.0) * self.bound

    def record(self, amount: float, now_ms: int) -> None:
        """Spend tokens (negative gives back, never above the burst); below zero is violated."""
        if self.bound is None:
            return
        tokens = self.measure(now_ms) - amount
        burst = self.burst
        self.tokens = tokens if tokens <= burst else burst

    def measure(self, now_ms: int) -> float:
        """Refill up to now and return the tokens; a clock that steps back takes tokens away."""
        if self.bound is None:
            return UNLIMITED
        self.tokens = self.peek(now_ms)
        self.last_ms = now_ms
        return self.tokens

    def peek(self, now_ms: int) -> float:
        """Return the tokens at now and change nothing."""
        bound = self.bound
        if bound is None:
            return UNLIMITED
        burst = self.num_samples * (self.window_ms / 1000.0) * bound
        tokens = self.tokens + bound * ((now_ms - self.last_ms) / 1000.0)
        return tokens if tokens <= burst else burst


class BucketSensor(TokenBucket):
    """
    One quota-id's bucket, with the rate that metrics show.

    Args:
        tags: the quota-id's, raw.
        bound: the quota, units per second.
        now_ms: when it is made, epoch ms.
        windows: number of samples, and ms of each, that the bucket holds.
        rate: measures what is charged; never checked.

    Attributes:
        limit: the quota; ``bound`` has it too, and may be None in other buckets.
        last_record_ms: time of the last record, which expiry looks at.
    """

    __slots__ = ("client_tag", "last_record_ms", "limit", "rate", "user_tag")

    def __init__(
        self, tags: Tags, bound: float, now_ms: int, windows: tuple[int, int], rate: SampledRate
    ) -> None:
        super().__init__(bound, *windows)
        self.user_tag, self.client_tag = tags
        self.last_record_ms = now_ms
        self.limit = bound
        self.rate = rate

    def set_bound(self, bound: float, now_ms: int) -> None:
        """Refill by a new quota from the last refill on; the tokens stay."""
        self.bound = self.limit = bound

    def forgive(self, now_ms: int) -> None:
        """Owe nothing: the bucket is full at its next use."""
        self.tokens, self.last_ms = inf, now_ms

    def violation_ms(self, now_ms: int) -> int | None:
        """Refill, and return the throttle time if tokens are below zero; None if they aren't."""
        tokens = self.measure(now_ms)
        return token_throttle_time_ms(tokens, self.limit) if tokens < 0 else None


def token_throttle_time_ms(tokens: float, bound: float) -> int:
    """
    Return the time a bucket needs to get back to zero.

    Args:
        tokens: what it holds; negative when violated.
        bound: tokens per second.

    Returns:
        Whole milliseconds, rounded half up.

    Source: ControllerMutationQuotaManager.throttleTimeMs: round(-tokens / bound * 1000).
    """
    return java_round(divide(-tokens, bound) * 1000.0)
