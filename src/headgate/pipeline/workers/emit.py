"""
Functions for Spark's Python workers: read pieces of logs or a topic's messages, return few rows.

Two ways out of the same parse: ``EmitRequests`` and ``RequestsOfMessages`` give a row per request.
``EmitActivity`` and ``ActivityOfMessages`` add up by second before anything enters the JVM, which
is most of what makes ``usage`` cheap. All hand bad lines and counts over as rows of their own
``kind``. Everything here is importable and picklable.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headgate.pipeline.emitted import EMITTED_ACTIVITY, EMITTED_REQUESTS, Columns, client_ip
from headgate.pipeline.logs.joining import Joiner
from headgate.pipeline.logs.line_parser import BadLine, LineParser, LogRow
from headgate.pipeline.logs.line_sums import Sums
from headgate.pipeline.logs.time_stamps import sniff_nanos, zone_of
from headgate.pipeline.sources.journal import (
    activity_batches,
    request_batches,
    requests_of_events,
    starts_in,
    sums_of_events,
    sums_of_rows,
)
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.sources.row_groups import read_table
from headgate.pipeline.table import make_table
from headgate.pipeline.workers.log_reader import ActivityOfLogs, ReadOptions, RequestsOfLogs


def own_pieces(options: ReadOptions, batches: Iterator[Any]) -> Iterator[FilePiece]:
    """Yield the pieces whose numbers Spark handed over (column ``id``)."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield options.pieces[number]


@dataclass(frozen=True)
class EmitRequests:
    """Hand over a row per request (``EMITTED_REQUESTS``). A ``mapInArrow`` function."""

    options: ReadOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the pieces numbered in ``batches``."""
        yield from self.read(own_pieces(self.options, batches))

    def read(self, pieces: Iterable[FilePiece]) -> Iterator[Any]:
        """Read some pieces."""
        logs = RequestsOfLogs(self.options)
        for piece in pieces:
            if piece.kind == "journal":
                yield from request_batches(piece)
            elif piece.kind == "requests":
                yield from read_table(piece)
            else:
                yield from logs.read(piece)


@dataclass(frozen=True)
class EmitActivity:
    """Hand over sums by second (``EMITTED_ACTIVITY``). A ``mapInArrow`` function."""

    options: ReadOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the pieces numbered in ``batches``; sums go on over the pieces of a task."""
        return self.read(own_pieces(self.options, batches))

    def read(self, pieces: Iterable[FilePiece]) -> Iterator[Any]:
        """Read some pieces."""
        logs = ActivityOfLogs(self.options)
        for piece in pieces:
            if piece.kind == "journal":
                yield from activity_batches(piece, connections=self.options.connections)
            elif piece.kind == "requests":
                for batch in read_table(piece):
                    _add_rows(batch, logs.sums, logs.side)
                    yield from sums_of_rows(batch)
            else:
                yield from logs.add(piece)
        yield from logs.take()


def _add_rows(batch: Any, sums: Sums, side: Columns) -> None:
    """Add up rows of a table; those of a journal have their own way of counting."""
    for row in batch.to_pylist():
        if row["kind"] == "stat":
            side.add(**{n: row[n] for n in ("kind", "file", "lines", "input_bytes")})
        elif row["source"] != "journal":
            values = {n: row[n] for n in LogRow._fields}
            sums.add(row["broker_id"], LogRow(**values))


def refuse_again(key: Hashable, seen: set[Any]) -> None:
    """
    Keep a key that rows begin with; refuse one whose rows came before those of another.

    Raises:
        RuntimeError: an engine didn't bring the key's rows together, and sums would be wrong.
    """
    if key in seen:
        raise RuntimeError(f"rows of {key} came again after those of others")
    seen.add(key)


# An Arrow IPC stream begins with its continuation mark; no log line does.
_ARROW: Final = b"\xff\xff\xff\xff"
# A line's number within its message, in the low bits of what it is ordered by.
_LINE_BITS: Final = 20

STARTS: Final = make_table(
    "starts",
    "One row per start event of a journal.",
    ("worker_id", "string", "whose journal it is"),
    ("broker_id", "int", "broker"),
    ("seq", "long", "the event's number"),
    ("t_ms", "long", "when it was, epoch ms"),
)


class Start(NamedTuple):
    """A row of STARTS."""

    worker_id: str
    broker_id: int
    seq: int
    t_ms: int


@dataclass(frozen=True)
class LineOptions:
    """
    How log lines in messages are read.

    Args:
        time_zone: of lines that print none.
        broker_id: that wrote them; None = unknown.
        default_partitions: the cluster's ``num.partitions``.
        principal_pattern: where a user's name is in a principal.
    """

    time_zone: str = "UTC"
    broker_id: int | None = None
    default_partitions: int = 1
    principal_pattern: str = ""


class _Message(NamedTuple):
    """A message: its topic partition and offset; a journal's bytes, or its numbered log lines."""

    where: str
    offset: int
    journal: bytes | None
    rows: list[tuple[int, LogRow]]


class _MessageReader:
    """Reads messages; one parser reads all lines of a topic's partition."""

    def __init__(self, lines: LineOptions) -> None:
        self._lines = lines
        self._zone = zone_of(lines.time_zone)
        self._parsers: dict[str, LineParser] = {}

    def read(self, batch: Any, bad: Columns) -> Iterator[_Message]:
        """Yield the messages of a batch (topic, partition, offset, value); ``bad`` gets lines."""
        for topic, partition, offset, value in zip(
            *(batch.column(i).to_pylist() for i in range(4)), strict=True
        ):
            where = f"{topic}-{partition}"
            if value is None:
                continue
            if value.startswith(_ARROW):
                yield _Message(where, offset, value, [])
            else:
                yield _Message(where, offset, None, list(self._rows(where, offset, value, bad)))

    def _rows(
        self, where: str, offset: int, value: bytes, bad: Columns
    ) -> Iterator[tuple[int, LogRow]]:
        parser = self._parsers.get(where)
        if parser is None:
            parser = self._parsers[where] = LineParser(
                self._zone,
                nanos=sniff_nanos(value[:65536]),
                default_partitions=self._lines.default_partitions,
                principal_pattern=self._lines.principal_pattern,
            )
        joiner = Joiner(parser)
        lines = enumerate(value.split(b"\n"))
        read = (each for at, line in lines if line for each in joiner.take(at, line))
        for number, (_, row, line) in enumerate(itertools.chain(read, joiner.end())):
            if isinstance(row, BadLine):
                bad.add_bad(where, offset, str(row), line)
            else:
                yield number, row


@dataclass(frozen=True)
class ActivityOfMessages:
    """Sum messages up: a topic's messages in, EMITTED_ACTIVITY out. A ``mapInArrow`` function."""

    lines: LineOptions = LineOptions()
    connections: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read log lines, or a journal's batches, from message values."""
        reader = _MessageReader(self.lines)
        sums = Sums(connections=self.connections)
        for batch in batches:
            side = Columns(EMITTED_ACTIVITY)
            for message in reader.read(batch, side):
                if message.journal is not None:
                    yield from sums_of_events(
                        message.journal, message.where, connections=self.connections
                    )
                for _, row in message.rows:
                    sums.add(self.lines.broker_id, row)
            yield from sums.take()
            if len(side):
                yield side.take()


@dataclass(frozen=True)
class RequestsOfMessages:
    """
    Hand over a row per request: a topic's messages in, EMITTED_REQUESTS out.

    A ``mapInArrow`` function.

    Args:
        lines: how log lines are read.
        starts: journals' start events, these messages' too.
    """

    lines: LineOptions = LineOptions()
    starts: tuple[Start, ...] = ()

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read log lines, or a journal's batches, from message values."""
        reader = _MessageReader(self.lines)
        constant = {"kind": "request", "broker_id": self.lines.broker_id}
        constant |= {"source": "log", "is_request": True}
        for batch in batches:
            rows = Columns(EMITTED_REQUESTS)
            for message in reader.read(batch, rows):
                if message.journal is not None:
                    yield from requests_of_events(message.journal, message.where, self._before)
                for number, row in message.rows:
                    # Lines of a message stay in order.
                    at = {"file": message.where, "seq": (message.offset << _LINE_BITS) + number}
                    ip = client_ip(row.connection)
                    rows.add(**row._asdict(), **constant, **at, client_ip=ip)
            if len(rows):
                yield rows.take()

    def _before(self, worker: str, seq: int) -> dict[int, tuple[int, int]]:
        """
        Return, by broker, the last start event of a worker before an event number: (seq, epoch ms).
        """
        mine = sorted((s, b, t) for w, b, s, t in self.starts if w == worker and s < seq)
        return {broker: (start, t_ms) for start, broker, t_ms in mine}


def starts_of_messages(batches: Iterator[Any]) -> Iterator[Any]:
    """Find start events in messages: a topic's messages in, STARTS out. For ``mapInArrow``."""
    for batch in batches:
        values = batch.column("value").to_pylist()
        found = [
            dict(zip(STARTS.names, start, strict=True))
            for value in values
            if value is not None and value.startswith(_ARROW)
            for start in starts_in(value)
        ]
        yield pa.RecordBatch.from_pylist(found, schema=STARTS.arrow)
