"""
Write splits to the topic that gateways follow, one writer at a time, and read them back.

A transactional producer fences an older writer at the brokers; the epoch in each message tells
readers which writer counts, whatever else is in the topic. No Spark is needed here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from headgate.clock import now_ms
from headgate.errors import ConfigError, StoreError
from headgate.usage import splits as messages
from headgate.usage.splits import Heartbeat, Split

TRANSACTIONAL_ID: Final = "headgate-splits"
TIMEOUT_S: Final = 30.0
# Compacted soon and in small pieces: a gateway that starts reads all of it.
_TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "600000",
}


class SplitWriter:
    """
    The one writer of the splits' topic; a newer one fences it.

    Its epoch is above all in the topic, and at least the time in seconds: so it is above those
    that gateways remember even if the topic was deleted and made again. It writes at once that it
    has taken over, so the next writer's is higher even within the same second.

    Args:
        topic: its name; made (compacted) if it isn't there.
        config: confluent-kafka's settings.

    Raises:
        ConfigError: the topic can't be made, the brokers don't answer, or another writer has
            taken over meanwhile.
        StoreError: the brokers don't take what is written now.
    """

    def __init__(self, topic: str, config: Mapping[str, Any]) -> None:
        from confluent_kafka import KafkaException, Producer

        self.topic = topic
        self._config = dict(config)
        self._make_topic()
        settings = {"transactional.id": f"{TRANSACTIONAL_ID}-{topic}", "linger.ms": 0}
        self._producer = Producer(self._config | settings)
        try:
            # From here on an older writer's transactions are refused by the brokers.
            self._producer.init_transactions(TIMEOUT_S)
        except KafkaException as exc:
            raise ConfigError(f"topic {topic} can't be written: {exc}") from exc
        self._valid_until_ms: dict[bytes, int] = {}
        highest = 0
        for key, found in _scan(topic, self._config):
            highest = max(highest, found.epoch)
            self._valid_until_ms[key] = found.valid_until_ms
        now = now_ms()
        self.epoch = max(highest + 1, now // 1000)
        self.write([], Heartbeat(self.epoch, now, 0))  # holds no split in force

    def _make_topic(self) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self._config)
        new = NewTopic(self.topic, 1, -1, config=_TOPIC_CONFIG)
        try:
            admin.create_topics([new])[self.topic].result(TIMEOUT_S)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ConfigError(f"topic {self.topic} can't be made: {exc}") from exc

    def write(self, splits: Iterable[Split], heartbeat: Heartbeat | None = None) -> None:
        """
        Write a round, all or nothing; take away splits that nobody renews and that have expired.

        Args:
            splits: of the round.
            heartbeat: its end.

        Raises:
            ConfigError: another writer has taken over.
            StoreError: the brokers don't take it now; nothing of the round is seen.
        """
        from confluent_kafka import KafkaException

        encoded = [(messages.encode(split), split.valid_until_ms) for split in splits]
        if heartbeat is not None:
            encoded.append((messages.encode_heartbeat(heartbeat), heartbeat.valid_until_ms))
        newest = max((s for _, s in encoded), default=0)
        renewed = {key: valid for (key, _), valid in encoded}
        gone = [
            key
            for key, valid in self._valid_until_ms.items()
            if key not in renewed and valid < newest - messages.MOST_VALID_MS
        ]
        try:
            self._producer.begin_transaction()
            for (key, value), _ in encoded:
                self._producer.produce(self.topic, value, key)
            for key in gone:
                self._producer.produce(self.topic, None, key)
            self._producer.commit_transaction(TIMEOUT_S)
        except (KafkaException, BufferError) as exc:
            error = exc.args[0]
            if isinstance(exc, KafkaException) and error.fatal():
                msg = f"another `headgate splits` writes {self.topic} now; this one ends ({error})"
                raise ConfigError(msg) from exc
            try:
                self._producer.abort_transaction(TIMEOUT_S)
            except KafkaException as again:
                raise ConfigError(f"topic {self.topic}: {again}") from again
            raise StoreError(f"topic {self.topic}: {exc}", retriable=True) from exc
        self._valid_until_ms |= renewed
        for key in gone:
            del self._valid_until_ms[key]


def _scan(topic: str, config: Mapping[str, Any]) -> Iterator[tuple[bytes, Split | Heartbeat]]:
    """
    Yield (key, message) of what a topic holds now, in order of offset.

    Raises:
        ConfigError: it can't be read, or not within ``TIMEOUT_S``.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        dict(config)
        | {
            "group.id": "headgate-splits",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        for number in partitions:
            consumer.assign([TopicPartition(topic, number, 0)])
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                message = consumer.poll(1.0)
                error = None if message is None else message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    break
                if message is not None and error is None:
                    found = messages.decode(message.key(), message.value())
                    if found is not None:
                        yield message.key(), found
                elif error is not None and not error.retriable():
                    raise ConfigError(f"topic {topic} can't be read: {error.str()}")
                elif time.monotonic() > deadline:
                    raise ConfigError(f"topic {topic}: no answer for {TIMEOUT_S:g} s")
    finally:
        consumer.close()


def brokers_of(config: Mapping[str, Any], topic: str | None = None) -> tuple[int, ...]:
    """
    Return the ids of a cluster's brokers.

    Args:
        config: confluent-kafka's settings.
        topic: one that must be there; None: none.

    Raises:
        ConfigError: the cluster doesn't answer, or has no such topic.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        found = AdminClient(dict(config)).list_topics(timeout=TIMEOUT_S)
    except KafkaException as exc:
        raise ConfigError(f"{config.get('bootstrap.servers')} doesn't answer: {exc}") from exc
    if topic is not None and topic not in found.topics:
        raise ConfigError(
            f"topic {topic} isn't there; gateways with headgate.usage=kafka:{topic} write it"
        )
    return tuple(sorted(found.brokers))
