"""A frame of requests is its rows: whatever way they came, replay, what-if, usage agree."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headgate.pipeline as hp
from headgate.errors import BadArgument
from headgate.pipeline import frames, schema
from headgate.pipeline.answers.storms import Thresholds
from headgate.quota.entity import quota_id
from headgate.usage.files import file_name
from headgate.usage.format import Event, Origin
from headgate.usage.rows import batch_of
from kit.pipeline_rows import asked, frame, rows_of
from kit.talks import T0, Talk, write_talk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
LOG, QUOTAS = DATA / "precise.log.gz", DATA / "precise.quotas.json"
FORMAT, JOURNAL = "kafka-request-log", "headgate-journal"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gateway's journal with limits that change, connections and producer ids; and a log."""
    folder = tmp_path_factory.mktemp("inputs")
    write_talk(folder, Talk("smooth", 11), 500, (200,), 200)
    came = Origin("connection", "connection_creation_rate", 1, "L", client_ip="10.0.0.9")
    ids = Origin("producer_id", None, 1, "L", principal="alice", client_id="x")
    events = [Event(came, float(T0 + at), 1.0) for at in range(40)]
    events += [Event(ids, float(T0 + at), producer_ids=1) for at in range(40)]
    batch = batch_of(events, "w-2", 1)
    path = folder / file_name("w-2", 1, ".arrow")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    (folder / "request.log.gz").write_bytes(LOG.read_bytes())
    return folder


@pytest.fixture(scope="module")
def requests(spark: SparkSession, inputs: Path) -> DataFrame:
    """The frame of the files."""
    return hp.requests(spark, inputs, broker_id=1)


def rounded(found: DataFrame) -> list[tuple[Any, ...]]:
    """Return a frame's rows in order, doubles to twelve digits."""
    return sorted(
        (
            tuple(float(f"{v:.12g}") if isinstance(v, float) else v for v in row)
            for row in found.collect()
        ),
        key=str,
    )


def answers(requests: DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    """Return the answers about requests: all rows, but of replay those columns that it adds."""
    thresholds = Thresholds(connections_per_s=20.0, producer_ids_per_s=20.0)
    decided = hp.replay(requests, QUOTAS).select("file", "seq", *schema.REPLAY.names[-7:])
    return {
        "replay": rounded(decided),
        "what_if": rounded(hp.what_if(requests, {"none": None}, in_force=QUOTAS)),
        "usage": rounded(hp.usage(requests, QUOTAS)),
        "storms": rounded(hp.storms(requests, thresholds)),
    }


@pytest.fixture(scope="module")
def wanted(requests: DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    """The answers about the files."""
    return answers(requests)


def written(requests: DataFrame, folder: Path) -> DataFrame:
    """Return the requests as a table that was written and is read again."""
    requests.write.mode("overwrite").parquet(str(folder / "table"))
    return requests.sparkSession.read.parquet(str(folder / "table"))


def from_rows(requests: DataFrame, folder: Path) -> DataFrame:
    return requests.sparkSession.createDataFrame(requests.collect(), requests.schema)


def with_foreign_columns(requests: DataFrame, folder: Path) -> DataFrame:
    """Join columns whose names mean something inside the package."""
    spark = requests.sparkSession
    foreign = spark.createDataFrame(
        [("alice", 5000, 1, "paced", 9.5e12, 1, 7, "nobody", 5, "bad", "A", "carried")],
        "who string, window_ms int, num_samples int, rule string, asked double,"
        "max_throttle_ms long, start_ms long, own_user string, op int, kind string,"
        "team string, `carried:0` string",
    )
    return requests.join(foreign, requests["principal"] == foreign["who"], "left")


def united(requests: DataFrame, folder: Path) -> DataFrame:
    """Return two halves as one, in the files' order."""
    is_log = "source = 'log'"
    return requests.where(f"not ({is_log})").unionByName(requests.where(is_log))


WAYS: dict[str, Callable[[DataFrame, Path], DataFrame]] = {
    "selected": lambda requests, folder: requests.select("*"),
    "filtered": lambda requests, folder: requests.where("record_ms > 0"),
    "cached": lambda requests, folder: requests.cache(),
    "a table": written,
    "created from rows": from_rows,
    "joined": with_foreign_columns,
    "a union": united,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_answers_are_the_same_whatever_way_the_rows_came(
    way: str, requests: DataFrame, wanted: dict[str, list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    found = WAYS[way](requests, tmp_path)
    ours = answers(found)
    found.unpersist()
    for name, rows in wanted.items():
        assert ours[name] == rows != [], name


def of_our_source(spark: SparkSession, inputs: Path) -> DataFrame:
    return spark.read.format(FORMAT).option("brokerId", 1).load(str(inputs))


def of_both_sources(spark: SparkSession, inputs: Path) -> DataFrame:
    """Return journals and logs as one, each by the source for it."""
    journals = spark.read.format(JOURNAL).option("brokerId", 1).load(str(inputs / "*.arrow"))
    logs = spark.read.format(FORMAT).option("brokerId", 1).load(str(inputs / "*.gz"))
    return journals.unionByName(logs)


@pytest.mark.parametrize("load", [of_our_source, of_both_sources])
def test_the_answers_are_the_same_by_our_data_source(
    load: Callable[[SparkSession, Path], DataFrame],
    spark: SparkSession,
    inputs: Path,
    wanted: dict[str, list[tuple[Any, ...]]],
) -> None:
    ours = answers(load(spark, inputs))
    for name, rows in wanted.items():
        assert ours[name] == rows != [], name


def of_a_table(requests: DataFrame, inputs: Path, folder: Path) -> DataFrame:
    """Return a stream of a table that was written."""
    table = written(requests, folder)
    stream = requests.sparkSession.readStream.schema(table.schema)
    return stream.parquet(str(folder / "table"))


def of_our_stream(requests: DataFrame, inputs: Path, folder: Path) -> DataFrame:
    stream = requests.sparkSession.readStream.format(FORMAT).option("brokerId", 1)
    return stream.load(str(inputs))


@pytest.mark.parametrize("load", [of_a_table, of_our_stream])
def test_the_answers_are_the_same_about_a_streams_batch(
    load: Callable[[DataFrame, Path, Path], DataFrame],
    requests: DataFrame,
    wanted: dict[str, list[tuple[Any, ...]]],
    inputs: Path,
    tmp_path: Path,
) -> None:
    stream = load(requests, inputs, tmp_path)
    found: list[dict[str, list[tuple[Any, ...]]]] = []

    def ask(batch: DataFrame, number: int) -> None:
        cached = batch.cache()  # else each answer would read the files again
        found.append(answers(cached))
        cached.unpersist()

    query = (
        stream.writeStream.foreachBatch(ask)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    assert found == [wanted]


def test_a_journals_decisions_are_replayed_as_it_made_them(
    wanted: dict[str, list[tuple[Any, ...]]], requests: DataFrame
) -> None:
    of_journal = hp.replay(requests.where("source = 'journal'")).where("replayable")
    told, ours = "logged_throttle_time_ms", "replayed_throttle_time_ms"
    counts = of_journal.selectExpr(f"count_if({ours} > 0)", f"count_if({ours} <> {told})")
    throttled, differ = counts.collect()[0]
    assert (throttled > 50, differ) == (True, 0)
    kinds = {row[0] for row in wanted["storms"]}
    assert kinds == {"connection", "producer_id"}


def test_a_users_columns_come_back_as_they_were(requests: DataFrame, tmp_path: Path) -> None:
    joined = with_foreign_columns(requests, tmp_path)
    found = hp.replay(joined, QUOTAS)
    assert found.columns == [*schema.REPLAY.timed.names, *joined.columns[-12:]]
    of_alice = rows_of(found.where("principal = 'alice'").distinct(), "team", "asked", "kind")
    assert set(of_alice) == {("A", 9.5e12, "bad")}
    assert found.where("principal <> 'alice' and team is not null").count() == 0
    assert found.count() == requests.count()


def test_cached_rows_answer_when_their_file_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "request.log.gz"
    log.write_bytes(LOG.read_bytes())
    cached = hp.requests(spark, log, broker_id=1).cache()
    count = cached.where("is_charged and is_request").count()
    log.unlink()
    assert hp.usage(cached).selectExpr("sum(requests)").collect()[0][0] == count > 0
    cached.unpersist()


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    names = {name: f"spark.sql.{name.replace('_', '.')}" for name in settings}
    before = {name: spark.conf.get(names[name]) for name in settings}
    for name, value in settings.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(names[name], value or "")


def test_sums_are_few_partitions_and_may_be_filtered(spark: SparkSession) -> None:
    with conf(spark, shuffle_partitions="200", adaptive_enabled="true"):
        requests = hp.requests(spark, LOG, broker_id=1)
        sums = hp.activity(requests).persist()
        few = frames.PARTS_PER_CORE * spark.sparkContext.defaultParallelism
        assert sums.rdd.getNumPartitions() <= few < 200
        soon = hp.by_second(spark, LOG, broker_id=1).persist()
        assert soon.rdd.getNumPartitions() <= few
        assert rounded(soon) == rounded(sums) != []
        some = sums.where("bytes >= 0 and principal is not null")
        wanted = rows_of(hp.usage(sums), "quota_id", "second_ms", "bytes", "requests")
        assert rows_of(hp.usage(some), "quota_id", "second_ms", "bytes", "requests") == wanted
        narrow = some.withColumn("requests", some["requests"].cast("int"))
        assert rows_of(hp.usage(narrow), "quota_id", "second_ms", "bytes", "requests") == wanted
        soon.unpersist()
        sums.unpersist()


def test_quota_ids_are_those_of_kafka_whatever_a_user_is_called(spark: SparkSession) -> None:
    users = ["alice", "a b", "*", "~", "a+b", "%41", "ü/€", "", "<default>", "😀", "a:b", "-_."]
    rows = [
        asked(at, user, "c:1", 5, source="journal", event="record")
        | {"recorded": {"quota_user": user, "quota_client_id": "c:1", "quota": 7.0, "op": 0}}
        for at, user in enumerate(users)
    ]
    rows = [
        row | {"recorded": tuple(row["recorded"].get(n) for n in schema.RECORDED.names)}
        for row in rows
    ]
    found = hp.activity(frame(spark, schema.REQUESTS, rows)).select("quota_user", "quota_id")
    assert dict(found.collect()) == {user: quota_id(user, "c:1") for user in users}


def test_columns_keep_their_comments(spark: SparkSession, requests: DataFrame) -> None:
    assert requests.select("amount").schema["amount"].metadata["comment"].startswith("what was")
    source = spark.read.format(FORMAT).load(str(LOG)).select("record_at", "recorded")
    assert all(field.metadata["comment"] for field in source.schema)
    for found in (hp.usage(requests), hp.replay(requests), hp.what_if(requests, {"none": None})):
        assert all(field.metadata["comment"] for field in found.select("*").schema)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A compressed log without its end, and a log with a line that is none."""
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"".join(lines[:800]))[:-4000])
    (tmp_path / "b.log").write_bytes(b"".join(lines[800:900]) + b"garbled {\n")
    return tmp_path


def test_modes_mean_what_they_do_in_spark(spark: SparkSession, damaged: Path) -> None:
    from pyspark.errors import PySparkException

    reader = spark.read.format(FORMAT)
    whole = reader.load(str(damaged)).count()
    assert 100 < whole < 900
    assert reader.option("mode", "DROPMALFORMED").load(str(damaged)).count() == whole
    kept = reader.options(mode="permissive", columnNameOfCorruptRecord="bad").load(str(damaged))
    bad = kept.where("bad is not null").select("file", "seq", "event", "is_charged", "bad")
    # A line of its own is the one in whose middle the compressed log ends.
    assert kept.count() == whole + 3
    lines = sorted(row[2:] for row in bad.collect())
    assert all(line[:2] == ("malformed", False) for line in lines)
    texts = [line[2] for line in lines]
    assert "garbled {" in texts
    assert sum("the gzip stream ends early" in text for text in texts) == 1
    assert rounded(hp.usage(kept)) == rounded(hp.usage(hp.requests(spark, damaged)))
    assert hp.replay(kept).where("event = 'malformed' and not replayable").count() == 3
    for fails in (
        reader.option("mode", "FAILFAST").load(str(damaged)),
        hp.requests(spark, damaged, mode="FAILFAST"),
    ):
        with pytest.raises(PySparkException, match=r"mode FAILFAST stops there"):
            fails.count()
    reasons = sorted(row[0] for row in rows_of(hp.bad_lines(spark, damaged), "reason"))
    assert [bool(r) for r in reasons] == [True] * 3
    assert sum("the gzip stream ends early" in reason for reason in reasons) == 1
    asked_for = schema.REQUESTS.timed.struct.add("_corrupt_record", "string")
    assert "_corrupt_record" not in schema.REQUESTS.timed.struct.names
    found = spark.read.format(FORMAT).schema(asked_for).load(str(damaged))
    assert found.where("_corrupt_record is not null").count() == 3


def test_a_journals_source_reads_journals_alone(
    spark: SparkSession, inputs: Path, requests: DataFrame, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    for path in inputs.glob("*.arrow"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    found = spark.read.format(JOURNAL).load(str(tmp_path))
    of_journal = requests.where("source = 'journal'")
    assert rows_of(found, "seq", "event", "recorded") == rows_of(
        of_journal, "seq", "event", "recorded"
    )
    with pytest.raises(PySparkException, match="isn't a journal; read it by format kafka-request"):
        spark.read.format(JOURNAL).load(str(inputs)).count()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"brokerID": "1", "broker": "1"}, "there is no option broker; known: brokerId, "),
        ({"mode": "STRICT"}, "option mode: 'STRICT'; give PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"copies": "both"}, "option copies: 'both'; give refuse, once or count"),
        ({"brokerIdPattern": "("}, r"brokerIdPattern '\(' isn't a regex"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    spark: SparkSession, options: dict[str, str], words: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=words):
        spark.read.format(FORMAT).options(**options).load(str(LOG)).count()


def test_arguments_that_make_no_sense_are_value_errors_with_words(
    spark: SparkSession, requests: DataFrame, tmp_path: Path
) -> None:
    nothing: Any = None
    text: Any = "requests"
    for call, words in (
        (lambda: hp.usage(text), "requests: str 'requests' isn't a DataFrame; give what"),
        (lambda: hp.replay(nothing), "requests: NoneType None isn't a DataFrame"),
        (lambda: hp.requests(spark, LOG, time_zone=nothing), "time_zone: None isn't a time zone"),
        (lambda: hp.requests(text, LOG), "spark: str 'requests' isn't a SparkSession"),
        (lambda: hp.requests(spark, text, mode="x"), "requests: there is no such file"),
        (lambda: hp.requests(spark, 5), "path: 5 isn't a path"),  # type: ignore[arg-type]
        (lambda: hp.usage(requests, 5), "quotas: int 5 isn't quotas"),  # type: ignore[arg-type]
        (lambda: hp.chargeback(requests, period="week"), "^period week: choose"),
        (
            lambda: hp.requests(spark, LOG, broker_id_pattern="x"),
            r"^broker_id_pattern 'x' has no group",
        ),
        (
            lambda: hp.usage(requests.withColumn("recorded", requests["amount"])),
            "column recorded is double, and a table `requests` has struct",
        ),
    ):
        with pytest.raises(ValueError, match=words) as refused:
            call()
        assert isinstance(refused.value, BadArgument)
        assert "--" not in str(refused.value)


def test_a_stream_is_refused_with_the_way_out(spark: SparkSession, inputs: Path) -> None:
    stream = spark.readStream.format(FORMAT).load(str(inputs))
    for ask in (hp.usage, hp.replay, hp.storms, hp.activity):
        with pytest.raises(ValueError, match=r"is a stream, .*foreachBatch"):
            ask(stream)
