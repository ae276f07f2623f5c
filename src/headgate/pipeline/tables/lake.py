"""
Write Delta and Iceberg tables by Spark's own writers, at a path or by a name of a catalog.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headgate.errors import ConfigError
from headgate.pipeline.spark_versions import refuse_format, way_to
from headgate.pipeline.table import DAY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LAKES: Final = ("delta", "iceberg")
FORMATS: Final = ("parquet", *LAKES)
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "parquet": {},
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
    },
}
"""What a session must be told, besides its jars."""
_ICEBERGS: Final = "org.apache.iceberg.spark.SparkCatalog"
CLASSES: Final = {
    "delta": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "iceberg": _ICEBERGS,
}
"""A class of each format, which a session has or lacks."""
# How Spark says that it has no such class, source or catalog.
_UNKNOWN: Final = ("DATA_SOURCE_NOT_FOUND", "CATALOG_NOT_FOUND", "Cannot find catalog plugin class")
# What Delta says where a path holds no table yet.
_NOTHING: Final = ("DELTA_MISSING_DELTA_TABLE", "PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND")
_NAME: Final = re.compile(r"[\w-]+(\.[\w-]+)+")


def is_name(place: str) -> bool:
    """Say whether text is a catalog's name, such as ``catalog.db``, and no path."""
    return _NAME.fullmatch(place) is not None


def identifier(spark: SparkSession, place: str, format: str) -> str:
    """
    Return a table's name for Spark's SQL.

    Args:
        spark: the session; it gets a catalog for Iceberg tables of a path's folder.
        place: a path, or a catalog's name.
        format: delta or iceberg.
    """
    if is_name(place):
        return ".".join(f"`{part}`" for part in place.split("."))
    if "`" in place:
        raise ConfigError(f"{place}: a table's path can't have a backtick")
    if format == "delta":
        return f"delta.`{place}`"
    folder, _, name = place.rstrip("/").rpartition("/")
    catalog = f"headgate_{hashlib.sha256(folder.encode()).hexdigest()[:12]}"
    spark.conf.set(f"spark.sql.catalog.{catalog}", _ICEBERGS)
    spark.conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{catalog}.warehouse", folder)
    return f"{catalog}.`{name}`"


def is_there(spark: SparkSession, table: str) -> bool:
    """Say whether there is a table of a name."""
    from pyspark.errors import AnalysisException

    try:
        return bool(spark.catalog.tableExists(table))
    except AnalysisException as exc:
        # Not by getCondition, which Spark 3.5 lacks.
        if any(f"[{name}" in str(exc) for name in _NOTHING):
            return False
        raise


def save(
    rows: DataFrame, place: str, format: str, mode: str, by_day: bool, key: Sequence[str] = ()
) -> None:
    """
    Write rows to a table, in one step; the format does it.

    Args:
        rows: with column ``day`` if the table is divided by it.
        place: a path, or a catalog's name.
        format: delta or iceberg.
        mode: of ``by_day.MODES``; ``append`` and ``merge`` make the table where there is none.
        by_day: whether it is divided by day.
        key: columns that tell rows apart, for ``merge``; none: whole days are replaced.

    Raises:
        ConfigError: a merge of days, and the table isn't divided by day.
    """
    from pyspark.sql import functions as F

    spark = rows.sparkSession
    table = identifier(spark, place, format)
    if mode == "overwrite" or not is_there(spark, table):
        writer = rows.writeTo(table).using(format)
        (writer.partitionedBy(F.col(DAY)) if by_day else writer).createOrReplace()
    elif mode == "append":
        rows.writeTo(table).append()
    elif key:
        _merge(rows, table, (DAY, *key))
    elif not any(c.isPartition and c.name == DAY for c in spark.catalog.listColumns(table)):
        raise ConfigError(f"{place} isn't divided by day; write it once with mode overwrite")
    else:
        rows.writeTo(table).overwritePartitions()


def _merge(rows: DataFrame, table: str, key: Sequence[str]) -> None:
    view = f"headgate_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    same = " AND ".join(f"t.`{name}` <=> n.`{name}`" for name in key)
    try:
        rows.sparkSession.sql(
            f"MERGE INTO {table} AS t USING {view} AS n ON {same} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    finally:
        rows.sparkSession.catalog.dropTempView(view)


def replace(rows: DataFrame, place: str, format: str, which: Column) -> None:
    """Replace those rows of a table for which a condition holds; make the table if need be."""
    table = identifier(rows.sparkSession, place, format)
    if is_there(rows.sparkSession, table):
        rows.writeTo(table).overwrite(which)
    else:
        rows.writeTo(table).using(format).create()


@contextmanager
def explained(format: str, version: str) -> Iterator[None]:
    """
    Say what a session lacks, if a block fails because the session doesn't know a format.

    Args:
        format: of ``FORMATS``.
        version: Spark's.

    Raises:
        ConfigError: no release of the format runs on this Spark; or the session doesn't know the
            format, and the message says how to add it.
    """
    refuse_format(format, version)
    try:
        yield
    except Exception as exc:  # one of PySpark's, or of py4j's where PySpark has none for it
        if format not in LAKES or not any(name in str(exc) for name in _UNKNOWN):
            raise
        way_out = way_to(format, version, "--packages {}", "--jars PATH,PATH")
        needed = " ".join(f"--conf {name}={value}" for name, value in SETTINGS[format].items())
        raise ConfigError(
            f"format={format!r}: this session has no {format.capitalize()}. {way_out}; start it "
            f"with {needed} too"
        ) from exc
