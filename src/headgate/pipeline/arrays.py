"""NumPy views of Arrow columns, and blobs: what packing and replaying are made of."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


def codes_of(column: Any) -> tuple[Any, list[Any]]:
    """Return (code per row, what each code stands for); None is a value like others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64), [None]
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    names = column.dictionary.to_pylist()
    if not column.indices.null_count:
        return column.indices.to_numpy(zero_copy_only=False), names
    codes = pc.fill_null(column.indices, len(names)).to_numpy(zero_copy_only=False)
    return codes, [*names, None]


def is_in(column: Any, values: tuple[str, ...]) -> Any:
    """Say which rows hold one of ``values``, as a NumPy array."""
    codes, names = codes_of(column)
    hits = np.array([name in values for name in names])
    if hits.all() or not hits.any():
        return np.full(len(codes), bool(hits.all()))
    return hits[codes]


def dense(codes: Any) -> tuple[Any, Any]:
    """Return (first index of each distinct code, dense code per element), cheaply where small."""
    top = int(codes.max()) + 1
    if top > 1 << 24:
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        return first, inverse.astype(np.int64)
    first = np.full(top, -1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    present = np.flatnonzero(first >= 0)
    dense = np.empty(top, np.int64)
    dense[present] = np.arange(len(present))
    return first[present], dense[codes]


def grouped(codes: Any, pos: Any) -> Any:
    """Return the stable order by (code, pos); cheap where a group's events are nearly in order."""
    small = codes.astype(np.uint16) if codes.max() < 1 << 16 else codes
    order = np.argsort(small, kind="stable")
    sorted_codes, sorted_pos = codes[order], pos[order]
    wrong = (sorted_pos[1:] < sorted_pos[:-1]) & (sorted_codes[1:] == sorted_codes[:-1])
    if not wrong.any():
        return order
    return order[np.lexsort((sorted_pos, sorted_codes))]


def blobs(values: Any, starts: Any, ends: Any) -> Any:
    """Cut an array into one binary per group, without copying."""
    import pyarrow as pa

    size = values.dtype.itemsize
    offsets = (np.append(starts, ends[-1]) * size).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    large = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts), buffers)
    return large.cast(pa.binary())


def array_of(column: Any, null: Any = None) -> Any:
    """Return a column as a NumPy array; nulls become ``null``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if null is not None and column.null_count == len(column):
        return np.full(len(column), null)
    if null is not None and column.null_count:
        column = pc.fill_null(column, null)
    return column.to_numpy(zero_copy_only=False)


def valid(column: Any) -> Any:
    """Say which rows aren't null, as a NumPy array."""
    import pyarrow.compute as pc

    return pc.is_valid(column.combine_chunks()).to_numpy(zero_copy_only=False)


def file_hash(path: str) -> int:
    """Return a number for a file's name, the same everywhere."""
    return zlib.crc32(path.encode())


def view(column: Any, dtype: Any) -> Any:
    """Return the blobs of a binary column as one array, without copying where possible."""
    import pyarrow as pa

    if column.null_count:
        column = column.drop_null()
    if not len(column):
        return np.empty(0, dtype)
    wide = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, offsets, data = column.buffers()
    at = np.frombuffer(offsets, wide)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, np.uint8)[at[0] : at[-1]].view(dtype)


def lengths(column: Any) -> Any:
    """Return the length in bytes of each blob."""
    import pyarrow.compute as pc

    return pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def filled(column: Any, dtype: Any, n: Any, default: Any) -> Any:
    """Return blobs as one array; where a row has none, the default's values."""
    have = column.is_valid().to_numpy(zero_copy_only=False)
    if have.all():
        return view(column, dtype)
    out = default.copy()
    out[np.repeat(have, n)] = view(column, dtype)
    return out
