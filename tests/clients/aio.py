"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from clients.interface import HEARTBEAT_MS, Client, Member, Polling

WAIT_S = 120


class Aiokafka(Client):
    """aiokafka."""

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        async def work() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            try:
                answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
                assert [error[1] for error in answer.topic_errors] == [0]
            finally:
                await admin.close()

        asyncio.run(work())

    def produce(self, bootstrap: str, topic: str, values: Sequence[str]) -> None:
        async def work() -> None:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                sent = [await producer.send(topic, value.encode()) for value in values]
                await asyncio.gather(*sent)

        asyncio.run(work())

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        async def work() -> list[str]:
            values: list[str] = []
            async with _consumer(bootstrap, topic, group) as consumer, asyncio.timeout(WAIT_S):
                while len(values) < count:
                    found = await consumer.getmany(timeout_ms=500)
                    values.extend(m.value.decode() for of in found.values() for m in of)
                await consumer.commit()
            return values

        return asyncio.run(work())

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        class Ours(Polling):
            def run(self) -> None:
                asyncio.run(self._work())

            async def _work(self) -> None:
                async with _consumer(bootstrap, topic, group) as consumer:
                    while not self.asked_to_leave.is_set():
                        found = await consumer.getmany(timeout_ms=100)
                        self.values.extend(m.value.decode() for of in found.values() for m in of)

        return Ours()

    def reset(self, bootstrap: str, topic: str, group: str, partitions: int) -> None:
        # Its admin client can't alter a group's offsets; a consumer of the group commits them.
        async def work() -> None:
            async with AIOKafkaConsumer(
                bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
            ) as consumer:
                places = [TopicPartition(topic, number) for number in range(partitions)]
                consumer.assign(places)
                await consumer.commit(dict.fromkeys(places, 0))

        asyncio.run(work())

    def transact(
        self, bootstrap: str, topic: str, name: str, rounds: Sequence[tuple[str, bool]]
    ) -> None:
        async def work() -> None:
            async with AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=name
            ) as producer:
                for value, commit in rounds:
                    await producer.begin_transaction()
                    await producer.send_and_wait(topic, value.encode())
                    if commit:
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()

        asyncio.run(work())


def _consumer(bootstrap: str, topic: str, group: str) -> Any:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
