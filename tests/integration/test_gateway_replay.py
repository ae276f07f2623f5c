"""Real clients throttled by a running gateway, its journal replayed by Spark: 0 differ."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from headgate.cli.main import load
from headgate.gateway import GatewayThread
from headgate.pipeline.sources.files import paths
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, PRODUCER_BPS, PRODUCER_IDS, REQUEST
from headgate.wire.apis import CREATE_TOPICS
from headgate.wire.messages import encode_request, mutation

from .gateway_kit import make_gateway, read_all, send, set_quota, topic

main_replay = load("replay")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["make_gateway"]
# Some ten seconds of waiting by each of two gateways.
pytestmark = [pytest.mark.spark, pytest.mark.kafka4, pytest.mark.slow]
Make = Callable[..., GatewayThread]
WINDOWS = {
    "quota__window__num": "2",
    "controller__quota__window__num": "2",
    "producer__id__quota__window__num": "1",
}


def create(gateway: GatewayThread, client: str, version: int, names: list[str]) -> None:
    """Ask for topics of two partitions each, whatever comes of it."""
    controller = gateway.gateway.discovery.clusters["PLAINTEXT"].controller_id
    wanted = mutation.CreateTopicsRequest(
        tuple(mutation.CreatableTopic(name, 2, 1) for name in names)
    )
    with socket.create_connection(gateway.gateway.addresses("PLAINTEXT")[controller], 60) as sock:
        sock.sendall(encode_request(CREATE_TOPICS, version, 1, client, wanted))
        sock.settimeout(60)
        frame = b""
        while len(frame) < 4 or len(frame) < 4 + int.from_bytes(frame[:4], "big"):
            frame += sock.recv(65_536)


def everybody_is_throttled(gateway: GatewayThread, unique: Callable[[str], str]) -> None:
    """Clients of every kind, each over its quota, while a quota changes."""
    bootstrap, name = gateway.bootstrap("PLAINTEXT"), unique("replayed")
    topic(bootstrap, name, 1)
    send(bootstrap, name, 120)
    of = {
        client: QuotaEntity.of(client_id=unique(client))
        for client in ("producer", "builder", "busy", "split")
    }
    of["reader"] = QuotaEntity.of(client_id="rdkafka")  # as librdkafka calls itself
    ids = {client: str(entity.client_id) for client, entity in of.items()}
    set_quota(gateway, of["producer"], {PRODUCER: 40_000.0})
    set_quota(gateway, of["split"], {PRODUCER_BPS: 60_000.0})
    set_quota(gateway, of["reader"], {CONSUMER: 60_000.0})
    set_quota(gateway, of["builder"], {MUTATION: 2.0})
    set_quota(gateway, of["busy"], {REQUEST: 0.05})
    set_quota(gateway, QuotaEntity.of(user="ANONYMOUS"), {PRODUCER_IDS: 1.0})

    def produce(client: str) -> None:
        send(bootstrap, name, 60, **{"client.id": ids[client], "batch.size": 4_000})

    def produce_anew() -> None:
        for _ in range(4):
            send(bootstrap, name, 1, **{"client.id": "new", "enable.idempotence": True})

    def build() -> None:
        create(gateway, ids["builder"], 7, [unique("a"), unique("b"), unique("c"), unique("d")])
        create(gateway, ids["builder"], 5, [unique("e"), name])  # one exists: given back

    work = [
        threading.Thread(target=produce, args=(client,)) for client in ("producer", "busy", "split")
    ]
    work.append(threading.Thread(target=build))
    work.append(threading.Thread(target=produce_anew))
    work.append(threading.Thread(target=read_all, args=(bootstrap, name, 1, 120)))
    for thread in work:
        thread.start()
    set_quota(gateway, of["producer"], {PRODUCER: 25_000.0})
    set_quota(gateway, of["split"], {PRODUCER_BPS: 30_000.0})
    for thread in work:
        thread.join(60)


def test_what_a_running_gateway_decided_is_replayed_by_spark_every_one(
    spark: SparkSession, make_gateway: Make, unique: Callable[[str], str], tmp_path: Path
) -> None:
    for pacing in ("kafka", "smooth"):
        gateway = make_gateway(
            headgate__usage=f"files:{tmp_path / 'usage'}",
            headgate__worker__id=pacing,
            headgate__pacing=pacing,
            headgate__splits__period__ms="500",
            **WINDOWS,
        )
        everybody_is_throttled(gateway, unique)
        gateway.stop(0)
    out = tmp_path / "out"
    assert main_replay(["--requests", str(tmp_path / "usage"), "--out", str(out)]) == 0
    rows = duckdb.sql(
        "select quota_type, split_part(worker_id, '/', 1), "
        "count(*) filter (replayed_throttle_time_ms is distinct from logged_throttle_time_ms), "
        "count(*) filter (logged_throttle_time_ms > 0) "
        f"from read_parquet({paths(out, 'replay')}) where replayable group by all order by all"
    ).fetchall()
    types = (
        "consumer_byte_rate",
        "controller_mutation_rate",
        "producer_byte_rate",
        "producer_byte_rate:bps",
        "producer_ids_rate",
        "request_percentage",
    )
    assert [(kind, pacing) for kind, pacing, _, _ in rows] == [
        (kind, pacing) for kind in types for pacing in ("kafka", "smooth")
    ]
    assert [row for row in rows if row[2]] == []
    assert [row for row in rows if not row[3]] == []
