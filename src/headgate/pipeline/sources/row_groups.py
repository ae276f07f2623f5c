"""
Read tables ``requests`` that were written before, a row group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.pipeline import schema
from headgate.pipeline.emitted import EMITTED_REQUESTS, JOURNAL
from headgate.pipeline.sources.compressed import reading
from headgate.pipeline.sources.files import filesystem
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.table import Table

# What a table holds of a request, and of a journal's own quota if it was kept.
_COLUMNS: Final = (*schema.REQUESTS.names, *(c.name for c in JOURNAL), "kind")
# A table ``replay`` holds a journal's own quota under other names.
_REPLAYED: Final = {
    "quota_user": "own_user",
    "quota_client_id": "own_client_id",
    "quota_bps": "own_quota",
}


def read_row_group(piece: FilePiece, columns: Sequence[str]) -> Any:
    """
    Return one row group of a table ``requests``, its strings as dictionaries.

    Raises:
        ReadError: the file couldn't be read.
    """
    with reading(piece.path):
        return _read_row_group(piece, columns)


def _read_row_group(piece: FilePiece, columns: Sequence[str]) -> Any:
    system, inner = filesystem(piece.path)
    have = pq.read_schema(inner, filesystem=system).names
    texts = [c.name for c in schema.REQUESTS.columns if c.type == "string" and c.name in have]
    names = [n for n in columns if n in have]
    with pq.ParquetFile(inner, filesystem=system, read_dictionary=texts) as file:
        table = file.read_row_group(piece.start, columns=names, use_threads=False)
    for at, field in enumerate(table.schema):
        wanted = EMITTED_REQUESTS.arrow.field(field.name).type
        if wanted != field.type and not pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(wanted))
    return table


def stat_of(of: Table, piece: FilePiece, table: Any) -> Any:
    """Return the count of a table that was read, as a row of another table."""
    stat = {
        "kind": "stat",
        "file": piece.path,
        "lines": table.num_rows,
        "input_bytes": table.nbytes,
    }
    return pa.RecordBatch.from_pylist([stat], schema=of.arrow)


def read_table(piece: FilePiece, *, replayed: bool = False) -> Iterator[Any]:
    """
    Yield one row group of a table ``requests``; its count comes last.

    Args:
        piece: the row group.
        replayed: take the quota of a table ``replay`` for the journal's own; enough to add up, not
            to replay again.
    """
    table = read_row_group(piece, _COLUMNS)
    if replayed and "own_user" not in table.schema.names:
        table = _with_quota(piece, table)
    whole = completed(table)
    arrays = [whole[f.name].cast(f.type) for f in EMITTED_REQUESTS.arrow]
    yield from pa.Table.from_arrays(arrays, schema=EMITTED_REQUESTS.arrow).to_batches()
    yield stat_of(EMITTED_REQUESTS, piece, table)


def _with_quota(piece: FilePiece, table: Any) -> Any:
    """Add what a table ``replay`` says about each row's quota; nothing where it isn't one."""
    system, inner = filesystem(piece.path)
    with pq.ParquetFile(inner, filesystem=system) as file:
        if not set(_REPLAYED) <= set(file.schema_arrow.names):
            return table
        quota = file.read_row_group(piece.start, columns=list(_REPLAYED), use_threads=False)
    for name, own in _REPLAYED.items():
        table = table.append_column(own, quota[name])
    return table


def completed(table: Any) -> Any:
    """Return a frame with EMITTED_REQUESTS' columns; a plain ``requests`` frame lacks some."""
    if table.schema.names == EMITTED_REQUESTS.arrow.names:
        return table
    have = set(table.schema.names)
    arrays = []
    for field in EMITTED_REQUESTS.arrow:
        if field.name in have:
            arrays.append(table[field.name])
        elif field.name == "kind":
            one = pa.array(["request"])
            codes = pa.array(np.zeros(table.num_rows, np.int32))
            arrays.append(pa.DictionaryArray.from_arrays(codes, one))
        else:
            arrays.append(pa.nulls(table.num_rows))
    return pa.Table.from_arrays(arrays, names=EMITTED_REQUESTS.arrow.names)
