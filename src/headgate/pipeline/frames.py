"""
Make Spark frames of request logs and journals: one row per request, or sums by second.

``emit_requests`` and ``emit_activity`` hand over everything of one pass of the workers (rows, bad
lines, counts); ``sums_of`` and ``only`` pick a kind. ``by_second`` adds sums up; ``read_activity``
does so with what workers read of files, ``activity`` with any frame of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from headgate.pipeline.emitted import (
    ACTIVITY,
    CONNECTIONS,
    EMITTED_ACTIVITY,
    EMITTED_REQUESTS,
    OWN_QUOTA,
    SAME_SECOND,
)
from headgate.pipeline.schema import EVENTS
from headgate.pipeline.session import context_of, cores_of
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.table import Table, largest, sums
from headgate.pipeline.workers.emit import EmitActivity, EmitRequests
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.throttle.java import UNLIMITED

# Tasks per core, at most: enough that cores end together.
TASKS_PER_CORE: Final = 8
# A task costs 40 ms in the JVM; a worker reads this many pieces in 300 ms.
PIECES_PER_TASK: Final = 24
TABLE_TASKS_PER_CORE: Final = 2
# Partitions that are shuffled or persisted, at most.
PARTS_PER_CORE: Final = 2
SUMMED: Final = (
    *("broker_id", "listener", "principal", "client_id", "quota_type", "is_charged", "record_ms"),
    *("amount", "producer_ids", "is_request", "bytes_charged", "bytes_exact", "handler_ms"),
    *("throttle_time_ms", "decided_throttle_time_ms", "source", "event", "recorded"),
)
"""Columns of REQUESTS that ``activity`` looks at."""
_LARGEST: Final = "max_throttle_time_ms"
# What is added up of rows of ACTIVITY with the same keys.
_ADDED: Final = tuple(
    name for name in ACTIVITY.names if name not in (*SAME_SECOND, *OWN_QUOTA, _LARGEST)
)


def spread(spark: SparkSession, pieces: Sequence[FilePiece]) -> DataFrame:
    """Return a frame with the numbers of the pieces, spread over tasks; no shuffle."""
    cores = cores_of(spark)
    tasks = None if cores is None else tasks_for(pieces, cores)
    return spark.range(0, len(pieces), 1, tasks)


def tasks_for(pieces: Sequence[FilePiece], cores: int) -> int:
    """Return how many tasks are to read the pieces."""
    if all(s.kind == "requests" for s in pieces):
        # Row groups of tables are packed several at a time: a task takes as many as it can.
        return max(1, min(len(pieces), cores * TABLE_TASKS_PER_CORE))
    # Whole files, compressed ones and journals, may be of any size: each may be a task.
    weight = sum(PIECES_PER_TASK if s.end < 0 else 1 for s in pieces)
    wanted = max(cores, min(-(-weight // PIECES_PER_TASK), cores * TASKS_PER_CORE))
    return max(1, min(len(pieces), wanted))


def emit_requests(spark: SparkSession, options: ReadOptions) -> DataFrame:
    """Return ``EMITTED_REQUESTS``: a row per request, bad line and piece read."""
    task = EmitRequests(options)
    return spread(spark, options.pieces).mapInArrow(task, EMITTED_REQUESTS.struct)


def emit_activity(spark: SparkSession, options: ReadOptions) -> DataFrame:
    """
    Return ``EMITTED_ACTIVITY``: sums by second (for ``sums_of``), bad lines, counts.

    Where the options ask for connections, also the first sight of each (for storms).
    """
    return spread(spark, options.pieces).mapInArrow(EmitActivity(options), EMITTED_ACTIVITY.struct)


def sorted_by_key(rows: DataFrame, keys: Sequence[str], order: Sequence[str]) -> DataFrame:
    """
    Bring rows of the same keys together, in order, for a ``mapInArrow`` function.

    Where a task gets rows of several keys, it gets those of one after those of another. A Connect
    client's rows have a further column: its engine may be Sail, which leaves out a sort that the
    next step doesn't ask for, and keeps one that a column is made by.

    Args:
        rows: the rows.
        keys: names of columns.
        order: names of the columns by which rows of the same keys are ordered.
    """
    if context_of(rows.sparkSession) is not None:
        return rows.repartition(*keys).sortWithinPartitions(*keys, *order)
    turn = F.row_number().over(Window.partitionBy(*keys).orderBy(*order))
    return rows.withColumn("turn", turn)


def coalesced(frame: DataFrame) -> DataFrame:
    """
    Return a frame in no more partitions than suit the session's cores.

    Spark keeps a persisted frame in as many partitions as a shuffle has (200 where nothing else was
    set), and each of them costs a task of every job that reads it.
    """
    cores = cores_of(frame.sparkSession)
    return frame if cores is None else frame.coalesce(PARTS_PER_CORE * cores)


def sums_of(emitted: DataFrame) -> DataFrame:
    """
    Return the sums that tasks read: ACTIVITY, a row of each task that read some of a second.

    Every answer adds these rows up; ``by_second`` gives one row per second.

    Args:
        emitted: EMITTED_ACTIVITY.
    """
    return only(emitted, "activity", ACTIVITY)


def read_activity(spark: SparkSession, options: ReadOptions) -> DataFrame:
    """Return logs and journals summed up by second: ACTIVITY, what most transforms take."""
    return by_second(sums_of(emit_activity(spark, options)))


def only(emitted: DataFrame, kind: str, table: Table) -> DataFrame:
    """Return the rows of one ``kind``, with the columns of ``table``."""
    return table.select(emitted.where(F.col("kind") == kind))


def by_second(rows: DataFrame, table: Table = ACTIVITY) -> DataFrame:
    """
    Add rows of ACTIVITY up: one row per second of who did what, under which limit.

    Args:
        rows: ACTIVITY, whose rows may have the same keys: each what a task read, or one request.
        table: ACTIVITY, or that with further columns: rows that differ in these stay apart.
    """
    further = [name for name in table.names if name not in ACTIVITY.names]
    keys = (*SAME_SECOND, *OWN_QUOTA, *further)
    return table.select(rows.groupBy(*keys).agg(*sums(*_ADDED), *largest(_LARGEST)))


def activity(requests: DataFrame, table: Table = ACTIVITY) -> DataFrame:
    """
    Sum requests up by second: REQUESTS -> ACTIVITY.

    A journal's own quota-ids and limits are those of column ``recorded``.

    Args:
        requests: REQUESTS, and the further columns of ``table``.
        table: as ``by_second`` takes it.
    """
    recorded = F.col("recorded")
    # Sail (0.7.2) gives a field of a struct that is null as the field's empty value: 0 or ''.
    limit, user, client_id = (
        F.when(recorded.isNotNull(), recorded[name])
        for name in ("quota", "quota_user", "quota_client_id")
    )
    given = ("producer_id",)  # counts what storms look for
    no_sum = [event for event in EVENTS if event not in given]
    is_move = F.coalesce(F.col("event").isin(*no_sum), F.lit(False))
    ns = F.floor(F.col("handler_ms") * 1e6 + 0.5)
    told = told_ms()
    is_time = F.col("quota_type") == "request_percentage"
    of_journal = F.when(is_time, F.floor(F.col("amount") * 1e7 + 0.5)).otherwise(0)
    columns = {
        "second_ms": F.floor(F.col("record_ms") / 1000.0) * 1000,
        "requests": F.coalesce(F.col("is_request"), F.lit(True)).cast("long"),
        "bytes": F.col("bytes_charged"),
        "bytes_estimated": F.when(F.col("bytes_exact"), 0).otherwise(F.col("bytes_charged")),
        "handler_ns": ns,
        "request_ns": F.when(F.col("source") == "journal", of_journal).otherwise(ns),
        "throttle_time_ms": told,
        "throttled_requests": F.when(told > 0, 1).otherwise(0),
        "max_throttle_time_ms": told,
        "quota_id": F.lit(None),
        "quota_user": user,
        "quota_client_id": client_id,
        "quota": F.when(limit < UNLIMITED, limit),
    }
    added = by_second(table.select(requests.where(~is_move).withColumns(columns)), table)
    return table.select(added.withColumn("quota_id", _quota_id("quota_user", "quota_client_id")))


def told_ms() -> Column:
    """Return the throttle time to count with a row of REQUESTS, ms: ``journal.counted_ms``."""
    one_by_one = (F.col("quota_type") == "controller_mutation_rate") & F.col("event").isin(
        "record", "strict"
    )
    later = (F.col("source") == "journal") & F.col("throttle_time_ms").isNull()
    return F.when(F.coalesce(one_by_one | later, F.lit(False)), 0).otherwise(
        F.coalesce(F.col("decided_throttle_time_ms"), F.col("throttle_time_ms"), F.lit(0))
    )


def _quota_id(user: str, client_id: str) -> Column:
    """Return what ``quota.entity.quota_id`` gives of two columns; null where the first is."""
    # Java's encoder leaves * as it is, and writes a space as +; Kafka's sanitizer encodes both.
    encoded = F.replace(F.url_encode(F.col(user)), F.lit("+"), F.lit("%20"))
    sanitized = F.replace(encoded, F.lit("*"), F.lit("%2A"))
    return F.concat(sanitized, F.lit(":"), F.coalesce(F.col(client_id), F.lit("")))


def connections(requests: DataFrame) -> DataFrame:
    """
    Return first sights of connections: REQUESTS -> CONNECTIONS, one row per request of a log.

    A journal has a row for each connection that was accepted; its charges name connections by the
    gateway's own number, and would count each twice.
    """
    of_journal = F.coalesce(F.col("source") == "journal", F.lit(False))
    accepted = F.coalesce(F.col("event") == "connection", F.lit(False))
    own = F.col("event").isNull() & ~F.coalesce(F.col("is_forwarded"), F.lit(False))
    seen = requests.where(F.when(of_journal, accepted).otherwise(own))
    return CONNECTIONS.select(seen.withColumn("first_ms", F.col("record_ms")))
