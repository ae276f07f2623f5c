"""NumPy views of Arrow columns, and blobs: what packing and replaying are made of."""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Whole numbers that span no more than this are their own codes.
_NARROW: Final = 64


def codes_of(column: Any) -> tuple[Any, list[Any]]:
    """Return (code per row, what each code stands for); None is a value like others."""
    column = joined(column)
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


def joined(column: Any) -> Any:
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
    column = joined(column)
    if null is not None and column.null_count == len(column):
        return np.full(len(column), null)
    if null is not None and column.null_count:
        column = pc.fill_null(column, null)
    return column.to_numpy(zero_copy_only=False)


def valid(column: Any) -> Any:
    """Say which rows aren't null, as a NumPy array."""
    return pc.is_valid(joined(column)).to_numpy(zero_copy_only=False)


def blobs(values: Any, starts: Any, ends: Any) -> Any:
    """Divide an array into one binary per group, without copying."""
    size = values.dtype.itemsize
    offsets = (np.append(starts, ends[-1:]) * size).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(starts), buffers)


def file_hash(path: str, content: bytes = b"") -> int:
    """Return a number for a file's name, and some of what's in it; the same everywhere."""
    return zlib.crc32(content, zlib.crc32(path.encode()))
