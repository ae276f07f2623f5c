"""
What pipeline commands share once Spark is up: reading, packing, and telling of bad lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.cli.pipeline.options import HINT, Opened
from headgate.cli.pipeline.print import closing_table, number
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.pipeline.replay.packed_format import PackOptions


def read_activity(on: Opened, *, connections: bool = False) -> DataFrame:
    """Return EMITTED_ACTIVITY of the run's inputs: sums by second, bad lines, counts."""
    from headgate.pipeline import frames

    return frames.emit_activity(
        on.spark,
        on.pieces,
        time_zone=on.arguments.time_zone,
        connections=connections,
        default_partitions=on.arguments.default_partitions,
    )


def activity_of(emitted: DataFrame) -> DataFrame:
    """Return the sums by second (ACTIVITY) of what was read."""
    from headgate.pipeline import frames

    return frames.sums_of(emitted)


def pack(on: Opened, options: PackOptions) -> DataFrame:
    """Return PACKED rows of the run's inputs, for a replay."""
    from headgate.pipeline.replay import replay

    return replay.pack_logs(
        on.spark,
        on.pieces,
        options,
        time_zone=on.arguments.time_zone,
        default_partitions=on.arguments.default_partitions,
    )


def pack_once(on: Opened, options: PackOptions) -> DataFrame:
    """
    Return PACKED rows as ``pack`` does, kept on disk for what needs them a second time.

    They'd fill a JVM's memory: a row holds thousands of events. Few of them are written at a time.
    """
    from pyspark import StorageLevel

    on.spark.conf.set("spark.sql.inMemoryColumnarStorage.batchSize", "4")
    return pack(on, options).persist(StorageLevel.DISK_ONLY)


def write_bad_lines(on: Opened, emitted: DataFrame) -> None:
    """Write the side table of bad lines, and keep its counts for the summary."""
    from headgate.pipeline import frames, schema
    from headgate.pipeline.run import collect_stats

    run = on.run
    run.write(frames.only(emitted, "bad", schema.BAD_LINES), schema.BAD_LINES)
    stats = collect_stats(emitted)
    run.figure("lines", stats["lines"], unit="lines", note="lines and events read")
    run.figure("input_bytes", stats["input_bytes"], unit="bytes", note="read, uncompressed")
    run.figure("bad_lines", stats["bad_lines"], unit="lines", note="kept in table bad_lines")
    run.figure("time_zone", text=on.arguments.time_zone, note="assumed where a log prints none")


def refuse_nothing(on: Opened) -> None:
    """
    Say where logs hold no request at all; to be called before tables are replaced.

    Raises:
        ConfigError: they hold none, and --allow-empty isn't given.
    """
    figures = {f.name: f.value or 0 for f in on.run.figures}
    if on.arguments.allow_empty or any(piece.kind != "log" for piece in on.pieces):
        return
    if figures["lines"] > figures["bad_lines"]:
        return
    if figures["bad_lines"]:
        _print_reasons(on, f"{_count(figures['bad_lines'])} couldn't be read")
    found = "there is nothing in it" if not figures["lines"] else "none of its lines is a request"
    raise ConfigError(f"no table was changed: {found}; {HINT}")


def print_bad_lines(on: Opened) -> None:
    """Say how many lines couldn't be read, and why."""
    bad = next(f.value for f in on.run.figures if f.name == "bad_lines")
    if not bad:
        print("Every line was read.")
        return
    _print_reasons(on, f"{_count(bad)} couldn't be read, kept in {on.run.path('bad_lines')}")


def _print_reasons(on: Opened, title: str) -> None:
    """Print why lines couldn't be read."""
    from pyspark.sql import functions as F

    from headgate.pipeline import schema

    reasons = (
        on.run.read(schema.BAD_LINES)
        .groupBy("reason")
        .agg(F.count(F.lit(1)).alias("n"), F.min("file").alias("file"), F.min("offset").alias("at"))
        .orderBy(F.desc("n"), "reason")
        .limit(10)
        .collect()
    )
    closing_table(
        title,
        ("lines", "reason", "for instance"),
        [(number(r["n"]), r["reason"], f"{r['file']} byte {r['at']}") for r in reasons],
    )


def _count(lines: float) -> str:
    return "1 line" if lines == 1 else f"{number(lines)} lines"
