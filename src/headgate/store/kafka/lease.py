"""
Leases in the Kafka home: a record each, decided by the topic's one writer.

They run by the holders' wall clocks, which must agree better than a lease lasts.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.store.kafka.state import Record, TopicState, lease_record
from headgate.store.kafka.topic import Decide as DecideRecords
from headgate.store.kafka.topic import QuotaTopic
from headgate.store.leases import Decide, LeaseRecord

_NONE = {"owner": "", "epoch": 0, "expires_ms": 0}


class KafkaLeases:
    """
    The topic's records of leases.

    Args:
        topic: the topic, for reading.
        write: commits records; refuses where another store is found.
        clock_ms: the holder's clock.
    """

    def __init__(
        self,
        topic: QuotaTopic,
        write: Callable[[DecideRecords], None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._write = write
        self._clock_ms = clock_ms

    def look(self, name: str) -> LeaseRecord:
        """Return a lease as of now."""
        self._topic.read_to_end()
        with self._topic.locked() as state:
            return self._read(state, name)

    def change(self, name: str, decide: Decide) -> bool:
        """Keep what ``decide`` returns for a lease as it is now."""
        kept = False

        def records(state: TopicState) -> list[Record]:
            nonlocal kept
            wanted = decide(self._read(state, name))
            kept = wanted is not None
            if wanted is None:
                return []
            owner, epoch, ttl_ms = wanted
            return [lease_record(name, owner, epoch, self._clock_ms() + ttl_ms)]

        self._write(records)
        return kept

    def _read(self, state: TopicState, name: str) -> LeaseRecord:
        found = state.leases.get(name, _NONE)
        return LeaseRecord(
            found["owner"], found["epoch"], lambda: found["expires_ms"] > self._clock_ms()
        )
