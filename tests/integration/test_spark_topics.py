"""Usage by topic on Spark: the sums of usage to the byte, from every source of requests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest

import headgate.pipeline as hp
from headgate.cli.main import main
from headgate.errors import BadArgument
from headgate.pipeline import schema
from headgate.pipeline.bundled import BUNDLED_BROKER_ID, bundled_log, bundled_quotas
from headgate.pipeline.sources.files import paths
from kit.journals import traffic, write_journal
from kit.pipeline_rows import S, asked, frame, ordered, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data"
QUOTAS = str(bundled_quotas())
P, C = "producer_byte_rate", "consumer_byte_rate"
TABLES = {
    "usage_by_topic": "second",
    "usage_by_topic_hour": "hour",
    "usage_by_topic_day": "day",
}
WHOSE = ("quota_type", "quota_id", "broker_id", "second_ms")
SUMS = ("bytes", "bytes_estimated")


@pytest.fixture(scope="module")
def bundled(spark: SparkSession) -> DataFrame:
    """The bundled log's requests with their topics, read once."""
    found = hp.requests(spark, bundled_log(), broker_id=BUNDLED_BROKER_ID, topics=True)
    return found.persist()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Every sample log that has sizes; those of one line are together."""
    lines = gzip.decompress((DATA / "pipeline" / "others.jsonl.gz").read_bytes()).splitlines()
    others = tmp_path_factory.mktemp("logs") / "others.log"
    others.write_text("".join(json.loads(line)["line"] + "\n" for line in lines))
    field = DATA / "field"
    return {
        "public": [str(DATA / "pipeline" / "public.log.gz")],
        "precise": [str(DATA / "pipeline" / "precise.log.gz")],
        "others": [str(others)],
        "lossy": [str(field / "F18-lossy.log.gz")],
        "principals": [str(field / "F02-msk-iam-principal")],
        "layouts": [str(field / name) for name in ("F01-whole-seconds", "F13-later-date-wins")],
    }


def sums(found: DataFrame) -> dict[tuple[Any, ...], list[int]]:
    """Bytes and estimated bytes by quota-id, broker and second, of byte rates."""
    added: dict[tuple[Any, ...], list[int]] = {}
    for row in found.where(found.quota_type.isin(P, C)).collect():
        both = added.setdefault(tuple(row[n] for n in WHOSE), [0, 0])
        for at, name in enumerate(SUMS):
            both[at] += row[name]
    return added


@pytest.mark.parametrize("name", ["public", "precise", "others", "lossy", "principals", "layouts"])
def test_topics_of_every_quota_id_and_second_add_up_to_usage(
    spark: SparkSession, logs: dict[str, list[str]], name: str
) -> None:
    requests = hp.requests(spark, logs[name], broker_id=1, copies="count", topics=True).persist()
    found, wanted = (
        sums(hp.usage(requests, QUOTAS, by_topic=True)),
        sums(hp.usage(requests, QUOTAS)),
    )
    requests.unpersist()
    assert found == wanted
    assert sum(both[0] for both in wanted.values()) > 100_000


def test_the_bundled_log_has_these_bytes_of_each_topic(bundled: DataFrame) -> None:
    day = hp.usage(bundled, QUOTAS, by="day", by_topic=True)
    assert day.columns == list(schema.USAGE_BY_TOPIC_DAY.timed.names)
    found = {tuple(r)[:3]: tuple(r)[3:] for r in day.select(
        "quota_type", "quota_id", "topic", "requests", "bytes", "active_seconds", "peak_bps"
    ).collect()}  # fmt: skip
    assert len(found) == 21
    assert found[P, "alice:", "orders"][:2] == (4631, 6_761_099)
    assert found[P, "alice:", ""][:2] == (4631, 217_209)
    # Fetches name topics by ids; the answers to Metadata and CreateTopics tell their names.
    assert found[C, "bob:bob-reader", "orders"][:2] == (41, 1_935_369)
    assert found[C, "bob:bob-reader", "events"][:2] == (40, 2_352_382)
    assert {topic for _, _, topic in found} == {"", "orders", "events", "ledger"}
    seconds = hp.usage(bundled, QUOTAS, by_topic=True)
    orders = seconds.where("quota_id = 'alice:' and topic = 'orders'")
    bytes_ = [r["bytes"] for r in orders.where(orders.quota_type == P).collect()]
    assert found[P, "alice:", "orders"][2:] == (len(bytes_), max(bytes_))


def test_an_id_whose_name_nothing_tells_stays_an_id(spark: SparkSession) -> None:
    topics = [("t", None, 60), (None, "id-a", 30), ("", None, 10)]
    one = {**asked(0, "alice", "app", 100), "bytes_by_topic": topics}
    told = {**asked(5_000_000, "x", "y", 0), "quota_type": "request_percentage"}
    told |= {"api_name": "METADATA", "bytes_by_topic": [("a", "id-a", 0)]}
    unknown = asked(0, "alice", "app", 7)
    for rows, name in (([one, unknown], "id-a"), ([one, unknown, told], "a")):
        found = hp.usage(frame(spark, schema.REQUESTS, rows), by_topic=True)
        assert rows_of(found, "topic", "requests", "bytes", "second_ms") == ordered(
            [("t", 1, 60, S), (name, 1, 30, S), ("", 1, 10, S), (None, 1, 7, S)]
        )


def test_files_the_data_source_tables_and_rows_of_ones_own_give_the_same(
    spark: SparkSession, bundled: DataFrame, tmp_path: Path
) -> None:
    hp.write(bundled, tmp_path / "requests", by_day=False)
    source = spark.read.format("kafka-request-log").option("brokerId", BUNDLED_BROKER_ID)
    table = str(tmp_path / "by the command" / "requests")
    given = ["--requests", str(bundled_log()), "--broker-id", str(BUNDLED_BROKER_ID)]
    assert main(["requests", *given, "--by-topic", "--out", str(Path(table).parent)]) == 0
    again = {
        "of the data source": source.option("topics", "true").load(str(bundled_log())),
        "written by the command": hp.read_table(spark, Path(table).parent, "requests"),
        "of the data source, of that table": source.load(table),
        "read by Spark": spark.read.parquet(str(tmp_path / "requests")),
        "read by workers": hp.requests(spark, str(tmp_path / "requests")),
        "made of rows": spark.createDataFrame(bundled.collect(), bundled.schema),
    }
    names = schema.USAGE_BY_TOPIC.names
    wanted = rows_of(hp.usage(bundled, QUOTAS, by_topic=True), *names)
    for how, requests in again.items():
        assert rows_of(hp.usage(requests, QUOTAS, by_topic=True), *names) == wanted, how


def test_what_knows_no_topics_has_rows_that_say_so(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path, traffic(1_790_000_000_000)[1])
    for requests in (
        hp.requests(spark, tmp_path, topics=True),
        hp.requests(spark, bundled_log(), broker_id=1),
    ):
        found = hp.usage(requests, QUOTAS, by_topic=True)
        assert {row["topic"] for row in found.select("topic").distinct().collect()} == {None}
        assert sums(found) == sums(hp.usage(requests, QUOTAS))


def test_sums_by_second_and_other_columns_of_that_name_are_refused(
    spark: SparkSession, bundled: DataFrame
) -> None:
    with pytest.raises(BadArgument, match="this frame lacks record_ms"):
        hp.usage(hp.activity(bundled), by_topic=True)
    own = bundled.withColumn("bytes_by_topic", bundled.principal)
    with pytest.raises(BadArgument, match="column bytes_by_topic is string, and a table"):
        hp.usage(own, by_topic=True)


def test_the_command_writes_what_the_library_gives(
    bundled: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--requests", str(bundled_log()), "--broker-id", "1", "--quotas", QUOTAS]
    status = main(["usage", *given, "--by-topic", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert status == 0
    assert "Who uses which topic most" in printed
    assert "6,761,099 (6.76 MB)" in printed
    for name, by in TABLES.items():
        written = pyarrow.dataset.dataset(paths(tmp_path, name), format="parquet").to_table()
        wanted = hp.usage(bundled, QUOTAS, by=by, by_topic=True).toArrow()
        assert sorted(map(repr, written.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
    for name, by in (("usage", "second"), ("usage_day", "day")):
        written = pyarrow.dataset.dataset(paths(tmp_path, name), format="parquet").to_table()
        wanted = hp.usage(bundled, QUOTAS, by=by).toArrow()
        assert sorted(map(repr, written.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
    figures = pyarrow.dataset.dataset(paths(tmp_path, "summary")).to_table().to_pylist()
    told = {row["name"]: row["value"] for row in figures}
    assert told["framing_bytes"] == 352_652
    assert told["unknown_topic_bytes"] == 0


@pytest.mark.parametrize("command", ["usage", "requests"])
def test_a_growing_input_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--requests", str(bundled_log()), "--out", str(tmp_path)]
    assert main([command, *given, "--by-topic", "--incremental"]) == 2
    assert "--by-topic reads whole logs" in capsys.readouterr().err
