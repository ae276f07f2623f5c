"""
A KRaft cluster as a store has it open: Kafka's own APIs, and the topic beside them.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.client.security import librdkafka_config
from headgate.config.security import ClientSecurity
from headgate.quota.entity import QuotaEntity
from headgate.store.base import AuditEvent, HistoryEntry
from headgate.store.home import StoreHome
from headgate.store.identity import StoreIdentity, new_identity
from headgate.store.kafka.client import KafkaClient, as_store_error
from headgate.store.kafka.state import (
    TURN_S,
    Expected,
    Record,
    TopicState,
    audit_record,
    identity_record,
    is_change,
    new_id,
)
from headgate.store.kafka.topic import Decide, QuotaTopic


class KafkaHome(StoreHome):
    """
    A cluster and its topic.

    Args:
        bootstrap: ``host:port,host:port`` of any brokers.
        security: TLS and SASL; None for a plaintext listener.
        topic: the name of the topic.
        clock_ms: the clock of the history.
        changed: called after records came in, with what Kafka must show.
    """

    #: A dead process's turn is over after ``TURN_S``, and then there is a change to make.
    change_s = TURN_S + 5.0

    def __init__(
        self,
        bootstrap: str,
        security: ClientSecurity | None,
        topic: str,
        clock_ms: Callable[[], int],
        changed: Callable[[Expected], None],
    ) -> None:
        super().__init__(f"kafka://{bootstrap}", clock_ms)
        with as_store_error():
            config = librdkafka_config(bootstrap, security)
        self.client = KafkaClient(bootstrap, security)
        self.topic = QuotaTopic(config, topic, changed)

    def read_identity(self) -> StoreIdentity | None:
        """Return the identity in the topic."""
        with self.topic.read() as state:
            return state.identity

    def make_whole(self) -> None:
        """Make the topic, and an identity."""
        if self.known is None:
            self.topic.make()
            if self.read_identity() is None:
                new = identity_record(new_identity())
                self.topic.write(lambda state: [] if state.identity else [new])

    def write_succeeds(self, succeeds: tuple[tuple[str, int], ...]) -> None:
        """Write which stores this one took over from."""

        def decide(state: TopicState) -> list[Record]:
            assert state.identity is not None
            if state.identity.succeeds == succeeds:
                return []
            new = state.identity._replace(succeeds=succeeds, revision=state.identity.revision + 1)
            return [identity_record(new)]

        self.write(decide)

    def write(self, decide: Decide) -> None:
        """Commit to the topic if it still is this store's."""

        def checked(state: TopicState) -> list[Record]:
            self.check_same(state.identity)
            return decide(state)

        self.topic.write(checked)

    def write_change(self, decide: Decide) -> None:
        """Commit to the topic; a change of quotas or broker settings makes the revision grow."""

        def counted(state: TopicState) -> list[Record]:
            records = decide(state)
            if state.identity is not None and any(map(is_change, records)):
                new = state.identity._replace(revision=state.identity.revision + 1)
                return [*records, identity_record(new)]
            return records

        self.write(counted)

    def release(self) -> None:
        """Close the connections."""
        self.topic.close()
        self.client.close()


class KafkaHistory:
    """The topic's history and audit lines. See ``StoreHistory``."""

    def __init__(self, home: KafkaHome) -> None:
        self._home = home

    def entries(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """Return who changed what, oldest first."""
        self._home.check_open()
        with self._home.topic.read() as state:
            return state.entries(entity, limit)

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return the audit lines, oldest first."""
        self._home.check_open()
        with self._home.topic.read() as state:
            return state.audit_log(limit)

    def audit(self, event: AuditEvent) -> None:
        """Keep an audit line."""
        self._home.prepare()
        line = audit_record(new_id(), event.at(self._home.clock_ms()))
        self._home.write(lambda state: [line, *state.trimmed(0, 1)])
