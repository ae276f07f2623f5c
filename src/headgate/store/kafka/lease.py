"""
Leases in the Kafka home: a record each, changed by the topic's one writer at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.store.kafka.home import KafkaHome
from headgate.store.kafka.state import Record, TopicState, lease_record
from headgate.store.leases import NOBODYS, Decide, LeaseRecord


@dataclass(frozen=True, eq=False)
class KafkaLeases:
    """
    The topic's records of leases.

    Args:
        home: the topic's. By its clock earlier releases read a lease's mark as the time of its end.
    """

    home: KafkaHome

    def look(self, name: str) -> LeaseRecord:
        """Return a lease's record as of now; the home is prepared for a change first."""
        self.home.prepare()
        with self.home.topic.read() as state:
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
            mark = max(self.home.clock_ms() + ttl_ms, held.mark + 1)
            return [lease_record(name, LeaseRecord(owner, epoch, mark, ttl_ms))]

        self.home.write(records)
        return kept
