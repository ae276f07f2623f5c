"""
Say which rows of requests are charges to a sensor, what is done to it, and how much.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline.schema import EVENTS, RECORDED

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
# Fields of column ``recorded``, and what they are called beside the columns of REQUESTS.
_INSIDE: Final = {
    name: {"quota_user": "own_user", "quota_client_id": "own_client_id", "quota": "own_quota"}.get(
        name, name
    )
    for name in RECORDED.names
}


def with_recorded_columns(table: Any) -> Any:
    """
    Return a table of REQUESTS' columns with the fields of ``recorded`` as columns of their own.

    Nothing but REQUESTS' columns is taken (and ``kind``, of EMITTED_REQUESTS' rows).

    Args:
        table: EMITTED_REQUESTS, or REQUESTS, some of whose columns may be absent.
    """
    if "recorded" not in table.schema.names:
        return table
    recorded = one_chunk(table["recorded"])
    if recorded.null_count < len(recorded):
        for name, field in zip(recorded.type.names, recorded.flatten(), strict=True):
            table = table.append_column(_INSIDE[name], field)
    return table


def replayable(table: Any, *, own: bool = True) -> Any:
    """
    Say which charges a sensor is fed with, as a NumPy array.

    Args:
        table: as ``with_recorded_columns`` gives it.
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


def throttled_fetches(table: Any) -> Any:
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
    taken = throttled_fetches(table)
    if taken.any():
        op = np.where(taken, OP_NO_CHECK, 0 if op is None else op).astype(np.uint8)
    if op is not None:
        # Requests hold what was taken back as a negative amount, the kernel as an op.
        amount = np.where(op == OP_UNRECORD, -1.0, 1.0) * amount
    return op, amount


def recorded_throttle_ms(table: Any) -> Any:
    """Return the throttle time of each charge's own quota, as logged or journalled."""
    name = "decided_throttle_time_ms"
    if name not in table.schema.names or table[name].null_count == table.num_rows:
        return array_of(table["throttle_time_ms"], 0).astype(np.int64, copy=False)
    told = pc.coalesce(table[name], table["throttle_time_ms"])
    return array_of(told, 0).astype(np.int64)


# Whole numbers that span no more than this are their own codes.
_NARROW: Final = 64


def codes_of(column: Any) -> tuple[Any, list[Any]]:
    """Return (code per row, what each code stands for); None is a value like others."""
    column = one_chunk(column)
    if column.null_count == len(column):
        return np.zeros(len(column), np.int32), [None]
    if not column.null_count and pa.types.is_integer(column.type):
        values = column.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < _NARROW:
            return values - low, list(range(low, high + 1))
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    names = column.dictionary.to_pylist()
    if not column.indices.null_count:
        return column.indices.to_numpy(zero_copy_only=False), names
    codes = pc.fill_null(column.indices, len(names)).to_numpy(zero_copy_only=False)
    return codes, [*names, None]


def one_chunk(column: Any) -> Any:
    """Return a column in one piece, with one dictionary."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks()


def is_in(column: Any, values: tuple[str, ...]) -> Any:
    """Say which rows hold one of ``values``, as a NumPy array."""
    codes, names = codes_of(column)
    hits = np.array([name in values for name in names], np.bool_)
    if hits.all() or not hits.any():
        return np.full(len(codes), bool(len(hits) and hits[0]))
    return hits[codes]


def array_of(column: Any, null: Any = None) -> Any:
    """Return a column as a NumPy array; nulls become ``null``."""
    column = one_chunk(column)
    if null is not None and column.null_count == len(column):
        return np.full(len(column), null)
    if null is not None and column.null_count:
        column = pc.fill_null(column, null)
    return column.to_numpy(zero_copy_only=False)


def valid(column: Any) -> Any:
    """Say which rows aren't null, as a NumPy array."""
    return pc.is_valid(one_chunk(column)).to_numpy(zero_copy_only=False)
