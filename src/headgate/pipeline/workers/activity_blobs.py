"""
Take sums by second through Spark's shuffle as few blobs instead of many rows, and add them up.

A row costs the JVM more than a log line costs the scan. So a task packs its sums into a blob (an
Arrow stream) per part of the answer, Spark moves only these, and a second pass over a part's blobs
adds them up and hands over the rows of the answer. A part holds all sums of some of the seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline.emitted import ACTIVITY, EMITTED_ACTIVITY, SAME_SECOND
from headgate.pipeline.table import Table, stream_of, summed

# The columns that identify a row of sums.
KEYS: Final = (*SAME_SECOND, "quota_id", "quota_user", "quota_client_id")
_LARGEST: Final = ("max_throttle_time_ms", "quota")
# Rows kept before they're packed, about 100 bytes each.
_MOST_ROWS: Final = 1_000_000
# Rows of one hand-over to the JVM.
BATCH_ROWS: Final = 20_000


def add_up(table: Any, out: Table = ACTIVITY) -> Any:
    """
    Add up rows of ACTIVITY that have the same keys.

    Args:
        table: an Arrow table of ACTIVITY.
        out: what is wanted, some of its columns; those in KEYS are summed by.

    Returns:
        An Arrow table of ``out``.
    """
    keys = [n for n in out.names if n in KEYS]
    largest = [n for n in out.names if n in _LARGEST]
    sums = [n for n in out.names if n not in KEYS and n not in _LARGEST]
    return summed(table, keys, sums, largest).select(out.names).cast(out.arrow)


def some_of(columns: Sequence[str]) -> Table:
    """Return ACTIVITY with some of its columns."""
    return Table(
        ACTIVITY.name, ACTIVITY.grain, tuple(c for c in ACTIVITY.columns if c.name in columns)
    )


def pack(batches: Iterator[Any], parts: int) -> Iterator[Any]:
    """
    Pack the sums among batches of EMITTED_ACTIVITY; rows of other kinds stay as they are.

    Args:
        batches: of EMITTED_ACTIVITY.
        parts: into how many parts the answer is to be divided.
    """
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
    if table["second_ms"].num_chunks > 1:  # what comes in one batch has been added up
        table = add_up(table)
    part = table["second_ms"].to_numpy() // 1000 % parts
    found = np.unique(part).tolist()
    columns = {
        "kind": ["packed"] * len(found),
        "part": found,
        "packed": [written(table.filter(pa.array(part == p))) for p in found],
    }
    return EMITTED_ACTIVITY.batch(len(found), columns)


def written(table: Any) -> bytes:
    """Return the columns that hold something as an Arrow stream, made small."""
    held = [n for n in table.column_names if table[n].null_count < len(table)]
    return stream_of(table.select(held))


def _read(tables: Sequence[Any], out: Table) -> Any:
    """Return tables, columns of which may be absent, as one with the columns of ``out``."""
    wanted = [t.select([n for n in out.names if n in t.column_names]) for t in tables]
    return pa.concat_tables([out.arrow.empty_table(), *wanted], promote_options="default")


def by_part(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield the tables that the blobs of each part hold; of batches with (part, packed)."""
    parts: dict[int, list[Any]] = {}
    for batch in batches:
        for part, blob in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            parts.setdefault(part, []).append(blob)
    while parts:
        _, packed = parts.popitem()
        yield [pa.ipc.open_stream(blob.as_buffer()).read_all() for blob in packed]


@dataclass(frozen=True)
class Unpack:
    """
    Add up blobs, part by part. A ``mapInArrow`` function on (part, packed).

    Gives ACTIVITY, or as much of it as ``columns`` names.
    """

    columns: tuple[str, ...] = ACTIVITY.names

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Unpack the blobs of whole parts, add them up, hand over the rows."""
        out = some_of(self.columns)
        for tables in by_part(batches):
            table = add_up(_read(tables, out), out)
            yield from table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
