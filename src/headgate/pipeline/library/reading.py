"""
Make a frame of requests that remembers its files, so that answers read these in the workers.

A row costs more on its way through Spark's JVM than a worker takes to parse it. So an answer about
the frame that ``requests`` gave reads the files itself, and hands over sums. About any other
frame (filtered, joined, of a table), it takes the frame's rows. The answer is the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.errors import ConfigError
from headgate.pipeline import frames, quotas, schema
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.logs.time_stamps import zone_of
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.pipeline.replaying.replay import pack_logs, pack_requests
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.table import QuotaTable

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
QuotasGiven = Quotas | QuotaTable | str | os.PathLike[str] | None
"""Quotas, or the path of a quotas file or of a `headgate history` export; None = none."""

_FILES: Final = "_headgate_files"
# Without these a row says nothing; whatever else of REQUESTS is absent counts as null.
_NEEDED: Final = ("record_ms", "principal", "client_id", "quota_type", "amount", "is_charged")


def requests(
    spark: SparkSession,
    path: Paths,
    *,
    broker_id: int | None = None,
    broker_id_pattern: str | None = None,
    time_zone: str = "UTC",
    default_partitions: int = 1,
    copies: str = "refuse",
) -> DataFrame:
    """
    Return request logs and usage journals as a frame: REQUESTS, one row per charge.

    The files are listed and their heads read now, by this process; their lines when an action asks.

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

    Raises:
        ConfigError: files can't be read or seem copies, or an argument makes no sense.
    """
    try:
        zone_of(time_zone)
    except ValueError as exc:
        raise ConfigError(f"time_zone: {exc}") from exc
    given = [path] if isinstance(path, str | os.PathLike) else list(path)
    try:
        pieces = pieces_of(
            find_files([os.fspath(each) for each in given]),
            broker_id=broker_id,
            broker_id_pattern=broker_id_pattern,
            copies=copies,
        )
    except ConfigError as exc:  # its text names the commands' flags
        raise ConfigError(str(exc).replace("--requests ", "")) from exc
    files = ReadOptions(tuple(pieces), time_zone, default_partitions=default_partitions)
    emitted = frames.emit_requests(spark, files)
    frame: DataFrame = schema.REQUESTS.select_timed(emitted.where("kind = 'request'"))
    vars(frame)[_FILES] = files
    return frame


def files_of(frame: DataFrame) -> ReadOptions | None:
    """Return how a frame of ``requests`` reads its files; None for others, derived ones too."""
    return vars(frame).get(_FILES)


def bad_lines(requests: DataFrame) -> DataFrame:
    """
    Return the lines that couldn't be read, and why: BAD_LINES.

    Args:
        requests: as ``requests`` gave it.

    Raises:
        ConfigError: it is another frame, which doesn't know its files.
    """
    files = files_of(requests)
    if files is None:
        raise ConfigError("bad_lines: give the very frame that headgate.pipeline.requests returned")
    emitted = frames.emit_activity(requests.sparkSession, files)
    return frames.only(emitted, "bad", schema.BAD_LINES)


def activity(requests: DataFrame) -> DataFrame:
    """
    Sum requests up by second: ACTIVITY, which all answers but the replays are made of.

    Several answers about the same files are best made from this, persisted.

    Args:
        requests: REQUESTS, or ACTIVITY, which stays as it is.

    Raises:
        ConfigError: the frame is neither.
    """
    files = files_of(requests)
    if files is not None:
        return frames.read_activity(requests.sparkSession, files)
    have = requests.columns
    if set(ACTIVITY.names) <= set(have):
        return requests
    return frames.activity(completed(requests))


def completed(requests: DataFrame) -> DataFrame:
    """
    Return a frame with all of REQUESTS' columns; those that it lacks are null.

    Raises:
        ConfigError: it lacks a column without which a row says nothing.
    """
    have = set(requests.columns)
    missing = [name for name in _NEEDED if name not in have]
    if missing:
        raise ConfigError(
            f"this frame lacks {', '.join(missing)}: give one of headgate.pipeline.requests, or a "
            "table `requests`, with these columns left in"
        )
    absent = {
        field.name: F.lit(None).cast(field.dataType)
        for field in schema.REQUESTS.struct
        if field.name not in have
    }
    return requests.withColumns(absent) if absent else requests


def pack(requests: DataFrame, options: PackOptions) -> DataFrame:
    """Return the charges among requests packed for a replay: PACKED."""
    files = files_of(requests)
    if files is not None:
        return pack_logs(requests.sparkSession, files, options)
    return completed(requests).transform(pack_requests(options))


def quotas_of(given: QuotasGiven, name: str = "quotas") -> Quotas:
    """
    Return quotas in whatever way they were given.

    Args:
        given: the quotas.
        name: of those that have none of their own, for ``what_if``'s column ``plan``.

    Raises:
        ConfigError: they are a file that can't be read.
    """
    if isinstance(given, Quotas):
        return given
    if given is None or isinstance(given, QuotaTable):
        return Quotas.of(given or QuotaTable(), name)
    return quotas.load(os.fspath(given), "quotas")


def named(plans: Sequence[Quotas], caller: str) -> list[Quotas]:
    """
    Return plans, none of which has another's name, or ``logged``.

    Args:
        plans: the plans.
        caller: the function that they were given to.

    Raises:
        ConfigError: two have the same name, or one is called ``logged``.
    """
    names = [plan.name for plan in plans]
    twice = sorted({name for name in names if name == "logged" or names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"{caller}: several plans are called {', '.join(twice)} (`logged` is what the log "
            "says); give a mapping of names to plans"
        )
    return list(plans)
