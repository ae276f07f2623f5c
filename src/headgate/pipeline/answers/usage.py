"""
Say who used what: sums per quota-id, broker and second, and their peaks by hour and day.

Workers add up (``usage_parts``). Spark's JVM only moves what belongs together: a row costs it more
than a log line costs the scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.pipeline import schema
from headgate.pipeline.answers import usage_parts
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.frames import by_part, parts_of
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.table import Table, make_table
from headgate.pipeline.workers import activity_blobs
from headgate.pipeline.workers.resolve import Resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESOLVED_ACTIVITY: Final = make_table(
    "resolved_activity",
    "ACTIVITY, with the quota-id of each row.",
    *ACTIVITY.columns,
    ("quota_source", "string", "entity the limit comes from"),
)
PACKED_USAGE: Final = make_table(
    "packed_usage",
    "One row per part of the answer, of each task that has read some of it.",
    ("part", "int", "part: some quota-ids, brokers and days, and these whole"),
    ("packed", "binary", "sums per quota-id, broker and second, as ``activity_blobs`` packs them"),
)


def resolve(quotas: Quotas) -> Callable[[DataFrame], DataFrame]:
    """
    Say for each activity row who shares its quota: activity -> RESOLVED_ACTIVITY.

    The quota in force at the start of the second counts; rows of a journal keep their own.
    """
    task = Resolve(quotas, "second_ms", RESOLVED_ACTIVITY)
    return lambda activity: ACTIVITY.select(activity).mapInArrow(task, RESOLVED_ACTIVITY.struct)


def usage(quotas: Quotas, table: Table = schema.USAGE) -> Callable[[DataFrame], DataFrame]:
    """
    Sum activity up per quota-id, broker and period: activity -> USAGE, USAGE_HOUR or USAGE_DAY.

    Every charged request counts in the one row of the quota type it's charged to. Rows of
    request_percentage also exist for clients that only produce and fetch; there ``requests``,
    ``bytes`` and ``handler_ms`` are 0 and ``amount`` is the thread time of all their requests.
    Percentiles of hours and days are exact, over the seconds that have requests.

    Args:
        quotas: who shares what.
        table: USAGE, by second; USAGE_HOUR or USAGE_DAY.
    """
    return lambda activity: activity.transform(packed(quotas)).transform(unpacked(table))


def packed(quotas: Quotas) -> Callable[[DataFrame], DataFrame]:
    """Resolve and add up what all tables of usage are made of: activity -> PACKED_USAGE."""

    def transform(activity: DataFrame) -> DataFrame:
        task = PackUsage(quotas, parts_of(activity.sparkSession))
        rows = ACTIVITY.select(activity)
        return by_part(rows.mapInArrow(task, PACKED_USAGE.struct))

    return transform


def unpacked(table: Table) -> Callable[[DataFrame], DataFrame]:
    """Return one table of usage from what ``packed`` gave: PACKED_USAGE -> USAGE and others."""
    return lambda packed: packed.mapInArrow(UnpackUsage(table), table.struct)


@dataclass(frozen=True)
class PackUsage:
    """
    Resolve and add up rows of ACTIVITY: PACKED_USAGE. A ``mapInArrow`` function.

    Args:
        quotas: who shares what.
        parts: into how many parts the answer goes.
    """

    quotas: Quotas
    parts: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Hand over a batch with a row per part, whenever enough is gathered."""
        for activity in usage_parts.together(batches):
            found = list(usage_parts.blobs(activity, self.quotas, self.parts, by_day=True))
            columns = {"part": [part for part, _ in found], "packed": [blob for _, blob in found]}
            yield PACKED_USAGE.batch(len(found), columns)


@dataclass(frozen=True)
class UnpackUsage:
    """
    Add up blobs, part by part, and hand over rows of one table. A ``mapInArrow`` function.

    Args:
        table: USAGE, USAGE_HOUR or USAGE_DAY.
    """

    table: Table

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Unpack the blobs of whole parts."""
        for tables in activity_blobs.by_part(batches):
            rows = usage_parts.rows_of(tables, self.table)
            yield from rows.combine_chunks().to_batches(max_chunksize=activity_blobs.BATCH_ROWS)
