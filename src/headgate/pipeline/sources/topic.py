"""
Follow a Kafka topic from Spark, with confluent-kafka alone: no jars to match Spark's version.

Messages are request-log lines (one or several each), or batches of a usage journal. A Python data
source: the driver asks for offsets, workers read ranges of them; Spark's checkpoint keeps them.
(Spark's own Kafka source needs jars that match Spark; its frames have the same columns.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headgate.clock import now_ms
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.pipeline.logs.logline import LineParser
    from headgate.pipeline.sources.rotation import Input
    from headgate.pipeline.sources.rounds import Query
    from headgate.pipeline.streaming import Parts

SCHEMA: Final = "topic string, partition int, offset long, value binary"
# Not a partition: with option "ticks" each trigger has a batch, though there may be nothing in it.
_TICK: Final = "tick"
# An Arrow IPC stream begins with its continuation mark; no log line does.
_ARROW: Final = b"\xff\xff\xff\xff"
_TIMEOUT_S: Final = 30.0
# A line's number within its message, in the low bits of what it is ordered by.
_LINE_BITS: Final = 20


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

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: Spark's checkpoint holds the offsets."""


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
    Ask a cluster for a topic before Spark starts, whose words for it are a page.

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


@dataclass(frozen=True)
class ActivityOfMessages:
    """Sum messages up: SCHEMA in, EMITTED_ACTIVITY out. A ``mapInArrow`` function."""

    time_zone: str = "UTC"
    broker_id: int | None = None
    default_partitions: int = 1
    connections: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read log lines, or a journal's batches, from message values."""
        # Here, so that who only follows a topic (`headgate splits`) starts its workers sooner.
        from headgate.pipeline.logs.logline import BadLine, LineParser
        from headgate.pipeline.logs.stamps import sniff_nanos, zone_of
        from headgate.pipeline.sources.journal import sums_of_events
        from headgate.pipeline.sources.pieces import Split
        from headgate.pipeline.workers.worker import EMITTED_ACTIVITY, Columns, Sums

        zone = zone_of(self.time_zone)
        parsers: dict[str, LineParser] = {}
        sums = Sums(connections=self.connections)
        for batch in batches:
            side = Columns(EMITTED_ACTIVITY)
            for topic, partition, offset, value in zip(
                *(batch.column(i).to_pylist() for i in range(4)), strict=True
            ):
                where = f"{topic}-{partition}"
                if value is None:
                    continue
                if value.startswith(_ARROW):
                    split = Split(where, offset, -1, "journal")
                    yield from sums_of_events(value, split, connections=self.connections)
                    continue
                parser = parsers.get(where)
                if parser is None:
                    parser = parsers[where] = LineParser(
                        zone,
                        nanos=sniff_nanos(value[:65536]),
                        default_partitions=self.default_partitions,
                    )
                for line in value.split(b"\n"):
                    try:
                        row = parser.parse(line)
                    except BadLine as exc:
                        text = line[:8000].decode("utf-8", "replace")[:2000]
                        side.add(kind="bad", file=where, offset=offset, reason=str(exc), line=text)
                        continue
                    if row is not None:
                        sums.add(self.broker_id, row)
            yield from sums.take()
            if len(side):
                yield side.take()


@dataclass(frozen=True)
class RequestsOfMessages:
    """
    Hand over a row per request: SCHEMA in, EMITTED_REQUESTS out. A ``mapInArrow`` function.

    Args:
        time_zone: of log lines that print none.
        broker_id: that wrote them; None = unknown.
        default_partitions: the cluster's ``num.partitions``.
        starts: (worker, broker, seq, epoch ms) of journals' start events, these messages' too.
    """

    time_zone: str = "UTC"
    broker_id: int | None = None
    default_partitions: int = 1
    starts: tuple[tuple[str, int, int, int], ...] = ()

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read log lines, or a journal's batches, from message values."""
        from headgate.pipeline.logs.logline import BadLine, LineParser
        from headgate.pipeline.logs.stamps import sniff_nanos, zone_of
        from headgate.pipeline.sources.journal import requests_of_events
        from headgate.pipeline.sources.pieces import Split
        from headgate.pipeline.workers.emitted import EMITTED_REQUESTS, Columns, client_ip

        zone = zone_of(self.time_zone)
        parsers: dict[str, LineParser] = {}
        constant = {"kind": "request", "broker_id": self.broker_id}
        constant |= {"source": "log", "is_request": True}
        for batch in batches:
            rows = Columns(EMITTED_REQUESTS)
            for topic, partition, offset, value in zip(
                *(batch.column(i).to_pylist() for i in range(4)), strict=True
            ):
                where = f"{topic}-{partition}"
                if value is None:
                    continue
                if value.startswith(_ARROW):
                    split = Split(where, offset, -1, "journal")
                    yield from requests_of_events(value, split, self._before)
                    continue
                parser = parsers.get(where)
                if parser is None:
                    parser = parsers[where] = LineParser(
                        zone,
                        nanos=sniff_nanos(value[:65536]),
                        default_partitions=self.default_partitions,
                    )
                for number, line in enumerate(value.split(b"\n")):
                    try:
                        row = parser.parse(line)
                    except BadLine as exc:
                        rows.add_bad(Split(where, offset, -1), offset, str(exc), line)
                        continue
                    if row is not None:
                        # Lines of a message stay in order.
                        at = {"file": where, "seq": (offset << _LINE_BITS) + number}
                        ip = client_ip(row.connection)
                        rows.add(**row._asdict(), **constant, **at, client_ip=ip)
            if len(rows):
                yield rows.take()

    def _before(self, worker: str, seq: int) -> dict[int, tuple[int, int]]:
        """Return broker -> (seq, epoch ms) of the start events of a worker before a number."""
        mine = sorted((s, b, t) for w, b, s, t in self.starts if w == worker and s < seq)
        return {broker: (start, t_ms) for start, broker, t_ms in mine}


class Topic:
    """
    A topic as a source of rounds (``streaming.Source``).

    Args:
        name: of the topic.
        config: confluent-kafka's settings, with ``bootstrap.servers``.
        time_zone: of log lines that print none.
        broker_id: that wrote them; None = unknown.
        default_partitions: the cluster's ``num.partitions``.
    """

    def __init__(
        self,
        name: str,
        config: dict[str, str],
        *,
        time_zone: str = "UTC",
        broker_id: int | None = None,
        default_partitions: int = 1,
    ) -> None:
        self._name = name
        self._config = config
        self._lines = (time_zone, broker_id, default_partitions)
        self._starts: list[tuple[str, int, int, int]] = []

    def start(
        self,
        spark: SparkSession,
        parts: Parts,
        after: Callable[[int], None],
        *,
        once: bool,
        every_s: float,
    ) -> Query:
        """Start reading what is new of the topic, batch by batch."""
        from headgate.pipeline.streaming import start_stream

        stream = follow_topic(spark, self._name, self._config)
        return start_stream(
            stream, self.remember, self.round_of, parts, after, once=once, every_s=every_s
        )

    def remember(self, inputs: Iterable[Input]) -> None:
        """Take when journals' workers started."""
        for row in inputs:
            if row.broker_id is not None and row.seq is not None and row.t_ms is not None:
                self._starts.append((row.worker_id, row.broker_id, row.seq, row.t_ms))

    def round_of(self, batch: DataFrame) -> _RoundOfMessages:
        """Return what messages there are to read."""
        return _RoundOfMessages(batch, self, self._name, self._lines, self._starts)


class _RoundOfMessages:
    def __init__(
        self,
        batch: DataFrame,
        topic: Topic,
        name: str,
        lines: tuple[str, int | None, int],
        starts: list[tuple[str, int, int, int]],
    ) -> None:
        self._batch = batch
        self._topic = topic
        self._name = name
        self._lines = lines
        self._starts = starts
        self._inputs: list[Input] = []

    def activity(self, *, connections: bool) -> DataFrame:
        """Return EMITTED_ACTIVITY, in rows."""
        from headgate.pipeline.workers.worker import EMITTED_ACTIVITY

        task = ActivityOfMessages(*self._lines, connections)
        return self._batch.mapInArrow(task, EMITTED_ACTIVITY.struct)

    def requests(self) -> DataFrame:
        """Return EMITTED_REQUESTS; starts of workers in these messages are seen to first."""
        from headgate.pipeline.sources.rotation import Input
        from headgate.pipeline.workers.worker import EMITTED_REQUESTS

        found = self._batch.mapInArrow(StartsOfMessages(), STARTS).collect()
        self._inputs = [Input(self._name, r[0], 0, r[1], r[2], r[3]) for r in found]
        self._topic.remember(self._inputs)
        task = RequestsOfMessages(*self._lines, tuple(self._starts))
        return self._batch.mapInArrow(task, EMITTED_REQUESTS.struct)

    def inputs(self) -> Sequence[Input]:
        """Return the starts of workers in these messages, once its requests are asked for."""
        return self._inputs


@dataclass(frozen=True)
class StartsOfMessages:
    """Find start events in messages: SCHEMA in, STARTS out. A ``mapInArrow`` function."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the journals' batches among message values."""
        import pyarrow as pa

        from headgate.pipeline.sources.journal import starts_in

        for batch in batches:
            values = batch.column("value").to_pylist()
            found = [
                start
                for value in values
                if value is not None and value.startswith(_ARROW)
                for start in starts_in(value)
            ]
            names = ("worker_id", "broker_id", "seq", "t_ms")
            yield pa.RecordBatch.from_pylist(
                [dict(zip(names, start, strict=True)) for start in found], schema=_starts_schema()
            )


STARTS: Final = "worker_id string, broker_id int, seq long, t_ms long"


def _starts_schema() -> Any:
    import pyarrow as pa

    kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    return pa.schema(zip(("worker_id", "broker_id", "seq", "t_ms"), kinds, strict=True))
