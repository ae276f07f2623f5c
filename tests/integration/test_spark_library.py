"""The library's functions give what the commands write, of files, of frames, and in any zone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headgate.pipeline as hp
from headgate.cli.main import main
from headgate.errors import ConfigError
from headgate.pipeline import quotas, schema
from headgate.pipeline.answers.advice import Advice
from headgate.pipeline.answers.chargeback import period_start
from headgate.pipeline.answers.storms import Thresholds
from headgate.pipeline.table import Table
from kit.pipeline_rows import S, asked, frame, rows_of, same_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
LOG, QUOTAS, PRECISE = DATA / "public.log.gz", DATA / "public.quotas.json", DATA / "precise.log.gz"
PRICES = "currency: EUR\nbytes_in_per_gb: 50\nprincipals: {bob: {bytes_in_per_gb: 5}}"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a plan and prices, as the golden tables were made with."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "prices.yaml").write_text(PRICES)
    (folder / "tight.json").write_text(QUOTAS.read_text().replace("120000", "60000"))
    return folder


def answers(folder: Path) -> dict[str, Callable[[DataFrame], DataFrame]]:
    """Return the questions of the commands, put to the library."""
    tight = folder / "tight.json"
    return {
        "usage": lambda frame: frame.transform(hp.usage, QUOTAS),
        "effective": lambda frame: frame.transform(hp.effective, QUOTAS),
        "replay": lambda frame: frame.transform(hp.replay, QUOTAS),
        "what_if": lambda frame: frame.transform(hp.what_if, tight, in_force=QUOTAS),
        "chargeback": lambda frame: frame.transform(
            hp.chargeback, QUOTAS, period="hour", prices=folder / "prices.yaml"
        ),
        "storms": lambda frame: hp.storms(frame, Thresholds(2.0)),
        "recommend": lambda frame: hp.recommend(
            frame, QUOTAS, advice=Advice(max_request_bytes=65536)
        ),
    }


def without_moments(frame: DataFrame) -> DataFrame:
    return frame.drop("day", *[name for name in frame.columns if name.endswith("_at")])


def rounded(found: DataFrame) -> list[tuple[Any, ...]]:
    """Return a frame's rows, doubles to nine digits."""
    return sorted(
        (
            tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row)
            for row in found.collect()
        ),
        key=str,
    )


# What test_spark_logs.py holds the commands' tables to.
GOLDEN = {
    "what_if": ["first_ms", "last_ms"],
    "chargeback": [],
    "storms": [],
    "effective": [],
    "recommend": [],
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_function_gives_its_commands_golden_rows(
    name: str, spark: SparkSession, given: Path
) -> None:
    found = answers(given)[name](hp.requests(spark, LOG, broker_id=1))
    assert same_schema(found, schema.TABLES[name].timed)
    if name == "effective":
        found = found.where("quota_key not like 'request%'")
    golden = json.loads((DATA / "golden" / f"{name}.json").read_text())
    assert rounded(without_moments(found).drop(*GOLDEN[name])) == sorted(
        map(tuple, golden), key=str
    )


def test_usage_and_replay_give_the_rows_that_workers_write(
    spark: SparkSession, given: Path, tmp_path: Path
) -> None:
    quotas = str(DATA / "precise.quotas.json")
    argv = ["--requests", str(PRECISE), "--broker-id", "1", "--quotas", quotas, "--quiet"]
    requests = hp.requests(spark, PRECISE, broker_id=1)
    for name in ("usage", "replay"):
        assert main([name, *argv, "--out", str(tmp_path)]) == 0
    found = {
        "usage": hp.usage(requests, quotas),
        "usage_hour": hp.usage(requests, quotas, by="hour"),
        "usage_day": hp.usage(requests, quotas, by="day"),
        "replay": hp.replay(requests, quotas),
    }
    for name, ours in found.items():
        table: Table = schema.TABLES[name].timed
        assert same_schema(ours, table)
        written = hp.read_table(spark, tmp_path, name).select(*table.names)
        assert rounded(ours) == rounded(written) != []


def test_answers_chain_and_take_what_is_filtered(spark: SparkSession) -> None:
    requests = hp.requests(spark, PRECISE, broker_id=1)
    bills = rows_of(requests.transform(hp.chargeback), "bytes_in", "principal", "bytes_out")
    bytes_in, who, bytes_out = max(bills)
    mine = requests.where(requests["principal"] == who).transform(hp.usage).groupBy().sum("bytes")
    assert mine.collect()[0][0] == bytes_in + bytes_out > 0


def test_sums_are_read_once_for_several_answers(spark: SparkSession) -> None:
    sums = hp.activity(hp.requests(spark, PRECISE)).persist()
    assert hp.activity(sums) is sums
    used = hp.usage(sums).selectExpr("sum(requests)").collect()[0][0]
    assert used == hp.chargeback(sums).selectExpr("sum(requests)").collect()[0][0] > 0
    sums.unpersist()


def test_bad_lines_are_those_of_the_files(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "request.log"
    log.write_text("garbled {\n")
    found = hp.bad_lines(spark, log)
    assert rows_of(found, "offset", "reason") == [(0, "not a request line")]


def test_plans_are_named_and_quotas_come_in_any_form(spark: SparkSession) -> None:
    rows = frame(spark, schema.REQUESTS, [asked(0, "alice", "x", 30_000)])
    table = quotas.load(str(QUOTAS)).tables[0]
    found = hp.what_if(rows, {"now": table, "none": None})
    assert {row["plan"] for row in found.collect()} == {"logged", "now", "none"}
    with pytest.raises(ConfigError, match=r"several plans are called public\.quotas"):
        hp.what_if(rows, [QUOTAS, str(QUOTAS)])
    with pytest.raises(ConfigError, match=r"demand: several plans are called public\.quotas"):
        hp.demand(rows, [QUOTAS, str(QUOTAS)])


def test_periods_are_utc_whatever_the_sessions_zone(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    rows = frame(spark, schema.REQUESTS, [asked(0, "alice", "x", 5)])
    begins = {"hour": 999_997_200_000, "day": 999_993_600_000, "month": 999_302_400_000}
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        found = rows.select(*[period_start(p, F.col("record_ms")).alias(p) for p in begins])
        assert found.first().asDict() == begins
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    assert begins["hour"] <= S


def test_what_makes_no_sense_is_refused_with_the_way_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = frame(spark, schema.REQUESTS, [asked(0, "alice", "x", 5)])
    with pytest.raises(ConfigError, match="lacks amount, is_charged: give one of"):
        rows.drop("amount", "is_charged").transform(hp.usage)
    with pytest.raises(ConfigError, match="choose second, hour, day"):
        hp.usage(rows, by="week")
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/none: there is no such file"):
        hp.requests(spark, tmp_path / "none")
    with pytest.raises(ConfigError, match=r"^time_zone: "):
        hp.requests(spark, LOG, time_zone="Mars")
    assert rows_of(rows.drop("producer_ids", "file").transform(hp.usage), "bytes")
    assert set(hp.__all__) <= set(dir(hp))
