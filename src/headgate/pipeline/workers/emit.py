"""
Functions for Spark's Python workers: read a piece of a log, parse it, and return few rows.

Two ways out of the same parse. ``EmitRequests`` gives a row per request. ``EmitActivity`` adds up
by second before anything enters the JVM, which is most of what makes ``usage`` cheap. Both hand
bad lines and counts over as rows of their own ``kind``. Everything here is importable and
picklable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headgate.pipeline.emitted import Columns
from headgate.pipeline.logs.line_parser import LogRow
from headgate.pipeline.logs.line_sums import Sums
from headgate.pipeline.sources.journal import activity_batches, request_batches, sums_of_rows
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.sources.row_groups import read_table
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
