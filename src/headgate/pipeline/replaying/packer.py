"""
Pack charges into few rows before the shuffle: a row per bundle of quota-ids, its events in blobs.

A row per event through Spark's sort costs more than parsing and replaying it. So the worker that
read a piece groups its events by quota-id (one counting sort of codes) and hands over
a row for some hundred groups: times and amounts as binary columns, and, where rows are wanted
back, the whole requests as an Arrow batch. Spark moves and sorts only these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.pipeline import schema
from headgate.pipeline.replaying.arrays import array_of, file_hash, is_in, joined, valid
from headgate.pipeline.replaying.charge_index import MAX_KNOWN, index_of
from headgate.pipeline.replaying.charges import opened, ops_and_amounts, replayable, told_ms_of
from headgate.pipeline.replaying.packed_format import CARRIED, LOGGED, PACKED, PackOptions
from headgate.pipeline.replaying.packed_rows import SENT, Gathered, packed_rows_of, serialize
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.sources.row_groups import read_row_group, stat_of
from headgate.pipeline.table import gathered
from headgate.pipeline.workers.emit import EmitRequests, own_pieces
from headgate.pipeline.workers.log_reader import ReadOptions

# Events gathered before they're grouped, so that small groups of neighbouring pieces join: about
# 40 bytes each; and bytes of the requests themselves, where these are kept. Each group costs as
# much as some hundred events: who is charged there, by name.
GATHER_EVENTS: Final = 3_000_000
GATHER_BYTES: Final = 64 << 20
# Rows of a table that are gathered at a time where the requests are kept.
_ROWS_AT_A_TIME: Final = 200_000
# A parser's batches are small, and each one looked at costs 2 ms: this many rows go together.
TOGETHER: Final = 30_000
# Rows of one hand-over that can't be replayed.
MAX_PLAIN: Final = 100_000
# What packing needs of a table ``requests`` when no rows are wanted back.
NEEDED: Final = (
    "record_ms",
    "broker_id",
    "principal",
    "client_id",
    "bytes_charged",
    "bytes_exact",
    "throttle_time_ms",
    "quota_type",
    "amount",
    "is_charged",
    "is_request",
    "decided_throttle_time_ms",
    "source",
    "event",
    "file",
    "recorded",
)
_SIDE: Final = ("kind", "file", "offset", "reason", "line", "lines", "input_bytes")


@dataclass(frozen=True)
class PackLogs:
    """Read pieces and pack them in one pass. A ``mapInArrow`` function giving PACKED."""

    read: ReadOptions
    options: PackOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read and pack the pieces numbered in ``batches``."""
        own = list(own_pieces(self.read, batches))
        if any(s.kind != "requests" for s in own):
            return PackRequests(self.options)(EmitRequests(self.read).read(own))
        return self._tables(own)

    def _tables(self, pieces: list[FilePiece]) -> Iterator[Any]:
        """Pack row groups of tables ``requests`` as they are, dictionaries and all."""
        packer = Packer(self.options)
        needed = schema.REQUESTS.names if self.options.rows else NEEDED
        for piece in pieces:
            table = read_row_group(piece, needed)
            yield from packer.add(table)
            yield stat_of(PACKED, piece, table)
        yield from packer.flush()


@dataclass(frozen=True)
class PackRequests:
    """Pack EMITTED_REQUESTS (or REQUESTS). A ``mapInArrow`` function giving PACKED."""

    options: PackOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Pack the rows of ``batches``."""
        packer = Packer(self.options)
        for table in gathered(batches, TOGETHER):
            yield from packer.add(table)
        yield from packer.flush()


class Packer:
    """
    Gathers charges, and groups them by sensor.

    Args:
        options: what to pack.
    """

    def __init__(self, options: PackOptions) -> None:
        self.options = options
        self._index = index_of(options)
        self._gathered: list[Gathered] = []
        self._count = 0
        self._sums = np.empty((0, len(LOGGED)), np.int64)
        self._bytes = 0
        self._step = min(_ROWS_AT_A_TIME, GATHER_EVENTS) if options.rows else GATHER_EVENTS

    def add(self, table: Any) -> Iterator[Any]:
        """Take a table of EMITTED_REQUESTS, or of REQUESTS' columns; yield what's complete."""
        if "kind" in table.schema.names:
            is_row = is_in(table["kind"], ("request",))
            if not is_row.all():
                yield from _side(table.filter(pa.array(~is_row)))
                table = table.filter(pa.array(is_row))
        if not table.num_rows:
            return
        table = opened(table)
        can = replayable(table, own=self.options.own)
        if not can.all():
            if self.options.rows:
                yield from _plain(table.filter(pa.array(~can)))
            table = table.filter(pa.array(can))
        if not table.num_rows:
            return
        if self._count + table.num_rows > GATHER_EVENTS:
            yield from self.flush()
        # A table larger than that (one row group, as somebody wrote it) goes part by part.
        for at in range(0, table.num_rows, self._step):
            self._gather(table.slice(at, self._step))
            if self._count >= GATHER_EVENTS or self._bytes >= GATHER_BYTES:
                yield from self.flush()

    def _gather(self, table: Any) -> None:
        from headgate.kernel.grouping import add_up, no_sums

        charge = self._index.charges_of(table)
        # Kafka's clock has whole ms; the nearest is what a log's estimate says.
        t = np.floor(array_of(table["record_ms"]) + 0.5).astype(np.int64)
        op, amount = ops_and_amounts(table)
        names, pos = table.schema.names, None
        if self.options.own and "own_user" in names:
            own = valid(table["own_user"])
            if own.any():
                pos = np.where(own, array_of(table["seq"], 0), t)
        if not self.options.rows:
            if len(self._sums) < len(self._index):
                more = no_sums(len(self._index) - len(self._sums))
                self._sums = np.concatenate([self._sums, more])
            bytes_ = array_of(table["bytes_charged"], 0).astype(np.int64, copy=False)
            told = told_ms_of(table)
            ones = array_of(table["is_request"], True) if "is_request" in names else None
            if ones is not None:
                ones = None if ones.all() else ones.astype(np.bool_)
            add_up(self._sums, charge, t, bytes_, told if told.any() else None, ones)
        files = joined(table["file"]) if "file" in names else None
        rows = table.select(_carried(names, SENT)) if self.options.rows else None
        self._gathered.append(Gathered(charge, t, amount, op, pos, files, rows))
        self._count += table.num_rows
        self._bytes += rows.nbytes if rows is not None else 0

    def flush(self) -> Iterator[Any]:
        """Yield a row per bundle of what was gathered."""
        if not self._count:
            return
        gathered, sums, index = self._gathered, self._sums, self._index
        self._gathered, self._count, self._bytes = [], 0, 0
        self._sums = np.empty((0, len(LOGGED)), np.int64)
        yield packed_rows_of(index, gathered, sums, self.options)
        if len(index) > MAX_KNOWN:
            self._index = index_of(self.options)


def _carried(have: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return which of some columns a table has, and its columns that aren't of REQUESTS."""
    return [n for n in names if n in have] + [n for n in have if n.startswith(CARRIED)]


def _side(table: Any) -> Iterator[Any]:
    """Hand bad lines and counts on."""
    yield PACKED.batch(len(table), {name: table[name] for name in _SIDE})


def _plain(table: Any) -> Iterator[Any]:
    """Hand over rows that can't be replayed."""
    for at in range(0, table.num_rows, MAX_PLAIN):
        part = table.slice(at, MAX_PLAIN)
        file = part["file"][0].as_py() if "file" in part.schema.names else ""
        row = {
            "kind": "plain",
            "key": f"{at}",
            "n": part.num_rows,
            "first": 0,
            "tie": file_hash(file or ""),
            "rows": serialize(part.select(_carried(part.schema.names, schema.REQUESTS.names))),
        }
        yield PACKED.batch(1, {name: [value] for name, value in row.items()})
