"""
What a round of a growing directory reads: every line once, even if its file was renamed.

A log is known by its content (``identity``); how much of it was read is counted in bytes of text.
So the file that a broker is writing may grow, be renamed on the hour, copied and truncated, or
compressed.

A gateway's journal lies in a directory as `.open` while it is written, as `.arrow` when closed, as
`.parquet` when compacted: three names of the same events. They count when the file is closed, once.
What a worker's events need of earlier files (when it started) is remembered from round to round.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyarrow import fs

from headgate.clock import now_ms
from headgate.errors import ConfigError
from headgate.pipeline.sources.compressed import ReadError
from headgate.pipeline.sources.files import filesystem
from headgate.pipeline.sources.identity import Seen, is_whole, look_at, place_of, whole_lines
from headgate.pipeline.sources.journal_files import journal_file, starts_of
from headgate.pipeline.sources.pieces import FilePiece, divided, pieces_of
from headgate.usage.files import CLOSED, PARQUET, SUFFIXES

# In place of a number: the file is a log.
_LOG: Final = -1
_TOLD: Final = -2  # a file that isn't read, and why was told
_ALL: Final = 1 << 62
"""Bytes read of what is compressed: all of its text."""
# (broker, (seq, epoch ms)) of start events.
Starts = dict[int, tuple[int, int]]


class Input(NamedTuple):
    """
    What was read of a file; of a journal's, one for each start of a broker in it.

    Attributes:
        folder: where the file lies.
        worker_id: whose journal it is; of a log, its name.
        first_seq: of a journal's first event; of a log, -1; -2: it isn't read.
        broker_id: of a start event; -1: of all brokers.
        seq: of a start event; of a log, bytes of text read; None: none.
        t_ms: of a start event; of a log, when it was read, epoch ms.
        head: of a log, what tells it from others.
        device: of a log.
        inode: of a log.
    """

    folder: str
    worker_id: str
    first_seq: int
    broker_id: int | None
    seq: int | None
    t_ms: int | None
    head: str | None = None
    device: int | None = None
    inode: int | None = None


class Known(NamedTuple):
    """Bytes read of a log, and its path and inode."""

    path: str
    place: tuple[int, int]
    offset: int


@dataclass
class FilesOfRound:
    """
    What a round reads.

    Attributes:
        pieces: of its files.
        inputs: to remember.
        places: device and inode of each log that is read.
    """

    pieces: list[FilePiece] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)


class RolledFiles:
    """
    Tells which pieces a round reads.

    Args:
        broker_id: of all logs; None = unknown.
        broker_id_pattern: regex on a log's path whose first group is the broker's id.
        files_per_round: at most.
    """

    def __init__(
        self,
        *,
        broker_id: int | None = None,
        broker_id_pattern: str | None = None,
        files_per_round: int = 64,
    ) -> None:
        self._broker_id = broker_id
        self._pattern = broker_id_pattern
        self._most = files_per_round
        self._logs: dict[str, Known] = {}
        self._told: set[str] = set()
        self._looked: dict[str, tuple[tuple[int, int, int], Seen]] = {}
        self._read: dict[tuple[str, str], set[int]] = defaultdict(set)
        # Start events by (folder, worker) and file; also of files that are still to be read.
        self._starts: dict[tuple[str, str], dict[int, Starts]] = defaultdict(dict)
        self._looked_at: dict[tuple[str, str], set[int]] = defaultdict(set)

    @property
    def places(self) -> set[tuple[int, int]]:
        """Device and inode of each log that was read: it is followed whatever it is called."""
        return {known.place for known in self._logs.values()}

    def remember(self, inputs: Iterable[Input]) -> None:
        """
        Take what earlier rounds (of a process that was killed, say) have read.

        Args:
            inputs: in the order of rounds. Of a log's rows the last counts: clocks are set back.

        Raises:
            ConfigError: they knew files by name only.
        """
        for row in inputs:
            path = f"{row.folder}/{row.worker_id}"
            if row.first_seq == _TOLD:
                self._told.add(path)
            elif row.first_seq == _LOG:
                if row.head is None:
                    raise ConfigError(
                        f"what was read of {path} is known by its name only, as older versions "
                        "did; start again with another --out"
                    )
                place = (row.device or 0, row.inode or 0)
                self._logs.pop(row.head, None)  # its turn comes after all others'
                self._logs[row.head] = Known(path, place, row.seq or 0)
            else:
                key = (row.folder, row.worker_id)
                self._read[key].add(row.first_seq)
                self._looked_at[key].add(row.first_seq)
                if row.broker_id is not None and row.seq is not None and row.t_ms is not None:
                    starts = self._starts[key].setdefault(row.first_seq, {})
                    starts[row.broker_id] = (row.seq, row.t_ms)

    def take(
        self,
        files: Sequence[str],
        now_s: float | None = None,
        *,
        sizes: Mapping[tuple[int, int], int] | None = None,
    ) -> FilesOfRound:
        """
        Return what a round reads; it isn't remembered yet.

        Where that is more than a round's files, those that were never read go first, and logs that
        grow after them take turns.

        Args:
            files: paths of all files that are there.
            now_s: the time, epoch seconds.
            sizes: bytes to which logs are read, by device and inode; None: to their ends.

        Raises:
            ReadError: one can't be read.
        """
        now_s = time.time() if now_s is None else now_s
        found = FilesOfRound()
        logs = [path for path in files if not path.endswith(SUFFIXES)]
        chosen = self._new_of_logs(logs, now_s)
        unread: list[tuple[Seen, str]] = []
        grown: list[tuple[Seen, str]] = []
        for pair in chosen:
            (unread if self._known(pair[0]) is None else grown).append(pair)
        turns = {head: at for at, head in enumerate(self._logs)}  # the last read is the last here
        grown.sort(key=lambda pair: turns.get(pair[0].head, turns.get(pair[0].elder, 0)))
        self._take_logs(unread, found, now_s, sizes)
        self._take_others([p for p in files if p.endswith((CLOSED, PARQUET))], found)
        self._take_logs(grown, found, now_s, sizes)
        return found

    def _take_logs(
        self,
        logs: Sequence[tuple[Seen, str]],
        found: FilesOfRound,
        now_s: float,
        sizes: Mapping[tuple[int, int], int] | None,
    ) -> None:
        """Take what is new of logs, as far as a round goes; tell copies of others."""
        for log, original in logs:
            if len(found.inputs) >= self._most:
                return
            if original:
                self._tell(log.path, f"it begins as {original} does, which is read", found)
            else:
                most = log.size if sizes is None else sizes.get(log.place, log.size)
                try:
                    self._take_log(log, found, now_s, min(most, log.size))
                except (ReadError, ConfigError, FileNotFoundError):
                    if place_of(log.path) == log.place:
                        raise  # else it was renamed or removed: the next round finds it

    def _new_of_logs(self, paths: Sequence[str], now_s: float) -> list[tuple[Seen, str]]:
        """Return logs that may have something new, oldest first; of a copy also its original."""
        groups: dict[str, list[Seen]] = defaultdict(list)
        for path in paths:
            seen = self._look(path, now_s)
            if seen is not None and seen.head:
                groups[seen.head].append(seen)
        chosen = []
        for head, group in groups.items():
            known = self._logs.get(head) or self._known(group[0])
            # The file that was read before, where it's there; else what has taken its place.
            own = [s for s in group if known is not None and s.place == known.place]
            best = own or sorted(group, key=lambda s: (s.compressed, -s.size, s.path))
            chosen.append((best[0], ""))
            others = [s for s in group if s is not best[0] and s.path not in self._told]
            chosen += [(seen, best[0].path) for seen in others]
        return sorted(chosen, key=lambda found: (found[0].modified_ns, found[0].path))

    def _known(self, seen: Seen) -> Known | None:
        """Return how much of a log was read, also before it had a request."""
        elder = None if seen.compressed else self._logs.get(seen.elder)
        return self._logs.get(seen.head) or elder

    def _look(self, path: str, now_s: float) -> Seen | None:
        """Look at a file, unless it hasn't changed; None: it doesn't exist any more."""
        try:
            stat = Path(path).stat()
            mark = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            before = self._looked.get(path)
            if before is not None and before[0] == mark and before[1].head:
                return before[1]
            seen = look_at(path, now_s)
        except FileNotFoundError:
            return None
        except ReadError as exc:
            if isinstance(exc.__cause__, FileNotFoundError):
                return None
            raise
        self._looked[path] = mark, seen
        return seen

    def _take_log(self, seen: Seen, found: FilesOfRound, now_s: float, size: int) -> None:
        """Take what is new of a log's first ``size`` bytes."""
        known = self._known(seen)
        offset = known.offset if known else 0
        if offset == _ALL:
            return
        if seen.compressed:
            end = _ALL if seen.is_settled(now_s) or is_whole(seen.path) else offset
        elif seen.size < offset:
            why = f"it had {offset} bytes when it was read, and has {seen.size} now"
            self._tell(seen.path, why, found)
            end = seen.size
        elif seen.is_settled(now_s):
            end = size
        else:
            end = whole_lines(seen.path, offset, size)
        if end == offset or seen.size >= offset > end:
            return
        if end > offset:
            found.pieces += self._pieces(seen, offset, end)
        found.places[seen.path] = seen.place
        folder, _, name = seen.path.rpartition("/")
        row = Input(folder, name, _LOG, None, end, int(now_s * 1000), seen.head, *seen.place)
        found.inputs.append(row)

    def _tell(self, path: str, why: str, found: FilesOfRound) -> None:
        """Say once why a file isn't read."""
        if path in self._told:
            return
        found.pieces.append(FilePiece(path, 0, -1, unread=why))
        folder, _, name = path.rpartition("/")
        found.inputs.append(Input(folder, name, _TOLD, None, None, None))

    def _pieces(self, seen: Seen, offset: int, end: int) -> Iterator[FilePiece]:
        """Divide the new part of a log into pieces."""
        first = pieces_of(
            [(seen.path, seen.size)],
            broker_id=self._broker_id,
            broker_id_pattern=self._pattern,
        )[0]
        if first.compression.startswith("utf-16"):
            yield replace(first, unread="it is UTF-16, which isn't followed; make it UTF-8")
            return
        if first.compression or first.unread:
            yield replace(first, start=offset if first.compression else 0)
            return
        yield from divided(first, offset, end)

    def _take_others(self, files: Sequence[str], found: FilesOfRound) -> None:
        """Take what is new of journals and tables: whole files that don't change."""
        new: list[str] = []
        for listed in files:
            path = name_now(listed)
            folder = _folder(path)
            if path in new or place_of(path) is None or f"{_TABLE}{path}" in self._logs:
                continue
            file = journal_file(path)
            if file.worker_id and file.first_seq in self._read[folder, file.worker_id]:
                continue
            new.append(path)
        new = new[: max(self._most - len(found.inputs), 0)]
        pieces = self._pieces_of_others(new)
        for folder in {_folder(piece.path) for piece in pieces if piece.kind == "journal"}:
            self._look_at(folder)
        tables = set()
        for piece in pieces:
            if piece.kind == "journal":
                self._take_journal(piece, found)
            else:
                found.pieces.append(piece)
                tables.add(piece.path)
        for path in sorted(tables):
            folder, _, name = path.rpartition("/")
            found.inputs.append(Input(folder, name, _LOG, None, _ALL, now_ms(), f"{_TABLE}{path}"))

    def _pieces_of_others(self, paths: Sequence[str]) -> list[FilePiece]:
        """Return the pieces of journals' files and tables, without those removed meanwhile."""
        while True:
            there = [path for path in paths if place_of(path) is not None]
            try:
                return pieces_of(
                    [(path, Path(path).stat().st_size) for path in there],
                    broker_id=self._broker_id,
                    broker_id_pattern=self._pattern,
                )
            except (ReadError, ConfigError, FileNotFoundError):
                if all(place_of(path) is not None for path in there):
                    raise

    def _take_journal(self, piece: FilePiece, found: FilesOfRound) -> None:
        file = journal_file(piece.path)
        folder = _folder(piece.path)
        if not file.worker_id:
            found.pieces.append(piece)
            row = Input(folder, file.path.name, _LOG, None, _ALL, 0, f"{_TABLE}{piece.path}")
            found.inputs.append(row)
            return
        key = (folder, file.worker_id)
        own = self._starts[key].get(file.first_seq, {})
        rows: list[tuple[int | None, int | None, int | None]] = [(b, *at) for b, at in own.items()]
        inputs = [Input(folder, file.worker_id, file.first_seq, *r) for r in rows or [(None,) * 3]]
        found.inputs += inputs
        earlier: Starts = {}
        for seq in sorted(s for s in self._starts[key] if s < file.first_seq):
            earlier |= self._starts[key][seq]
        found.pieces.append(replace(piece, starts=tuple(sorted(earlier.items()))))

    def _look_at(self, folder: str) -> None:
        """Note the start events of a folder's files, those too that a later round will read."""
        for path in _listed(folder):
            if not path.endswith((CLOSED, PARQUET)):
                continue
            file = journal_file(path)
            key = (folder, file.worker_id)
            if not file.worker_id or file.first_seq in self._looked_at[key]:
                continue
            self._looked_at[key].add(file.first_seq)
            starts = starts_of(path)
            if starts:
                self._starts[key][file.first_seq] = starts


_TABLE: Final = "table "
"""Before the path of a file that doesn't change, in place of a log's head."""


def name_now(path: str) -> str:
    """Return the path of a whole file; a journal's may have been compacted since it was listed."""
    if path.endswith(CLOSED) and place_of(path) is None:
        return path[: -len(CLOSED)] + PARQUET
    return path


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _listed(folder: str) -> list[str]:
    """Return a folder's files."""
    system, inner = filesystem(folder)
    infos: list[Any] = system.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    return sorted(i.path for i in infos if i.is_file)
