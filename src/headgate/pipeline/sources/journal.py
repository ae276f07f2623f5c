"""
Read a gateway's usage journal as requests, with what an identical replay needs.

A journal's event is one charge to one quota type, so one request may give several rows; only its
own charge counts as a request (``is_request``). Limits, tags and windows are the journal's own:
they are in column ``recorded``. Changed limits, accepted connections and producer ids that were
given out are rows too, which charge nobody (``schema.EVENTS``).
A worker that starts again begins with empty sensors: rows carry the generation (the number of the
start event before them), so that a replay does as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.kernel.codes import OP_BOUND, OP_NO_CHECK, OP_RECORD, OP_STRICT, OP_UNRECORD
from headgate.pipeline.emitted import (
    EMITTED_ACTIVITY,
    EMITTED_REQUESTS,
    SAME_SECOND,
    activity_batch,
)
from headgate.pipeline.logs.api_names import api_name
from headgate.pipeline.schema import EVENTS, RECORDED
from headgate.pipeline.sources.journal_files import batches_of, damage_of, note_starts
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.table import as_array
from headgate.quota.entity import quota_id
from headgate.throttle.java import UNLIMITED
from headgate.usage.files import decode

# Requests that are charged to a quota of their own; their request_percentage charge is a second
# row of the same request. Produce, fetch, share fetch, and changes of topics.
_OWN_CHARGE: Final = (0, 1, 78, 19, 20, 37)
_CHARGES: Final = ("record", "norecord", "unrecord", "strict", "told", *EVENTS)
_BYTES: Final = ("producer_byte_rate", "consumer_byte_rate")
# Worker and number of an event to broker -> (seq, epoch ms) of the start events before it.
StartsBefore = Callable[[str, int], dict[int, tuple[int, int]]]


def _read(path: str, batches: int, events: int, size: int) -> list[dict[str, Any]]:
    """Return the rows about a file that was read: its counts, and what is wrong with it."""
    damage = damage_of(path, batches)
    bad = {"kind": "bad", "file": path, "offset": size, "reason": damage, "line": ""}
    stat = {"kind": "stat", "file": path, "lines": events + bool(damage), "input_bytes": size}
    return [bad, stat] if damage else [stat]


def request_batches(piece: FilePiece) -> Iterator[Any]:
    """Yield a journal file as batches of EMITTED_REQUESTS; its counts come last."""
    starts = dict(piece.starts)
    batches = events = size = 0
    for batch in batches_of(piece.path):
        batches += 1
        events += batch.num_rows
        size += batch.nbytes
        table = requests_of(pa.Table.from_batches([batch]), piece.path, starts)
        if table.num_rows:
            yield from table.to_batches()
    said = _read(piece.path, batches, events, size)
    yield pa.RecordBatch.from_pylist(said, schema=EMITTED_REQUESTS.arrow)


def requests_of(events: Any, file: str, starts: dict[int, tuple[int, int]]) -> Any:
    """Return the charges among events, and the rows of ``schema.EVENTS``, as EMITTED_REQUESTS."""
    note_starts(events, starts)
    kind = events["kind"].cast(pa.string())
    # An event without an address says that the listener waited before it accepted a connection.
    waited = pc.and_(pc.equal(kind, "connection"), pc.equal(events["client_ip"], ""))
    wanted = pc.and_(pc.is_in(kind, pa.array(_CHARGES)), pc.invert(pc.fill_null(waited, False)))
    # What only a broker throttles is told under no quota.
    by_broker = pc.equal(events["quota_type"].cast(pa.string()), "")
    wanted = pc.and_(wanted, pc.invert(pc.fill_null(by_broker, False)))
    events = events.filter(wanted)
    n = events.num_rows
    kind = events["kind"].cast(pa.string())
    no_charge = pc.is_in(kind, pa.array(EVENTS))
    amount = pc.fill_null(events["amount"], 0.0)
    is_bound, strict = pc.equal(kind, "bound"), pc.equal(kind, "strict")
    # What was taken back is given as a positive amount, or as a negative one.
    signed = pc.if_else(pc.equal(kind, "unrecord"), pc.negate(pc.abs(amount)), amount)
    # A refused mutation was asked for, not charged.
    refused = pc.and_(strict, pc.greater(pc.fill_null(events["throttle_time_ms"], 0), 0))
    # An answer has the time since its charge there.
    is_told = pc.equal(kind, "told")
    signed = pc.if_else(pc.or_(pc.or_(refused, no_charge), is_told), 0.0, signed)
    since_ms = pc.round(pc.if_else(is_told, events["amount"], None))
    later = _told_later(events, kind)
    told = pc.coalesce(events["told_throttle_time_ms"], events["throttle_time_ms"])
    # A charge without a decision (network thread time) belongs to a request counted before.
    silent = pc.and_(pc.equal(kind, "record"), pc.is_null(events["throttle_time_ms"]))
    in_bytes = pc.and_(
        pc.is_in(events["quota_type"].cast(pa.string()), pa.array(_BYTES)), pc.invert(is_bound)
    )
    is_request = _is_request(events, kind, in_bytes, silent)
    # Without a quota of the type nothing was charged: there's no sensor to replay.
    charged = pc.not_equal(kind, "norecord")
    asked = pc.if_else(is_bound, events["value"], amount)
    recorded = {name: events[name] for name in ("num_samples", "window_ms", "rule")} | {
        "quota_user": pc.if_else(charged, pc.fill_null(events["quota_user"], ""), None),
        "quota_client_id": pc.if_else(charged, pc.fill_null(events["quota_client_id"], ""), None),
        "quota": pc.if_else(is_bound, events["value"], pc.if_else(charged, events["bound"], None)),
        "op": _op(kind, silent),
        "max_throttle_ms": events["max_throttle_ms"],
        "asked": pc.if_else(pc.or_(strict, is_bound), asked, None),
    }
    generations = [
        starts.get(-1 if b is None else b, (0, 0)) for b in events["broker_id"].to_pylist()
    ]
    workers = [
        f"{w}/{g}" for w, (g, _) in zip(events["worker_id"].to_pylist(), generations, strict=True)
    ]
    recorded["start_ms"] = [t for _, t in generations]
    nameless = pc.and_(no_charge, pc.invert(is_bound))
    columns = {name: events[name] for name in _AS_THEY_ARE}
    columns |= {
        "record_ms": pc.subtract(events["t_ms"], pc.fill_null(since_ms, 0.0)),
        "api_name": [api_name(k) for k in events["api_key"].to_pylist()],
        "is_forwarded": pa.repeat(False, n),
        "bytes_charged": pc.if_else(in_bytes, pc.round(signed), 0.0),
        "bytes_exact": pa.repeat(True, n),
        "handler_ms": pc.if_else(is_request, pc.fill_null(events["handler_ms"], 0.0), 0.0),
        "throttle_time_ms": pc.if_else(later, None, pc.fill_null(told, 0)),
        "muted_ms": pc.if_else(later, told, None),
        "answer_ms": since_ms,
        "amount": signed,
        "quota_type": pc.if_else(nameless, None, events["quota_type"].cast(pa.string())),
        "connection": _connections(events, kind),
        "is_charged": pc.invert(no_charge),
        "is_request": is_request,
        "decided_throttle_time_ms": pc.fill_null(events["throttle_time_ms"], 0),
        "source": pa.repeat("journal", n),
        "event": kind,
        "worker_id": workers,
        "file": pa.repeat(file, n),
        "kind": pa.repeat("request", n),
        "recorded": recorded_column(n, recorded, nameless),
    }
    return EMITTED_REQUESTS.table(n, columns)


def recorded_column(n: int, columns: Mapping[str, Any], none: Any) -> Any:
    """
    Return the column ``recorded`` of REQUESTS.

    Args:
        n: how many rows there are.
        columns: of RECORDED; absent ones are null.
        none: for each row, whether nothing is recorded.
    """
    batch = RECORDED.batch(n, columns)
    mask = as_array(none, pa.bool_())
    return pa.StructArray.from_arrays(batch.columns, fields=list(RECORDED.arrow), mask=mask)


def _told_later(events: Any, kind: Any) -> Any:
    """
    Say which charges' clients are told by another event, ``told``.

    A request is charged when it has passed, and told when it is answered. In older journals one
    event says both, and what the broker told.
    """
    return pc.and_(
        pc.is_in(kind, pa.array(["record", "norecord"])),
        pc.and_(
            pc.is_valid(events["told_throttle_time_ms"]),
            pc.is_null(events["upstream_throttle_time_ms"]),
        ),
    )


def _connections(events: Any, kind: Any) -> Any:
    """
    Return each event's connection.

    Charges name a connection by the gateway's own number. An accepted connection has no name yet:
    what identifies its event stands for it.
    """
    accepted = pc.equal(kind, "connection")
    if not pc.any(accepted).as_py():
        return events["connection"]
    parts = (events["worker_id"], events["seq"], pc.cast(events["t_ms"], pa.int64(), safe=False))
    name = pc.binary_join_element_wise(*(pc.cast(p, pa.string()) for p in parts), " ")
    return pc.if_else(accepted, name, events["connection"])


# Columns of a journal that its requests have, too.
_AS_THEY_ARE: Final = (
    "broker_id",
    "listener",
    "principal",
    "client_id",
    "api_version",
    "producer_ids",
    "client_ip",
    "seq",
)


def _is_request(events: Any, kind: Any, in_bytes: Any, silent: Any) -> Any:
    """Say which charges count as requests: of those of one request, its own."""
    quota_type = events["quota_type"].cast(pa.string())
    # Charges to limits of other units (bps, shares) and to producer ids are of the same request.
    own = pc.is_in(events["api_key"], pa.array(_OWN_CHARGE, pa.int16()))
    of_time = pc.and_(pc.equal(quota_type, "request_percentage"), pc.invert(own))
    # A request may create many topics; its first one's event has its size.
    of_topics = pc.equal(quota_type, "controller_mutation_rate")
    has_rule = pc.is_valid(events["rule"])
    of_first = pc.and_(of_topics, pc.or_(pc.is_valid(events["bytes"]), pc.invert(has_rule)))
    first = pc.or_(in_bytes, pc.or_(of_time, of_first))
    no_charge = pc.is_in(kind, pa.array(["told", "unrecord", *EVENTS]))
    taken_back = pc.less(pc.fill_null(events["amount"], 0.0), 0.0)
    other = pc.or_(pc.or_(pc.invert(first), no_charge), pc.or_(silent, taken_back))
    return pc.fill_null(pc.invert(other), False)


def _op(kind: Any, silent: Any) -> Any:
    """Return what was done to each charge's sensor, as the kernel's OP_."""
    op = pc.if_else(silent, OP_NO_CHECK, OP_RECORD)
    for name, code in (("unrecord", OP_UNRECORD), ("strict", OP_STRICT), ("bound", OP_BOUND)):
        op = pc.if_else(pc.equal(kind, name), code, op)
    return op


def activity_batches(piece: FilePiece, *, connections: bool) -> Iterator[Any]:
    """Yield a journal file's sums by second, and first sights of connections if wanted."""
    starts = dict(piece.starts)
    batches = events = size = 0
    parts: list[Any] = []
    seen: dict[tuple[Any, ...], float] = {}
    for batch in batches_of(piece.path):
        batches += 1
        events += batch.num_rows
        size += batch.nbytes
        parts += _activity(batch, piece.path, starts, seen if connections else None)
    rows = _sights(seen)
    rows += _read(piece.path, batches, events, size)
    yield from parts
    yield pa.RecordBatch.from_pylist(rows, schema=EMITTED_ACTIVITY.arrow)


def sums_of_events(raw: bytes, file: str, *, connections: bool = False) -> Iterator[Any]:
    """Yield what one message of a journal's topic holds, as :func:`activity_batches` does."""
    seen: dict[tuple[Any, ...], float] = {}
    for batch in decode(raw):
        yield from _activity(batch, file, {}, seen if connections else None)
    if seen:
        yield pa.RecordBatch.from_pylist(_sights(seen), schema=EMITTED_ACTIVITY.arrow)


def _activity(
    batch: Any,
    file: str,
    starts: dict[int, tuple[int, int]],
    seen: dict[tuple[Any, ...], float] | None,
) -> Iterator[Any]:
    """Yield some events' sums by second; ``seen``, if wanted, gets the connections accepted."""
    requests = requests_of(pa.Table.from_batches([batch]), file, starts)
    if seen is not None:
        _see(requests, seen)
    yield _sums(requests)


def requests_of_events(raw: bytes, file: str, starts: StartsBefore) -> Iterator[Any]:
    """
    Yield what one message of a journal's topic holds, as :func:`request_batches` does.

    Args:
        raw: the message.
        file: what it is from.
        starts: gives broker -> (seq, epoch ms) of the start events of a worker before a number.
    """
    for batch in decode(raw):
        if batch.num_rows:
            before = starts(batch["worker_id"][0].as_py(), batch["seq"][0].as_py())
            table = requests_of(pa.Table.from_batches([batch]), file, before)
            yield from table.to_batches()


def starts_in(raw: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Yield (worker, broker, seq, epoch ms) of the start events of one message."""
    for batch in decode(raw):
        starts: dict[int, tuple[int, int]] = {}
        note_starts(batch, starts)
        for broker, (seq, t_ms) in starts.items():
            yield batch["worker_id"][0].as_py(), broker, seq, t_ms


def _sights(seen: dict[tuple[Any, ...], float]) -> list[dict[str, Any]]:
    """Return first sights of connections as rows of EMITTED_ACTIVITY."""
    whose = ("broker_id", "listener", "connection", "client_ip")
    return [
        {"kind": "connection", "first_ms": first, **dict(zip(whose, key, strict=True))}
        for key, first in seen.items()
    ]


def sums_of_rows(batch: Any) -> Iterator[Any]:
    """Yield the sums by second of a table's rows that came from a journal: EMITTED_ACTIVITY."""
    table = pa.Table.from_batches([batch])
    mine = table.filter(pc.equal(table["source"], "journal"))
    if mine.num_rows:
        yield _sums(mine)


def counted_ms(requests: Any) -> Any:
    """
    Return the throttle time to count with each row, ms.

    A request's mutations are decided one by one, and its client is told once (event ``told``). So
    is the client of any other request, unless its charge says what it was told.
    """
    one_by_one = pc.and_(
        pc.equal(requests["quota_type"], "controller_mutation_rate"),
        pc.is_in(requests["event"], pa.array(["record", "strict"])),
    )
    later = pc.is_null(requests["throttle_time_ms"])
    return pc.if_else(pc.or_(one_by_one, later), 0, requests["decided_throttle_time_ms"])


def _sums(requests: Any) -> Any:
    """Add EMITTED_REQUESTS of a journal up by second: EMITTED_ACTIVITY."""
    moves = pc.is_in(requests["event"], pa.array(["bound", "connection"]))
    requests = requests.filter(pc.invert(moves))
    told = counted_ms(requests)
    is_time = pc.equal(requests["quota_type"], "request_percentage")
    whole = pc.floor(pc.add(pc.multiply(requests["amount"], 1e7), 0.5)).cast(pa.int64(), safe=False)
    recorded = dict(zip(RECORDED.names, _flat(requests["recorded"]), strict=True))
    limit = recorded["quota"]
    second = pc.multiply(pc.floor(pc.divide(requests["record_ms"], 1000.0)), 1000.0)
    keys = {name: requests[name] for name in SAME_SECOND[:6]} | {
        "second_ms": second.cast(pa.int64()),
        "quota_user": recorded["quota_user"],
        "quota_client_id": recorded["quota_client_id"],
        "quota": pc.if_else(pc.less(limit, UNLIMITED), limit, None),
    }
    counted = {
        "requests": requests["is_request"].cast(pa.int64()),
        "bytes": requests["bytes_charged"],
        "amount": pc.if_else(is_time, 0.0, requests["amount"]),
        "handler_ns": pc.floor(pc.add(pc.multiply(requests["handler_ms"], 1e6), 0.5)).cast(
            pa.int64()
        ),
        "request_ns": pc.if_else(is_time, whole, 0),
        "throttle_time_ms": told,
        "throttled_requests": pc.greater(told, 0).cast(pa.int64()),
        "max_throttle_time_ms": told,
        "producer_ids": requests["producer_ids"].cast(pa.int64()),
    }
    wanted = [(name, "max" if name.startswith("max_") else "sum") for name in counted]
    grouped = pa.table(keys | counted).group_by(list(keys)).aggregate(wanted)
    columns = dict(zip((*keys, *counted), grouped.columns, strict=True))
    whose = zip(*(columns[n].to_pylist() for n in ("quota_user", "quota_client_id")), strict=True)
    ids = [None if user is None else quota_id(user, client) for user, client in whose]
    columns["quota_id"] = pa.array(ids, pa.string())
    columns["bytes_estimated"] = pa.repeat(0, len(ids))
    return activity_batch("activity", len(ids), columns)


def _flat(column: Any) -> list[Any]:
    """Return the fields of a struct column; null where the struct is."""
    return as_array(column, column.type).flatten()


def _see(requests: Any, seen: dict[tuple[Any, ...], float]) -> None:
    """
    Remember the connections that were accepted.

    A gateway writes an event for each one as it comes, with its address. Charges name connections
    too, but by the gateway's own number, which would count each twice.
    """
    names = ["broker_id", "listener", "connection", "client_ip", "record_ms"]
    for row in requests.filter(pc.equal(requests["event"], "connection")).select(names).to_pylist():
        *key, first_ms = row.values()
        seen[tuple(key)] = first_ms
