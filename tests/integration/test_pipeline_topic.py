"""
A topic of log lines and journals followed by Spark; splits written for gateways, one writer only.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from confluent_kafka import Producer

from headgate.cli.main import load
from headgate.embedded import EmbeddedKafka
from headgate.errors import ConfigError
from headgate.pipeline.sources.files import paths
from headgate.pipeline.splits.split_topic import SplitWriter
from headgate.usage.format import Event, Origin
from headgate.usage.rows import batch_of
from headgate.usage.splits import Split
from headgate.usage.topic import encode
from kit import duckdb_oracle
from kit.splits_fleet import read_splits

main_usage = load("usage")
main_splits = load("splits")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka4]
DATA = Path(__file__).parents[1] / "data" / "pipeline"
LOG, QUOTAS = DATA / "precise.log.gz", DATA / "precise.quotas.json"
BPS = "producer_byte_rate:bps"


def send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(120) == 0


def test_a_topic_gives_the_same_totals_as_the_file(
    spark: SparkSession, kafka4: EmbeddedKafka, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    bootstrap, topic = kafka4.bootstrap("PLAINTEXT"), unique("request-log")
    lines = gzip.decompress(LOG.read_bytes()).splitlines()
    argv = ["--topic", topic, "--kafka-config", f"bootstrap.servers={bootstrap}", "--incremental"]
    argv += ["--out", str(tmp_path), "--quotas", str(QUOTAS)]
    for part in (lines[:1500], lines[1500:]):  # what was read stays read
        send(bootstrap, topic, part)
        assert main_usage(argv) == 0
    rows: list[tuple[Any, ...]] = duckdb.sql(
        "select quota_type, quota_id, quota, second_ms, requests, bytes, throttle_time_ms "
        f"from read_parquet({paths(tmp_path, 'usage')}) where quota_type like '%byte_rate'"
    ).fetchall()
    assert sorted(rows, key=str) == duckdb_oracle.usage(LOG, QUOTAS)


def test_splits_are_written_from_journals_and_a_newer_writer_takes_over(
    spark: SparkSession, kafka4: EmbeddedKafka, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    bootstrap = kafka4.bootstrap("PLAINTEXT")
    config = {"bootstrap.servers": bootstrap}
    topic, splits_topic = unique("journal"), unique("splits")
    origin = Origin("record", BPS, 1, "L", "alice", "", "alice:", "alice", "c", api_key=0)
    journal = encode(batch_of([Event(origin, 1000.0, 4000.0, 3000.0, 100, 100)], "w", 1))
    send(bootstrap, topic, [journal])
    quotas = tmp_path / "q.yaml"
    quotas.write_text(f"quotas:\n  - entity: {{user: alice}}\n    {BPS}: 9000\n")
    older = SplitWriter(splits_topic, config)
    older.write([Split("alice", "", BPS, 1, 1.0, older.epoch, 0, 1)])
    stop = threading.Event()

    def traffic() -> None:
        while not stop.is_set():
            send(bootstrap, topic, [journal])
            time.sleep(0.2)

    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        argv = ["--topic", topic, "--splits-topic", splits_topic, "--quotas", str(quotas)]
        argv += ["--kafka-config", f"bootstrap.servers={bootstrap}", "--period-ms", "1000"]
        assert main_splits([*argv, "--rounds", "4"]) == 0
    finally:
        stop.set()
        thread.join()
    found = read_splits(splits_topic, config)
    newest = [s for s in found if s.epoch > older.epoch]
    assert {s.broker for s in newest} == {1, 2}
    assert {(s.user, s.key, s.valid_ms) for s in newest} == {("alice", BPS, 3000)}
    rounds = {s.computed_ms for s in newest}
    assert len(rounds) >= 2
    for computed in rounds:
        assert sum(s.split for s in newest if s.computed_ms == computed) <= 9000.0 * (1 + 1e-9)
    with pytest.raises(ConfigError, match="another `headgate splits`"):
        older.write([Split("alice", "", BPS, 1, 2.0, older.epoch, 0, 1)])
    assert [s for s in read_splits(splits_topic, config) if s.split == 2.0] == []
