"""
Every answer about a folder's log and journal: of Spark's session by a test, of Sail's as a program.

`python engine_client.py FOLDER OUT` asks Sail, and writes each answer to OUT as an Arrow file. A
process that has a session of Spark's can't have Sail's. `kit.made_logs` makes such a folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.feather

import headgate.pipeline as hp
from headgate.pipeline.answers.storms import Thresholds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT, JOURNAL = "kafka-request-log", "headgate-journal"
REFUSED = {
    "zone": ({"timeZone": "Mars"}, "option timeZone: 'Mars' isn't a time zone"),
    "moment": ({"since": "noon"}, "option since: 'noon' isn't a moment"),
    "number": ({"brokerId": "one"}, "option brokerId: 'one' isn't a whole number"),
    "topics": ({"topics": "perhaps"}, "option topics: 'perhaps' isn't true or false"),
    "path": ({"path": "/no/such"}, "/no/such: there is no such file"),
    "unknown": ({"broker": "1"}, "there is no option broker; known: brokerId, "),
    "damage": ({"mode": "FAILFAST"}, "mode FAILFAST stops there"),
}
"""Options that are refused, and with which words."""
_SOME = "principal in ('alice', 'b@b', 'ü/€:😀')"
"""Whose demand is forecast: half a second of computing for each quota-id."""
_BY_DAY_LEFT_OUT = (
    () if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else ("recommend", "demand")
)
"""What is asked at night alone: on Spark these two take as long as all others together. By day the
golden tables of Sail hold them (``test_spark_sail``)."""


def answers(quotas: str) -> dict[str, Callable[[DataFrame], DataFrame]]:
    """Return what is asked about a frame of requests."""
    made: dict[str, Callable[[DataFrame], DataFrame]] = {
        "requests": lambda requests: requests,
        "activity": hp.activity,
        "storms": partial(
            hp.storms,
            thresholds=Thresholds(
                connections_per_s=2.0, producer_ids_per_s=1.0, requests_per_s=20.0, factor=1.5
            ),
        ),
        "effective": partial(hp.effective, quotas=quotas),
        "recommend": lambda requests: hp.recommend(requests.where(_SOME), quotas),
        "replay": partial(hp.replay, quotas=quotas),
        "what_if": partial(hp.what_if, plans={"none": None, "these": quotas}, in_force=quotas),
        "demand": lambda requests: hp.demand(requests.where(_SOME), {"none": None, "q": quotas}),
    }
    for by in ("second", "hour", "day"):
        made[f"usage by {by}"] = partial(hp.usage, quotas=quotas, by=by)
    for by in ("second", "day"):
        made[f"topics by {by}"] = partial(hp.usage, quotas=quotas, by=by, by_topic=True)
    for period in ("hour", "month"):
        made[f"chargeback by {period}"] = partial(hp.chargeback, quotas=quotas, period=period)
    for name in _BY_DAY_LEFT_OUT:
        del made[name]
    return made


def ask(spark: SparkSession, folder: Path) -> Iterator[tuple[str, pa.Table]]:
    """
    Yield every answer's name and rows.

    Args:
        spark: a session that knows our data sources.
        folder: has ``logs``, ``journal`` and ``quotas.json``.
    """
    quotas = str(folder / "quotas.json")
    for kind in ("logs", "journal"):
        requests = hp.requests(spark, folder / kind, broker_id=1, topics=True).persist()
        for name, answer in answers(quotas).items():
            found = answer(requests)
            yield f"{name} of {kind}", found.toArrow()
            bare = [
                f.name for f in found.select("*").schema if not (f.metadata or {}).get("comment")
            ]
            assert name == "activity" or not bare, f"{name}: no comments on {bare}"
        # A frame of rows that somebody made: `recorded` is null there without a value inside.
        made = spark.createDataFrame(requests.collect(), requests.schema)
        yield f"usage of rows of {kind}", hp.usage(made, quotas).toArrow()
        requests.unpersist()
        yield f"by_second of {kind}", hp.by_second(spark, folder / kind, broker_id=1).toArrow()
        yield f"bad_lines of {kind}", hp.bad_lines(spark, folder / kind).toArrow()
    yield from _ask_source(spark, folder, quotas)


def _ask_source(spark: SparkSession, folder: Path, quotas: str) -> Iterator[tuple[str, pa.Table]]:
    """Yield what the data source gives, asked in many ways."""
    logs, view = str(folder / "logs"), "requests_of_a_broker"

    def read(**options: str) -> DataFrame:
        return spark.read.format(FORMAT).options(brokerId="1", **options).load(logs)

    source = read()
    yield "source", source.toArrow()
    comments = [{"of": f.name, "is": f.metadata["comment"]} for f in source.select("*").schema]
    yield "source's comments", pa.Table.from_pylist(comments)
    source.createOrReplaceTempView(view)
    asked = f"select count(*) n, sum(bytes_charged) size, max(record_at) at from {view}"
    yield "source in SQL", spark.sql(asked).toArrow()
    moment = "2026-11-30T23:30:00"
    late = f"{asked} where record_at >= timestamp '{moment}'"
    yield "source in SQL, later rows", spark.sql(late).toArrow()
    yield "source in SQL again", spark.sql(asked).toArrow()
    yield "source since", read(since=f"{moment}Z").toArrow()
    yield "source until", read(until=f"{moment}Z").toArrow()
    some = spark.read.format(FORMAT).schema("record_at timestamp, principal string, amount double")
    yield "source's columns", some.load(logs).toArrow()
    bad = read(mode="permissive", columnNameOfCorruptRecord="bad")
    yield "source's bad lines", bad.where("bad is not null").toArrow()
    # An option's name in small letters, as Spark takes it.
    topics = hp.usage(read(TOPICS="True"), quotas, by_topic=True)
    yield "source by topic", topics.toArrow()
    yield "journal's source", spark.read.format(JOURNAL).load(str(folder / "journal")).toArrow()
    for name, (options, words) in REFUSED.items():
        try:
            spark.read.format(FORMAT).options(**{"path": logs} | options).load().count()
        except Exception as exc:
            told: dict[str, Any] = {"told": words in str(exc) or str(exc)}
        else:
            told = {"told": "it was taken"}
        yield f"refused: {name}", pa.Table.from_pylist([{"told": str(told["told"])}])


if __name__ == "__main__":
    from headgate.pipeline.sail import open_sail

    of_sail = open_sail({})
    for each in (hp.KafkaRequestLog, hp.HeadgateJournal):
        of_sail.dataSource.register(each)
    for answered, rows in ask(of_sail, Path(sys.argv[1])):
        pyarrow.feather.write_feather(rows, Path(sys.argv[2]) / f"{answered}.arrow")
    # Sail (0.7.2) may abort a process that ends while a task that failed still reads.
    os._exit(0)
