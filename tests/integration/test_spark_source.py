"""Request logs as a data source: read whole, in SQL, between two times, and as a stream."""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headgate.pipeline as hp
from headgate.pipeline import schema
from kit.pipeline_rows import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.pipeline.library.stream import RequestLogStream

pytestmark = pytest.mark.spark
LOG = Path(__file__).parents[1] / "data" / "pipeline" / "precise.log.gz"
FORMAT = "kafka-request-log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A broker's folder: a rolled, compressed log, and one that ends in a line cut off."""
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"".join(lines[:800])))
    (tmp_path / "b.log").write_bytes(b"".join(lines[800:]) + b"garbled {\n")
    return tmp_path


@contextmanager
def conf(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before or "")


@pytest.mark.short
def test_it_registers_itself_and_reads_what_the_function_reads(
    spark: SparkSession, folder: Path
) -> None:
    # No register(): PySpark finds the package pyspark_headgate.
    source = spark.read.format(FORMAT).option("brokerId", 1).load(str(folder))
    assert source.schema.simpleString() == schema.REQUESTS.timed.struct.simpleString()
    wanted = hp.requests(spark, folder, broker_id=1)
    columns = ("file", "seq", "record_ms", "record_at", "principal", "bytes_charged", "broker_id")
    found = rows_of(source, *columns)
    assert found == rows_of(wanted, *columns)
    assert len(found) > 1000


def test_sql_reads_it_and_times_outside_stay_out_of_the_jvm(
    spark: SparkSession, folder: Path
) -> None:
    spark.dataSource.register(hp.KafkaRequestLog)
    reader = spark.read.format(FORMAT)
    reader.load(str(folder)).createOrReplaceTempView("requests_of_a_broker")
    asked = "select count(*), sum(bytes_charged), percentile(record_ms, 0.5) from"
    count, size, middle = spark.sql(f"{asked} requests_of_a_broker").collect()[0]
    # Spark 4.2.0 would give the first of these again for the second, if filters were pushed.
    with conf(spark, "spark.sql.python.filterPushdown.enabled", "true"):
        view = "requests_of_a_broker"
        later = spark.sql(f"{asked} {view} where record_ms >= {int(middle)}").collect()[0][:2]
        assert spark.sql(f"{asked} {view}").collect()[0] == (count, size, middle)
    moment = datetime.datetime.fromtimestamp(int(middle) / 1000, datetime.UTC).isoformat()
    since = reader.option("since", moment).load(str(folder))
    assert since.selectExpr("count(*)", "sum(bytes_charged)").collect()[0] == later
    before = spark.read.format(FORMAT).option("until", moment).load(str(folder))
    assert before.count() == count - later[0] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeZone": "Mars"}, "option timeZone: 'Mars' isn't a time zone"),
        ({"since": "noon"}, "option since: 'noon' isn't a moment"),
        ({"brokerId": "one"}, "option brokerId: 'one' isn't a whole number"),
        ({"path": "/no/such"}, "/no/such: there is no such file"),
    ],
)
def test_options_that_make_no_sense_are_named(
    spark: SparkSession, folder: Path, options: dict[str, str], words: str
) -> None:
    from pyspark.errors import PySparkException

    given = {"path": str(folder)} | options
    with pytest.raises(PySparkException, match=words):
        spark.read.format(FORMAT).options(**given).load().count()


def test_a_stream_reads_every_line_once_through_renames_and_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)[:900]
    logs, out, kept = tmp_path / "logs", tmp_path / "out", tmp_path / "kept"
    logs.mkdir()
    log = logs / "request.log"

    def run() -> None:
        """Start the query, read all there is, end it."""
        source = spark.readStream.format(FORMAT).option("brokerId", 1).load(str(logs))
        query = (
            source.select("seq", "principal", "bytes_charged", "record_at")
            .writeStream.option("checkpointLocation", str(kept))
            .trigger(availableNow=True)
            .start(str(out), format="parquet")
        )
        query.awaitTermination()
        assert query.exception() is None

    def read() -> int:
        return spark.read.parquet(str(out)).count()

    log.write_bytes(b"".join(lines[:300]) + lines[300][:50])
    run()
    assert read() == 300  # the line that is being written waits
    with log.open("ab") as file:
        file.write(lines[300][50:] + b"".join(lines[301:500]))
    log.rename(logs / "request.log.2026-01-01-00")
    log.write_bytes(b"".join(lines[500:700]))
    run()
    assert read() == 700
    (logs / "request.log.2026-01-01-00.gz").write_bytes(gzip.compress(b"".join(lines[:500])))
    (logs / "request.log.2026-01-01-00").unlink()
    with log.open("ab") as file:
        file.write(b"".join(lines[700:]))
    run()
    run()
    assert read() == 900
    assert spark.read.parquet(str(out)).distinct().count() > 800


def test_a_batch_that_is_read_again_finds_its_file_under_its_new_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    log = tmp_path / "request.log"
    log.write_bytes(b"".join(lines[:100]))
    source = hp.KafkaRequestLog({"path": str(tmp_path)})

    def stream() -> RequestLogStream:
        return source.streamReader(schema.REQUESTS.timed.struct)

    began = stream().initialOffset()
    ended = stream().latestOffset(began, ReadAllAvailable())
    assert stream().latestOffset(ended, ReadAllAvailable()) == ended
    assert [task.pieces for task in stream().partitions(ended, ended)] == [()]
    log.rename(tmp_path / "request.log.1")
    log.write_bytes(b"".join(lines[100:150]))  # another file has its name
    (task,) = stream().partitions(began, ended)
    (rows,) = stream().read(task)
    assert (rows.num_rows, rows["file"][0].as_py()) == (100, str(tmp_path / "request.log.1"))
    (tmp_path / "request.log.1").unlink()
    with pytest.raises(Exception, match="put it back"):
        list(stream().read(task))
