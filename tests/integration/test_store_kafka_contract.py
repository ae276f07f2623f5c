"""The store contract over a real KRaft cluster."""

import uuid
from collections.abc import Iterator

import pytest

from contract.suite import Opener, StoreContract
from headgate.embedded import EmbeddedKafka
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.store.kafka import KafkaStore

pytestmark = pytest.mark.kafka4


@pytest.fixture(scope="module")
def cleaner(kafka4: EmbeddedKafka) -> Iterator[KafkaStore]:
    with KafkaStore(kafka4.bootstrap(), topic="__headgate_quotas_cleaner") as store:
        yield store


class TestKafka(StoreContract):
    @pytest.fixture
    def open_home(self, kafka4: EmbeddedKafka, cleaner: KafkaStore) -> Iterator[Opener]:
        topic = f"__headgate_quotas_{uuid.uuid4().hex}"
        opened: list[KafkaStore] = []

        def opener() -> KafkaStore:
            opened.append(KafkaStore(kafka4.bootstrap(), topic=topic, poll_ms=1_000))
            return opened[-1]

        yield opener
        for store in opened:
            store.close()
        # Kafka's own quotas are the cluster's, not the topic's: leave none behind.
        left = cleaner.snapshot().entities.items()
        cleaner.alter([QuotaAlteration(e, tuple(Op(k, None) for k in v)) for e, v in left])
