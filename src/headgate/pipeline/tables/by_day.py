"""
Divide a table by UTC day, say how rows change what is there, and read it with its days.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from headgate.errors import ConfigError
from headgate.pipeline.sail import is_sail
from headgate.pipeline.table import DAY, Table, day_of, time_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES: Final = ("overwrite", "append", "merge")


def with_day(frame: DataFrame) -> DataFrame:
    """
    Add the UTC day of a frame's first time, whatever the session's zone is.

    Raises:
        ConfigError: it has none.
    """
    time = time_of(frame.columns)
    if time is None:
        raise ConfigError(
            "write: the frame has no time to divide it by (second_ms, period_ms, record_ms, …); "
            "give by_day=False"
        )
    return frame.withColumn(DAY, day_of(time))


def save(rows: DataFrame, table: str, mode: str, by_day: bool) -> None:
    """
    Write rows to a table of Parquet files.

    Args:
        rows: with column ``day`` if the table is divided by it.
        table: its path.
        mode: ``append`` to it, or make it; ``overwrite`` it; or ``merge``: replace the days that
            rows have.
        by_day: whether it is divided by day.
    """
    files = rows.write.mode("append" if mode == "append" else "overwrite")
    if mode != "append":
        which = "dynamic" if mode == "merge" else "static"
        files = files.option("partitionOverwriteMode", which)
    (files.partitionBy(DAY) if by_day else files).parquet(table)


def read(spark: SparkSession, places: Iterable[str], table: Table | None) -> DataFrame:
    """
    Return a Parquet table of several runs as one frame, with the days that its folders name.

    Args:
        spark: the session.
        places: paths of files, of folders of a day, or of whole tables; at least one.
        table: which it is; None: none of ours, and the frame has the files' columns.
    """
    # Spark takes partition columns from below one folder, and each run has a folder of its own.
    runs: dict[str, list[str]] = {}
    for path in places:
        folder = path.rpartition("/")[0]
        run, _, last = folder.rpartition("/")
        runs.setdefault(run if last.startswith(f"{DAY}=") else folder, []).append(path)
    # What else somebody put there isn't the table's.
    reader = spark.read.option("pathGlobFilter", "part-*")
    reader = reader if table is None else reader.schema(table.timed.struct)
    parts = [reader.option("basePath", run).parquet(*paths) for run, paths in runs.items()]
    frame = functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
    if table is None:
        return frame
    if is_sail(spark):  # it doesn't read columns in folders' names
        return cast("DataFrame", table.select_timed(frame))
    # Spark gives a column that folders name no comment.
    return frame.to(table.timed.struct)
