"""
Make frames of requests: of files, and of any frame that has REQUESTS' columns.

The rows are the whole truth: what was filtered, joined, cached, or written as a table and read
again, is what an answer is about. ``by_second`` and ``bad_lines`` read files without making rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, StructType

from headgate.errors import BadArgument
from headgate.pipeline import frames, schema
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.library.arguments import (
    Paths,
    check_copies,
    check_frame,
    check_session,
    check_time_zone,
    own_words,
    paths_of,
    worded,
)
from headgate.pipeline.library.rows import PERMISSIVE, RequestRows, checked_mode, timed_struct
from headgate.pipeline.logs.principals import Principals
from headgate.pipeline.sources.files import find_files, paths
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.table import DAY, quoted
from headgate.pipeline.tables import by_day
from headgate.pipeline.workers.log_reader import ReadOptions

# Without these a row says nothing; whatever else of REQUESTS is absent counts as null.
_NEEDED: Final = ("record_ms", "principal", "client_id", "quota_type", "amount", "is_charged")
# Flags that reasons of bad lines name.
_NAMED: Final = ("--time-zone", "--broker-id-pattern", "--default-partitions", "--copies")


@own_words
def requests(
    spark: SparkSession,
    path: Paths,
    *,
    broker_id: int | None = None,
    broker_id_pattern: str | None = None,
    time_zone: str = "UTC",
    default_partitions: int = 1,
    copies: str = "refuse",
    mode: str = PERMISSIVE,
    column_name_of_corrupt_record: str | None = None,
    principal_pattern: str = "",
    topics: bool = False,
) -> DataFrame:
    """
    Return request logs and usage journals as a frame: REQUESTS, one row per charge.

    The files are listed and their heads read now, by this process; their lines when an action asks.
    Workers write to their standard error how many lines of which file couldn't be read.

    Args:
        spark: the session.
        path: files, directories, patterns or URIs: one or several. Logs, plain or compressed;
            journals; tables ``requests`` written before.
        broker_id: of all logs here; None = unknown.
        broker_id_pattern: regex on a log's path whose first group is the broker's id.
        time_zone: of logs that print none.
        default_partitions: the cluster's ``num.partitions``, where a log doesn't tell.
        copies: of files that begin with the same request: ``refuse`` them, read the largest
            ``once``, or ``count`` them all.
        mode: what becomes of a line that can't be read, and of a damaged file: ``PERMISSIVE`` and
            ``DROPMALFORMED`` go on, ``FAILFAST`` ends the query.
        column_name_of_corrupt_record: a column to hold such lines, in rows of their own
            (``PERMISSIVE`` only); None = they have no rows.
        principal_pattern: regex on a principal's name whose first group is the user, where a name
            holds more than that.
        topics: fill column ``bytes_by_topic``, which ``usage(..., by_topic=True)`` adds up. Logs
            are then read by the slower of two parsers.

    Raises:
        BadArgument: files can't be read or seem copies, or an argument makes no sense.
    """
    options = _listed(spark, path, broker_id, broker_id_pattern, time_zone, copies)
    mode = checked_mode(mode, "mode")
    corrupt = column_name_of_corrupt_record
    Principals(principal_pattern)  # refuses what isn't a pattern
    options = replace(
        options,
        default_partitions=default_partitions,
        principal_pattern=principal_pattern,
        topics=topics,
    )
    task = RequestRows(options, mode, corrupt)
    return frames.spread(spark, options.pieces).mapInArrow(task, timed_struct(corrupt))


@own_words
def by_second(
    spark: SparkSession,
    path: Paths,
    *,
    broker_id: int | None = None,
    broker_id_pattern: str | None = None,
    time_zone: str = "UTC",
    default_partitions: int = 1,
    copies: str = "refuse",
    principal_pattern: str = "",
) -> DataFrame:
    """
    Return files' sums by second: ACTIVITY, as ``activity`` of their requests, but sooner.

    Workers add up what they read, so no request becomes a row of Spark's.

    Args:
        spark: the session.
        path: as ``requests`` takes it.
        broker_id: as ``requests`` takes it.
        broker_id_pattern: as ``requests`` takes it.
        time_zone: as ``requests`` takes it.
        default_partitions: as ``requests`` takes it.
        copies: as ``requests`` takes it.
        principal_pattern: as ``requests`` takes it.

    Raises:
        BadArgument: as ``requests``.
    """
    options = _listed(spark, path, broker_id, broker_id_pattern, time_zone, copies)
    Principals(principal_pattern)  # refuses what isn't a pattern
    options = replace(
        options, default_partitions=default_partitions, principal_pattern=principal_pattern
    )
    return frames.read_activity(spark, options)


@own_words
def bad_lines(
    spark: SparkSession,
    path: Paths,
    *,
    broker_id: int | None = None,
    broker_id_pattern: str | None = None,
    time_zone: str = "UTC",
    copies: str = "refuse",
) -> DataFrame:
    """
    Return the lines of files that can't be read, and why: BAD_LINES. A damaged file is one, too.

    Args:
        spark: the session.
        path: as ``requests`` takes it.
        broker_id: as ``requests`` takes it.
        broker_id_pattern: as ``requests`` takes it.
        time_zone: as ``requests`` takes it.
        copies: as ``requests`` takes it.

    Raises:
        BadArgument: as ``requests``.
    """
    options = _listed(spark, path, broker_id, broker_id_pattern, time_zone, copies)
    found = frames.only(frames.emit_activity(spark, options), "bad", schema.BAD_LINES)
    reason = F.col("reason")
    for flag in _NAMED:
        reason = F.replace(reason, F.lit(flag), F.lit(worded(flag)))
    return schema.BAD_LINES.select(found.withColumn("reason", reason))


@own_words
def read_table(spark: SparkSession, place: str | os.PathLike[str], table: str) -> DataFrame:
    """
    Return a Parquet table that commands wrote, as the last of their runs left it.

    Spark lists the files now. They stay until two more runs have ended there; a frame that is read
    later fails, for it names files that aren't there any more.

    Args:
        spark: the session.
        place: the ``--out`` of the commands: a directory, or its URI.
        table: its name.

    Raises:
        BadArgument: ``spark`` is no session, or no run wrote the table there.
    """
    check_session(spark)
    return by_day.read(spark, paths(place, table), schema.TABLES.get(table))


def _listed(
    spark: SparkSession,
    path: Paths,
    broker_id: int | None,
    broker_id_pattern: str | None,
    time_zone: str,
    copies: str,
) -> ReadOptions:
    """Check what files are read by, and list them."""
    check_session(spark)
    check_time_zone(time_zone, "time_zone")
    check_copies(copies, "copies")
    pieces = pieces_of(
        find_files(paths_of(path)),
        broker_id=broker_id,
        broker_id_pattern=broker_id_pattern,
        copies=copies,
    )
    return ReadOptions(tuple(pieces), time_zone)


@own_words
def activity(requests: DataFrame) -> DataFrame:
    """
    Sum requests up by second: ACTIVITY, which all answers but the replays are made of.

    Several answers about the same requests are best made from this, persisted.

    Args:
        requests: REQUESTS, or ACTIVITY, which stays as it is.

    Raises:
        BadArgument: the frame is neither.
    """
    check_frame(requests)
    if is_activity(requests):
        return requests
    return frames.coalesced(frames.activity(of_requests(requests)))


def is_activity(frame: DataFrame) -> bool:
    """Say whether a frame is of sums by second: it has their columns, and not those of requests."""
    have = set(frame.columns)
    return set(ACTIVITY.names) <= have and not set(_NEEDED) <= have


def of_requests(frame: DataFrame, others: Sequence[str] = ()) -> DataFrame:
    """
    Return a frame with exactly REQUESTS' columns, in their types; those that it lacks are null.

    A frame's further columns have no part in any answer, whatever they are called.

    Args:
        frame: the frame.
        others: further columns to keep, behind these.

    Raises:
        BadArgument: it is no frame, or lacks a column without which a row says nothing, or one of
            structs (``recorded``, ``bytes_by_topic``) isn't the column that ``requests`` gives.
    """
    check_frame(frame)
    have = {field.name: field for field in frame.schema}
    missing = [name for name in _NEEDED if name not in have]
    if missing:
        raise BadArgument(
            f"this frame lacks {', '.join(missing)}: give one of headgate.pipeline.requests, or a "
            "table `requests`, with these columns left in"
        )
    cells = [_cell(field, have.get(field.name)) for field in schema.REQUESTS.struct]
    return frame.select(*cells, *[F.col(quoted(name)) for name in others])


def _cell(wanted: Any, have: Any) -> Column:
    """Return a column of REQUESTS, of whatever type a frame has it in."""
    if have is None:
        cell = F.lit(None)
    elif have == wanted:
        return F.col(wanted.name)
    else:
        cell = F.col(wanted.name)
        kind = have.dataType
        names = kind.fieldNames() if isinstance(kind, StructType) else []
        is_struct = isinstance(wanted.dataType, StructType)
        if (is_struct and sorted(names) != sorted(wanted.dataType.fieldNames())) or (
            isinstance(wanted.dataType, ArrayType)
            and kind.simpleString() != wanted.dataType.simpleString()
        ):
            raise BadArgument(
                f"column {wanted.name} is {kind.simpleString()}, and a table `requests` has "
                f"{wanted.dataType.simpleString()} there: give the frame that schema, or give "
                "the column another name"
            )
        if is_struct:
            inside = [cell[f.name].cast(f.dataType).alias(f.name) for f in wanted.dataType]
            cell = F.when(cell.isNotNull(), F.struct(*inside))
    return cell.cast(wanted.dataType).alias(wanted.name, metadata=wanted.metadata)


def others_of(frame: DataFrame) -> list[Any]:
    """
    Return the fields of a frame's columns that aren't those of REPLAY: its user's own.

    Raises:
        BadArgument: ``day`` isn't the DATE that tables have; the result has one of its own.
    """
    if DAY in frame.columns and frame.schema[DAY].dataType != DateType():
        raise BadArgument(
            f"column {DAY} is {frame.schema[DAY].dataType.simpleString()}, and the result has a "
            f"column {DAY} (DATE) of its own: give yours another name"
        )
    known = set(schema.REPLAY.timed.names)
    return [field for field in frame.schema if field.name not in known]
