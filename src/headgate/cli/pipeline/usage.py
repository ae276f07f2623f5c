"""
`headgate usage`: who used what, per quota-id, broker and second.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from headgate.cli.pipeline.opening import Opened
from headgate.cli.pipeline.print import closing_table, number, sized
from headgate.cli.pipeline.reading import exchange, finish, parts_of
from headgate.cli.pipeline.stream import Sums, run_answer
from headgate.cli.results import Tables
from headgate.pipeline import schema
from headgate.pipeline.answers import usage, usage_parts
from headgate.pipeline.workers.exchange import Left


def run_usage(arguments: argparse.Namespace) -> Tables:
    """Run `headgate usage`."""
    tables = ("usage", "usage_hour", "usage_day")
    return run_answer(arguments, Sums("usage", _write, _tell, tables, direct=_write_direct))


def _write(on: Opened, activity: DataFrame, connections: DataFrame) -> None:
    """Write usage by second, hour and day."""
    run = on.run
    packed = activity.transform(usage.packed(on.quotas)).persist()
    words = "reading and adding up"
    for table in (schema.USAGE, schema.USAGE_HOUR, schema.USAGE_DAY):
        run.write(packed.transform(usage.unpacked(table)), table, words=words)
        words = ""
    packed.unpersist()
    sums = [F.sum(name) for name in ("requests", "bytes", "throttle_time_ms")]
    totals = run.read(schema.USAGE).agg(*sums).first()
    assert totals is not None
    _keep_totals(on, totals)


def _write_direct(on: Opened) -> Left:
    """Let workers write the three tables; keep what the closing table says."""
    reading = usage_parts.ReadUsage(on.read_options, on.quotas, parts_of(on))
    answer = usage_parts.WriteUsage(on.run.place)
    left = exchange(on, reading, answer, "reading and adding up")
    finish(on, left, (schema.USAGE, schema.USAGE_HOUR, schema.USAGE_DAY))
    _keep_totals(on, [left.counts.get(n) for n in ("requests", "bytes", "throttle_time_ms")])
    on.busiest = usage_parts.first_of(left.found)
    return left


def _keep_totals(on: Opened, totals: Sequence[float | None]) -> None:
    run = on.run
    run.figure("requests", totals[0] or 0, unit="requests", note="charged to a client quota")
    run.figure("bytes", totals[1] or 0, unit="bytes", note="charged to byte-rate quotas")
    run.figure("throttle_time_ms", totals[2] or 0, unit="ms", note="told to clients, summed")


def _tell(on: Opened) -> None:
    """Print the busiest quota-ids."""
    requests = next(f.value for f in on.run.figures if f.name == "requests")
    top: Sequence[Any] = _busiest(on) if on.busiest is None else on.busiest
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
    asked = [getattr(F, how)(n).alias(name) for name, (n, how) in usage_parts.BUSIEST.items()]
    found: list[Row] = (
        on.run.read(schema.USAGE)
        .groupBy("quota_type", "quota_id")
        .agg(*asked)
        .where(F.col("requests") > 0)
        .orderBy(F.desc("bytes"), F.desc("requests"), "quota_type", "quota_id")
        .limit(usage_parts.TOP)
        .collect()
    )
    return found
