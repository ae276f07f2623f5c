"""
Take sums by second through Spark's shuffle as few blobs instead of many rows, and add them up.

A row costs the JVM more than a log line costs the scan. So a task packs its sums into a blob (an
Arrow stream) per part of the answer, Spark moves only these, and a second pass over a part's blobs
adds them up and hands over the rows of the answer. A part holds some of the seconds, and these
whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.pipeline.emitted import ACTIVITY, EMITTED_ACTIVITY

# What one row of sums is of; a subset of these may be asked for, ``second_ms`` among them.
KEYS: Final = (
    "broker_id",
    "listener",
    "principal",
    "client_id",
    "quota_type",
    "is_charged",
    "second_ms",
    "quota_id",
    "quota_user",
    "quota_client_id",
)
_LARGEST: Final = ("max_throttle_time_ms", "quota")
_SUMS: Final = tuple(n for n in ACTIVITY.names if n not in (*KEYS, *_LARGEST))
# Rows kept before they're packed, about 100 bytes each.
_MOST_ROWS: Final = 1_000_000
# Rows of one hand-over to the JVM.
_BATCH_ROWS: Final = 20_000


def add_up(table: Any, keys: Sequence[str] = KEYS) -> Any:
    """
    Add up rows of ACTIVITY that have the same keys.

    Args:
        table: an Arrow table of ACTIVITY.
        keys: some of KEYS; the others are null in the answer.

    Returns:
        An Arrow table of ACTIVITY.
    """
    import pyarrow as pa

    asked = [(n, "sum") for n in _SUMS] + [(n, "max") for n in _LARGEST]
    sums = table.group_by(list(keys), use_threads=False).aggregate(asked)
    places = {name: sums[name] for name in keys}
    places |= {name: sums[f"{name}_{how}"] for name, how in asked}
    arrays = [
        places[f.name].cast(f.type) if f.name in places else pa.nulls(sums.num_rows, f.type)
        for f in ACTIVITY.arrow
    ]
    return pa.Table.from_arrays(arrays, schema=ACTIVITY.arrow)


def pack(batches: Iterator[Any], parts: int) -> Iterator[Any]:
    """
    Pack the sums among batches of EMITTED_ACTIVITY; rows of other kinds stay as they are.

    Args:
        batches: of EMITTED_ACTIVITY.
        parts: into how many parts the answer is to be divided.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kept: list[Any] = []
    rows = 0
    for batch in batches:
        mine = pc.equal(batch["kind"], "activity")
        sums = batch.filter(mine)
        if sums.num_rows < batch.num_rows:
            yield batch.filter(pc.invert(mine))
        if sums.num_rows:
            kept.append(sums.select(ACTIVITY.names))
            rows += sums.num_rows
        if rows > _MOST_ROWS:
            yield _blobs(pa.Table.from_batches(kept), parts)
            kept, rows = [], 0
    if kept:
        yield _blobs(pa.Table.from_batches(kept), parts)


def _blobs(table: Any, parts: int) -> Any:
    """Return a row per part that has sums."""
    import numpy as np
    import pyarrow as pa

    table = add_up(table)
    part = table["second_ms"].to_numpy() // 1000 % parts
    found = np.unique(part).tolist()
    columns = {
        "kind": pa.array(["packed"] * len(found), pa.string()),
        "part": pa.array(found, pa.int32()),
        "packed": pa.array([_written(table.filter(pa.array(part == p))) for p in found]),
    }
    arrays = [
        columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(found), f.type)
        for f in EMITTED_ACTIVITY.arrow
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EMITTED_ACTIVITY.arrow)


def _written(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


@dataclass(frozen=True)
class Unpack:
    """Add up blobs, part by part; gives ACTIVITY. A ``mapInArrow`` function on (part, packed)."""

    keys: tuple[str, ...] = KEYS

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Unpack the blobs of whole parts, add them up, hand over the rows."""
        import pyarrow as pa

        parts: dict[int, list[Any]] = {}
        for batch in batches:
            for part, blob in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                parts.setdefault(part, []).append(blob)
        while parts:
            _, packed = parts.popitem()
            tables = [pa.ipc.open_stream(blob.as_buffer()).read_all() for blob in packed]
            table = add_up(pa.concat_tables(tables), self.keys)
            yield from table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
