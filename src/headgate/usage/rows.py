"""
Events packed into memory as they come, and made into Arrow columns many at a time.

An event is 80 bytes: the place of its ``Origin`` in a list, and nine numbers. Packing them costs
the event loop no more than making a tuple would, and leaves no objects to the garbage collector. A
column is every tenth number. One thread appends; another may make batches of what is there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.usage.format import ORIGIN_COLUMNS, SCHEMA, WORD_INDEX, WORDS, Origin
from headgate.usage.packing import NOTHING, PACK, ROW

NAN: Final = float("nan")
MALFORMED: Final = (struct.error, TypeError, ValueError, OverflowError, AttributeError)
"""What packing a malformed event raises, or making columns of it."""

_FLOATS: Final = {"t_ms": 1, "amount": 2, "bound": 3, "handler_ms": 8}
_WHOLE: Final = {
    "throttle_time_ms": 4,
    "told_throttle_time_ms": 5,
    "upstream_throttle_time_ms": 6,
    "bytes": 7,
    "producer_ids": 9,
}
_PLACES: Final = ROW // 8
MOST_NAMED: Final = 1 << 22
"""Characters of the names in some rows, or in a batch of them: a client-id has 32,767 at most."""
_COUNTING: Final = pa.array(range(4_096), pa.int64())


class Rows:
    """
    Some events, packed.

    Args:
        room: how many events fit.
        gap: events that were dropped before the first one.

    Attributes:
        buffer: the memory.
        at: bytes of it that hold events; only the appending thread moves it.
        end: an event that would begin here or later goes to other rows.
        token: marks the origins that have their place in these rows.
        done: events already written; only the writing thread moves it.
        named: characters in its origins' names.
        longest: the same of the one with the most.
    """

    __slots__ = ("at", "buffer", "done", "end", "gap", "longest", "named", "origins", "token")

    def __init__(self, room: int, gap: int = 0) -> None:
        self.buffer = bytearray(room * ROW)
        self.at = 0
        self.end = room * ROW
        self.gap = gap
        self.token = object()
        self.origins: list[Origin] = []
        self.done = self.named = self.longest = 0

    @property
    def count(self) -> int:
        """How many events there are."""
        return self.at // ROW

    def enter(self, origin: Origin) -> None:
        """Give an origin its place in these rows."""
        origin.index = len(self.origins)
        self.origins.append(origin)
        origin.token = self.token
        named = len(origin.client_id or "") + len(origin.quota_id or "")
        self.longest = max(self.longest, named)
        self.named += named
        if self.named > MOST_NAMED:
            self.end = 0  # the next event goes to other rows

    def append(self, event: tuple[Any, ...]) -> None:
        """
        Take one event; there must be room.

        Args:
            event: a tuple as ``format.Event``.

        Raises:
            MALFORMED: the event isn't of that form.
        """
        origin, t_ms, amount, bound, ms, told, upstream, size, handler_ms, ids = event
        if origin.token is not self.token:
            self.enter(origin)
        at = self.at
        PACK(
            self.buffer,
            at,
            origin.index,
            t_ms,
            NAN if amount is None else amount,
            NAN if bound is None else bound,
            NOTHING if ms is None else ms,
            NOTHING if told is None else told,
            NOTHING if upstream is None else upstream,
            NOTHING if size is None else size,
            NAN if handler_ms is None else handler_ms,
            NOTHING if ids is None else ids,
        )
        self.at = at + ROW

    def batch(self, first: int, last: int, worker_id: str, first_seq: int) -> pa.RecordBatch:
        """
        Turn events into one batch.

        Args:
            first: place of the first one.
            last: place after the last one.
            worker_id: whose they are.
            first_seq: the first one's number; the others follow.

        Returns:
            A batch of ``SCHEMA``.
        """
        numbers = memoryview(self.buffer)[first * ROW : last * ROW].cast("q")
        count = last - first
        indices, origins = self._origins(_column(numbers, 0, pa.int64(), count))
        arrays: dict[str, pa.Array] = {
            "seq": pc.add(_counting(count), first_seq),
            "worker_id": pa.repeat(pa.scalar(worker_id, pa.string()), count),
        }
        for name in ORIGIN_COLUMNS:
            shared: list[Any] = list(map(attrgetter(name), origins))
            words, kind = WORD_INDEX.get(name), SCHEMA.field(name).type
            if words is not None:
                shared = [None if w is None else words[w] for w in shared]
                kind = pa.int8()
            if shared.count(shared[0]) == len(shared):
                column = pa.repeat(pa.scalar(shared[0], kind), count)
            else:
                column = pa.array(shared, kind).take(indices)
            if words is not None:
                # The same words in the same order in every batch: a file holds one dictionary.
                column = pa.DictionaryArray.from_arrays(column, pa.array(WORDS[name], pa.string()))
            arrays[name] = column
        for name, place in _FLOATS.items():
            column = _column(numbers, place, pa.float64(), count)
            arrays[name] = column if name == "t_ms" else _with_nulls(column, pc.is_nan(column))
        for name, place in _WHOLE.items():
            column = _column(numbers, place, pa.int64(), count)
            column = _with_nulls(column, pc.equal(column, NOTHING))
            arrays[name] = column.cast(SCHEMA.field(name).type)
        return pa.RecordBatch.from_arrays([arrays[name] for name in SCHEMA.names], schema=SCHEMA)

    def _origins(self, indices: pa.Array) -> tuple[pa.Array, list[Origin]]:
        """Return the place of each event's origin, and the origins in these places."""
        used = indices.unique()
        if len(used) * 2 > len(self.origins):
            return indices, self.origins
        return pc.index_in(indices, used), [self.origins[n] for n in used.to_pylist()]


def _counting(count: int) -> pa.Array:
    """Return 0, 1, 2 …"""
    if count <= len(_COUNTING):
        return _COUNTING.slice(0, count)
    return pa.array(range(count), pa.int64())


def _column(numbers: memoryview, place: int, kind: pa.DataType, count: int) -> pa.Array:
    """Return every tenth number."""
    raw = pa.py_buffer(numbers[place::_PLACES].tobytes())
    return pa.Array.from_buffers(kind, count, [None, raw])


def _with_nulls(column: pa.Array, null: pa.Array) -> pa.Array:
    if not null.true_count:
        return column
    valid = pc.invert(null).buffers()[1]
    return pa.Array.from_buffers(column.type, len(column), [valid, column.buffers()[1]])


def batch_of(events: Sequence[tuple[Any, ...]], worker_id: str, first_seq: int) -> pa.RecordBatch:
    """
    Turn events into one batch.

    Args:
        events: tuples as ``Event``, in order; not empty.
        worker_id: whose they are.
        first_seq: the first one's number; the others follow.

    Returns:
        A batch of ``SCHEMA``.
    """
    rows = Rows(len(events))
    for event in events:
        rows.append(event)
    return rows.batch(0, len(events), worker_id, first_seq)
