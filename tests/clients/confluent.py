"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from clients.interface import HEARTBEAT_MS, Client, Member, Polling

WAIT_S = 120


class Confluent(Client):
    """
    confluent-kafka.

    Args:
        protocol: ``classic``, or ``consumer`` for KIP-848.
    """

    def __init__(self, protocol: str = "classic") -> None:
        self._protocol = protocol

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)

    def produce(self, bootstrap: str, topic: str, values: Sequence[str]) -> None:
        failed: list[Any] = []
        producer = Producer({"bootstrap.servers": bootstrap})
        for value in values:
            producer.produce(
                topic,
                value.encode(),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(WAIT_S) == 0
        assert not failed

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        consumer = Consumer(self._settings(bootstrap, group))
        consumer.subscribe([topic])
        values: list[str] = []
        while len(values) < count:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            values.append(message.value().decode())
        consumer.commit(asynchronous=False)
        consumer.close()
        return values

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        settings = self._settings(bootstrap, group)

        class Ours(Polling):
            def run(self) -> None:
                consumer = Consumer(settings)
                consumer.subscribe([topic])
                while not self.asked_to_leave.is_set():
                    message = consumer.poll(0.1)
                    if message is not None and message.error() is None:
                        self.values.append(message.value().decode())
                consumer.close()

        return Ours()

    def reset(self, bootstrap: str, topic: str, group: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        done = asked[group].result(WAIT_S)
        assert [place.error for place in done.topic_partitions] == [None] * partitions

    def transact(
        self, bootstrap: str, topic: str, name: str, rounds: Sequence[tuple[str, bool]]
    ) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        producer.init_transactions(WAIT_S)
        for value, commit in rounds:
            producer.begin_transaction()
            producer.produce(topic, value.encode())
            assert producer.flush(WAIT_S) == 0
            producer.commit_transaction(WAIT_S) if commit else producer.abort_transaction(WAIT_S)

    def _settings(self, bootstrap: str, group: str) -> dict[str, Any]:
        classic = {"heartbeat.interval.ms": HEARTBEAT_MS} if self._protocol == "classic" else {}
        return {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": self._protocol,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **classic,
        }
