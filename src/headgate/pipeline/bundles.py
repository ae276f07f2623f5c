"""
Group gathered charges by sensor, and write them down in bundles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headgate.pipeline.arrays import blobs, file_hash
from headgate.pipeline.packed import LANE, LOGGED, PACKED, PackOptions, heads_schema
from headgate.pipeline.sensors import Book


@dataclass(frozen=True)
class Piece:
    """Charges of one table, in arrays; ``op`` and ``pos`` are None where they'd say nothing."""

    charge: Any
    t: Any
    amount: Any
    op: Any
    pos: Any
    files: Any
    rows: Any


def bundles_of(book: Book, pieces: list[Piece], sums: Any, options: PackOptions) -> Any:
    """
    Return the PACKED rows of some pieces.

    Args:
        book: where their charges are written.
        pieces: what was gathered.
        sums: LOGGED by charge; none where the requests go along.
        options: what to pack.
    """
    import pyarrow as pa

    from headgate.kernel import grouping

    charge, t, amount = (_whole(pieces, name) for name in ("charge", "t", "amount"))
    op, pos = _optional(pieces, "op", np.uint8), None
    if any(p.pos is not None for p in pieces):
        pos = np.concatenate([p.t if p.pos is None else p.pos for p in pieces])
    start, sensor = np.frombuffer(book.start, np.int64), np.frombuffer(book.sensor, np.int64)
    # Entries (who is charged to which sensor) that occur, by bundle and sensor.
    occurs = np.bincount(charge, minlength=len(book)) > 0
    entries = np.flatnonzero(occurs[np.frombuffer(book.charge, np.int64)])
    bundle = np.frombuffer(book.bundle, np.int64)
    entries = entries[np.lexsort((sensor[entries], bundle[sensor[entries]]))]
    is_new = np.diff(sensor[entries], prepend=-1) != 0
    group_of = np.zeros(len(sensor), np.int64)
    group_of[entries] = np.cumsum(is_new) - 1
    groups = int(is_new.sum())
    counts, order, entry = grouping.grouped(charge, start, group_of, groups)
    t, t_from = _narrowed(t)
    by = grouping.taken(t if pos is None else pos, order)
    if not grouping.in_order(by, counts):
        again = grouping.sorted_within(by, counts)
        order, entry, by = order[again], entry[again], by[again]
    # Where bundles begin, in entries and in events.
    bundle_of_entry = bundle[sensor[entries]]
    entry_starts = np.flatnonzero(np.diff(bundle_of_entry, prepend=-1))
    entry_ends = np.append(entry_starts[1:], len(entries))
    ends_by_group = np.cumsum(counts)
    first_groups = group_of[entries[entry_starts]]
    starts = ends_by_group[first_groups] - counts[first_groups]
    ends = np.append(starts[1:], len(order))
    if grouping.fits_uint32(amount):
        amount = amount.astype(np.uint32)
    keys = [book.bundles[b] for b in bundle_of_entry[entry_starts].tolist()]
    count = len(keys)
    pos_from = t_from if pos is None else 0
    out: dict[str, Any] = {
        "kind": ["chunk"] * count,
        "key": list(map(str, keys)),
        "first": np.minimum.reduceat(by, starts).astype(np.int64) + pos_from,
        "last": np.maximum.reduceat(by, starts).astype(np.int64) + pos_from,
        "tie": _ties(pieces, order[starts]),
        "n": ends - starts,
        "t_from": np.full(count, t_from),
        "t": blobs(by if pos is None else grouping.taken(t, order), starts, ends),
        "amount": blobs(grouping.taken(amount, order), starts, ends),
        "heads": _heads(book, entries, entry, sums, options, entry_starts, entry_ends),
    }
    for name in (*LANE, "worker_id"):
        out[name] = [getattr(key, name) for key in keys]
    if op is not None:
        out["op"] = blobs(grouping.taken(op, order), starts, ends)
    if pos is not None:
        out["pos"] = blobs(by, starts, ends)
    if len(entries) > groups:
        head = np.empty(len(sensor), np.uint32)
        head[entries] = np.arange(len(entries)) - np.repeat(entry_starts, entry_ends - entry_starts)
        out["head"] = blobs(grouping.taken(head, entry), starts, ends)
    if options.rows:
        rows = pa.concat_tables([p.rows for p in pieces]).take(pa.array(order))
        out["rows"] = [serialize(rows.slice(a, b - a)) for a, b in zip(starts, ends, strict=True)]
    arrays = [
        _as_array(out[f.name], f.type) if f.name in out else pa.nulls(count, f.type)
        for f in PACKED.arrow
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=PACKED.arrow)


def _whole(pieces: list[Piece], name: str) -> Any:
    parts = [getattr(p, name) for p in pieces]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _optional(pieces: list[Piece], name: str, dtype: Any) -> Any:
    """Return an array of all pieces, zero where a piece has none; None where none has."""
    if all(getattr(p, name) is None for p in pieces):
        return None
    parts = [(getattr(p, name), len(p.t)) for p in pieces]
    return np.concatenate([np.zeros(n, dtype) if a is None else a for a, n in parts])


def _narrowed(t: Any) -> tuple[Any, int]:
    """Return times as uint32 after the first, or, if that's too short, as they are after 0."""
    t_from = int(t.min())
    if int(t.max()) - t_from < 1 << 32:
        return (t - t_from).astype(np.uint32), t_from
    return t, 0


def _ties(pieces: list[Piece], rows: Any) -> list[int]:
    """Return the number of the file that each of some rows is from."""
    ends = np.cumsum([len(p.t) for p in pieces])
    piece_of = np.searchsorted(ends, rows, side="right")
    out = []
    for number, row in zip(piece_of.tolist(), rows.tolist(), strict=True):
        piece = pieces[number]
        at = row - int(ends[number]) + len(piece.t)
        name = piece.files[at].as_py() if piece.files is not None else ""
        out.append(file_hash(name or ""))
    return out


def _heads(
    book: Book,
    entries: Any,
    entry: Any,
    sums: Any,
    options: PackOptions,
    starts: Any,
    ends: Any,
) -> Any:
    """
    Return the heads of each bundle.

    Args:
        book: where entries are written.
        entries: those that occur, by bundle and sensor.
        entry: of each event.
        sums: LOGGED by charge; none where the requests go along.
        options: what to pack.
        starts: where each bundle begins in ``entries``.
        ends: where it ends.
    """
    import pyarrow as pa

    plans = len(options.plans)
    users, clients, principals, client_ids, limits = book.columns()
    charge = np.frombuffer(book.charge, np.int64)[entries]
    of_sensor = pa.array(np.frombuffer(book.sensor, np.int64)[entries])
    of_charge = pa.array(charge)
    logged = np.zeros((len(entries), len(LOGGED)), np.int64) if options.rows else sums[charge]
    arrays = [
        users.take(of_sensor),
        clients.take(of_sensor),
        principals.take(of_charge),
        client_ids.take(of_charge),
        pa.array(np.bincount(entry, minlength=len(book.sensor))[entries]),
        pa.FixedSizeListArray.from_arrays(pa.array(limits[entries].reshape(-1)), plans),
        pa.FixedSizeListArray.from_arrays(pa.array(logged.reshape(-1)), len(LOGGED)),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=heads_schema(plans))
    parts = [batch.slice(a, b - a) for a, b in zip(starts, ends, strict=True)]
    return pa.array([part.serialize().to_pybytes() for part in parts], pa.binary())


def _as_array(values: Any, kind: Any) -> Any:
    import pyarrow as pa

    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def serialize(table: Any) -> bytes:
    """Return a table as an Arrow stream of one compressed batch."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return bytes(sink.getvalue())
