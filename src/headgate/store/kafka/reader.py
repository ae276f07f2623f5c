"""
A thread that reads the compacted topic from its beginning.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

log = logging.getLogger("headgate.store.librdkafka")


class FewLines(logging.Filter):
    """
    Passes what librdkafka says about a broker once a minute.

    While a broker is away, a consumer says nine times a second that it can't connect.
    """

    _MINUTE_S = 60.0
    _MOST_KINDS = 1_000

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; what comes after "(after 3ms …" doesn't make it another."""
        kind, now = record.getMessage().partition("(after ")[0], self._clock()
        if now - self._said.get(kind, -self._MINUTE_S) < self._MINUTE_S:
            return False
        if len(self._said) >= self._MOST_KINDS:
            self._said.clear()
        self._said[kind] = now
        return True


log.addFilter(FewLines())


class QuotaTopicReader:
    """
    Reads the topic from its beginning, on a thread of its own.

    Args:
        topic: its name.
        topic_id: Kafka's id of it: a topic that was made again has another one.
        config: librdkafka settings to connect.
        take: called with what was read.
    """

    def __init__(
        self, topic: str, topic_id: str, config: dict[str, Any], take: Callable[[list[Any]], None]
    ) -> None:
        self.topic_id = topic_id
        self._take = take
        self._stop = False
        self._consumer = Consumer(
            {
                **config,
                "group.id": f"headgate-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                # The marker that ends a transaction is no record, so only the next fetch shows that
                # the reader is past it.
                "fetch.wait.max.ms": 100,
            },
            logger=log,
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._thread = threading.Thread(target=self._read, name="headgate-store-topic", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stop:
            first = self._consumer.poll(0.2)
            if first is not None:
                # consume() alone would wait for as many as it may take.
                self._take([first, *self._consumer.consume(num_messages=1_000, timeout=0)])

    def close(self) -> None:
        """Stop reading."""
        self._stop = True
        self._thread.join()
        self._consumer.close()
