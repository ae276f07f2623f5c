"""
The usage of known traffic, held to the brokers' own byte counters.

Brokers count record batches: ``BytesInPerSec`` where they are appended to the log,
``BytesOutPerSec`` for each partition of a fetch answer. Quotas, and so usage, count whole requests
and answers: headers, names of topics and partitions' fields are around the batches. Hence usage is
never below the counters, and above them by at most ``AROUND`` bytes a request.
"""

from __future__ import annotations

import getpass
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

import headgate.pipeline as hp
from headgate.embedded import EmbeddedKafka
from headgate.embedded.tools import CONSUMER_PERF, PRODUCER_PERF, run_tool

from .gateway_kit import send, wait_for
from .gateway_kit import topic as make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
AROUND = 120
"""Bytes around the batches of a request or answer about one partition: docs/reference/pipeline.md
takes this as well. Names are of a usual length."""
# Names the management port's address in a file that only this user can read; no port is chosen.
LOCAL_JMX = ("-XX:+UsePerfData", "-Dcom.sun.management.jmxremote")


def counters(kafka: EmbeddedKafka, topic: str) -> dict[str, int]:
    """Return a topic's byte counters since the broker began, by Kafka's own JmxTool."""
    file = Path(tempfile.gettempdir()) / f"hsperfdata_{getpass.getuser()}" / str(kafka.pid(1))
    found = re.search(rb"service:jmx:rmi://[\x21-\x7e]+", file.read_bytes())
    assert found is not None
    names = ("BytesInPerSec", "BytesOutPerSec")
    beans = [f"kafka.server:type=BrokerTopicMetrics,name={name},topic={topic}" for name in names]
    objects = [word for bean in beans for word in ("--object-name", bean)]
    options = ["--attributes", "Count", "--one-time", "--report-format", "properties"]
    done = run_tool(
        "org.apache.kafka.tools.JmxTool", ["--jmx-url", found[0].decode(), *objects, *options]
    )
    assert done.returncode == 0, done.stderr
    values = re.findall(r"name=(\w+),topic=[^:]+:Count=(\d+)", done.stdout)
    assert len(values) == 2, done.stdout
    return {name: int(value) for name, value in values}


def read_all(bootstrap: str, topic: str, count: int, **config: object) -> None:
    """Read a topic of one partition without a group: nothing else is fetched."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **config})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen: list[object] = []

    def done() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.append(message.offset())
        return len(seen) == count

    wait_for(done, f"{count} records", 120)
    consumer.close()


def test_usage_is_the_brokers_count_and_what_is_around_it(
    spark: SparkSession, make_kafka: Callable[..., EmbeddedKafka], tmp_path: Path
) -> None:
    kafka = make_kafka(brokers=1, request_log=True, java_options=LOCAL_JMX)
    bootstrap = kafka.bootstrap("PLAINTEXT")
    for name in ("large", "single", "packed", "java"):
        make_topic(bootstrap, name, partitions=1)
    send(bootstrap, "large", 2_000, **{"linger.ms": 50, "client.id": "large"})
    # A batch of one short record each: the most that can be around them.
    send(bootstrap, "single", 300, 10, **{"batch.num.messages": 1, "client.id": "single"})
    send(bootstrap, "packed", 2_000, **{"compression.type": "lz4", "client.id": "packed"})
    perf = ["--topic", "java", "--num-records", "2000", "--record-size", "1000", "--throughput"]
    perf += ["-1", "--command-property", f"bootstrap.servers={bootstrap}", "client.id=java"]
    assert run_tool(PRODUCER_PERF, perf).returncode == 0
    for name, count in (("large", 2_000), ("single", 300), ("packed", 2_000)):
        read_all(bootstrap, name, count, **{"client.id": f"{name}-reader"})
    perf = ["--bootstrap-server", bootstrap, "--topic", "java", "--num-records", "2000"]
    perf += ["--command-property=client.id=java-reader", "--timeout", "60000"]
    assert run_tool(CONSUMER_PERF, perf).returncode == 0
    counted = {name: counters(kafka, name) for name in ("large", "single", "packed", "java")}
    log = tmp_path / "request.log"
    shutil.copy(kafka.request_log_path(1), log)
    kafka.stop()

    used = {
        (row["client_id"], row["quota_type"]): (row["bytes"], row["requests"])
        for row in hp.requests(spark, log, broker_id=1)
        .where("is_charged and quota_type like '%byte_rate'")
        .groupBy("client_id", "quota_type")
        .agg({"bytes_charged": "sum", "*": "count"})
        .toDF("client_id", "quota_type", "bytes", "requests")
        .collect()
    }
    for name, count in counted.items():
        for client, quota_type, counter in (
            (name, "producer_byte_rate", "BytesInPerSec"),
            (f"{name}-reader", "consumer_byte_rate", "BytesOutPerSec"),
        ):
            charged, requests = used[client, quota_type]
            around = charged - count[counter]
            print(f"{client}: {count[counter]} counted, {charged} charged in {requests} requests: "
                  f"{around / requests:.1f} a request, {around / charged:.2%}")  # fmt: skip
            assert count[counter] > 0
            assert 0 <= around <= AROUND * requests
            if name in ("large", "java") and counter == "BytesInPerSec":
                assert around < 0.02 * charged
