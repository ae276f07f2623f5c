"""
Divide a table by UTC day, and say how rows change what is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headgate.errors import ConfigError
from headgate.pipeline.table import MOMENTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MODES: Final = ("overwrite", "append", "merge")
DAY: Final = "day"
_DAY_MS: Final = 86_400_000


def time_of(columns: Iterable[str]) -> str | None:
    """Return the first time among a table's columns; None: it has none to be divided by."""
    return next((name for name in columns if name in MOMENTS), None)


def with_day(frame: DataFrame) -> DataFrame:
    """
    Add the UTC day of a frame's first time, whatever the session's zone is.

    Raises:
        ConfigError: it has none.
    """
    from pyspark.sql import functions as F

    time = time_of(frame.columns)
    if time is None:
        raise ConfigError(
            "write: the frame has no time to divide it by (second_ms, period_ms, record_ms, …); "
            "give by_day=False"
        )
    day: Column = F.date_from_unix_date(F.floor(F.col(time) / _DAY_MS).cast("int"))
    return frame.withColumn(DAY, day)


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
