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
from headgate.cli.pipeline.stream import Sums, run_answer
from headgate.cli.results import Tables
from headgate.pipeline import schema
from headgate.pipeline.answers import usage
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
    tables = ("usage", "usage_hour", "usage_day")
    return run_answer(arguments, Sums("usage", _write, _tell, tables))


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
