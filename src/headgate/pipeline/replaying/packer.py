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
import pyarrow.compute as pc

from headgate.pipeline import schema
from headgate.pipeline.replaying.charge_index import MAX_KNOWN, leave_index, take_index
from headgate.pipeline.replaying.packed_format import (
    CARRIED,
    LOGGED,
    PACKED,
    PackOptions,
    array_of,
    file_hash,
    is_in,
    joined,
    valid,
)
from headgate.pipeline.replaying.packed_rows import SENT, Gathered, packed_rows_of, serialize
from headgate.pipeline.schema import EVENTS, RECORDED
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.sources.row_groups import read_row_group, stat_of
from headgate.pipeline.table import gathered
from headgate.pipeline.workers.emit import EmitRequests, own_pieces
from headgate.pipeline.workers.log_reader import ReadOptions

# Quota types whose decisions a log holds enough for: thread time, what a mutation is made of and
# which producer ids are new aren't logged. A journal knows all, and how each sensor decided.
REPLAYABLE_LOG: Final = ("producer_byte_rate", "consumer_byte_rate")
# Types of a journal's charges that other limits can be tried on. Charges to splits and shares
# aren't among them: those limits depend on many brokers' use.
REPLAYABLE_JOURNAL: Final = (
    *REPLAYABLE_LOG,
    "request_percentage",
    "controller_mutation_rate",
    "producer_ids_rate",
)


# Fields of column ``recorded``, and what they are called beside the columns of REQUESTS.
_INSIDE: Final = {
    name: {"quota_user": "own_user", "quota_client_id": "own_client_id", "quota": "own_quota"}.get(
        name, name
    )
    for name in RECORDED.names
}


def opened(table: Any) -> Any:
    """
    Return a table of REQUESTS' columns with the fields of ``recorded`` as columns of their own.

    Nothing but REQUESTS' columns is taken (and ``kind``, of EMITTED_REQUESTS' rows).

    Args:
        table: EMITTED_REQUESTS, or REQUESTS, some of whose columns may be absent.
    """
    if "recorded" not in table.schema.names:
        return table
    recorded = joined(table["recorded"])
    if recorded.null_count < len(recorded):
        for name, field in zip(recorded.type.names, recorded.flatten(), strict=True):
            table = table.append_column(_INSIDE[name], field)
    return table


def replayable(table: Any, *, own: bool = True) -> Any:
    """
    Say which charges a sensor is fed with, as a NumPy array.

    Args:
        table: as ``opened`` gives it.
        own: under a journal's own limits; else under others.
    """
    charged = array_of(table["is_charged"], False).astype(np.bool_, copy=False)
    of_log = is_in(table["quota_type"], REPLAYABLE_LOG)
    journal = is_in(table["source"], ("journal",))
    if not journal.any():
        return charged & of_log
    moves = _moves(table, own=own)
    # That a limit moved is nobody's charge, and yet the sensor has to know.
    mine = np.where(is_in(table["event"], EVENTS), moves, charged & _of_journal(table, own=own))
    return np.where(journal, mine, charged & of_log)


def _moves(table: Any, *, own: bool) -> Any:
    """Say which rows tell that a journal's own limit changed: no charge to another limit."""
    if not own or "own_user" not in table.schema.names:
        return np.zeros(table.num_rows, np.bool_)
    return is_in(table["event"], ("bound",)) & valid(table["own_user"])


def _of_journal(table: Any, *, own: bool) -> Any:
    """
    Say which of a journal's rows a sensor saw.

    It saw neither requests without a new producer id, nor events that only say what a client was
    told. Where no quota of the type was (``norecord``) there was no sensor, but under other quotas
    there may be one.
    """
    names = table.schema.names
    known = is_in(table["quota_type"], REPLAYABLE_JOURNAL)
    if own and "rule" in names:
        known |= valid(table["rule"])
    said = valid(table["event"]) if "event" in names else np.zeros(table.num_rows, np.bool_)
    if "own_user" in names:
        said |= valid(table["own_user"])
    if "event" in names:
        said &= ~is_in(table["event"], ("norecord", "told") if own else ("told",))
        ids = is_in(table["quota_type"], ("producer_ids_rate",))
        said &= ~(ids & is_in(table["event"], ("record",)) & (array_of(table["amount"], 0.0) == 0))
    return known & said


def emptied(table: Any) -> Any:
    """
    Say which rows are fetches that a broker throttled, as a NumPy array.

    Their size was charged and taken back at once, and isn't logged: the sensor saw two events
    whose sum is nothing, which still open and touch samples.
    """
    exact = array_of(table["bytes_exact"], True).astype(np.bool_, copy=False)
    if exact.all():
        return ~exact
    told = ~exact & (array_of(table["throttle_time_ms"], 0) > 0)
    fetch = is_in(table["quota_type"], ("consumer_byte_rate",))
    return told & fetch & is_in(table["source"], ("log",))


def ops_and_amounts(table: Any) -> tuple[Any, Any]:
    """Return what is done to the sensor, as the kernel's OP_ (None: all recorded), and amounts."""
    from headgate.kernel.codes import OP_NO_CHECK, OP_STRICT, OP_UNRECORD

    names = table.schema.names
    amount = array_of(table["amount"]).astype(np.float64, copy=False)
    op: Any = None
    if "op" in names and table["op"].null_count < table.num_rows:
        op = array_of(table["op"], 0).astype(np.uint8)
        op = op if op.any() else None
    elif "event" in names and table["event"].null_count < table.num_rows:
        # A table without a journal's own columns still says what was done.
        op = np.where(is_in(table["event"], ("unrecord",)), OP_UNRECORD, 0)
        op = np.where(is_in(table["event"], ("strict",)), OP_STRICT, op).astype(np.uint8)
    if "asked" in names and table["asked"].null_count < table.num_rows:
        amount = np.where(valid(table["asked"]), array_of(table["asked"], 0.0), amount)
    taken = emptied(table)
    if taken.any():
        op = np.where(taken, OP_NO_CHECK, 0 if op is None else op).astype(np.uint8)
    if op is not None:
        # Requests hold what was taken back as a negative amount, the kernel as an op.
        amount = np.where(op == OP_UNRECORD, -1.0, 1.0) * amount
    return op, amount


def told_ms_of(table: Any) -> Any:
    """Return the throttle time of each charge's own quota, as logged or journalled."""
    name = "decided_throttle_time_ms"
    if name not in table.schema.names or table[name].null_count == table.num_rows:
        return array_of(table["throttle_time_ms"], 0).astype(np.int64, copy=False)
    told = pc.coalesce(table[name], table["throttle_time_ms"])
    return array_of(told, 0).astype(np.int64)


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
        yield from packer.end()


@dataclass(frozen=True)
class PackRequests:
    """Pack EMITTED_REQUESTS (or REQUESTS). A ``mapInArrow`` function giving PACKED."""

    options: PackOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Pack the rows of ``batches``."""
        packer = Packer(self.options)
        for table in gathered(batches, TOGETHER):
            yield from packer.add(table)
        yield from packer.end()


class Packer:
    """
    Gathers charges, and groups them by sensor.

    Args:
        options: what to pack.
    """

    def __init__(self, options: PackOptions) -> None:
        self.options = options
        self._index = take_index(options)
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
            self._index = take_index(self.options)

    def end(self) -> Iterator[Any]:
        """Yield a row per bundle of what is left; nothing is added any more."""
        yield from self.flush()
        leave_index(self._index)


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
