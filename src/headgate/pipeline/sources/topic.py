"""
Follow a Kafka topic from Spark, with confluent-kafka alone: no jars to match Spark's version.

Messages are request-log lines (one or several each), or batches of a usage journal. A Python data
source: the driver asks for offsets, workers read ranges of them; Spark's checkpoint keeps them.
(Spark's own Kafka source needs jars that match Spark; its frames have the same columns.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headgate.clock import now_ms
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SCHEMA: Final = "topic string, partition int, offset long, value binary"
# Not a partition: with option "ticks" each trigger has a batch, though there may be nothing in it.
_TICK: Final = "tick"
_TIMEOUT_S: Final = 30.0


@dataclass
class Range(InputPartition):
    """Offsets [start, end) of one partition."""

    partition: int
    start: int
    end: int


class TopicReader(DataSourceStreamReader):
    """Read a topic in ranges of offsets."""

    def __init__(self, options: dict[str, str]) -> None:
        self._topic = options["topic"]
        self._config = json.loads(options["config"])
        self._begin = options.get("begin", "earliest")
        self._ticks = options.get("ticks") == "true"
        self._client: Any = None

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        settings = {
            "group.id": "headgate-pipeline",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
        return Consumer(settings | self._config)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}  # a connection stays where it was made

    def _watermarks(self, which: int) -> dict[str, int]:
        from confluent_kafka import TopicPartition

        if self._client is None:
            self._client = self._consumer()
        metadata = self._client.list_topics(self._topic, timeout=_TIMEOUT_S).topics[self._topic]
        if metadata.error is not None:
            msg = f"topic {self._topic}: {metadata.error}"
            raise RuntimeError(msg)
        return {
            str(p): self._client.get_watermark_offsets(
                TopicPartition(self._topic, p), timeout=_TIMEOUT_S
            )[which]
            for p in sorted(metadata.partitions)
        }

    def _tick(self) -> dict[str, int]:
        return {_TICK: now_ms()} if self._ticks else {}

    def initialOffset(self) -> dict[str, int]:
        """Return the offsets to begin at: the first that the topic holds, or the end."""
        return self._watermarks(1 if self._begin == "latest" else 0) | self._tick()

    def latestOffset(self) -> dict[str, int]:
        """Return the offsets up to which the next batch reads."""
        return self._watermarks(1) | self._tick()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Range]:
        """Return a range per partition that has anything new."""
        first = self._watermarks(0) if any(p not in start for p in end) else {}
        ranges = [
            Range(int(p), start.get(p, first.get(p, 0)), e) for p, e in end.items() if p != _TICK
        ]
        return [r for r in ranges if r.end > r.start]

    def read(self, partition: Any) -> Iterator[tuple[str, int, int, bytes | None]]:
        """Yield the messages of a range; offsets that hold none (compaction) are passed over."""
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        try:
            at = TopicPartition(self._topic, partition.partition, partition.start)
            consumer.assign([at])
            position = partition.start
            while position < partition.end:
                message = consumer.poll(_TIMEOUT_S)
                if message is None:
                    where = consumer.position([at])[0].offset
                    if where >= partition.end:
                        return  # the last offsets are markers of transactions
                    msg = f"no answer from {self._topic}-{partition.partition} at {position}"
                    raise RuntimeError(msg)
                if message.error():
                    msg = f"{self._topic}-{partition.partition} at {position}: {message.error()}"
                    raise RuntimeError(msg)
                position = message.offset() + 1
                if message.offset() >= partition.end:
                    return
                yield (self._topic, partition.partition, message.offset(), message.value())
        finally:
            consumer.close()


class TopicSource(DataSource):
    """``spark.readStream.format("headgate_topic")``: options topic, config (JSON), begin, ticks."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "headgate_topic"

    def schema(self) -> str:
        """Return topic, partition, offset, value."""
        return SCHEMA

    def streamReader(self, schema: Any) -> TopicReader:
        """Return the reader."""
        return TopicReader(dict(self.options))


def check_topic(topic: str, config: dict[str, str], timeout_s: float = 10.0) -> None:
    """
    Check that a topic exists before Spark starts, whose own message would be a page long.

    Args:
        topic: its name.
        config: confluent-kafka's settings, with ``bootstrap.servers``.
        timeout_s: how long to wait for an answer.

    Raises:
        ConfigError: the settings aren't right, nobody answers, or there is no such topic.
    """
    from confluent_kafka import Consumer, KafkaException

    where = config["bootstrap.servers"]
    quiet = {"group.id": "headgate", "log_level": "0"}
    try:
        consumer = Consumer(quiet | config)
    except KafkaException as exc:
        raise ConfigError(f"--kafka-config: {exc.args[0].str()}") from exc
    try:
        found = consumer.list_topics(topic, timeout=timeout_s).topics[topic].error
    except KafkaException as exc:
        raise ConfigError(
            f"--topic {topic}: no answer from {where} ({exc.args[0].str()}); is that a broker's "
            "address, and do --kafka-config's security settings fit its listener?"
        ) from exc
    finally:
        consumer.close()
    if found is not None:
        raise ConfigError(f"--topic {topic}: {where} says: {found.str()}")


def follow_topic(
    spark: SparkSession,
    topic: str,
    config: dict[str, str],
    *,
    begin: str = "earliest",
    ticks: bool = False,
) -> DataFrame:
    """
    Return a stream of a topic's messages: topic, partition, offset, value.

    Args:
        spark: the session.
        topic: its name.
        config: confluent-kafka's settings, with ``bootstrap.servers``.
        begin: ``earliest`` or ``latest``, where the checkpoint doesn't say.
        ticks: give a batch at every trigger, an empty one where nothing has come.
    """
    spark.dataSource.register(TopicSource)
    reader = spark.readStream.format("headgate_topic").option("topic", topic)
    options = {"config": json.dumps(config), "begin": begin, "ticks": str(ticks).lower()}
    return reader.options(**options).load()
