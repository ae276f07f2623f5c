"""
Leases in the Kafka home: a record each, decided by the topic's one writer.

They run by the holders' wall clocks, which must agree better than a lease lasts.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.store.kafka.state import Record, TopicState, lease_record
from headgate.store.kafka.topic import Decide, QuotaTopic

_NONE = {"owner": "", "epoch": 0, "expires_ms": 0}


def take(
    topic: QuotaTopic,
    write: Callable[[Decide], None],
    clock_ms: Callable[[], int],
    name: str,
    owner: str,
    ttl_ms: int,
) -> KafkaLease | None:
    """
    Take a lease; None while another owner's runs.

    Args:
        topic: the topic, for reading.
        write: commits records; refuses where another store is found.
        clock_ms: the holder's clock.
        name: what only one may do.
        owner: who asks.
        ttl_ms: how long it lasts unless renewed.
    """
    taken: list[int] = []

    def decide(state: TopicState) -> list[Record]:
        taken.clear()
        lease, now = state.leases.get(name, _NONE), clock_ms()
        if lease["owner"] not in ("", owner) and lease["expires_ms"] > now:
            return []
        taken.append(lease["epoch"] + 1)
        return [lease_record(name, owner, taken[0], now + ttl_ms)]

    write(decide)
    return KafkaLease(topic, write, clock_ms, name, owner, taken[0], ttl_ms) if taken else None


class KafkaLease:
    """A lease held in the topic."""

    def __init__(
        self,
        topic: QuotaTopic,
        write: Callable[[Decide], None],
        clock_ms: Callable[[], int],
        name: str,
        owner: str,
        epoch: int,
        ttl_ms: int,
    ) -> None:
        self._topic = topic
        self._write = write
        self._clock_ms = clock_ms
        self.name = name
        self.owner = owner
        self.epoch = epoch
        self.ttl_ms = ttl_ms

    def renew(self) -> bool:
        """Extend by the ttl; a lease that ran out but that nobody took is ours again."""
        return self._update(self.owner, self.ttl_ms)

    def held(self) -> bool:
        """Return whether it is still ours and has time left."""
        self._topic.read_to_end()
        with self._topic.locked() as state:
            lease = state.leases.get(self.name, _NONE)
            return self._mine(state) and lease["expires_ms"] > self._clock_ms()

    def release(self) -> None:
        """Give it up; the epoch stays, so the next holder's is higher."""
        self._update("", 0)

    def _mine(self, state: TopicState) -> bool:
        lease = state.leases.get(self.name, _NONE)
        return (lease["owner"], lease["epoch"]) == (self.owner, self.epoch)

    def _update(self, owner: str, ttl_ms: int) -> bool:
        mine: list[bool] = []

        def decide(state: TopicState) -> list[Record]:
            mine[:] = [self._mine(state)]
            if not mine[0]:
                return []
            return [lease_record(self.name, owner, self.epoch, self._clock_ms() + ttl_ms)]

        self._write(decide)
        return mine[0]
