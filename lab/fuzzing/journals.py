"""Usage journals: files that were torn or changed, names of files, messages of a topic."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet

from fuzzing.quotas import ROOT, folder
from fuzzing.target import Target
from headgate.pipeline.sources import journal_files
from headgate.usage import reader, topic
from headgate.usage.files import complete_batches, file_name, parse_name
from headgate.usage.format import SCHEMA
from headgate.usage.topic import _batches_of

_FILE = ROOT / "tests" / "data" / "before" / "journal" / "gateway-1-0000000000000001.arrow"


def _check(batch: pa.RecordBatch) -> None:
    assert batch.schema.equals(SCHEMA)
    batch.validate(full=True)
    batch.to_pylist()


def files(data: bytes) -> None:
    """Any bytes as an open or a closed file: whole batches up to the damage."""
    if not data:
        return
    suffix = (".arrow", ".open", ".parquet")[data[0] % 3]
    where = folder() / "journal"
    where.mkdir(exist_ok=True)
    for old in where.iterdir():
        old.unlink()
    path = where / f"w-0000000000000001{suffix}"
    path.write_bytes(data[1:])
    count = 0
    try:
        for batch in journal_files.batches_of(str(path)):
            _check(batch)
            count += 1
        starts: dict[int, tuple[int, int]] = {}
        for batch in complete_batches(data[1:]):
            journal_files.note_starts(batch, starts)
        journal_files.damage_of(str(path), count)
        journal_files.first_event(str(path))
        list(reader.find_gaps(reader.read_batches([where])))
        if suffix == ".arrow":
            reader.compact(where)
    except (OSError, pa.ArrowInvalid):
        # A Parquet file, whose footer says where all is, is read or it isn't.
        assert suffix == ".parquet"


def messages(data: bytes) -> None:
    """Any bytes as a message of the journal's topic: batches that can be read, or none."""
    message = SimpleNamespace(
        value=lambda: data, topic=lambda: "t", offset=lambda: 1, partition=lambda: 0
    )
    for batch in _batches_of(message):
        _check(batch)


def names(data: bytes) -> None:
    """Any text as a file's name: a journal's, or not."""
    text = data.decode("utf-8", "replace").replace("/", "_").replace("\0", "_")[:200]
    found = parse_name(Path(text))
    if found is not None:
        again = parse_name(Path(file_name(found.worker_id, found.first_seq, found.suffix)))
        assert again is not None
        assert again[1:] == found[1:]


@functools.cache
def _small() -> list[pa.RecordBatch]:
    return [batch.slice(0, 5) for batch in reader.read_batches([_FILE])][:2]


def _files() -> list[bytes]:
    opened, closed = pa.BufferOutputStream(), pa.BufferOutputStream()
    for sink in (opened, closed):
        writer = pa.ipc.new_file(sink, SCHEMA)
        for batch in _small():
            writer.write_batch(batch)
        if sink is closed:
            writer.close()
    whole = bytes(closed.getvalue())
    table = pa.BufferOutputStream()
    pa.parquet.write_table(pa.Table.from_batches(_small(), SCHEMA), table)
    half = whole[: len(whole) * 2 // 3]
    return [b"\0" + whole, b"\1" + half, b"\0" + half, b"\2" + bytes(table.getvalue())]


def _messages() -> list[bytes]:
    return [topic.encode(batch) for batch in _small()]


def _names() -> list[bytes]:
    return [file_name(w, 7, s).encode() for w in ("gateway-1", "a b") for s in (".arrow", ".open")]


TARGETS = {
    "journal files": Target(files, _files),
    "journal messages": Target(messages, _messages),
    "journal names": Target(names, _names, (b"-", b"%", b"%zz", b".arrow", b"0" * 16)),
}
