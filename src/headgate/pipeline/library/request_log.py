"""
Request logs and usage journals as a data source of Spark's, to be read whole or as a stream.

``spark.read.format("kafka-request-log").load(path)``, and ``select … from`` it in SQL. Workers
parse, drop rows outside of the times asked for, and hand over Arrow batches. Options are those of
``hp.requests``, by Spark's habit in camel case: ``brokerId``, ``brokerIdPattern``, ``timeZone``,
``defaultPartitions``, ``copies``; ``since`` and ``until`` (moments, ISO 8601); ``numPartitions``.
Files are listed where Spark plans: on the driver, also of a Connect client.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

from headgate.errors import ConfigError
from headgate.pipeline import schema
from headgate.pipeline.frames import tasks_for
from headgate.pipeline.growing.directories import Paths
from headgate.pipeline.growing.rotation import RolledFiles
from headgate.pipeline.growing.rounds import Input
from headgate.pipeline.library.stream import check_still_there, found_again, latest, piece_of
from headgate.pipeline.logs.time_stamps import zone_of
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.workers.emit import EmitRequests
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.words import moment_ms

T = TypeVar("T")
U = TypeVar("U")
NAME: Final = "kafka-request-log"
_ALL: Final = 1 << 30
"""Files of a batch that has no limit."""


@dataclass(frozen=True)
class LogOptions:
    """
    What a data source was told.

    Args:
        paths: files, directories, patterns or URIs.
        broker_id: of all logs; None = unknown.
        broker_id_pattern: regex on a log's path whose first group is the broker's id.
        time_zone: of logs that print none.
        default_partitions: the cluster's ``num.partitions``.
        copies: what to do with files that begin alike.
        tasks: how many are to read; 0 = as many as suit this machine's cores.
        since_ms: only requests charged at that time or later, epoch ms.
        until_ms: only requests charged before.
    """

    paths: tuple[str, ...]
    broker_id: int | None
    broker_id_pattern: str | None
    time_zone: str
    default_partitions: int
    copies: str
    tasks: int
    since_ms: float = -math.inf
    until_ms: float = math.inf

    @classmethod
    def of(cls, given: Mapping[str, str]) -> LogOptions:
        """
        Read a data source's options.

        Raises:
            ConfigError: there is no path, or a value makes no sense.
        """
        paths = json.loads(given["paths"]) if "paths" in given else []
        paths += [given["path"]] if "path" in given else []
        if not paths:
            raise ConfigError(f"{NAME}: no path; write .load(PATH), or .option('path', PATH)")
        zone = given.get("timeZone") or "UTC"
        try:
            zone_of(zone)
        except ValueError as exc:
            raise ConfigError(f"{NAME}, option timeZone: {exc}") from exc
        copies = given.get("copies") or "refuse"
        if copies not in ("refuse", "once", "count"):
            raise ConfigError(f"{NAME}, option copies: {copies!r}; give refuse, once or count")
        return cls(
            tuple(paths),
            _read(given, "brokerId", int, None),
            given.get("brokerIdPattern"),
            zone,
            _read(given, "defaultPartitions", int, None) or 1,
            copies,
            _read(given, "numPartitions", int, 0),
            _read(given, "since", moment_ms, -math.inf),
            _read(given, "until", moment_ms, math.inf),
        )


def _read(given: Mapping[str, str], name: str, read: Callable[[str], T], otherwise: U) -> T | U:
    """Return an option that ``read`` (``int`` or ``moment_ms``) makes a value of."""
    text = given.get(name)
    if text is None:
        return otherwise
    try:
        return read(text)
    except ValueError:
        wanted = "a whole number" if read is int else "a moment; write 2026-11-01T06:30:00Z"
        raise ConfigError(f"{NAME}, option {name}: {text!r} isn't {wanted}") from None


class Pieces(InputPartition):
    """
    What a task reads.

    Args:
        pieces: of files.
        places: device and inode of those that grow, by path.
    """

    def __init__(
        self, pieces: Sequence[FilePiece], places: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        self.pieces = tuple(pieces)
        self.places = dict(places or {})


class KafkaRequestLog(DataSource):
    """Request logs and usage journals: REQUESTS, one row per charge."""

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return NAME

    def schema(self) -> StructType:
        """Return REQUESTS with its moments."""
        return schema.REQUESTS.timed.struct

    def reader(self, schema: StructType) -> RequestLogReader:
        """Return what reads the files that are there."""
        return RequestLogReader(LogOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> RequestLogStream:
        """Return what reads files that grow."""
        most = _read(self.options, "maxFilesPerTrigger", int, None)
        return RequestLogStream(LogOptions.of(self.options), schema, most)


class RequestLogReader(DataSourceReader):
    """
    Reads the files that are there.

    It doesn't implement ``pushFilters``. Spark 4.2.0 keeps the plan that it made with one query's
    filters, and uses it again for the next query of the same frame without filters: rows are
    missing, without an error. The options ``since`` and ``until`` filter by time instead.

    Args:
        options: what to read, and how.
        struct: the columns wanted, of REQUESTS with its moments.
    """

    def __init__(self, options: LogOptions, struct: StructType) -> None:
        self._options = options
        self._columns = _known(struct)

    def partitions(self) -> list[Pieces]:
        """Divide the files into as many tasks as suit the cores."""
        on = self._options
        pieces = pieces_of(
            find_files(on.paths),
            broker_id=on.broker_id,
            broker_id_pattern=on.broker_id_pattern,
            copies=on.copies,
        )
        tasks = on.tasks or tasks_for(pieces, os.cpu_count() or 1)
        return [Pieces(pieces[n::tasks]) for n in range(min(tasks, len(pieces)))] or [Pieces(())]

    def read(self, partition: Pieces) -> Iterator[Any]:
        """Yield Arrow batches."""
        yield from _rows(partition.pieces, self._options, self._columns)


class RequestLogStream(DataSourceStreamReader):
    """
    Reads files that grow, every line once (``library.stream``).

    Args:
        options: what to follow, and how.
        struct: the columns wanted, of REQUESTS with its moments.
        most: files of one batch, at most; None = all.
    """

    def __init__(self, options: LogOptions, struct: StructType, most: int | None) -> None:
        self._options = options
        self._columns = _known(struct)
        self._most = most

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a stream that has read nothing."""
        return {"round": 0, "read": "[]", "pieces": "[]", "places": "{}"}

    def getDefaultReadLimit(self) -> Any:
        """Return how many files a batch reads at most."""
        return ReadAllAvailable() if self._most is None else ReadMaxFiles(self._most)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """
        Return the offset after what is there now; ``start`` itself where nothing is new.

        Raises:
            ConfigError, ReadError: the files can't be followed, or one can't be read.
        """
        on = self._options
        rolled = RolledFiles(
            broker_id=on.broker_id,
            broker_id_pattern=on.broker_id_pattern,
            files_per_round=getattr(limit, "max_files", None) or _ALL,
        )
        known = [Input(*row) for row in json.loads(start["read"])]
        rolled.remember(known)
        found = rolled.take(Paths(on.paths).files(rolled.places))
        if not found.pieces and not found.inputs:
            return dict(start)
        return {
            "round": int(start["round"]) + 1,
            "read": json.dumps(latest([*known, *found.inputs])),
            "pieces": json.dumps([dataclasses.astuple(piece) for piece in found.pieces]),
            "places": json.dumps(found.places),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Pieces]:
        """Return a task for each piece between two offsets."""
        if start["round"] == end["round"]:
            return []
        places = {path: (d, i) for path, (d, i) in json.loads(end["places"]).items()}
        return [Pieces([piece_of(row)], places) for row in json.loads(end["pieces"])]

    def read(self, partition: Pieces) -> Iterator[Any]:
        """Yield Arrow batches; fail if a file's name has become another file's."""
        for planned in partition.pieces:
            place = partition.places.get(planned.path)
            piece = found_again(planned, place)
            yield from _rows([piece], self._options, self._columns)
            check_still_there(piece, place)


def _known(struct: StructType) -> tuple[str, ...]:
    """
    Return the names of columns wanted.

    Raises:
        ConfigError: there is none of that name and type.
    """
    known = {f.name: f.dataType for f in schema.REQUESTS.timed.struct}
    for field in struct.fields:
        if known.get(field.name) != field.dataType:
            raise ConfigError(
                f"{NAME}: it has no column {field.name} of type {field.dataType.simpleString()}; "
                f"leave the schema out, or take of it: {', '.join(known)}"
            )
    return tuple(struct.fieldNames())


def _rows(
    pieces: Sequence[FilePiece], options: LogOptions, columns: tuple[str, ...]
) -> Iterator[Any]:
    """Yield the requests in some pieces as Arrow batches."""
    told = ReadOptions((), options.time_zone, default_partitions=options.default_partitions)
    for batch in EmitRequests(told).read(pieces):
        rows = batch.filter(pc.equal(batch["kind"], "request")).select(schema.REQUESTS.names)
        if math.isfinite(options.since_ms):
            rows = rows.filter(pc.greater_equal(rows["record_ms"], options.since_ms))
        if math.isfinite(options.until_ms):
            rows = rows.filter(pc.less(rows["record_ms"], options.until_ms))
        if rows.num_rows:
            yield schema.REQUESTS.with_moments(rows).select(list(columns))
