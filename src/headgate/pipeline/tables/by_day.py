"""
Divide a table by UTC day, say how rows change what is there, and read it with its days.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from headgate.errors import ConfigError
from headgate.pipeline.sail import is_sail
from headgate.pipeline.table import DAY, Table, day_of, time_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

MODES: Final = ("overwrite", "append", "merge")
# A folder of a day, or a file in one.
_OF_DAY: Final = re.compile(rf"/{DAY}=[^/]*(/[^/]*)?$")
_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MOST_LISTED: Final = 10_000


def with_day(frame: DataFrame) -> DataFrame:
    """
    Add the UTC day of a frame's first time, whatever the session's zone is.

    A frame that has a column ``day`` keeps its own.

    Raises:
        ConfigError: it has neither.
    """
    if DAY in frame.columns:
        return frame
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
    Return a Parquet table of several runs as one frame, by one scan, with its days.

    Args:
        spark: the session.
        places: paths of files, of folders of a day, or of whole tables; at least one.
        table: which it is; None: none of ours, and the frame has the files' columns.
    """
    from pyspark.sql import functions as F

    paths = list(places)
    # What else somebody put there isn't the table's.
    reader = exact(spark).option("pathGlobFilter", "part-*")
    if not is_sail(spark):
        # Spark takes partition columns from below one folder, and each run has a folder of its own.
        reader = reader.option("recursiveFileLookup", "true")
    if table is None:
        reader = reader.option("mergeSchema", "true")
    else:
        reader = reader.schema(table.timed.struct)
    with _listing_here(spark):
        frame = reader.parquet(*paths)
    if all(map(_OF_DAY.search, paths)) and not is_sail(spark):
        # Not from the time: so Spark opens no file of a day that isn't asked for.
        named = F.regexp_extract("_metadata.file_path", f"/{DAY}=([0-9-]+)/[^/]*$", 1)
        frame = frame.withColumn(DAY, F.to_date(F.nullif(named, F.lit(""))))
        return frame if table is None else frame.to(table.timed.struct)
    return frame if table is None else cast("DataFrame", table.select_timed(frame))


def exact(spark: SparkSession) -> DataFrameReader:
    """Return a reader that takes each path as it is: ``a[1]`` is no pattern."""
    return spark.read if is_sail(spark) else spark.read.option("__globPaths__", "false")


@contextmanager
def _listing_here(spark: SparkSession) -> Iterator[None]:
    """Have frames that are made in a block list their files in the driver, not by a task each."""
    if is_sail(spark):
        yield
        return
    before = spark.conf.get(_LISTING, None)
    spark.conf.set(_LISTING, str(_MOST_LISTED))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_LISTING)
        else:
            spark.conf.set(_LISTING, before)
