"""Tables by day, appended, merged, replaced; the plain table; the words of jobs in Spark's UI."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import headgate.pipeline as hp
from headgate.cli.main import main
from headgate.errors import BadArgument, ConfigError
from headgate.pipeline import schema
from headgate.pipeline.sources.files import paths
from headgate.pipeline.tables.by_day import save, with_day
from headgate.pipeline.tables.folders import LocalFolder
from headgate.pipeline.tables.pointer import POINTER, Pointer
from headgate.pipeline.tables.runs import Staged
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from kit.pipeline_rows import asked, frame, ordered, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
DAY_MS = 86_400_000
OF_USERS = QuotaTable.of({QuotaEntity.of(user=DEFAULT): {PRODUCER: 1e9}})
SHOWN = ("quota_id", "bytes")
KEY = ("quota_type", "quota_id", "broker_id", "second_ms")


def used(spark: SparkSession, *requests: tuple[int, str, int]) -> DataFrame:
    """Return usage of a few requests: (day, user, bytes)."""
    rows = [asked(day * DAY_MS, who, "", size) for day, who, size in requests]
    found = frame(spark, schema.REQUESTS, rows).transform(hp.usage, OF_USERS)
    return found.where("quota_type = 'producer_byte_rate'")


def table(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    found = spark.read.parquet(str(path))
    return sorted(
        (str(r["day"]), r["quota_id"], r["bytes"])
        for r in found.select("day", "quota_id", "bytes").collect()
    )


def test_days_of_several_runs_are_read_with_their_day(spark: SparkSession, tmp_path: Path) -> None:
    """By the pointer: what a merge replaced isn't read, though its folder is there."""
    folder = LocalFolder(str(tmp_path))

    def run(mode: str, by_day: bool, *requests: tuple[int, str, int]) -> None:
        staged = Staged(folder, "usage", mode)
        rows = used(spark, *requests)
        save(with_day(rows) if by_day else rows, f"{staged.path}/usage", "overwrite", by_day)
        staged.publish()

    def read() -> list[tuple[Any, ...]]:
        found = hp.read_table(spark, tmp_path, "usage")
        assert found.schema == schema.USAGE.timed.struct
        chosen = found.select("second_ms", "day").schema
        assert [f.metadata["comment"] for f in chosen][-1] == "UTC day of `second_ms`"
        return rows_of(found.withColumn("day", F.col("day").cast("string")), "day", *SHOWN)

    first, second = "2001-09-09", "2001-09-10"
    run("overwrite", True, (0, "a", 1), (1, "b", 2))
    assert read() == ordered([(first, "a:", 1), (second, "b:", 2)])
    run("append", True, (1, "c", 3))
    assert read() == ordered([(first, "a:", 1), (second, "b:", 2), (second, "c:", 3)])
    run("merge", True, (1, "d", 4))
    assert len(list(tmp_path.glob(f"run-*/usage/day={second}"))) == 3
    assert read() == ordered([(first, "a:", 1), (second, "d:", 4)])
    run("overwrite", False, (0, "e", 5))
    assert read() == [(first, "e:", 5)]
    opened = hp.read_table(spark, str(tmp_path), "usage")
    run("overwrite", False, (0, "f", 6))
    assert rows_of(opened, *SHOWN) == [("e:", 5)]  # of before; it stays until the next run ends
    run("overwrite", False, (0, "g", 7))
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        opened.collect()
    assert read() == [(first, "g:", 7)]
    with pytest.raises(BadArgument, match="no run of a command wrote a table storms there"):
        hp.read_table(spark, tmp_path, "storms")


def test_a_table_is_divided_by_day_and_days_or_rows_are_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "usage"
    first, second = "2001-09-09", "2001-09-10"
    hp.write(used(spark, (0, "a", 1), (0, "b", 2), (1, "a", 3)), out, mode="append")
    assert {path.name for path in out.glob("day=*")} == {f"day={first}", f"day={second}"}
    both = [(first, "a:", 1), (first, "b:", 2), (second, "a:", 3)]
    assert table(spark, out) == both
    hp.write(used(spark, (1, "c", 4)), out, mode="append")
    assert table(spark, out) == [*both, (second, "c:", 4)]
    hp.write(used(spark, (1, "a", 30), (1, "d", 5)), out, mode="merge", key=KEY)
    merged = [*both[:2], (second, "a:", 30), (second, "c:", 4), (second, "d:", 5)]
    assert table(spark, out) == merged
    hp.write(used(spark, (1, "a", 30), (1, "d", 5)), out, mode="merge", key=KEY)  # twice is once
    assert table(spark, out) == merged
    hp.write(used(spark, (0, "z", 9)), out, mode="merge")  # whole days
    assert table(spark, out) == [(first, "z:", 9), *merged[2:]]
    hp.write(used(spark, (0, "y", 8)), out)
    assert table(spark, out) == [(first, "y:", 8)]
    columns = spark.read.parquet(str(out)).dtypes
    assert dict(columns)["second_at"] == "timestamp"
    assert dict(columns)["day"] == "date"


def test_rows_of_no_known_day_are_kept_and_replaced_as_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    def rows(*cells: tuple[int | None, str, int]) -> DataFrame:
        return spark.createDataFrame(cells, "second_ms long, quota_id string, bytes long")

    def found() -> list[tuple[Any, ...]]:
        read = spark.read.parquet(str(tmp_path / "t"))
        return sorted((str(r["day"]), r["quota_id"], r["bytes"]) for r in read.collect())

    key = ("quota_id", "second_ms")
    hp.write(rows((None, "a", 1), (None, "b", 2), (0, "c", 3)), tmp_path / "t")
    hp.write(rows((None, "b", 20), (None, "d", 4)), tmp_path / "t", mode="merge", key=key)
    kept = [("1970-01-01", "c", 3)]
    assert found() == [*kept, ("None", "a", 1), ("None", "b", 20), ("None", "d", 4)]
    hp.write(rows((None, "e", 5)), tmp_path / "t", mode="merge")
    assert found() == [*kept, ("None", "e", 5)]


def test_a_frames_own_day_is_kept_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    mine = spark.createDataFrame([(0, "mine", 1)], "second_ms long, day string, n int")
    for number, own in enumerate((mine, mine.drop("second_ms"))):  # a day, and no time
        hp.write(own, tmp_path / str(number))
        [row] = spark.read.parquet(str(tmp_path / str(number))).collect()
        assert row["day"] == "mine"
    requests = frame_of_one(spark)
    assert "mine" in hp.replay(requests.withColumn("mine", F.lit(1)), OF_USERS).columns
    with pytest.raises(BadArgument, match="column day is string, and the result has a column day"):
        hp.replay(requests.withColumn("day", F.lit("mine")), OF_USERS)


def frame_of_one(spark: SparkSession) -> DataFrame:
    return frame(spark, schema.REQUESTS, [asked(0, "a", "", 1)])


def test_a_table_of_many_parts_is_one_scan_of_the_days_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In a folder whose name Spark would take for a pattern; runs have it by exact paths."""
    out = tmp_path / "t[1]"
    out.mkdir()
    parts = []
    for number in range(40):
        run = f"run-20261127T1000{number:02}-usage-1f2e3d4c"
        day = out / run / "usage" / f"day=1970-01-{number % 20 + 1:02}"
        day.mkdir(parents=True)
        row = {"second_ms": number % 20 * DAY_MS, "bytes": 1}
        rows = schema.USAGE.timed.from_rows([row]).drop(["day"])
        pq.write_table(rows, day / "part-0.parquet")
        parts.append(f"{run}/usage/{day.name}")
    (out / POINTER).write_bytes(Pointer({"usage": parts}).written())
    jobs = spark._jsc.sc().statusStore().jobsList(None).size()
    found = hp.read_table(spark, out, "usage")
    assert spark._jsc.sc().statusStore().jobsList(None).size() == jobs  # to list it takes none
    assert found.schema == schema.USAGE.timed.struct
    some = found.where("day = date'1970-01-02'").select("second_ms", "day")
    assert [tuple(row) for row in some.collect()] == [(DAY_MS, date(1970, 1, 2))] * 2
    plan = some._jdf.queryExecution().executedPlan().toString()
    assert plan.count("FileScan") == 1
    assert scanned(some) == 2
    assert found.count() == 40


def scanned(frame: DataFrame) -> int:
    """Return how many files Spark opened for a frame that was collected."""
    node = frame._jdf.queryExecution().executedPlan()
    while not node.metrics().contains("numFiles"):
        node = node.children().apply(0)
    return int(node.metrics().apply("numFiles").value())


def test_a_table_of_an_earlier_version_has_its_days(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "usage").mkdir()
    rows = schema.USAGE.from_rows([{"second_ms": DAY_MS, "bytes": 1}])
    pq.write_table(rows, tmp_path / "usage" / "part-0.parquet")
    [row] = hp.read_table(spark, tmp_path, "usage").collect()
    assert (row["day"], row["second_at"].timestamp()) == (date(1970, 1, 2), DAY_MS / 1000)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "upsert"}, "choose overwrite, append, merge"),
        ({"format": "orc"}, "choose parquet, delta, iceberg"),
        ({"format": "iceberg"}, "no release of Iceberg runs on Spark 4.2"),
        ({"mode": "merge", "by_day": False}, "it replaces days"),
        ({"mode": "merge", "key": ["nobody"]}, "no column nobody"),
        ({"mode": "merge", "key": ["quota_id"]}, "add the row's time"),
        ({"format": "delta"}, "--packages io.delta:delta-spark"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_way_out(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    rows = spark.createDataFrame([("a", 5)], "quota_id string, second_ms long")
    with pytest.raises(ConfigError, match=words):
        hp.write(rows, tmp_path / "t", **arguments)
    with pytest.raises(ConfigError, match="no time to divide it by"):
        hp.write(rows.drop("second_ms"), tmp_path / "t")


def test_requests_writes_the_plain_table_and_jobs_say_what_they_do(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "request.log"
    text = gzip.decompress((DATA / "precise.log.gz").read_bytes())
    log.write_bytes(b"".join(text.splitlines(keepends=True)[:500]) + b"garbled {\n")
    out = tmp_path / "out"
    assert main(["requests", "--requests", str(log), "--broker-id", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Requests by API" in printed
    assert "1 line couldn't be read" in printed
    table = hp.read_table(spark, out, "requests")
    assert table.columns == list(schema.REQUESTS.timed.names)
    names = ("seq", "record_ms", "record_at", "principal", "amount")
    assert rows_of(table, *names) == rows_of(hp.requests(spark, log, broker_id=1), *names)
    assert table.count() == 500
    # Other commands, and the library, read it in the log's place.
    again = hp.requests(spark, out / "requests")
    assert rows_of(hp.chargeback(again), "principal", "requests") == rows_of(
        hp.chargeback(hp.requests(spark, log)), "principal", "requests"
    )
    jobs = spark._jsc.sc().statusStore().jobsList(None)
    told = {
        jobs.apply(n).description().get()
        for n in range(jobs.size())
        if jobs.apply(n).description().isDefined()
    }
    assert {"headgate requests: reading", "headgate requests: writing bad_lines"} <= told
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


@pytest.mark.slow
def test_commands_divide_by_day_append_and_merge(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = gzip.decompress((DATA / "precise.log.gz").read_bytes()).splitlines(keepends=True)
    day = lines[0][1:11]
    later = b"".join(lines).replace(day, b"2031-01-02")
    logs, out = (tmp_path / "a.log", tmp_path / "b.log"), tmp_path / "out"
    logs[0].write_bytes(b"".join(lines[:1200]))
    logs[1].write_bytes(b"".join(lines[1200:]) + later)

    def run(log: Path, *flags: str) -> int:
        return main(["usage", "--requests", str(log), "--out", str(out), *flags])

    def requests(table: str = "usage") -> dict[str, int]:
        rows = hp.read_table(spark, out, table).groupBy("day").sum("requests").collect()
        return {str(r["day"]): r[1] for r in rows}

    by_day = ("--partition-by", "day")
    assert run(logs[0], *by_day) == 0
    first = requests()
    today = day.decode()
    assert list(first) == [today]
    assert run(logs[1], *by_day, "--mode", "append") == 0
    both = requests()
    whole = both["2031-01-02"]
    assert set(both) == {today, "2031-01-02"}
    assert both[today] == whole  # the two parts of the same day
    assert requests("usage_hour") == requests("usage_day") == both
    assert run(logs[0], *by_day, "--mode", "merge") == 0
    assert requests() == {today: first[today], "2031-01-02": whole}
    assert main(["report", "--tables", str(out), "--out", str(tmp_path / "page.html")]) == 0
    capfd.readouterr()
    assert run(logs[0], "--mode", "append") == 1
    said = capfd.readouterr().err
    assert "usage_day is divided by day; write it once with --mode overwrite" in said
    assert requests() == {today: first[today], "2031-01-02": whole}
    assert run(logs[0]) == 0
    assert not [path for path in paths(out, "usage") if "/day=" in path]
