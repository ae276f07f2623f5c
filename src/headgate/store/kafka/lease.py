"""
Leases in the Kafka home: a record each, changed by the topic's one writer at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.store.kafka.state import Record, TopicState, lease_record
from headgate.store.kafka.topic import Decide as DecideRecords
from headgate.store.kafka.topic import QuotaTopic
from headgate.store.leases import NOBODYS, Decide, LeaseRecord


@dataclass(frozen=True, eq=False)
class KafkaLeases:
    """
    The topic's records of leases.

    Args:
        topic: the topic, for reading.
        write: commits records; refuses where another store is found.
        clock_ms: the wall clock: earlier releases read a lease's mark as the time of its end.
    """

    topic: QuotaTopic
    write: Callable[[DecideRecords], None]
    clock_ms: Callable[[], int]

    def look(self, name: str) -> LeaseRecord:
        """Return a lease as of now."""
        with self.topic.read() as state:
            return state.leases.get(name, NOBODYS)

    def change(self, name: str, decide: Decide) -> bool:
        """Keep what ``decide`` returns for a lease as it is now."""
        kept = False

        def records(state: TopicState) -> list[Record]:
            nonlocal kept
            held = state.leases.get(name, NOBODYS)
            wanted = decide(held)
            kept = wanted is not None
            if wanted is None:
                return []
            owner, epoch, ttl_ms = wanted
            mark = max(self.clock_ms() + ttl_ms, held.mark + 1)
            return [lease_record(name, LeaseRecord(owner, epoch, mark, ttl_ms))]

        self.write(records)
        return kept
