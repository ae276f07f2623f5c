"""
Read the lines of logs: scanned in machine code where that pays, one by one where it doesn't.

The scan takes the lines whose shape it knows; all others go to ``line_parser.LineParser``, so
the outcome is the same whichever way a line goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from headgate.pipeline.emitted import (
    EMITTED_ACTIVITY,
    EMITTED_REQUESTS,
    Columns,
    activity_batch,
    client_ip,
)
from headgate.pipeline.logs.joining import Joiner, Read
from headgate.pipeline.logs.line_parser import BadLine, LineParser, LogRow
from headgate.pipeline.logs.line_sums import MAX_KEYS, Sums
from headgate.pipeline.logs.principals import Principals
from headgate.pipeline.logs.time_stamps import zone_of
from headgate.pipeline.logs.topics import TopicParser, TopicRow
from headgate.pipeline.sources.chunks import read_chunks
from headgate.pipeline.sources.compressed import Damaged
from headgate.pipeline.sources.heads import HEAD_BYTES, shifts_from
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.table import as_array

if TYPE_CHECKING:
    from headgate.pipeline.logs.scan.scanner import LineScanner

# Read one by one before the scan's machine code is loaded: a small log is done by then.
SCAN_AFTER_BYTES: Final = 8 << 20


_CHANGED: Final = (
    "clocks changed in this compressed file: the wrapper's zone at its beginning counts for all of "
    "it, so lines behind the change are off by as much; decompress it to have them right"
)


@dataclass(frozen=True)
class ReadOptions:
    """
    What all workers need to know: the pieces, the zone, and what to hand over.

    ``scan`` says whether lines are scanned in machine code; None = once there are enough of them.
    ``default_partitions`` is the cluster's ``num.partitions``, where a line doesn't tell.
    ``principal_pattern`` says where a user's name is in a principal (``logs.principals``).
    ``topics`` fills column ``bytes_by_topic`` of requests, for which no line is scanned.
    """

    pieces: tuple[FilePiece, ...]
    time_zone: str = "UTC"
    connections: bool = False
    scan: bool | None = None
    default_partitions: int = 1
    principal_pattern: str = ""
    topics: bool = False

    def parser_of(self, piece: FilePiece) -> LineParser:
        """Return what parses the lines of a piece."""
        return (TopicParser if self.topics else LineParser)(
            zone_of(self.time_zone),
            nanos=piece.nanos,
            file=piece.path,
            default_partitions=self.default_partitions,
            shifts_ms=piece.shifts_ms,
            principal_pattern=self.principal_pattern,
            columns=piece.columns,
        )


class _Process:
    """Bytes that this process has parsed line by line, and whether it has loaded the scan."""

    unscanned = 0
    loaded = False
    # By time zone, what a task has left for the next: memory that's there, names that are known.
    spare: ClassVar[dict[str, LineScanner]] = {}


def preload() -> None:
    """Load the scan's machine code (compile it, the first time), so that it's used at once."""
    from headgate.pipeline.logs.scan.scanner import LineScanner

    LineScanner(UTC)
    _Process.loaded = True


class LogReader:
    """
    Reads log pieces, one after another.

    Args:
        options: how to read.
        side: gets bad lines and counts.
        connections: scan connections as well.

    Attributes:
        scanner: None until it's needed.
    """

    def __init__(self, options: ReadOptions, side: Columns, *, connections: bool) -> None:
        self._options = options
        self._side = side
        self._connections = connections
        self._zone = zone_of(options.time_zone)
        self._principals = Principals(options.principal_pattern)
        self.scanner: LineScanner | None = None
        self._extra = 0  # requests of the piece under way beyond one a line; a blank line has none

    def read(self, piece: FilePiece) -> Iterator[tuple[int, int, list[tuple[int, LogRow]]]]:
        """
        Read a piece, some thousand lines at a time.

        Yields:
            (byte offset of what the scanner counts from; lines it has just taken, -1 where it asks
            for ``forget``; (byte offset, row) of others). The next overwrites what it took.

        Raises:
            ReadError: the file couldn't be read.
        """
        if piece.unread:
            self._side.add_bad(piece.path, 0, f"the file isn't read: {piece.unread}", b"")
            self._side.add_stat(piece.path, 1, 0)
            return
        parser = self._options.parser_of(piece)
        joiner = Joiner(parser, is_document=piece.is_document)
        lines = size = base = 0
        last = b""
        self._extra = 0
        try:
            for base, text, end in read_chunks(piece):
                scanner = None if piece.is_document else self._scanner(end)
                if scanner is None:
                    each = text[: end - 1].tobytes().split(b"\n")
                    lines += len(each) - each.count(b"")
                    yield base, 0, self._rows_of(piece, base, each, joiner)
                else:
                    for taken, given, n in scanner.scan(text, end, parser.stamps):
                        lines += n
                        rows: list[tuple[int, LogRow]] = []
                        for start, stop in given:
                            line = text[start:stop].tobytes()
                            rows += self._rows_of(piece, base + start, [line], joiner)
                        yield base, taken if n else -1, rows
                size += end
                if piece.compression and piece.shifts_ms:
                    last = text[max(end - HEAD_BYTES, 0) : end].tobytes()
        except Damaged as exc:
            yield base, 0, self._settled(piece, joiner.end())
            # What came before it counts.
            self._side.add_bad(piece.path, size, f"the file can't be read further: {exc}", b"")
            lines += 1  # its rest, whatever it holds
        else:
            yield base, 0, self._settled(piece, joiner.end())
        if last and len(shifts_from(piece.shifts_ms, last)) > 1:
            self._side.add_bad(piece.path, size, _CHANGED, b"")
            lines += 1
        # Every line counted is a request's or a bad one, but for those of spaces, parts of a
        # request that has several, and what wraps requests.
        self._side.add_stat(piece.path, lines + self._extra, size)

    def _rows_of(
        self, piece: FilePiece, offset: int, lines: list[bytes], joiner: Joiner
    ) -> list[tuple[int, LogRow]]:
        """Return the rows of lines; keep bad ones aside."""
        rows: list[tuple[int, LogRow]] = []
        for line in lines:
            if line:
                self._extra -= 1
                rows += self._settled(piece, joiner.take(offset, line))
            offset += len(line) + 1
        return rows

    def _settled(self, piece: FilePiece, read: Iterable[Read]) -> list[tuple[int, LogRow]]:
        """Return the rows among what was read; keep bad lines aside."""
        rows: list[tuple[int, LogRow]] = []
        for offset, row, line in read:
            self._extra += 1
            if isinstance(row, BadLine):
                self._side.add_bad(piece.path, offset, str(row), line)
            else:
                rows.append((offset, row))
        return rows

    def _scanner(self, size: int) -> LineScanner | None:
        """Return what scans a chunk of ``size`` bytes; None: parse it line by line."""
        if self.scanner is None and self._options.scan is not False and not self._options.topics:
            _Process.unscanned += size
            enough = _Process.loaded or _Process.unscanned > SCAN_AFTER_BYTES
            if self._options.scan or enough:
                from headgate.pipeline.logs.scan.scanner import LineScanner

                spare = _Process.spare.pop(self._options.time_zone, None)
                self.scanner = spare or LineScanner(self._zone)
                self.scanner.wants_connections(self._connections)
                self.scanner.principals = self._principals
        return self.scanner

    def close(self) -> None:
        """Leave the scanner to the next reader; its sums must have been taken."""
        if self.scanner is not None:
            _Process.spare = {self._options.time_zone: self.scanner}
            self.scanner = None


class ActivityOfLogs:
    """Adds log pieces up by second; ``sums`` and ``side`` take rows from elsewhere, too."""

    def __init__(self, options: ReadOptions) -> None:
        self.side = Columns(EMITTED_ACTIVITY)
        self.sums = Sums(connections=options.connections)
        self._connections = options.connections
        self._reader = LogReader(options, self.side, connections=options.connections)

    def add(self, piece: FilePiece) -> Iterator[Any]:
        """Add a piece; yield what grew too large to keep."""
        broker = None if piece.broker_id < 0 else piece.broker_id
        for _, taken, rows in self._reader.read(piece):
            for _, row in rows:
                self.sums.add(broker, row)
            scanner = self._reader.scanner
            if scanner is not None:
                if taken > 0:
                    self._add_scanned(scanner, taken, piece.broker_id)
                if taken < 0 or scanner.sums.is_full:
                    yield from self._take_scanned()
                if taken < 0:
                    scanner.forget()
            if len(self.sums) > MAX_KEYS:
                yield from self.sums.take()

    def _add_scanned(self, scanner: LineScanner, taken: int, broker: int) -> None:
        scanner.sums.add(taken, broker)
        if self._connections:
            for listener, connection, first_ms in scanner.first_seen(taken):
                self.sums.see(None if broker < 0 else broker, listener, connection, first_ms)

    def _take_scanned(self) -> Iterator[Any]:
        scanner = self._reader.scanner
        if scanner is not None and scanner.sums:
            n, columns = len(scanner.sums), scanner.sums.take()
            yield activity_batch("activity", n, columns)

    def take(self) -> Iterator[Any]:
        """Yield all that is kept."""
        yield from self._take_scanned()
        self._reader.close()
        yield from self.sums.take()
        if len(self.side):
            yield self.side.take()


class RequestsOfLogs:
    """Makes a row of each request in log pieces."""

    def __init__(self, options: ReadOptions) -> None:
        self._side = Columns(EMITTED_REQUESTS)
        self._reader = LogReader(options, self._side, connections=True)

    def read(self, piece: FilePiece) -> Iterator[Any]:
        """Yield batches of ``EMITTED_REQUESTS``, in the order of lines."""
        for base, taken, rows in self._reader.read(piece):
            scanner = self._reader.scanner
            if taken < 0 and scanner is not None:
                scanner.forget()
            n = max(taken, 0) + len(rows)
            if not n:
                continue
            columns = _columns_of(rows)
            if taken > 0:
                assert scanner is not None
                columns = _in_line_order(scanner.columns(taken, base), columns)
            yield _request_batch(piece, n, columns)
        yield self._side.take()


def _columns_of(rows: list[tuple[int, LogRow]]) -> dict[str, Any]:
    if not rows:
        return {name: [] for name in ("seq", "client_ip", *LogRow._fields)}
    columns: dict[str, Any] = dict(
        zip(LogRow._fields, zip(*(row for _, row in rows), strict=True), strict=True)
    )
    columns["client_ip"] = [client_ip(c) for c in columns["connection"]]
    if isinstance(rows[0][1], TopicRow):
        columns["bytes_by_topic"] = [getattr(row, "bytes_by_topic", None) for _, row in rows]
    return {"seq": [offset for offset, _ in rows], **columns}


def _in_line_order(scanned: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return two sets of columns as one, in the order of lines."""
    if not others["seq"]:
        return scanned
    joined = {
        name: pa.concat_arrays([as_array(scanned[name], k), as_array(others[name], k)])
        for name, k in ((n, EMITTED_REQUESTS.arrow.field(n).type) for n in scanned)
    }
    order = pa.array(np.argsort(joined["seq"].to_numpy(), kind="stable"))
    return {name: column.take(order) for name, column in joined.items()}


def _request_batch(piece: FilePiece, n: int, columns: dict[str, Any]) -> Any:
    """Return rows of one file as an Arrow batch of ``EMITTED_REQUESTS``."""
    constants = {"source": "log", "is_request": True, "file": piece.path, "kind": "request"}
    if piece.broker_id >= 0:
        constants["broker_id"] = piece.broker_id
    return EMITTED_REQUESTS.batch(
        n, columns | {name: pa.repeat(value, n) for name, value in constants.items()}
    )
