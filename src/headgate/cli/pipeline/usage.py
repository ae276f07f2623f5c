"""
`headgate usage`: who used what, per quota-id, broker and second.
"""

from __future__ import annotations

import argparse
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from headgate.cli.pipeline.opening import Opened
from headgate.cli.pipeline.print import closing_table, number, sized
from headgate.cli.pipeline.stream import Replays, SecondSums, run_answer
from headgate.cli.results import Tables
from headgate.pipeline import frames, schema
from headgate.pipeline.answers import usage
from headgate.pipeline.emitted import EMITTED_REQUESTS
from headgate.pipeline.table import sums

_TOP: Final = 20
# The closing table's columns: each one's column of ``usage``, and how it is added up.
_BUSIEST: Final = {
    "requests": ("requests", "sum"),
    "bytes": ("bytes", "sum"),
    "peak": ("amount", "max"),
    "throttled": ("throttled_requests", "sum"),
    "throttle_ms": ("throttle_time_ms", "sum"),
    "quota": ("quota", "max"),
    "source": ("quota_source", "max"),
}


def run_usage(arguments: argparse.Namespace) -> Tables:
    """Run `headgate usage`."""
    tables: tuple[str, ...] = ("usage", "usage_hour", "usage_day")
    if arguments.by_topic:
        tables += ("usage_by_topic", "usage_by_topic_hour", "usage_by_topic_day")
        return run_answer(arguments, Replays("usage", _write_topics, _tell_topics, tables))
    return run_answer(arguments, SecondSums("usage", _write, _tell, tables))


def _write(on: Opened, activity: DataFrame, connections: DataFrame) -> None:
    """Write usage by second, and by hour and day what that table holds."""
    run = on.run
    used = activity.transform(usage.usage(on.quotas))
    run.write(used, schema.USAGE, words="adding up")
    written = run.read(schema.USAGE)
    for table in (schema.USAGE_HOUR, schema.USAGE_DAY):
        run.write(written.transform(usage.by_period(table)), table)
    names = ("requests", "bytes", "throttle_time_ms")
    totals = run.read(schema.USAGE_DAY).agg(*sums(*names)).first()
    assert totals is not None
    run.figure("requests", totals[0] or 0, unit="requests", note="charged to a client quota")
    run.figure("bytes", totals[1] or 0, unit="bytes", note="charged to byte-rate quotas")
    run.figure("throttle_time_ms", totals[2] or 0, unit="ms", note="told to clients, summed")


def _write_topics(on: Opened, activity: DataFrame | None) -> DataFrame:
    """Write usage and usage by topic of the same requests, which are read once."""
    run = on.run
    read = frames.emit_requests(on.spark, on.read_options)
    emitted = run.keep(read, EMITTED_REQUESTS, words="reading")
    requests = frames.only(emitted, "request", schema.REQUESTS)
    _write(on, frames.activity(requests), requests)
    by_topic = requests.transform(usage.by_topic(on.quotas))
    run.write(by_topic, schema.USAGE_BY_TOPIC, words="adding up by topic")
    written = run.read(schema.USAGE_BY_TOPIC)
    for table in (schema.USAGE_BY_TOPIC_HOUR, schema.USAGE_BY_TOPIC_DAY):
        run.write(written.transform(usage.by_period(table)), table)
    topic, bytes_ = F.col("topic"), F.col("bytes")
    parts = {"framing": F.when(topic == "", bytes_), "unknown": F.when(topic.isNull(), bytes_)}
    found = run.read(schema.USAGE_BY_TOPIC_DAY).agg(*sums(**parts)).first()
    assert found is not None
    run.figure("framing_bytes", found[0] or 0, unit="bytes", note="of no topic: headers, names")
    run.figure("unknown_topic_bytes", found[1] or 0, unit="bytes", note="topics aren't known")
    return emitted


def _tell_topics(on: Opened) -> None:
    """Print the busiest quota-ids, and who uses which topic most."""
    _tell(on)
    whole = ("quota_type", "quota_id", "topic")
    rows = (
        on.run.read(schema.USAGE_BY_TOPIC_DAY)
        .groupBy(*whole)
        .agg(*sums("requests", "bytes"))
        .orderBy(F.desc("bytes"), *whole)
        .limit(_TOP)
        .collect()
    )
    closing_table(
        "Who uses which topic most",
        (
            ("quota type", "quota_type"),
            ("quota-id", "quota_id"),
            ("topic", lambda r: _NAMES.get(r["topic"], r["topic"])),
            ("requests", lambda r: number(r["requests"])),
            ("bytes", lambda r: sized(r["bytes"], unit="B")),
        ),
        rows,
    )


_NAMES: Final = {"": "(framing)", None: "(not known)"}
"""What stands for bytes that belong to no topic, and for those whose topic isn't known."""


def _tell(on: Opened) -> None:
    """Print the busiest quota-ids."""
    requests = next(f.value for f in on.run.figures if f.name == "requests")
    top = _busiest(on)
    asked = "1 request" if requests == 1 else f"{number(requests)} requests"
    closing_table(
        f"The {len(top)} busiest quota-ids ({asked} in all)",
        (
            ("quota type", "quota_type"),
            ("quota-id", "quota_id"),
            ("quota/s", lambda r: sized(r["quota"], r["quota_type"])),
            ("from", lambda r: r["source"] or "-"),
            ("requests", lambda r: number(r["requests"])),
            ("bytes", lambda r: sized(r["bytes"], unit="B")),
            ("peak/s", lambda r: sized(r["peak"], r["quota_type"])),
            ("throttled", lambda r: number(r["throttled"])),
            ("throttle s", lambda r: number(r["throttle_ms"] / 1000)),
        ),
        top,
    )


def _busiest(on: Opened) -> list[Row]:
    """Find the busiest quota-ids in the table."""
    asked = [getattr(F, how)(n).alias(name) for name, (n, how) in _BUSIEST.items()]
    found: list[Row] = (
        on.run.read(schema.USAGE)
        .groupBy("quota_type", "quota_id")
        .agg(*asked)
        .where(F.col("requests") > 0)
        .orderBy(F.desc("bytes"), F.desc("requests"), "quota_type", "quota_id")
        .limit(_TOP)
        .collect()
    )
    return found
