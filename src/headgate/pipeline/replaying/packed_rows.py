"""
Group gathered charges by root, and pack them into bundles: rows of PACKED.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.pipeline import schema
from headgate.pipeline.replaying.charge_index import ChargeIndex
from headgate.pipeline.replaying.packed_format import (
    CARRIED,
    GROUP_COLUMNS,
    LOGGED,
    PACKED,
    PackOptions,
    blobs,
    file_hash,
    heads_schema,
    joined,
)
from headgate.pipeline.table import stream_of

# Columns of requests that bundles carry; what the bundle or its heads hold is left out.
SENT: Final = tuple(
    n
    for n in schema.REQUESTS.names
    if n not in ("principal", "client_id", "quota_type", "broker_id")
)
MOST_NAMES: Final = 64
# This many first events tell apart pieces of a file that begin at the same moment.
_BEGINNING: Final = 100


@dataclass(frozen=True)
class Gathered:
    """
    Charges of one table, in arrays; ``op`` is None if all are plain records, ``pos`` if time is the
    order.
    """

    charge: Any
    t: Any
    amount: Any
    op: Any
    pos: Any
    files: Any
    rows: Any


def packed_rows_of(
    index: ChargeIndex, gathered: list[Gathered], sums: Any, options: PackOptions
) -> Any:
    """
    Return the PACKED rows of some pieces of files.

    Args:
        index: of the pieces' charges.
        gathered: the charges of each piece.
        sums: the LOGGED columns by charge; unused if the bundles carry whole requests.
        options: what to pack.
    """
    from headgate.kernel import grouping

    charge, t, amount = (_whole(gathered, name) for name in ("charge", "t", "amount"))
    op, pos = _optional(gathered, "op", np.uint8), None
    if any(p.pos is not None for p in gathered):
        pos = np.concatenate([p.t if p.pos is None else p.pos for p in gathered])
    start, root = np.frombuffer(index.start, np.int64), np.frombuffer(index.root, np.int64)
    # Entries (who is charged under which root) that occur, by bundle and root.
    occurs = np.bincount(charge, minlength=len(index)) > 0
    entries = np.flatnonzero(occurs[np.frombuffer(index.charge, np.int64)])
    bundle = np.frombuffer(index.bundle, np.int64)
    entries = entries[np.lexsort((root[entries], bundle[root[entries]]))]
    is_new = np.diff(root[entries], prepend=-1) != 0
    group_of = np.zeros(len(root), np.int64)
    group_of[entries] = np.cumsum(is_new) - 1
    counts, order, entry = grouping.grouped(charge, start, group_of, int(is_new.sum()))
    t, t_from = _narrowed(t)
    by = grouping.taken(t if pos is None else pos, order)
    if not grouping.in_order(by, counts):
        again = grouping.sorted_within(by, counts)
        order, entry, by = order[again], entry[again], by[again]
    # Where bundles begin, in entries and in events.
    bundle_of_entry = bundle[root[entries]]
    entry_starts = np.flatnonzero(np.diff(bundle_of_entry, prepend=-1))
    entry_ends = np.append(entry_starts[1:], len(entries))
    first_groups = group_of[entries[entry_starts]]
    starts = (np.cumsum(counts) - counts)[first_groups]
    ends = np.append(starts[1:], len(order))
    if grouping.fits_uint32(amount):
        amount = amount.astype(np.uint32)
    bundles = list(index.bundles)
    keys = [bundles[b] for b in bundle_of_entry[entry_starts].tolist()]
    count = len(keys)
    first = np.minimum.reduceat(by, starts).astype(np.int64)
    pos_from = t_from if pos is None else 0
    times = by if pos is None else grouping.taken(t, order)
    stamps = [_steps(times[a:b]) for a, b in zip(starts, ends, strict=True)]
    out: dict[str, Any] = {
        "kind": ["chunk"] * count,
        "key": list(map(str, keys)),
        "first": first + pos_from,
        "last": np.maximum.reduceat(by, starts).astype(np.int64) + pos_from,
        "since": np.full(count, int(first.min()) + pos_from),
        "tie": [_tie(gathered)] * count,
        "n": ends - starts,
        "t_from": [t_from + since for since, _ in stamps],
        "t": [blob for _, blob in stamps],
        "amount": _narrow(grouping.taken(amount, order), starts, ends),
    }
    out |= _heads(index, entries, entry, sums, options, entry_starts, entry_ends)
    for name in GROUP_COLUMNS:
        out[name] = [getattr(key.kind, name) for key in keys]
    if op is not None:
        out["op"] = blobs(grouping.taken(op, order), starts, ends)
    if pos is not None:
        out["pos"] = blobs(by, starts, ends)
    if len(entries) > len(counts):
        head = np.zeros(len(root), np.uint32)
        head[entries] = np.arange(len(entries)) - np.repeat(entry_starts, entry_ends - entry_starts)
        # Where each root has one head, the number of the root's events says whose they are.
        several = entry_ends - entry_starts > np.diff(np.append(first_groups, len(counts)))
        each = _narrow(grouping.taken(head, entry), starts, ends)
        out["head"] = [blob if more else None for blob, more in zip(each, several, strict=True)]
    if options.rows:
        rows = _sent([p.rows for p in gathered]).take(pa.array(order))
        out["rows"] = [serialize(rows.slice(a, b - a)) for a, b in zip(starts, ends, strict=True)]
    return PACKED.batch(count, out)


def _sent(parts: list[Any]) -> Any:
    """
    Return requests without columns of REQUESTS that are all null; columns of few names as
    dictionaries.
    """
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    held = [n for n in rows.column_names if n.startswith(CARRIED) or rows[n].null_count < len(rows)]
    rows = rows.select(held)
    for at, field in enumerate(rows.schema):
        column = joined(rows[field.name])
        # Each bundle carries its columns' dictionaries whole.
        if pa.types.is_dictionary(field.type) and len(column.dictionary) > MOST_NAMES:
            rows = rows.set_column(at, field.name, column.cast(field.type.value_type))
    return rows


def _whole(gathered: list[Gathered], name: str) -> Any:
    parts = [getattr(p, name) for p in gathered]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _optional(gathered: list[Gathered], name: str, dtype: Any) -> Any:
    """Return an array of all pieces, zero where a piece has none; None where none has."""
    if all(getattr(p, name) is None for p in gathered):
        return None
    parts = [(getattr(p, name), len(p.t)) for p in gathered]
    return np.concatenate([np.zeros(n, dtype) if a is None else a for a, n in parts])


def _narrowed(t: Any) -> tuple[Any, int]:
    """Return times after a start, and the start: uint32 after the earliest, or int64 after 0."""
    t_from = int(t.min())
    if int(t.max()) - t_from < 1 << 32:
        return (t - t_from).astype(np.uint32), t_from
    return t, 0


def _steps(t: Any) -> tuple[int, bytes]:
    """
    Return a bundle's first time, and each as ms since the one before; if one is large: 0, times.
    """
    first = int(t[0])
    if t.dtype == np.uint32 and bool((t[1:] >= t[:-1]).all()):
        steps = np.diff(t, prepend=t[:1])
        most = int(steps.max())
        if most < 1 << 16:
            return first, steps.astype(np.uint8 if most < 1 << 8 else np.uint16).tobytes()
    return 0, t.tobytes()


def _narrow(values: Any, starts: Any, ends: Any) -> list[bytes]:
    """Divide an array into one binary per bundle; uint32 becomes uint16 where all values fit."""
    out = []
    for a, b in zip(starts, ends, strict=True):
        part = values[a:b]
        if part.dtype == np.uint32 and int(part.max()) < 1 << 16:
            part = part.astype(np.uint16)
        out.append(part.tobytes())
    return out


def _tie(gathered: list[Gathered]) -> int:
    """Return a number made of file name and first events: the same whatever the plans."""
    first = gathered[0]
    name = (first.files[0].as_py() if first.files is not None else "") or ""
    return file_hash(name, first.t[:_BEGINNING].tobytes() + first.amount[:_BEGINNING].tobytes())


def _heads(
    index: ChargeIndex,
    entries: Any,
    entry: Any,
    sums: Any,
    options: PackOptions,
    starts: Any,
    ends: Any,
) -> dict[str, Any]:
    """
    Return the heads of each bundle, and their terms.

    Args:
        index: of the entries.
        entries: those that occur, by bundle and root.
        entry: of each event.
        sums: the LOGGED columns by charge; unused if the bundles carry whole requests.
        options: what to pack.
        starts: where each bundle begins in ``entries``.
        ends: where it ends.
    """
    columns = index.columns()
    charge = np.frombuffer(index.charge, np.int64)[entries]
    terms = np.frombuffer(index.terms, np.int64)[entries]
    logged = np.zeros((len(entries), len(LOGGED)), np.int64) if options.rows else sums[charge]
    of_root = pa.array(np.frombuffer(index.root, np.int64)[entries])
    of_charge = pa.array(charge)
    numbers = np.empty(len(entries), np.int32)
    written = []
    for a, b in zip(starts, ends, strict=True):
        mine, numbers[a:b] = np.unique(terms[a:b], return_inverse=True)
        written.append(columns.limits[mine].tobytes() + columns.layers[mine].tobytes())
    arrays = [
        columns.quota_user.take(of_root),
        columns.quota_client_id.take(of_root),
        columns.principal.take(of_charge),
        columns.client_id.take(of_charge),
        pa.array(np.bincount(entry, minlength=len(index.root))[entries]),
        pa.array(numbers),
        pa.FixedSizeListArray.from_arrays(pa.array(logged.reshape(-1)), len(LOGGED)),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=heads_schema())
    parts = [batch.slice(a, b - a) for a, b in zip(starts, ends, strict=True)]
    return {"heads": [part.serialize().to_pybytes() for part in parts], "terms": written}


def serialize(table: Any) -> bytes:
    """Return a table as an Arrow stream of one compressed batch."""
    return stream_of(table.combine_chunks())
