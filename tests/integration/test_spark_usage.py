"""Sums by second, hour and day are the same whatever the order and the parts they came in."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headgate.pipeline as hp
from headgate.pipeline import frames, schema
from headgate.pipeline.answers import usage
from headgate.pipeline.answers.usage import DAY_MS, HOUR_MS
from headgate.pipeline.emitted import ACTIVITY, OWN_QUOTA, SAME_SECOND
from headgate.pipeline.quotas import Quotas, load
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.table import QuotaTable
from kit.pipeline_rows import S, asked, did, frame, rows_of, same_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.short]
P = "producer_byte_rate"
DATA = Path(__file__).parents[1] / "data" / "pipeline"
NOBODY = Quotas.of(QuotaTable())


def used(spark: SparkSession, *amounts: float | None, start_ms: int = S) -> DataFrame:
    """USAGE of one quota-id, a row per second."""
    same = {"quota_type": P, "quota_id": "alice:", "quota_user": "alice", "quota_client_id": ""}
    same |= dict.fromkeys(("requests", "bytes", "throttle_time_ms", "throttled_requests"), 1)
    rows = [same | {"second_ms": start_ms + 1000 * i, "amount": a} for i, a in enumerate(amounts)]
    return frame(spark, schema.USAGE, rows)


def day_of(spark: SparkSession, *amounts: float | None) -> Any:
    (day,) = used(spark, *amounts).transform(usage.by_period(schema.USAGE_DAY)).collect()
    return day


def test_percentiles_lie_between_two_seconds(spark: SparkSession) -> None:
    day = day_of(spark, 4.0, 1.0, 10.0, 2.0)
    # Position 1.5 of 1, 2, 4, 10; then 2.85 and 2.97.
    assert day["p50_per_s"] == 0.5 * 2.0 + 0.5 * 4.0
    assert day["p95_per_s"] == pytest.approx(0.15 * 4.0 + 0.85 * 10.0)
    assert (day["peak_per_s"], day["active_seconds"], day["amount"]) == (10.0, 4, 17.0)
    day = day_of(spark, None, 3.0)
    assert (day["p50_per_s"], day["p99_per_s"], day["active_seconds"]) == (3.0, 3.0, 2)
    day = day_of(spark, None)
    assert (day["p50_per_s"], day["peak_per_s"], day["handler_ms"]) == (None, None, None)


def test_a_days_sum_does_not_depend_on_the_order_nor_overflow(spark: SparkSession) -> None:
    amounts = [0.1, 0.2, 0.3, 1e12, 7e11] * 40
    there, back = day_of(spark, *amounts), day_of(spark, *amounts[::-1])
    assert there["amount"] == back["amount"] == 40 * 1_700_000_000_000.6


def test_hours_are_those_of_the_clock(spark: SparkSession) -> None:
    table = used(spark, 1.0, 2.0, start_ms=HOUR_MS - 1000)
    hours = table.transform(usage.by_period(schema.USAGE_HOUR))
    assert same_schema(hours, schema.USAGE_HOUR)
    assert rows_of(hours, "period_ms") == [(0,), (HOUR_MS,)]


def some_activity(count: int) -> list[dict[str, Any]]:
    """Rows of ACTIVITY, many of them with the same keys; some of a journal."""
    rng = random.Random(33)
    rows = []
    for _ in range(count):
        own: dict[str, Any] = {}
        if rng.random() < 0.3:
            own = {"quota_id": "q:", "quota_user": "q", "quota_client_id": ""}
            own["quota"] = rng.choice([None, 5.0, 7.0])
        bytes_ = rng.randrange(10**9)
        rows.append(
            did(rng.randrange(3), rng.choice("ab"), rng.choice("xy"), rng.choice([P, "t"]), **own)
            | {"broker_id": rng.choice([None, 1]), "is_charged": rng.random() < 0.8}
            | {"bytes": bytes_, "amount": float(bytes_), "request_ns": rng.randrange(2) * 12_345}
            | {"producer_ids": rng.choice([None, 1]), "max_throttle_time_ms": rng.randrange(9)}
        )
    return rows


def test_sums_by_second_are_what_went_in(spark: SparkSession) -> None:
    rows = some_activity(400)
    keys = (*SAME_SECOND, *OWN_QUOTA)
    want: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        sums = want.setdefault(tuple(row.get(k) for k in keys), [0, 0, 0.0, None, 0])
        for at, name in enumerate(("requests", "bytes", "amount")):
            sums[at] += row[name]
        if row["producer_ids"] is not None:
            sums[3] = (sums[3] or 0) + row["producer_ids"]
        sums[4] = max(sums[4], row["max_throttle_time_ms"])
    found = frame(spark, ACTIVITY, rows).repartition(3).transform(frames.by_second)
    assert same_schema(found, ACTIVITY)
    names = ("requests", "bytes", "amount", "producer_ids", "max_throttle_time_ms")
    got = {tuple(r[k] for k in keys): [r[n] for n in names] for r in found.collect()}
    assert got == want
    assert 50 < len(want) < len(rows)


@pytest.mark.parametrize("table", [schema.USAGE, schema.USAGE_HOUR, schema.USAGE_DAY])
def test_usage_is_the_same_however_its_sums_are_parted(spark: SparkSession, table: Any) -> None:
    activity = frame(spark, ACTIVITY, some_activity(400))
    transform = usage.usage(NOBODY, table)
    one = rows_of(activity.coalesce(1).transform(transform), *table.names)
    assert rows_of(activity.repartition(5).transform(transform), *table.names) == one != []
    summed = activity.transform(frames.by_second)
    assert rows_of(summed.transform(transform), *table.names) == one


def test_hours_and_days_of_the_written_table_are_those_of_its_sums(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = find_files([str(DATA / "precise.log.gz")])
    quotas = load(str(DATA / "precise.quotas.json"))
    emitted = frames.emit_activity(spark, ReadOptions(tuple(pieces_of(files)))).persist()
    sums = frames.sums_of(emitted)
    sums.transform(usage.usage(quotas)).write.parquet(str(tmp_path / "usage"))
    written = spark.read.parquet(str(tmp_path / "usage"))
    for table in (schema.USAGE_HOUR, schema.USAGE_DAY):
        rows = rows_of(written.transform(usage.by_period(table)), *table.names)
        assert rows == rows_of(sums.transform(usage.usage(quotas, table)), *table.names) != []
    emitted.unpersist()


def test_a_limit_that_changes_within_a_second_has_a_row_of_its_own(spark: SparkSession) -> None:
    limits = [dict(zip(schema.RECORDED.names, [None] * 99, strict=False)) for _ in range(2)]
    for limit, value in zip(limits, (5.0, 7.0), strict=True):
        limit |= {"quota_user": "alice", "quota_client_id": "", "quota": value, "op": 0}
    rows = [
        asked(at, "alice", "x", 10, source="journal", event="record")
        | {"recorded": tuple(limit[n] for n in schema.RECORDED.names)}
        for at, limit in enumerate(limits)
    ]
    sums = hp.activity(frame(spark, schema.REQUESTS, rows))
    assert rows_of(sums, "quota_id", "quota", "bytes") == [("alice:", 5.0, 10), ("alice:", 7.0, 10)]
    again = sums.transform(frames.by_second)
    assert rows_of(again, *ACTIVITY.names) == rows_of(sums, *ACTIVITY.names)
    (second,) = rows_of(hp.usage(sums), "quota_id", "quota", "bytes", "second_ms")
    assert second == ("alice:", 7.0, 20, S)
    (day,) = rows_of(hp.usage(sums, by="day"), "period_ms", "bytes")
    assert day == (S - S % DAY_MS, 20)
