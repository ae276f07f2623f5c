"""Say which requests a sensor was fed with, and what the log says it decided."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from headgate.pipeline.replaying.arrays import array_of, is_in, joined, valid
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
