"""The store contract over a real KRaft cluster."""

import time
import uuid
from collections.abc import Callable, Container, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from contract.suite import Moments, Opener, StoreContract, called
from headgate.embedded import EmbeddedKafka
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.store import QuotaStore
from headgate.store.kafka.client import KafkaClient
from headgate.store.kafka.store import KafkaStore
from headgate.store.kafka.topic import QuotaTopic

pytestmark = pytest.mark.kafka4


@pytest.fixture(scope="module")
def cleaner(kafka4: EmbeddedKafka) -> Iterator[KafkaStore]:
    with KafkaStore(kafka4.bootstrap(), topic="__headgate_quotas_cleaner") as store:
        yield store


def _asked_once(broker: str) -> Container[str]:
    """Return the topics that one broker knows: what a new client asks first, it asks there."""
    topics: Container[str] = (
        AdminClient({"bootstrap.servers": broker}).list_topics(timeout=30).topics
    )
    return topics


class TestKafka(StoreContract):
    @pytest.fixture
    def topic(self) -> str:
        return f"__headgate_quotas_{uuid.uuid4().hex}"

    @pytest.fixture
    def empty_home(self, kafka4: EmbeddedKafka, topic: str) -> Callable[[], None]:
        def empty() -> None:
            admin = AdminClient({"bootstrap.servers": kafka4.bootstrap()})
            if topic in admin.list_topics(timeout=30).topics:
                admin.delete_topics([topic])[topic].result(30)
                for broker in kafka4.bootstrap().split(","):  # one hears of it after another
                    while topic in _asked_once(broker):
                        time.sleep(0.05)

        return empty

    @pytest.fixture
    def open_home(self, kafka4: EmbeddedKafka, cleaner: KafkaStore, topic: str) -> Iterator[Opener]:
        opened: list[KafkaStore] = []

        def opener(*, create: bool = True) -> KafkaStore:
            store = KafkaStore(kafka4.bootstrap(), topic=topic, poll_ms=1_000, create=create)
            opened.append(store)
            return store

        yield opener
        for store in opened:
            store.close()
        # Kafka's own quotas are the cluster's, not the topic's: leave none behind.
        left = cleaner.snapshot().entities.items()
        cleaner.alter([QuotaAlteration(e, tuple(Op(k, None) for k in v)) for e, v in left])

    @pytest.fixture
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> Moments:
        moments = Moments()
        called(monkeypatch, moments.passed, KafkaClient, "describe")
        called(monkeypatch, moments.passed, QuotaTopic, "read_to_end", "locked")
        return moments

    @pytest.fixture
    def changing(self, monkeypatch: pytest.MonkeyPatch) -> Moments:
        moments = Moments()
        called(monkeypatch, moments.passed, KafkaClient, "describe", "alter")
        called(monkeypatch, moments.passed, QuotaTopic, "_attempt")
        return moments

    @pytest.fixture
    def dying(self, changing: Moments) -> Moments:
        return changing

    def impatient(self, store: QuotaStore) -> QuotaStore:
        assert isinstance(store, KafkaStore)
        store._alterer.turn_s = 0.2
        return store
