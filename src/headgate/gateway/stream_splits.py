"""
Splits of cluster-wide quotas from the topic that ``headgate splits`` writes, for a fleet.

A thread reads the compacted topic from its beginning; a writer of a lower epoch is passed over. A
split that isn't renewed expires by itself, back to quota / brokers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from headgate.gateway.log import get_logger
from headgate.quota.key import QuotaKey
from headgate.throttle.cluster import BpsQuotaManager
from headgate.usage.splits import Fence, Split, decode

if TYPE_CHECKING:
    from headgate.gateway.managers import Managers

log = get_logger("headgate.gateway")

_POLL_S = 0.5
_LOOK_AGAIN_S = 5.0


class StreamedSplits:
    """
    Read splits and hand them over.

    Args:
        topic: ``headgate.splits.topic``.
        config: confluent-kafka's, for the upstream.
        take: called on the reader's thread with every split that counts.
    """

    def __init__(self, topic: str, config: dict[str, Any], take: Callable[[Split], None]) -> None:
        self._topic = topic
        self._config = {**config, "group.id": "headgate-splits", "enable.auto.commit": False}
        self._take = take
        self._fence = Fence()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-splits", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop; waits for the reader."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(10)

    def _run(self) -> None:
        consumer = Consumer(self._config)
        try:
            while not self._closing.is_set() and not self._assign(consumer):
                self._closing.wait(_LOOK_AGAIN_S)
            while not self._closing.is_set():
                message = consumer.poll(_POLL_S)
                if message is None or message.error() is not None:
                    continue
                split = decode(message.key(), message.value())
                if split is not None and self._fence.passes(split):
                    self._take(split)
        finally:
            consumer.close()

    def _assign(self, consumer: Consumer) -> bool:
        """Take every partition from its beginning; False while there is no topic."""
        try:
            found = consumer.list_topics(self._topic, timeout=10).topics.get(self._topic)
        except KafkaException as error:
            log.warning("splits topic can't be looked up", topic=self._topic, error=str(error))
            return False
        if found is None or found.error is not None or not found.partitions:
            log.info("splits topic isn't there yet; quota / brokers is in force", topic=self._topic)
            return False
        consumer.assign(
            [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in found.partitions]
        )
        return True


def put_in_force(split: Split, managers: Managers, now_ms: int) -> bool:
    """
    Assign a split to a broker's manager.

    Returns:
        Whether it was still valid and of a key that is split.
    """
    manager = managers.by_key.get(QuotaKey.parse(split.key))
    if not isinstance(manager, BpsQuotaManager) or split.valid_until_ms <= now_ms:
        return False
    manager.assign({(split.user, split.client_id): split.split}, now_ms, split.valid_until_ms)
    return True
