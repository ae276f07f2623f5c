"""
Read tables ``requests`` that were written before, a row group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.pipeline import schema
from headgate.pipeline.emitted import EMITTED_REQUESTS
from headgate.pipeline.sources.compressed import reading
from headgate.pipeline.sources.files import filesystem
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.table import Table


def read_row_group(piece: FilePiece, columns: Sequence[str]) -> Any:
    """
    Return one row group of a table ``requests``, its strings as dictionaries.

    Of a table with further columns only those of REQUESTS are read, whatever the others are called.

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
        if _says_nothing(file.metadata.row_group(piece.start)):
            names = [n for n in names if n != "recorded"]
        table = file.read_row_group(piece.start, columns=names, use_threads=False)
    for at, field in enumerate(table.schema):
        wanted = EMITTED_REQUESTS.arrow.field(field.name).type
        if wanted != field.type and not pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(wanted))
    return table


def _says_nothing(group: Any) -> bool:
    """Say whether a row group has no row with a column ``recorded``, as all of logs have none."""
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema == "recorded.op":
            counts = column.statistics
            return bool(counts is not None and counts.null_count == group.num_rows)
    return False


def stat_of(of: Table, piece: FilePiece, table: Any) -> Any:
    """Return the count of a table that was read, as a row of another table."""
    stat = {
        "kind": "stat",
        "file": piece.path,
        "lines": table.num_rows,
        "input_bytes": table.nbytes,
    }
    return pa.RecordBatch.from_pylist([stat], schema=of.arrow)


def read_table(piece: FilePiece) -> Iterator[Any]:
    """Yield one row group of a table ``requests`` or ``replay``; its count comes last."""
    table = read_row_group(piece, schema.REQUESTS.names)
    whole = completed(table)
    arrays = [whole[f.name].cast(f.type) for f in EMITTED_REQUESTS.arrow]
    yield from pa.Table.from_arrays(arrays, schema=EMITTED_REQUESTS.arrow).to_batches()
    yield stat_of(EMITTED_REQUESTS, piece, table)


def completed(table: Any) -> Any:
    """Return a table of REQUESTS' columns, some of which may be absent, as EMITTED_REQUESTS."""
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
