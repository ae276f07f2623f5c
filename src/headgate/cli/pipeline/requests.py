"""
`headgate requests`: the plain table, one row per request.
"""

from __future__ import annotations

import argparse

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.cli.pipeline.opening import Opened
from headgate.cli.pipeline.print import closing_table, number, sized
from headgate.cli.pipeline.stream import Replays, run_answer
from headgate.cli.results import Tables
from headgate.pipeline import frames, schema
from headgate.pipeline.emitted import EMITTED_REQUESTS


def run_requests(arguments: argparse.Namespace) -> Tables:
    """Run `headgate requests`."""
    return run_answer(arguments, Replays("requests", _write, _tell, ("requests",)))


def _write(on: Opened, activity: DataFrame | None) -> DataFrame:
    """Write table ``requests``, and keep its totals."""
    read = frames.emit_requests(on.spark, on.read_options)
    # Bad lines and counts are asked for after the rows.
    emitted = on.run.keep(read, EMITTED_REQUESTS, words="reading")
    rows = frames.only(emitted, "request", schema.REQUESTS)
    on.run.write(rows, schema.REQUESTS)
    table = _of_requests(on)
    sums = table.agg(F.count(_is_charge()), F.sum("bytes_charged"), F.sum(frames.told_ms())).first()
    assert sums is not None
    on.run.figure("requests", sums[0], unit="requests", note="charges in table requests")
    on.run.figure("bytes", sums[1] or 0, unit="bytes", note="charged to byte-rate quotas")
    on.run.figure("throttle_time_ms", sums[2] or 0, unit="ms", note="told to clients, summed")
    return emitted


def _of_requests(on: Opened) -> DataFrame:
    """Return the rows of table ``requests`` that are charges, or answers to them."""
    return on.run.read(schema.REQUESTS).where(
        F.col("event").isNull() | ~F.col("event").isin(*schema.EVENTS)
    )


def _is_charge() -> Column:
    """Return true for a charge; null for an answer, which `count` leaves out."""
    return F.when(F.col("event").isNull() | (F.col("event") != "told"), True)


def _tell(on: Opened) -> None:
    """Print how many requests of which API there are."""
    found = (
        _of_requests(on)
        .groupBy("api_name")
        .agg(F.count(_is_charge()).alias("n"), F.sum("bytes_charged").alias("bytes"))
        .orderBy(F.desc("n"), "api_name")
        .collect()
    )
    closing_table(
        "Requests by API",
        (
            ("API", lambda r: r["api_name"] or "-"),
            ("requests", lambda r: number(r["n"])),
            ("bytes charged", lambda r: sized(r["bytes"], unit="B")),
        ),
        found,
    )
