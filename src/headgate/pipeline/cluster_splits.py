"""
Split cluster-wide quotas over brokers, from the fleet's usage, every few seconds.

A stream of the gateways' journals (their topic) says, per quota-id and broker, what was charged to
``bps`` quotas and how long clients were made to wait. Workers reduce a round's events to one row
per quota-id and broker; the driver turns them into demands, divides each quota
(``headgate.throttle.cluster``) and writes the splits to the topic that gateways follow. A
transactional producer fences an older writer; its epoch tells readers which one counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ConfigError
from headgate.pipeline import schema
from headgate.quota.key import CONSUMER_BPS, PRODUCER_BPS, QuotaKey
from headgate.quota.precedence import select_limit
from headgate.quota.table import QuotaTable
from headgate.throttle.cluster import ClusterSplitter
from headgate.throttle.pacing import Observation
from headgate.usage import splits as messages
from headgate.usage.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS: Final[dict[str, QuotaKey]] = {key.name: key for key in (PRODUCER_BPS, CONSUMER_BPS)}
# A split that isn't renewed for so many periods has expired; the gateways' own number.
PERIODS_VALID: Final = 3
TRANSACTIONAL_ID: Final = "headgate-splits"
_TIMEOUT_S: Final = 30.0
Tags = tuple[str, str]

SEEN: Final = schema.Table(
    "seen",
    "One row per (quota key, quota-id, broker) of a round.",
    (
        schema.Column("quota_type", "string", "quota key's name: producer_byte_rate:bps"),
        schema.Column("quota_user", "string", "user tag"),
        schema.Column("quota_client_id", "string", "client-id tag"),
        schema.Column("broker_id", "int", "broker"),
        schema.Column("used", "double", "units charged"),
        schema.Column("requests", "long", "charges"),
        schema.Column("throttled", "long", "charges told to wait"),
        schema.Column("waited_ms", "double", "time some charge's wait covered, ms"),
        schema.Column("waits_until_ms", "double", "when the last wait ends, epoch ms"),
    ),
)


def reduce_events(events: Any) -> list[dict[str, Any]]:
    """
    Reduce a journal's events to SEEN rows.

    Args:
        events: Arrow table of ``headgate.usage.format.SCHEMA``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, quota_type = events["kind"].cast(pa.string()), events["quota_type"].cast(pa.string())
    wanted = pc.and_(pc.equal(kind, "record"), pc.is_in(quota_type, pa.array(list(KEYS))))
    names = ["quota_type", "quota_user", "quota_client_id", "broker_id", "t_ms", "amount"]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in events.filter(wanted).select([*names, "throttle_time_ms"]).to_pylist():
        key = tuple(row[n] for n in names[:4])
        sums = rows.get(key)
        if sums is None:
            sums = rows[key] = dict(zip(names[:4], key, strict=True)) | {
                "used": 0.0,
                "requests": 0,
                "throttled": 0,
                "waited_ms": 0.0,
                "waits_until_ms": 0.0,
            }
        sums["used"] += row["amount"] or 0.0
        sums["requests"] += 1
        wait = row["throttle_time_ms"] or 0
        if wait > 0:
            sums["throttled"] += 1
            end = row["t_ms"] + wait
            # Waits of several connections overlap; the bucket was overdrawn in their union.
            begin = max(row["t_ms"], sums["waits_until_ms"])
            sums["waited_ms"] += max(end - begin, 0.0)
            sums["waits_until_ms"] = max(end, sums["waits_until_ms"])
    return list(rows.values())


@dataclass(frozen=True)
class SeenInMessages:
    """Reduce the messages of a journal's topic: (…, value) in, SEEN out. A ``mapInArrow``."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield a row per quota-id and broker of each batch; a broker's events lie together."""
        import pyarrow as pa

        from headgate.usage.topic import decode

        for batch in batches:
            for value in batch.column(batch.schema.get_field_index("value")).to_pylist():
                if value is None:
                    continue
                rows = reduce_events(pa.Table.from_batches(decode(value)))
                if rows:
                    yield from pa.Table.from_pylist(rows, schema=SEEN.arrow).to_batches()


@dataclass
class Rounds:
    """
    Turn what rounds showed into splits; remembers demands from round to round.

    Args:
        period_ms: of a round.
        brokers: those that share the quotas.
    """

    period_ms: int
    brokers: tuple[int, ...]
    _splitters: dict[str, ClusterSplitter[int]] = field(default_factory=dict)
    _quotas: dict[str, dict[Tags, float]] = field(default_factory=dict)
    _until: dict[tuple[str, Tags, int], float] = field(default_factory=dict)

    def round(
        self,
        seen: Iterable[Mapping[str, Any]],
        table: QuotaTable,
        began_ms: int,
        now_ms: int,
        epoch: int,
    ) -> list[Split]:
        """
        Return the splits of the next round.

        Args:
            seen: SEEN rows of the round that ends.
            table: the quotas now.
            began_ms: when the round began.
            now_ms: when it ended.
            epoch: the writer's.
        """
        length_ms = max(now_ms - began_ms, 1)
        observed: dict[str, dict[int, dict[Tags, Observation]]] = {name: {} for name in KEYS}
        merged: dict[tuple[str, Tags, int], list[Any]] = {}
        for row in seen:
            at = (
                row["quota_type"],
                (row["quota_user"], row["quota_client_id"]),
                row["broker_id"],
            )
            sums = merged.setdefault(at, [0.0, 0, 0, 0.0, 0.0])
            for i, name in enumerate(("used", "requests", "throttled", "waited_ms")):
                sums[i] += row[name]
            sums[4] = max(sums[4], row["waits_until_ms"])
        for at, (used, requests, throttled, waited_ms, until) in merged.items():
            name, tags, broker = at
            before = max(self._until.get(at, 0.0) - began_ms, 0.0)
            after = max(until - now_ms, 0.0)
            waited = min(max(waited_ms - after, 0.0) + before, length_ms) / length_ms
            self._until[at] = until
            observed[name].setdefault(broker, {})[tags] = Observation(
                used * 1000.0 / length_ms, throttled > 0, waited, requests, None, until > now_ms
            )
        out: list[Split] = []
        for name, key in KEYS.items():
            out += self._divide(name, key, table, observed[name], now_ms, epoch)
        return out

    def _divide(
        self,
        name: str,
        key: QuotaKey,
        table: QuotaTable,
        observed: Mapping[int, Mapping[Tags, Observation]],
        now_ms: int,
        epoch: int,
    ) -> list[Split]:
        limits = table.for_key(key)
        known = self._quotas.setdefault(name, {})
        for tags in [*known, *(t for of_broker in observed.values() for t in of_broker)]:
            source = select_limit(limits, *tags)
            if source is None:
                known.pop(tags, None)
            else:
                known[tags] = limits[source]
        splitter = self._splitters.setdefault(name, ClusterSplitter(self.period_ms))
        splits = splitter.round(known, self.brokers, observed)
        valid = PERIODS_VALID * self.period_ms
        return [
            Split(user, client, name, broker, split, epoch, now_ms, valid)
            for (user, client), of_broker in splits.items()
            for broker, split in of_broker.items()
        ]


class SplitWriter:
    """
    The one writer of the splits' topic; a newer one fences it.

    Args:
        topic: its name; made (compacted) if it isn't there.
        config: confluent-kafka's settings.
    """

    def __init__(self, topic: str, config: Mapping[str, Any]) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self._config = dict(config)
        self._make_topic()
        self._producer = Producer(self._config | {"transactional.id": TRANSACTIONAL_ID})
        # From here on an older writer's transactions are refused by the brokers.
        self._producer.init_transactions(_TIMEOUT_S)
        self.epoch = self._highest_epoch() + 1

    def _make_topic(self) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self._config)
        new = NewTopic(self.topic, 1, -1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([new])[self.topic].result(_TIMEOUT_S)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ConfigError(f"topic {self.topic} can't be made: {exc}") from exc

    def _highest_epoch(self) -> int:
        return max((s.epoch for s in read_splits(self.topic, self._config)), default=0)

    def write(self, splits: Iterable[Split]) -> None:
        """
        Write a round, all or nothing.

        Raises:
            ConfigError: if another writer has taken over.
        """
        from confluent_kafka import KafkaException

        try:
            self._producer.begin_transaction()
            for split in splits:
                key, value = messages.encode(split)
                self._producer.produce(self.topic, value, key)
            self._producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as exc:
            error = exc.args[0]
            if error.fatal():
                msg = f"another `headgate splits` writes {self.topic} now; this one ends ({error})"
                raise ConfigError(msg) from exc
            self._producer.abort_transaction(_TIMEOUT_S)
            raise


def read_splits(topic: str, config: Mapping[str, Any]) -> list[Split]:
    """Return every split that a topic holds now, in order of offset."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        dict(config)
        | {
            "group.id": "headgate-splits",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[Split] = []
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        for number in partitions:
            consumer.assign([TopicPartition(topic, number, 0)])
            deadline = time.monotonic() + _TIMEOUT_S
            while time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error():
                    break  # the end
                split = messages.decode(message.key(), message.value())
                if split is not None:
                    found.append(split)
    finally:
        consumer.close()
    return found


def brokers_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ids of a cluster's brokers."""
    from confluent_kafka.admin import AdminClient

    return tuple(sorted(AdminClient(dict(config)).list_topics(timeout=_TIMEOUT_S).brokers))


def write_rounds(
    rounds: Rounds,
    writer: SplitWriter,
    table: Callable[[], QuotaTable],
    clock_ms: Callable[[], int],
    say: Callable[[str], None],
) -> Callable[[DataFrame, int], None]:
    """Return the function that each micro-batch of SEEN rows is given to."""
    began = [clock_ms()]

    def write(batch: DataFrame, number: int) -> None:
        seen = [row.asDict() for row in batch.collect()]
        now = clock_ms()
        splits = rounds.round(seen, table(), began[0], now, writer.epoch)
        began[0] = now
        writer.write(splits)
        summary = json.dumps({"round": number, "seen": len(seen), "splits": len(splits)})
        say(summary)

    return write
