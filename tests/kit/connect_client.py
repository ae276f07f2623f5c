"""
Ask every function of the library for sums of its answer; over Spark Connect when run as a program.

`python connect_client.py LOG QUOTAS FOLDER` starts a Connect server of its own, one that has Delta,
and prints JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import headgate.pipeline as hp
from headgate.embedded.jars import DELTA, ensure_jars
from headgate.pipeline.tables.lake import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def sums_of(frame: DataFrame, *columns: str) -> list[float]:
    """Return how many rows a frame has, and the sums of some columns."""
    sums = (f"coalesce(sum({name}), 0)" for name in columns)
    row = frame.selectExpr("count(*)", *sums).first()
    assert row is not None
    return [float(f"{float(value):.9g}") for value in row]


def answers(spark: SparkSession, log: str, quotas: str, folder: Path) -> dict[str, list[float]]:
    """Return the sums of all answers about a log."""
    requests = hp.requests(spark, log, broker_id=1)
    used = hp.usage(requests, quotas)
    table = str(folder / "usage")
    for _ in range(2):
        hp.write(used, table, mode="merge", key=("quota_type", "quota_id", "second_ms"))
    spark.dataSource.register(hp.KafkaRequestLog)
    source = spark.read.format("kafka-request-log").option("brokerId", 1).load(log)
    return {
        "requests": sums_of(requests, "record_ms", "bytes_charged"),
        "source": sums_of(source, "record_ms", "bytes_charged"),
        "usage": sums_of(used, "bytes", "requests", "throttle_time_ms"),
        "written": sums_of(spark.read.parquet(table), "bytes", "requests", "throttle_time_ms"),
        "days": sums_of(hp.usage(requests, quotas, by="day"), "bytes", "p95_per_s"),
        "effective": sums_of(hp.effective(requests, quotas), "requests", "bytes"),
        "chargeback": sums_of(hp.chargeback(requests, quotas), "bytes_in", "bytes_out"),
        "storms": sums_of(hp.storms(requests), "count"),
        "replay": sums_of(hp.replay(requests, quotas), "replayed_throttle_time_ms"),
        "what_if": sums_of(
            hp.what_if(requests, {"none": None}, in_force=quotas), "throttle_time_ms", "bytes"
        ),
        "recommend": sums_of(hp.recommend(requests, quotas), "recommended"),
        "bad_lines": sums_of(hp.bad_lines(spark, log), "offset"),
        "of_rows": sums_of(
            requests.where("bytes_charged > 0").transform(hp.replay, quotas),
            "replayed_throttle_time_ms",
        ),
    }


def main() -> None:
    """Start a local Connect server and ask it."""
    from pyspark.sql import SparkSession

    log, quotas, folder = sys.argv[1:]
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.daemon.module": "headgate.pipeline.workers.daemon",
        "spark.jars": ",".join(map(str, ensure_jars(DELTA).glob("*.jar"))),
        **SETTINGS["delta"],
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found = answers(spark, log, quotas, Path(folder))
    used, table = hp.usage(hp.requests(spark, log, broker_id=1), quotas), f"{folder}/delta"
    key = ("quota_type", "quota_id", "second_ms")
    hp.write(used.where("second_ms % 2000 = 0"), table, format="delta")
    hp.write(used.where("second_ms % 3000 = 0"), table, format="delta", mode="merge", key=key)
    hp.write(used, table, format="delta", mode="merge", key=key)
    found["delta"] = sums_of(
        spark.read.format("delta").load(table), "bytes", "requests", "throttle_time_ms"
    )
    hp.write(used, f"{table}-2", format="delta", mode="append")
    hp.write(used, f"{table}-2", format="delta", mode="append")
    found["delta twice"] = sums_of(spark.read.format("delta").load(f"{table}-2"), "requests")
    print(json.dumps({"session": type(spark).__module__, "answers": found}))
    spark.stop()


if __name__ == "__main__":
    main()
