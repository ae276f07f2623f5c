"""
Request logs and usage journals as a data source of Spark's, to be read whole or as a stream.

``spark.read.format("kafka-request-log").load(path)``, and ``select … from`` it in SQL. Workers
parse, drop rows outside of the times asked for, and hand over Arrow batches. Options are those of
``hp.requests``, by Spark's habit in camel case (``OPTIONS``); others are refused. Files are listed
where Spark plans: on the driver, also of a Connect client. ``format("headgate-journal")`` is the
same, and reads journals alone.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headgate.errors import BadArgument, ConfigError
from headgate.pipeline.frames import tasks_for
from headgate.pipeline.library.arguments import check_copies, check_time_zone, worded
from headgate.pipeline.library.rows import (
    CORRUPT,
    PERMISSIVE,
    RequestRows,
    checked_mode,
    known_columns,
    timed_struct,
)
from headgate.pipeline.library.stream import Followed, Pieces, RequestLogStream, only
from headgate.pipeline.logs.principals import Principals
from headgate.pipeline.schema import REQUESTS
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
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
    *("principalPattern", "topics"),
)
"""Options that are taken besides the path."""
_OF_FIELD: Final = "SPARK::metadata::json"
"""Where PySpark (``sql.pandas.types``) and Sail have a field's metadata in an Arrow schema."""


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
        topics: whether column ``bytes_by_topic`` is filled.
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
    topics: bool = False

    @classmethod
    def of(
        cls, given: Mapping[str, str], source: str = NAME, own: Sequence[str] = ()
    ) -> LogOptions:
        """
        Read a data source's options.

        Args:
            given: the options.
            source: the data source's name, for messages.
            own: options that only this source has, in small letters.

        Raises:
            BadArgument: there is no path, an option isn't known, or a value makes no sense.
        """
        known = {name.lower(): name for name in OPTIONS}
        unknown = [name for name in given if name.lower() not in {*known, *own, "path", "paths"}]
        if unknown:
            raise BadArgument(
                f"{source}: there is no option {', '.join(unknown)}; known: {', '.join(OPTIONS)}"
            )
        # Spark looks names up in any case; what Sail gives is a plain dict.
        given = {known.get(name.lower(), name.lower()): value for name, value in given.items()}
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
            _read(given, said, "topics", _is_true, False),
        )

    def task(self, columns: tuple[str, ...], corrupt: str | None) -> RequestRows:
        """Return what reads pieces: the columns wanted, and the one for lines that can't be."""
        columns_and_times = (columns, self.since_ms, self.until_ms)
        return RequestRows(self.read_options, self.mode, corrupt, *columns_and_times)

    @property
    def read_options(self) -> ReadOptions:
        """How lines are read."""
        return ReadOptions(
            (),
            self.time_zone,
            default_partitions=self.default_partitions,
            principal_pattern=self.principal_pattern,
            topics=self.topics,
        )

    def followed(self, source: str, kinds: tuple[str, ...] = ()) -> Followed:
        """
        Return which files a stream follows.

        Args:
            source: the data source's name.
            kinds: of pieces that it reads; (): all.
        """
        return Followed(
            self.paths,
            self.broker_id,
            self.broker_id_pattern,
            self.most_files,
            self.tasks,
            kinds,
            source,
        )


def _read(
    given: Mapping[str, str], said: str, name: str, read: Callable[[str], T], otherwise: U
) -> T | U:
    """Return an option that ``read`` (one of ``_WANTED``) makes a value of."""
    text = given.get(name)
    if text is None:
        return otherwise
    try:
        return read(text)
    except ValueError:
        raise BadArgument(f"{said} {name}: {text!r} isn't {_WANTED[read]}") from None


def _is_true(text: str) -> bool:
    """Read ``true`` or ``false``, in any case."""
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


_WANTED: Final[dict[Any, str]] = {
    int: "a whole number",
    moment_ms: "a moment; write 2026-11-01T06:30:00Z",
    _is_true: "true or false",
}
"""What values an option takes, for messages; by what reads it."""


class ArrowStruct(StructType):
    """
    A row's type that can be asked for its Arrow schema.

    Spark takes a StructType. Sail (0.7.2) makes an Arrow schema of it without a zone, which no
    TIMESTAMP can do without; but first it asks whether the type has an Arrow schema of its own.
    """

    @classmethod
    def typeName(cls) -> str:
        """Return the name that every row's type has."""
        return "struct"

    def __arrow_c_schema__(self) -> Any:
        """Return the Arrow schema; comments stand where PySpark puts them."""
        # Sail compares types with what is read: inside of columns there are no comments.
        kinds = {field.name: field.type for field in REQUESTS.timed.arrow}
        fields = [
            pa.field(
                f.name, kinds.get(f.name, pa.string()), metadata={_OF_FIELD: json.dumps(f.metadata)}
            )
            for f in self.fields
        ]
        return pa.schema(fields).__arrow_c_schema__()


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
        return ArrowStruct(timed_struct(self._options().corrupt).fields)

    def reader(self, schema: StructType) -> RequestLogReader:
        """Return what reads the files that are there."""
        if not isinstance(schema, StructType):  # Sail gives an Arrow schema
            schema = from_arrow_schema(schema)
        return RequestLogReader(self._options(), schema, self.name(), self.kinds)

    def streamReader(self, schema: StructType) -> RequestLogStream:
        """
        Return what reads files that grow.

        Raises:
            ConfigError: this Spark's streams can't be told where to go on.
        """
        refuse(f"readStream.format({self.name()!r})", installed() or "", BOUNDED_STREAM)
        options = self._options()
        task = options.task(*_columns(schema, options, self.name()))
        return RequestLogStream(options.followed(self.name(), self.kinds), task)

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
        only(pieces, self._kinds, self._source)
        tasks = on.tasks or tasks_for(pieces, os.cpu_count() or 1)
        return [Pieces(pieces[n::tasks]) for n in range(min(tasks, len(pieces)))] or [Pieces(())]

    def read(self, partition: Pieces) -> Iterator[Any]:
        """Yield Arrow batches."""
        yield from self._task.read(partition.pieces)
