"""
Divide files into pieces, each of which a worker reads alone.

A piece is (path, start, end): it owns the lines that begin in it, so every line has exactly one
owner wherever pieces begin. Compressed files are one piece each. Paths are local, or any URI that
``pyarrow.fs`` reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from headgate.errors import BAD_PATTERN, ConfigError
from headgate.pipeline.logs.time_stamps import sniff_nanos
from headgate.pipeline.sources.compressed import ReadError, reading
from headgate.pipeline.sources.copies import Beginning, unread_copies
from headgate.pipeline.sources.files import filesystem
from headgate.pipeline.sources.heads import (
    columns_of,
    first_request,
    head_of,
    is_document,
    shifts_of,
    tail_of,
)
from headgate.pipeline.sources.journal_files import first_event, journal_file, starts_of
from headgate.usage.files import SUFFIXES

UTF_16: Final = ("utf-16-le", "utf-16-be")
PIECE_BYTES: Final = 8 << 20  # 8 MB: measured best for two cores, and thousands of tasks per TB
# A request line holds names and counts, no records; the broker's own largest is far below this.
MAX_LINE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class FilePiece:
    """
    One piece of work.

    ``kind`` is ``log``, ``journal``, or ``requests`` (a table written before; start and end number
    its row groups); ``end`` is -1 for "to the end"; ``broker_id`` is -1 where
    unknown; ``nanos`` as ``time_stamps.sniff_nanos`` found at the head of the file; ``starts`` the
    (broker, (seq, ms)) of the start events of a journal's worker before the file; ``unread`` says
    why nothing of it is read; ``shifts_ms`` says by how much a wrapper's zone shifts stamps
    (``heads.shifts_of``); ``is_document`` that the file is JSON over several lines, and one piece;
    ``columns`` what a file of CSV calls its columns.
    Lines that go on with a request (``bad_lines.goes_on``) belong to the piece in which it begins;
    ``begin`` and ``stop`` are the bounds of all pieces of a file, at which no others are looked at.
    Of a compressed file ``start`` and ``end`` count bytes of text.
    """

    path: str
    start: int
    end: int
    kind: str = "log"
    compression: str = ""
    broker_id: int = -1
    nanos: bool = False
    starts: tuple[tuple[int, tuple[int, int]], ...] = ()
    unread: str = ""
    shifts_ms: tuple[float, ...] = ()
    is_document: bool = False
    begin: int = 0
    stop: int = -1
    columns: tuple[str, ...] = ()


def pieces_of(
    files: Sequence[tuple[str, int]],
    *,
    broker_id: int | None = None,
    broker_id_pattern: str | None = None,
    piece_bytes: int = PIECE_BYTES,
    notes: list[str] | None = None,
    copies: str = "count",
) -> list[FilePiece]:
    """
    Divide files into pieces.

    A log that is being compressed (``x`` and ``x.gz`` begin with the same request) counts once.

    Args:
        files: (path, size in bytes).
        broker_id: of all logs here; None = unknown.
        broker_id_pattern: regex on the path whose first group is the broker's id; wins over
            ``broker_id`` where it matches.
        piece_bytes: size of a piece.
        notes: gets a sentence about logs whose broker isn't known.
        copies: of logs and journals that begin with the same request or event: ``refuse`` them,
            read the largest ``once``, or ``count`` them all.

    Raises:
        ConfigError: if the pattern isn't a regex with a group, or its group isn't a number; for
            each file that can't be read, and each that seems a copy, all at once.
    """
    pattern = _pattern(broker_id_pattern)
    pieces: list[FilePiece] = []
    sniffed: dict[str, bool] = {}
    tables = {path: _row_groups(path) for path, _ in files if path.endswith(".parquet")}
    for path, groups in tables.items():
        pieces.extend(FilePiece(path, n, n + 1, "requests") for n in range(groups))
    journals = [path for path, _ in files if path.endswith(SUFFIXES)]
    try:
        pieces.extend(_journals([p for p in journals if not tables.get(p)], dict(files), copies))
    except ReadError as exc:
        raise ConfigError(f"--requests {exc}") from exc
    logs = []
    unknown: list[str] = []
    unreadable: list[str] = []
    for path, size in files:  # in order of name: x before x.gz
        if path.endswith(SUFFIXES):
            continue
        broker = -1 if broker_id is None else broker_id
        match = _match(pattern, path) if pattern else None
        if match:
            try:
                broker = int(match[1])
            except ValueError as exc:
                msg = f"--broker-id-pattern gives {match[1]!r} for {path}, which isn't a number"
                raise ConfigError(msg) from exc
        elif broker < 0:
            unknown.append(path)
        try:
            with reading(path):
                head, compression, unread = head_of(path)
        except ReadError as exc:
            unreadable.append(f"--requests {exc}")
            continue
        if _SET_ASIDE.search(path):
            unread = (
                "it is a journal's, damaged and set aside; what could be read is in its .parquet"
            )
        folder = path.rsplit("/", 1)[0]
        # A rolled file too short to tell is read like its neighbours.
        sniffed[folder] = nanos = sniff_nanos(head) or sniffed.get(folder, False)
        shifts = () if unread else shifts_of(head)
        if shifts and not compression:
            try:
                shifts = shifts_of(head, tail_of(path))
            except ReadError as exc:
                unreadable.append(f"--requests {exc}")
                continue
        piece = FilePiece(path, 0, -1, "log", compression, broker, nanos, (), unread, shifts)
        if not unread:
            piece = replace(piece, is_document=is_document(head), columns=columns_of(head))
        first = b"" if unread else first_request(head)
        packed = compression not in ("", *UTF_16)
        logs.append((piece, Beginning(path, first, size, packed)))
    if unreadable:
        raise ConfigError(unreadable)
    twice = unread_copies([beginning for _, beginning in logs], copies)
    for piece, beginning in logs:
        unread = piece.unread or twice.get(piece.path, "")
        if piece.compression or unread:
            pieces.append(replace(piece, unread=unread))
            continue
        pieces.extend(divided(piece, 0, beginning.size, piece_bytes))
    if notes is not None and (pattern or len(unknown) > 1):
        notes.extend(_of_one_broker(unknown, by_pattern=pattern is not None))
    return pieces


def divided(piece: FilePiece, begin: int, stop: int, size: int = PIECE_BYTES) -> list[FilePiece]:
    """
    Divide a stretch of a plain log.

    Args:
        piece: what is known of the file.
        begin: where the stretch begins, at the start of a line.
        stop: where it ends.
        size: of a piece, in bytes.
    """
    whole = replace(piece, start=begin, end=stop, begin=begin, stop=stop)
    if piece.is_document:
        return [whole] if stop > begin else []
    return [
        replace(whole, start=start, end=min(start + size, stop))
        for start in range(begin, stop, size)
    ]


def _of_one_broker(logs: Sequence[str], *, by_pattern: bool) -> Iterator[str]:
    """Say that logs whose broker isn't known count as one broker's."""
    if by_pattern and logs:
        count, whose = ("1 log", "its") if len(logs) == 1 else (f"{len(logs)} logs", "their")
        where = f"isn't in the path of {count} ({logs[0]})"
        yield f"--broker-id-pattern {where}: {whose} broker is unknown"
    elif logs:
        hint = "give --broker-id-pattern if several wrote them"
        yield f"{len(logs)} logs count as one broker's; {hint}"


def _match(pattern: re.Pattern[str], path: str) -> re.Match[str] | None:
    """Return where a pattern is in a path, or in that of the file a link leads to."""
    found = pattern.search(path)
    if found is None and "://" not in path:
        found = pattern.search(str(Path(path).resolve()))
    return found


# What a gateway calls damaged files when it compacts its journal (``usage.reader``).
_SET_ASIDE: Final = re.compile(r"-\d{16}\.bad(-?\d+)?$")


def _row_groups(path: str) -> int:
    """Return how many row groups a table ``requests`` (or ``replay``) has; 0 for a journal."""
    system, inner = filesystem(path)
    try:
        with pq.ParquetFile(inner, filesystem=system) as file:
            return file.num_row_groups if "record_ms" in file.schema_arrow.names else 0
    except (OSError, ValueError) as exc:
        raise ConfigError(f"--requests {path}: {exc}") from exc


def _journals(paths: Sequence[str], sizes: Mapping[str, int], copies: str) -> Iterator[FilePiece]:
    """Yield the pieces of journal files; of a file in two forms (a compaction) one counts."""
    best: dict[tuple[str, str, int], str] = {}
    for path in paths:
        file = journal_file(path)
        key = (path.rsplit("/", 1)[0], file.worker_id, file.first_seq)
        if not file.worker_id:
            key = (path, "", 0)
        other = best.get(key)
        rank = [".parquet", ".arrow", ".open"]
        if other is None or rank.index(file.suffix) < rank.index("." + other.rsplit(".", 1)[1]):
            best[key] = path
    starts: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    begin = [Beginning(path, first_event(path), sizes[path]) for path in sorted(best.values())]
    twice = unread_copies(begin, copies)
    for (folder, worker, _), path in sorted(best.items()):
        if path in twice:
            continue
        known = starts.setdefault((folder, worker), {})
        before = dict(known)
        known.update(starts_of(path))
        # Of a file without a worker's name nothing is known but what stands in it.
        earlier = sorted(before.items()) if worker else []
        yield FilePiece(path, 0, -1, "journal", starts=tuple(earlier))


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        pattern = re.compile(text)
    except BAD_PATTERN as exc:
        raise ConfigError(f"--broker-id-pattern {text!r} isn't a regex: {exc}") from exc
    if pattern.groups < 1:
        msg = f"--broker-id-pattern {text!r} has no group; write e.g. 'broker-(\\d+)/'"
        raise ConfigError(msg)
    return pattern
