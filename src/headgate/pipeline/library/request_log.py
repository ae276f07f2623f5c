"""
Request logs and usage journals as a data source of Spark's, to be read whole or as a stream.

``spark.read.format("kafka-request-log").load(path)``, and ``select … from`` it in SQL. Workers
parse, drop rows outside of the times asked for, and hand over Arrow batches. Options are those of
``hp.requests``, by Spark's habit in camel case (``OPTIONS``); others are refused. Files are listed
where Spark plans: on the driver, also of a Connect client. ``format("headgate-journal")`` is the
same, and reads journals alone.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from headgate.errors import BadArgument, ConfigError
from headgate.pipeline.frames import tasks_for
from headgate.pipeline.growing.directories import Paths
from headgate.pipeline.growing.rotation import RolledFiles
from headgate.pipeline.growing.rounds import Input
from headgate.pipeline.library.arguments import check_copies, check_time_zone, worded
from headgate.pipeline.library.rows import (
    CORRUPT,
    PERMISSIVE,
    RequestRows,
    checked_mode,
    known_columns,
    timed_struct,
)
from headgate.pipeline.library.stream import check_still_there, found_again, latest, piece_of
from headgate.pipeline.logs.principals import Principals
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.spark_versions import BOUNDED_STREAM, installed, refuse
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.words import moment_ms

T = TypeVar("T")
U = TypeVar("U")
NAME: Final = "kafka-request-log"
JOURNAL: Final = "headgate-journal"
OPTIONS: Final = (
    *("brokerId", "brokerIdPattern", "timeZone", "defaultPartitions", "copies", "since", "until"),
    *("mode", "columnNameOfCorruptRecord", "numPartitions", "maxFilesPerTrigger"),
    "principalPattern",
)
"""Options that are taken besides the path."""
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
        mode: what becomes of a line that can't be read: PERMISSIVE, DROPMALFORMED or FAILFAST.
        corrupt: name of the column for such lines; None: there is none.
        most_files: files of one batch of a stream, at most; None = all.
        principal_pattern: regex on a principal's name whose first group is the user.
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
    mode: str = PERMISSIVE
    corrupt: str | None = None
    most_files: int | None = None
    principal_pattern: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str], source: str = NAME) -> LogOptions:
        """
        Read a data source's options.

        Args:
            given: the options.
            source: the data source's name, for messages.

        Raises:
            BadArgument: there is no path, an option isn't known, or a value makes no sense.
        """
        known = {name.lower(): name for name in OPTIONS}
        unknown = [name for name in given if name.lower() not in {*known, "path", "paths"}]
        if unknown:
            raise BadArgument(
                f"{source}: there is no option {', '.join(unknown)}; known: {', '.join(OPTIONS)}"
            )
        paths = json.loads(given["paths"]) if "paths" in given else []
        paths += [given["path"]] if "path" in given else []
        if not paths:
            raise BadArgument(f"{source}: no path; write .load(PATH), or .option('path', PATH)")
        said = f"{source}, option"
        zone = given.get("timeZone") or "UTC"
        check_time_zone(zone, f"{said} timeZone")
        copies = given.get("copies") or "refuse"
        check_copies(copies, f"{said} copies")
        pattern = given.get("principalPattern") or ""
        try:
            Principals(pattern)
        except ConfigError as exc:
            raise BadArgument(f"{source}: option {worded(str(exc), camel=True)}") from None
        return cls(
            tuple(paths),
            _read(given, said, "brokerId", int, None),
            given.get("brokerIdPattern"),
            zone,
            _read(given, said, "defaultPartitions", int, None) or 1,
            copies,
            _read(given, said, "numPartitions", int, 0),
            _read(given, said, "since", moment_ms, -math.inf),
            _read(given, said, "until", moment_ms, math.inf),
            checked_mode(given.get("mode") or PERMISSIVE, f"{said} mode"),
            given.get("columnNameOfCorruptRecord") or None,
            _read(given, said, "maxFilesPerTrigger", int, None),
            pattern,
        )

    def task(self, columns: tuple[str, ...], corrupt: str | None) -> RequestRows:
        """Return what reads pieces: the columns wanted, and the one for lines that can't be."""
        read = ReadOptions(
            (),
            self.time_zone,
            default_partitions=self.default_partitions,
            principal_pattern=self.principal_pattern,
        )
        return RequestRows(read, self.mode, corrupt, columns, self.since_ms, self.until_ms)


def _read(
    given: Mapping[str, str], said: str, name: str, read: Callable[[str], T], otherwise: U
) -> T | U:
    """Return an option that ``read`` (``int`` or ``moment_ms``) makes a value of."""
    text = given.get(name)
    if text is None:
        return otherwise
    try:
        return read(text)
    except ValueError:
        wanted = "a whole number" if read is int else "a moment; write 2026-11-01T06:30:00Z"
        raise BadArgument(f"{said} {name}: {text!r} isn't {wanted}") from None


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
    """Request logs, usage journals, and tables written from them: REQUESTS, one row per charge."""

    kinds: tuple[str, ...] = ()
    """Kinds of pieces that are read; (): all."""

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return NAME

    def schema(self) -> StructType:
        """
        Return REQUESTS with its moments, and the column for lines that can't be read.

        Raises:
            BadArgument: an option makes no sense.
        """
        return timed_struct(self._options().corrupt)

    def reader(self, schema: StructType) -> RequestLogReader:
        """Return what reads the files that are there."""
        return RequestLogReader(self._options(), schema, self.name(), self.kinds)

    def streamReader(self, schema: StructType) -> RequestLogStream:
        """
        Return what reads files that grow.

        Raises:
            ConfigError: this Spark's streams can't be told where to go on.
        """
        refuse(f"readStream.format({self.name()!r})", installed() or "", BOUNDED_STREAM)
        return RequestLogStream(self._options(), schema, self.name(), self.kinds)

    def _options(self) -> LogOptions:
        return LogOptions.of(self.options, self.name())


class HeadgateJournal(KafkaRequestLog):
    """Usage journals of gateways: REQUESTS, one row per charge."""

    kinds = ("journal",)

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return JOURNAL


def _columns(struct: StructType, options: LogOptions, source: str) -> tuple[Any, str | None]:
    """Return the columns wanted, and the name of the one for lines that can't be read."""
    corrupt = options.corrupt
    if corrupt is None and CORRUPT in struct.fieldNames():
        corrupt = CORRUPT  # a schema that has the column asks for it, as with Spark's sources
    return known_columns(struct, corrupt, source), corrupt


def _only(pieces: Sequence[FilePiece], kinds: tuple[str, ...], source: str) -> None:
    """
    Refuse files of other kinds than a source reads.

    Raises:
        BadArgument: names the first.
    """
    others = [piece.path for piece in pieces if kinds and piece.kind not in kinds]
    if others:
        raise BadArgument(f"{source}: {others[0]} isn't a journal; read it by format {NAME}")


class RequestLogReader(DataSourceReader):
    """
    Reads the files that are there.

    It doesn't implement ``pushFilters``. Spark 4.2.0 keeps the plan that it made with one query's
    filters, and uses it again for the next query of the same frame without filters: rows are
    missing, without an error. The options ``since`` and ``until`` filter by time instead.

    Args:
        options: what to read, and how.
        struct: the columns wanted, of REQUESTS with its moments.
        source: the data source's name.
        kinds: of pieces that it reads; (): all.
    """

    def __init__(
        self,
        options: LogOptions,
        struct: StructType,
        source: str = NAME,
        kinds: tuple[str, ...] = (),
    ) -> None:
        self._options = options
        self._source = source
        self._kinds = kinds
        self._task = options.task(*_columns(struct, options, source))

    def partitions(self) -> list[Pieces]:
        """Divide the files into as many tasks as suit the cores."""
        on = self._options
        try:
            pieces = pieces_of(
                find_files(on.paths),
                broker_id=on.broker_id,
                broker_id_pattern=on.broker_id_pattern,
                copies=on.copies,
            )
        except ConfigError as exc:
            raise BadArgument([worded(p, camel=True) for p in exc.problems]) from exc
        _only(pieces, self._kinds, self._source)
        tasks = on.tasks or tasks_for(pieces, os.cpu_count() or 1)
        return [Pieces(pieces[n::tasks]) for n in range(min(tasks, len(pieces)))] or [Pieces(())]

    def read(self, partition: Pieces) -> Iterator[Any]:
        """Yield Arrow batches."""
        yield from self._task.read(partition.pieces)


class RequestLogStream(DataSourceStreamReader):
    """
    Reads files that grow, every line once (``library.stream``).

    Args:
        options: what to follow, and how.
        struct: the columns wanted, of REQUESTS with its moments.
        source: the data source's name.
        kinds: of pieces that it reads; (): all.
    """

    def __init__(
        self,
        options: LogOptions,
        struct: StructType,
        source: str = NAME,
        kinds: tuple[str, ...] = (),
    ) -> None:
        self._options = options
        self._source = source
        self._kinds = kinds
        self._task = options.task(*_columns(struct, options, source))

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a stream that has read nothing."""
        return {"round": 0, "read": "[]", "pieces": "[]", "places": "{}"}

    def getDefaultReadLimit(self) -> Any:
        """Return how many files a batch reads at most."""
        # Spark 4.2 and newer ask; older ones have no such limits, and their streams are refused.
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        most = self._options.most_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

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
        _only(found.pieces, self._kinds, self._source)
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
            yield from self._task.read([piece])
            check_still_there(piece, place)
