"""
Read a journal's files, wherever they lie: batches of events, what begins them, what is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.pipeline.sources.compressed import Watched, reading
from headgate.pipeline.sources.files import filesystem
from headgate.usage import files
from headgate.usage.files import JournalFile, parse_name


def journal_file(path: str) -> JournalFile:
    """Return a journal file's name taken apart; any name will do for a file given by hand."""
    found = parse_name(Path(path))
    return found or JournalFile(Path(path), "", 0, Path(path).suffix)


def batches_of(path: str) -> Iterator[Any]:
    """
    Yield a journal file's batches of events, wherever it lies.

    Raises:
        ReadError: it couldn't be read. (Where it's damaged, ``damage_of`` says so.)
    """
    with reading(path):
        if "://" not in path:
            yield from files.read_batches(journal_file(path))
        else:
            yield from _batches_of_uri(path)


def _batches_of_uri(path: str) -> Iterator[Any]:
    system, inner = filesystem(path)
    with system.open_input_file(inner) as file:
        if path.endswith(files.PARQUET):
            for batch in pq.ParquetFile(file).iter_batches():
                yield files.to_schema(batch)
            return
        source = Watched(file)
        yield from files.complete_batches(pa.PythonFile(source, "r"))
        if source.failure is not None:
            raise source.failure


def damage_of(path: str, batches: int) -> str:
    """
    Return why a closed file wasn't read to its end; "" where it was.

    An open file gives "": it has no footer yet; what is complete of it is read.

    Args:
        path: of the file.
        batches: how many of its batches could be read.

    Raises:
        ReadError: it couldn't be read again.
    """
    if not path.endswith(files.CLOSED):
        return ""
    system, inner = filesystem(path)
    source = None
    try:
        with reading(path), system.open_input_file(inner) as file:
            source = Watched(file)
            there = pa.ipc.open_file(pa.PythonFile(source, "r")).num_record_batches
    except (pa.ArrowException, OSError) as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return ""  # compacted meanwhile, and read by its other name
        if isinstance(exc, OSError) and (source is None or source.failure is not None):
            raise
        return (
            f"the journal's file is damaged or cut off: no footer, {batches} batches could be read"
        )
    if batches == there:
        return ""
    return f"the journal's file is damaged: {batches} of its {there} batches could be read"


def starts_of(path: str) -> dict[int, tuple[int, int]]:
    """
    Return broker -> (seq, epoch ms) of the start events at the head of a file.

    A worker's process begins a file, and starts its brokers there; the head is enough.
    """
    for batch in batches_of(path):
        starts: dict[int, tuple[int, int]] = {}
        note_starts(batch, starts)
        return starts
    return {}


def first_event(path: str) -> bytes:
    """Return a journal file's first event, which tells it from all others; nothing without one."""
    for batch in batches_of(path):
        if batch.num_rows:
            return repr(batch.slice(0, 1).to_pylist()).encode()
    return b""


def note_starts(events: Any, starts: dict[int, tuple[int, int]]) -> None:
    """Note the start events among some events."""
    started = events.filter(pc.equal(events["kind"].cast(pa.string()), "start"))
    for broker, seq, t_ms in zip(
        *(started[n].to_pylist() for n in ("broker_id", "seq", "t_ms")), strict=True
    ):
        starts[-1 if broker is None else broker] = (seq, int(t_ms))
