"""
Names and bytes of journal files: closed, open, or left open by a crash; bytes of messages.

A closed file is an Arrow IPC file. While it is written it has no footer yet, but its first eight
bytes and its complete batches are there, and past those eight bytes an IPC file is an IPC stream:
so whatever a kill leaves behind is read up to its last complete batch.

Source: Arrow Columnar Format, "IPC File Format".
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.errors import InvalidQuota
from headgate.quota.sanitizer import desanitize, sanitize
from headgate.usage.format import SCHEMA

MAGIC: Final = b"ARROW1\x00\x00"
CLOSED: Final = ".arrow"
OPEN: Final = ".open"
PARQUET: Final = ".parquet"
BAD: Final = ".bad"
"""Suffix of a closed file that was set aside because it is damaged."""
SUFFIXES: Final = (CLOSED, OPEN, PARQUET)
_BECOMES: Final = {
    OPEN: (OPEN, CLOSED, PARQUET),
    CLOSED: (CLOSED, PARQUET),
    PARQUET: (PARQUET,),
}
_SEQ_DIGITS: Final = 16
# Every reader of Arrow files knows LZ4. Names repeat so much that it saves most of the disk. One
# thread compresses: waking a pool of threads would cost more than the compression.
WRITE_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class JournalFile(NamedTuple):
    """The parts of a journal file's name."""

    path: Path
    worker_id: str
    first_seq: int
    suffix: str


def file_name(worker_id: str, first_seq: int, suffix: str) -> str:
    """Return ``<worker_id>-<first seq, 16 digits><suffix>``; odd characters are sanitised."""
    return f"{sanitize(worker_id)}-{first_seq:0{_SEQ_DIGITS}d}{suffix}"


def parse_name(path: Path) -> JournalFile | None:
    """Return the parts of a file's name; None if it isn't a journal's."""
    worker, dash, digits = path.stem.rpartition("-")
    if path.suffix not in SUFFIXES or not dash or not worker:
        return None
    if len(digits) < _SEQ_DIGITS or not digits.isdecimal():
        return None
    try:
        return JournalFile(path, desanitize(worker), int(digits), path.suffix)
    except InvalidQuota:  # no name that Headgate gives
        return None


def journal_files(directory: Path) -> list[JournalFile]:
    """
    Return a directory's journal files, by worker and sequence.

    Where a file is there closed and as Parquet (a compaction that was interrupted), the Parquet
    file counts; where it is there open and closed, the closed one.
    """
    best: dict[tuple[str, int], JournalFile] = {}
    rank = {PARQUET: 0, CLOSED: 1, OPEN: 2}
    for path in directory.iterdir():
        found = parse_name(path)
        if found is None or not path.is_file():
            continue
        key = (found.worker_id, found.first_seq)
        other = best.get(key)
        if other is None or rank[found.suffix] < rank[other.suffix]:
            best[key] = found
    return [best[key] for key in sorted(best)]


def complete_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """
    Read the complete batches of a file that may end anywhere, as ``SCHEMA``.

    Args:
        source: an open ``pyarrow.NativeFile`` or bytes of an IPC file, footer or not.

    Raises:
        OSError: the system couldn't read the file, which doesn't mean that it ends there.
    """
    stream = pa.BufferReader(source) if isinstance(source, (bytes, pa.Buffer)) else source
    if bytes(stream.read(len(MAGIC))) != MAGIC:
        return
    try:
        reader = pa.ipc.open_stream(stream)
        while True:
            batch = reader.read_next_batch()
            # A wrong offset would crash whatever follows it, so offsets are checked on reading, in
            # full. That costs a tenth of the reading.
            batch.validate(full=True)
            yield to_schema(batch)
    except (StopIteration, EOFError, pa.ArrowException, OSError) as exc:
        # The end, or the place where a kill ended it: all complete batches were yielded. Arrow
        # raises OSError for data that it can't unpack, too; the system's errors have a number.
        if isinstance(exc, OSError) and exc.errno is not None:
            raise


def read_batches(file: JournalFile) -> Iterator[pa.RecordBatch]:
    """
    Read a file's batches, whatever its kind.

    If it was closed or compacted since it was listed, what it has become is read.

    Raises:
        FileNotFoundError: it isn't there, nor what it would have become.
    """
    for suffix in _BECOMES.get(file.suffix, (file.suffix,)):
        path = file.path.with_suffix(suffix)
        try:
            source = pa.OSFile(str(path), "rb")
        except FileNotFoundError:
            continue
        with source:
            if suffix == PARQUET:
                with pq.ParquetFile(source) as parquet:
                    for batch in parquet.iter_batches():
                        yield to_schema(batch)
            else:
                yield from complete_batches(source)
        return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file.path))


class ClosedBatches:
    """
    The batches of a closed file, which should be whole: an iterable, to be gone through once.

    Args:
        path: the file.

    Attributes:
        damage: after all batches were given: why they aren't the whole file; None: they are.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damage: str | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Give the batches up to the first that can't be read."""
        count = 0
        with pa.OSFile(str(self._path), "rb") as source:
            for batch in complete_batches(source):
                count += 1
                yield batch
            self.damage = _damage(source, count)


def _damage(source: pa.NativeFile, read: int) -> str | None:
    """Compare how many batches could be read with what the footer says."""
    try:
        there = pa.ipc.open_file(source).num_record_batches
    except (pa.ArrowException, OSError):
        return "its footer can't be read"
    return None if read == there else f"batch {read + 1} of {there} can't be read"


def set_aside(directory: Path) -> list[JournalFile]:
    """Return the files that turned out damaged, by worker and sequence."""
    found = []
    for path in directory.glob(f"*{BAD}*"):
        name, _, number = path.name.rpartition(BAD)
        if number and not number.removeprefix("-").isdecimal():
            continue
        file = parse_name(path.with_name(name + CLOSED))
        if file is not None:
            found.append(file._replace(path=path, suffix=BAD))
    return sorted(found, key=lambda file: (file.worker_id, file.first_seq, file.path.name))


def to_schema(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give a batch from Parquet or an older journal the columns and types of ``SCHEMA``."""
    if batch.schema.equals(SCHEMA):
        return batch
    columns = []
    for field in SCHEMA:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(at)
        columns.append(column if column.type == field.type else _cast(column, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_dictionary(kind):
        encoded = column.cast(kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            encoded.indices.cast(kind.index_type), encoded.dictionary
        )
    return column.cast(kind)


def encode(batch: pa.RecordBatch) -> bytes:
    """Return a batch as a message of a topic: an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode(raw: bytes) -> list[pa.RecordBatch]:
    """Return the batches of a topic's message."""
    with pa.ipc.open_stream(raw) as reader:
        return [to_schema(batch) for batch in reader]
