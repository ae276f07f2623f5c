"""kafka-python."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

from clients.interface import HEARTBEAT_MS, Client, Member, Polling

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its schemas
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic, OffsetSpec
    from kafka.errors import NoError

WAIT_S = 120


class KafkaPython(Client):
    """kafka-python."""

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
        admin.create_topics([NewTopic(topic, partitions, 1)])
        admin.close()

    def produce(self, bootstrap: str, topic: str, values: Sequence[str]) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap.split(","))
        sent = [producer.send(topic, value.encode()) for value in values]
        for one in sent:
            one.get(WAIT_S)
        producer.close()

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        consumer = _consumer(bootstrap, topic, group)
        values: list[str] = []
        until = time.monotonic() + WAIT_S
        while len(values) < count and time.monotonic() < until:
            found = consumer.poll(500)
            values.extend(m.value.decode() for of in found.values() for m in of)
        consumer.commit()
        consumer.close()
        return values

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        class Ours(Polling):
            def run(self) -> None:
                consumer = _consumer(bootstrap, topic, group)
                while not self.asked_to_leave.is_set():
                    found = consumer.poll(100)
                    self.values.extend(m.value.decode() for of in found.values() for m in of)
                consumer.close()

        return Ours()

    def reset(self, bootstrap: str, topic: str, group: str, partitions: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
        places = [TopicPartition(topic, number) for number in range(partitions)]
        done = admin.reset_group_offsets(group, dict.fromkeys(places, OffsetSpec.EARLIEST))
        admin.close()
        assert [(done[place]["error"], done[place]["offset"]) for place in places] == [
            (NoError, 0)
        ] * partitions

    def transact(
        self, bootstrap: str, topic: str, name: str, rounds: Sequence[tuple[str, bool]]
    ) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), transactional_id=name)
        producer.init_transactions()
        for value, commit in rounds:
            producer.begin_transaction()
            producer.send(topic, value.encode()).get(WAIT_S)
            producer.commit_transaction() if commit else producer.abort_transaction()
        producer.close()


def _consumer(bootstrap: str, topic: str, group: str) -> Any:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    # 3.0.12 loses its group where it joins before it knows the topic: it joins again when it does,
    # and a poll that ends in between leaves that second join unfinished, without heartbeats.
    assert consumer.partitions_for_topic(topic)
    return consumer
