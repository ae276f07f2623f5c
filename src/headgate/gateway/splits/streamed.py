"""
Splits of cluster-wide quotas from the topic that ``headgate splits`` writes, for a fleet.

A thread reads the compacted topic from its beginning, and ignores a writer of a lower epoch. A
split that isn't renewed expires: bytes go back to quota / brokers, shares to this gateway's own
division. When splits stop coming, the log says so once, and ``headgate_split_expired`` and /readyz
show it until splits come again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headgate.errors import HeadgateError
from headgate.gateway.log import get_logger
from headgate.gateway.splits.dividing import parts_of_quotas
from headgate.quota.key import QuotaKey
from headgate.steps import Work
from headgate.throttle.bps import BpsQuotaManager
from headgate.throttle.java import UNLIMITED
from headgate.throttle.overrides import Tags
from headgate.throttle.shares import SharesQuotaManager
from headgate.usage.splits import Fence, Split, decode

if TYPE_CHECKING:
    from headgate.gateway.charging.managers import Managers

log = get_logger("headgate.gateway")

_POLL_S = 0.2
_AT_ONCE = 1000
_LOOK_AGAIN_S = 5.0
_GONE = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)


class StreamedSplits:
    """
    Read splits and hand them over.

    Args:
        topic: ``headgate.splits.topic``.
        config: confluent-kafka's, for the upstream.
        take: called on the reader's thread with splits that count and haven't expired.
        clock_ms: epoch ms.
        period_ms: ``headgate.splits.period.ms``: the first splits may take three periods.
    """

    def __init__(
        self,
        topic: str,
        config: dict[str, Any],
        take: Callable[[Sequence[Split]], None],
        clock_ms: Callable[[], int],
        period_ms: int,
    ) -> None:
        self._topic = topic
        self._config = {**config, "group.id": "headgate-splits", "enable.auto.commit": False}
        self._take = take
        self._clock_ms = clock_ms
        self._fence = Fence()
        self._valid_until_ms = 0
        self._grace_until_ms = clock_ms() + 3 * period_ms
        self._said_expired: bool | None = None
        self._skewed = False
        self._absent = False
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

    @property
    def epoch(self) -> int:
        """The writer whose splits count; 0 before the first."""
        return self._fence.epoch

    def expired(self, now_ms: int) -> bool:
        """Whether no split is in force: none has come yet, or none for three rounds."""
        return self._valid_until_ms < now_ms

    def note(self, now_ms: int) -> str | None:
        """Say what is in force instead of splits; None while they are."""
        if not self.expired(now_ms):
            return None
        since = self._valid_until_ms
        how = f"expired {(now_ms - since) // 1000} s ago" if since else "haven't come yet"
        return (
            f"splits of cluster-wide quotas {how} (topic {self._topic}): "
            "quota / brokers is in force; is `headgate splits` running?"
        )

    def watch(self, now_ms: int) -> None:
        """Say once in the log that splits have expired, and that they are back."""
        expired = self.expired(now_ms)
        if expired == self._said_expired or (expired and now_ms < self._grace_until_ms):
            return
        if expired:
            expired_text = "splits of cluster-wide quotas have expired; quota / brokers is in force"
            log.warning(
                expired_text
                if self._valid_until_ms
                else "splits of cluster-wide quotas haven't come yet; quota / brokers is in force",
                topic=self._topic,
                epoch=self.epoch,
                last_valid_ms=self._valid_until_ms,
            )
        else:
            log.info(
                "splits of cluster-wide quotas are in force", topic=self._topic, epoch=self.epoch
            )
        self._said_expired = expired

    def read(self, messages: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take in messages (key, value): pass over fenced and expired ones, hand over the rest."""
        now = self._clock_ms()
        fresh: list[Split] = []
        for key, value in messages:
            found = decode(key, value)
            if found is None or not self._fence.passes(found):
                continue
            if found.valid_until_ms <= now:
                continue
            self._valid_until_ms = max(self._valid_until_ms, found.valid_until_ms)
            if isinstance(found, Split):
                fresh.append(found)
        if fresh:
            self._take(fresh)

    def _run(self) -> None:
        consumer = Consumer(self._config)
        try:
            while not self._closing.is_set():
                if self._assign(consumer):
                    self._follow(consumer)
                else:
                    self._closing.wait(_LOOK_AGAIN_S)
        except Exception:
            log.exception("the reader of splits ended", topic=self._topic)
        finally:
            consumer.close()

    def _follow(self, consumer: Consumer) -> None:
        """Read until told to stop, or the topic has gone."""
        while not self._closing.is_set():
            messages = consumer.consume(_AT_ONCE, _POLL_S)
            whole = [m for m in messages if m.error() is None]
            self.read((m.key(), m.value()) for m in whole)
            self._look_at_clocks(whole)
            errors = [m.error() for m in messages if m.error() is not None]
            if errors:
                log.warning("splits can't be read", topic=self._topic, error=str(errors[-1]))
                if any(error.code() in _GONE for error in errors):
                    self._closing.wait(_LOOK_AGAIN_S)
                    return

    def _look_at_clocks(self, messages: Sequence[Any]) -> None:
        """Warn once if a split was written just now and is out of date: two clocks differ."""
        if self._skewed or not messages:
            return
        newest = decode(messages[-1].key(), messages[-1].value())
        if newest is None:
            return
        now = self._clock_ms()
        _, written_ms = messages[-1].timestamp()
        if newest.valid_until_ms < now and now - written_ms < newest.valid_ms:
            self._skewed = True
            log.warning(
                "splits arrive out of date; do the clocks of this host and of `headgate splits` "
                "agree?",
                late_ms=now - newest.valid_until_ms,
            )

    def _assign(self, consumer: Consumer) -> bool:
        """Take every partition from its beginning; False while there is no topic."""
        try:
            found = consumer.list_topics(self._topic, timeout=10).topics.get(self._topic)
        except KafkaException as error:
            log.warning("splits topic can't be looked up", topic=self._topic, error=str(error))
            return False
        if found is None or found.error is not None or not found.partitions:
            if not self._absent:
                log.info(
                    "splits topic isn't there yet; quota / brokers is in force", topic=self._topic
                )
            self._absent = True
            return False
        self._absent = False
        consumer.assign(
            [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in found.partitions]
        )
        return True


def put_in_force(
    splits: Iterable[Split], managers: Mapping[int, Managers], clock: Callable[[], int]
) -> Work[int]:
    """
    Assign splits to brokers' managers, in steps.

    The quota in force here may differ from the one that was divided, because it was changed or the
    writer has another one. Then the split becomes the same part of the quota in force.

    Args:
        splits: in the order in which they came.
        managers: by broker.
        clock: returns epoch ms.

    Returns:
        How many were assigned: still valid, of a broker in ``managers``, of a key that is split.
    """
    now_ms = clock()
    last = {(s.broker, s.key, s.user, s.client_id): s for s in splits}
    alike: dict[tuple[int, str, int], dict[Tags, Split]] = {}
    for split in last.values():
        if split.valid_until_ms > now_ms and split.broker in managers:
            its = alike.setdefault((split.broker, split.key, split.valid_until_ms), {})
            its[split.user, split.client_id] = split
    count = 0
    for (broker, key, valid_until_ms), its in alike.items():
        manager = _manager(managers[broker], key)
        if manager is None:
            continue
        if isinstance(manager, SharesQuotaManager):
            manager.divided_until_ms = max(manager.divided_until_ms, valid_until_ms)
            bounds: Iterable[tuple[Tags, float]] = [
                (tags, min(split.split, UNLIMITED)) for tags, split in its.items()
            ]
        else:
            told = ((tags, split.split, split.quota) for tags, split in its.items())
            bounds = parts_of_quotas(told, manager)
        yield from manager.assigning(bounds, clock, valid_until_ms)
        count += len(its)
    return count


def _manager(managers: Managers, key: str) -> BpsQuotaManager | SharesQuotaManager | None:
    """Return a key's manager; None: quotas of this key aren't split."""
    try:
        manager = managers.by_key.get(QuotaKey.parse(key))
    except HeadgateError:
        return None
    if isinstance(manager, SharesQuotaManager) and manager.capacity_bps is not None:
        return manager
    return manager if isinstance(manager, BpsQuotaManager) else None
