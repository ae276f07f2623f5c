"""
Rows of requests as workers read them from files: REQUESTS with its moments, and no other columns.

Lines that can't be read are counted and named on the worker's standard error; what else becomes of
them says ``mode``, as with Spark's own sources.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import BadArgument, ConfigError
from headgate.pipeline import schema
from headgate.pipeline.library.arguments import worded
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.workers.emit import EmitRequests, own_pieces
from headgate.pipeline.workers.log_reader import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PERMISSIVE: Final = "PERMISSIVE"
DROPMALFORMED: Final = "DROPMALFORMED"
FAILFAST: Final = "FAILFAST"
MODES: Final = (PERMISSIVE, DROPMALFORMED, FAILFAST)
CORRUPT: Final = "_corrupt_record"
"""Spark's own name for the column of lines that can't be read."""
_MOST_FILES: Final = 20
"""Files whose bad lines a task names, at most."""
_log: Final = logging.getLogger("headgate")


class MalformedLine(ValueError):
    """A line couldn't be read, and mode FAILFAST stops there; the text says where and why."""


def timed_struct(corrupt: str | None) -> StructType:
    """Return REQUESTS with its moments, and with the column of lines that can't be read."""
    from pyspark.sql import types

    struct = types.StructType(list(schema.REQUESTS.timed.struct.fields))
    if corrupt:
        doc = {"comment": "the beginning of a line that couldn't be read; null for others"}
        struct.fields.append(types.StructField(corrupt, types.StringType(), True, doc))
        struct.names.append(corrupt)
    return struct


@dataclass(frozen=True)
class RequestRows:
    """
    Read pieces: a ``mapInArrow`` function over the numbers of pieces.

    Args:
        options: what to read, and how.
        mode: PERMISSIVE, DROPMALFORMED or FAILFAST.
        corrupt: name of the column for lines that can't be read; None: such a line has no row.
        columns: those wanted, in order; (): all.
        since_ms: only requests charged at that time or later, epoch ms.
        until_ms: only requests charged before.
    """

    options: ReadOptions
    mode: str = PERMISSIVE
    corrupt: str | None = None
    columns: tuple[str, ...] = ()
    since_ms: float = -math.inf
    until_ms: float = math.inf

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the pieces numbered in ``batches``."""
        return self.read(own_pieces(self.options, batches))

    def read(self, pieces: Iterable[FilePiece]) -> Iterator[Any]:
        """
        Yield the rows in some pieces as Arrow batches.

        Raises:
            MalformedLine: the mode is FAILFAST, and a line can't be read.
        """
        bad = _BadLines()
        for batch in EmitRequests(self.options).read(pieces):
            malformed = batch.filter(pc.equal(batch["kind"], "bad"))
            if malformed.num_rows:
                bad.add(malformed)
                if self.mode == FAILFAST:
                    raise MalformedLine(f"{bad.first}; mode FAILFAST stops there")
                if self.mode == PERMISSIVE and self.corrupt:
                    yield self._of_lines(malformed)
            rows = batch.filter(pc.equal(batch["kind"], "request")).select(schema.REQUESTS.names)
            if math.isfinite(self.since_ms):
                rows = rows.filter(pc.greater_equal(rows["record_ms"], self.since_ms))
            if math.isfinite(self.until_ms):
                rows = rows.filter(pc.less(rows["record_ms"], self.until_ms))
            if rows.num_rows:
                yield self._finished(rows, pa.nulls(rows.num_rows, pa.string()))
        bad.tell()

    def _of_lines(self, malformed: Any) -> Any:
        """Return lines that couldn't be read as rows; in place of damage stands what it is."""
        n = malformed.num_rows
        rows = schema.REQUESTS.batch(
            n,
            {
                "file": malformed["file"],
                "seq": malformed["offset"],
                "event": pa.repeat("malformed", n),
                "is_charged": pa.repeat(False, n),
                "is_request": pa.repeat(False, n),
            },
        )
        line = malformed["line"]
        empty = pc.equal(pc.fill_null(line, ""), "")
        return self._finished(rows, pc.if_else(empty, malformed["reason"], line))

    def _finished(self, rows: Any, line: Any) -> Any:
        rows = schema.REQUESTS.with_moments(rows)
        if self.corrupt:
            rows = pa.RecordBatch.from_arrays(
                [*rows.columns, line], names=[*rows.schema.names, self.corrupt]
            )
        return rows.select(list(self.columns)) if self.columns else rows


class _BadLines:
    """
    What a task couldn't read, by file.

    Attributes:
        first: where the first one is, and why it couldn't be read.
    """

    def __init__(self) -> None:
        self.first = ""
        self._counts: dict[str, list[Any]] = {}
        self._others = 0

    def add(self, rows: Any) -> None:
        """Count bad lines."""
        for row in rows.select(["file", "offset", "reason"]).to_pylist():
            where = f"{row['file']} byte {row['offset']}: {worded(row['reason'])}"
            self.first = self.first or where
            known = self._counts.get(row["file"])
            if known is not None:
                known[0] += 1
            elif len(self._counts) < _MOST_FILES:
                self._counts[row["file"]] = [1, where]
            else:
                self._others += 1

    def tell(self) -> None:
        """Write a line about each file to the worker's standard error."""
        for count, where in self._counts.values():
            lines = "1 line" if count == 1 else f"{count} lines, the first of them"
            _log.warning("headgate: %s couldn't be read: %s", lines, where)
        if self._others:
            _log.warning("headgate: nor could %d lines of further files", self._others)


def known_columns(struct: StructType, corrupt: str | None, source: str) -> tuple[str, ...]:
    """
    Return the names of columns wanted.

    Args:
        struct: the columns wanted.
        corrupt: name of the column for lines that can't be read.
        source: name of the data source.

    Raises:
        ConfigError: there is none of that name and type.
    """
    known = {f.name: f.dataType.simpleString() for f in timed_struct(corrupt)}
    for field in struct.fields:
        if known.get(field.name) != field.dataType.simpleString():
            raise ConfigError(
                f"{source}: it has no column {field.name} of type "
                f"{field.dataType.simpleString()}; leave the schema out, or take of it: "
                f"{', '.join(known)}"
            )
    return tuple(struct.fieldNames())


def checked_mode(given: object, argument: str) -> str:
    """
    Return a mode, in capitals.

    Raises:
        BadArgument: it isn't one.
    """
    mode = given.upper() if isinstance(given, str) else given
    if mode not in MODES:
        raise BadArgument(f"{argument}: {given!r}; give {', '.join(MODES)}")
    assert isinstance(mode, str)
    return mode
