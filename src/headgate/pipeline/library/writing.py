"""
Write what an answer gave as a table: by day, appended to, or merged into what is there.

A table is a path, on any file system that Spark knows; of Delta and Iceberg also a catalog's name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.errors import ConfigError
from headgate.pipeline.sail import is_sail
from headgate.pipeline.sources.files import paths
from headgate.pipeline.table import DAY, MOMENTS
from headgate.pipeline.tables import lake
from headgate.pipeline.tables.by_day import MODES, exact, save, with_day

__all__ = ["paths", "write"]

# What Spark says where there is no such path, or no file in it.
_NOTHING: Final = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")


def write(
    frame: DataFrame,
    table: str | os.PathLike[str],
    *,
    mode: str = "overwrite",
    format: str = "parquet",
    key: Sequence[str] = (),
    by_day: bool = True,
) -> None:
    """
    Write a frame, divided by UTC day.

    Delta and Iceberg change a table in one step. Parquet doesn't: a reader may see some days of a
    merge before others, and some files of an append.

    Args:
        frame: of any answer; a column ``day`` (DATE) is added, from its first time, where it has
            none.
        table: its path; for Delta and Iceberg also its name, ``catalog.db.table``.
        mode: ``overwrite`` the whole table; ``append`` to it; or ``merge``: rows replace those with
            the same key. ``append`` and ``merge`` make the table where there is none.
        format: ``parquet``, ``delta`` or ``iceberg``.
        key: names of columns that tell rows apart, a time among them, for ``merge``. Without a key
            whole days are replaced: those of which the frame has rows.
        by_day: whether the table is divided by day; ``merge`` needs it.

    Raises:
        ConfigError: an argument makes no sense; the frame has no time to divide it by; the session
            doesn't know the format, or its Spark can't.
    """
    _check(frame, mode, format, key, by_day)
    where = os.fspath(table)
    rows = with_day(frame) if by_day else frame
    if format == "parquet":
        _write(rows, where, mode, key, by_day)
        return
    if not isinstance(table, str) or (not lake.is_name(where) and "://" not in where):
        where = str(Path(where).absolute())
    with lake.explained(format, frame.sparkSession.version):
        lake.save(rows, where, format, mode, by_day, key)


def _write(rows: DataFrame, table: str, mode: str, key: Sequence[str], by_day: bool) -> None:
    if not _is_there(rows, table):
        mode = "append"
    if mode != "merge" or not key:
        save(rows, table, mode, by_day)
        return
    kept = rows.persist()  # it is read three times, and files may grow meanwhile
    try:
        save(_merged(kept, table, key), table, mode, by_day)
    finally:
        kept.unpersist()


def _there(frame: DataFrame, table: str) -> DataFrame:
    """Return a table that exists, read with the session of a frame."""
    return exact(frame.sparkSession).parquet(table)


def _check(frame: DataFrame, mode: str, format: str, key: Sequence[str], by_day: bool) -> None:
    if mode not in MODES:
        raise ConfigError(f"write mode={mode!r}: choose {', '.join(MODES)}")
    if format not in lake.FORMATS:
        raise ConfigError(f"write format={format!r}: choose {', '.join(lake.FORMATS)}")
    absent = [name for name in key if name not in frame.columns]
    if absent:
        raise ConfigError(f"write key: the frame has no column {', '.join(absent)}")
    if mode == "merge" and is_sail(frame.sparkSession):
        raise ConfigError(
            "write mode='merge': this session is Sail's, which removes what is there before it "
            "has read it; write another table, or merge in a session of Spark's"
        )
    if format in lake.LAKES and is_sail(frame.sparkSession):
        raise ConfigError(f"write format={format!r}: this session is Sail's; write it by Spark")
    if mode == "merge" and not by_day:
        raise ConfigError("write mode='merge': it replaces days; leave by_day as it is")
    times = {name for pair in MOMENTS.items() for name in pair}
    if key and not times & set(key):
        raise ConfigError(
            "write key: add the row's time, such as second_ms or period_ms; rows of the same key "
            "are looked for on the same day"
        )


def _is_there(frame: DataFrame, table: str) -> bool:
    try:
        return bool(_there(frame, table).columns)
    except AnalysisException as exc:
        # Not by getCondition, which Spark 3.5 lacks.
        if any(f"[{name}" in str(exc) for name in _NOTHING):
            return False
        raise


def _merged(rows: DataFrame, table: str, key: Sequence[str]) -> DataFrame:
    """Return the rows, and the table's rows of the same days that have other keys."""
    days = rows.select(DAY).distinct()
    old = _there(rows, table)
    # Also those whose day isn't known: they lie in one folder, which is replaced.
    old = old.join(F.broadcast(days), old[DAY].eqNullSafe(days[DAY]), "left_semi")
    new = rows.select(DAY, *key).distinct()
    same = [old[name].eqNullSafe(new[name]) for name in (DAY, *key)]
    others = old.join(new, same, "left_anti")
    return rows.unionByName(others, allowMissingColumns=True)
