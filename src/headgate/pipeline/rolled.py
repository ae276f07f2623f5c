"""
What a round of a growing directory reads: every file once, whatever form it takes later.

A gateway's journal lies in a directory as `.open` while it is written, as `.arrow` when closed, as
`.parquet` when compacted: three names of the same events. They count when the file is closed, once.
A log `x` that is `x.gz` in a later round has been read. One that is written to after it was read
is told of, once. What a worker's events need of earlier
files (when it started) is remembered from round to round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlparse

from headgate.pipeline import schema
from headgate.pipeline.filesplits import Split, cut, filesystem
from headgate.usage.files import CLOSED, OPEN, PARQUET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE_SCHEMA: Final = "path string, modificationTime timestamp, length long, content binary"
INPUTS: Final = schema.Table(
    "inputs",
    "What was read: a row per file, and of a journal's one per start of a broker in it.",
    (
        schema.Column("folder", "string", "where the file lies; of a topic, its name"),
        schema.Column("worker_id", "string", "whose journal it is; of a log, its name"),
        schema.Column(
            "first_seq", "long", "number of a journal's first event; of a log, -1; -2: it changed"
        ),
        schema.Column("broker_id", "int", "of a start event; -1: of all brokers"),
        schema.Column("seq", "long", "of a start event; of a log, its size; null: it has none"),
        schema.Column("t_ms", "long", "of a start event, epoch ms"),
    ),
)
# In place of a number: the file is a log.
_LOG: Final = -1
_CHANGED: Final = -2  # a log that has changed since it was read, and was told of
_COMPRESSED: Final = ("gz", "zst", "bz2", "lz4", "xz", "lzma")
# (broker, (seq, epoch ms)) of start events.
Starts = dict[int, tuple[int, int]]


class Input(NamedTuple):
    """A row of INPUTS."""

    folder: str
    worker_id: str
    first_seq: int
    broker_id: int | None
    seq: int | None
    t_ms: int | None


@dataclass
class FilesOfRound:
    """
    What a round reads.

    Attributes:
        splits: pieces of its files.
        inputs: rows of INPUTS, to remember.
    """

    splits: list[Split] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)


def follow_directory(spark: SparkSession, directory: str, *, files_per_round: int) -> DataFrame:
    """Return a stream of (path, length): each file under ``directory`` once."""
    return (
        spark.readStream.format("binaryFile")
        .schema(_FILE_SCHEMA)
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", str(files_per_round))
        .load(directory)
        .select("path", "length")
    )


def local_path(uri: str) -> str:
    """Return the path of a ``file:`` URI as Spark writes it; other URIs as they are."""
    parsed = urlparse(uri)
    return unquote(parsed.path) if parsed.scheme == "file" else uri


class RolledFiles:
    """
    Tells which pieces a round reads.

    Args:
        broker_id: of all logs; None = unknown.
        broker_id_pattern: regex on a log's path whose first group is the broker's id.
    """

    def __init__(
        self, *, broker_id: int | None = None, broker_id_pattern: str | None = None
    ) -> None:
        self._broker_id = broker_id
        self._pattern = broker_id_pattern
        self._read: dict[tuple[str, str], set[int]] = defaultdict(set)
        # Start events by (folder, worker) and file; also of files that are still to be read.
        self._starts: dict[tuple[str, str], dict[int, Starts]] = defaultdict(dict)
        self._looked_at: dict[tuple[str, str], set[int]] = defaultdict(set)
        # Logs' sizes when they were read, by folder and name.
        self._sizes: dict[str, dict[str, int]] = defaultdict(dict)

    def remember(self, inputs: Iterable[Input]) -> None:
        """Take what earlier rounds (of a process that was killed, say) have read."""
        for row in inputs:
            key = (row.folder, row.worker_id)
            self._read[key].add(row.first_seq)
            self._looked_at[key].add(row.first_seq)
            if row.first_seq == _LOG and row.seq is not None:
                self._sizes[row.folder][row.worker_id] = row.seq
            if row.broker_id is not None and row.seq is not None and row.t_ms is not None:
                starts = self._starts[key].setdefault(row.first_seq, {})
                starts[row.broker_id] = (row.seq, row.t_ms)

    def take(self, files: Sequence[tuple[str, int]]) -> FilesOfRound:
        """
        Return what to read of files that are new.

        Args:
            files: (path, size in bytes) of each.
        """
        found = FilesOfRound()
        there = []
        for path, size in files:
            if path.endswith(OPEN):
                continue  # it counts when it's closed, by another name
            if _exists(path):
                there.append((path, size))
            elif path.endswith(CLOSED) and _exists(twin := path[: -len(CLOSED)] + PARQUET):
                there.append((twin, size))
            else:
                found.splits.append(Split(path, 0, -1, unread="it went before it was read"))
        there = [file for file in there if not self._is_twin(file[0], found)]
        self._tell_of_changed(found)
        sizes = dict(there)
        splits = cut(there, broker_id=self._broker_id, broker_id_pattern=self._pattern)
        for folder in {_folder(split.path) for split in splits if split.kind == "journal"}:
            self._look_at(folder)
        for split in splits:
            if split.kind == "journal":
                self._take_journal(split, found)
            else:
                found.splits.append(split)
                self._take_log(split.path, sizes[split.path], found)
        return found

    def _tell_of_changed(self, found: FilesOfRound) -> None:
        """Say which logs have changed since an earlier round read them; nobody reads them again."""
        for folder, sizes in self._sizes.items():
            now = {file.rpartition("/")[2]: size for file, size in _sizes(folder).items()}
            for name, size in sizes.items():
                if now.get(name, size) == size or _CHANGED in self._read[folder, name]:
                    continue
                why = (
                    f"it was, with {size} bytes, and has {now[name]} now; point --requests at "
                    "files that are written no more, whose names stay"
                )
                found.splits.append(Split(f"{folder}/{name}", 0, -1, unread=why))
                row = Input(folder, name, _CHANGED, None, None, None)
                self._read[folder, name].add(_CHANGED)
                found.inputs.append(row)

    def _is_twin(self, path: str, found: FilesOfRound) -> bool:
        """Say whether a file is what an earlier round has read, compressed."""
        plain, _, suffix = path.rpartition(".")
        folder, _, name = plain.rpartition("/")
        if suffix not in _COMPRESSED or _LOG not in self._read.get((folder, name), ()):
            return False
        why = f"it is {plain}, compressed, which was read"
        found.splits.append(Split(path, 0, -1, unread=why))
        return True

    def _take_log(self, path: str, size: int, found: FilesOfRound) -> None:
        folder, _, name = path.rpartition("/")
        if _LOG not in self._read[folder, name]:
            row = Input(folder, name, _LOG, None, size, None)
            self.remember([row])
            found.inputs.append(row)

    def _take_journal(self, split: Split, found: FilesOfRound) -> None:
        from headgate.pipeline.journal import journal_file

        file = journal_file(split.path)
        if not file.worker_id:
            found.splits.append(split)
            return
        folder = _folder(split.path)
        key = (folder, file.worker_id)
        if file.first_seq in self._read[key]:
            return
        own = self._starts[key].get(file.first_seq, {})
        rows: list[tuple[int | None, int | None, int | None]] = [(b, *at) for b, at in own.items()]
        inputs = [Input(folder, file.worker_id, file.first_seq, *r) for r in rows or [(None,) * 3]]
        self.remember(inputs)
        found.inputs += inputs
        earlier: Starts = {}
        for seq in sorted(s for s in self._starts[key] if s < file.first_seq):
            earlier |= self._starts[key][seq]
        found.splits.append(replace(split, starts=tuple(sorted(earlier.items()))))

    def _look_at(self, folder: str) -> None:
        """Note the start events of a folder's files, those too that a later round will read."""
        from headgate.pipeline.journal import journal_file, starts_of

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


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _exists(path: str) -> bool:
    from pyarrow import fs

    system, inner = filesystem(path)
    return bool(system.get_file_info(inner).type == fs.FileType.File)


def _listed(folder: str) -> list[str]:
    return sorted(_sizes(folder))


def _sizes(folder: str) -> dict[str, int]:
    """Return the sizes of a folder's files."""
    from pyarrow import fs

    system, inner = filesystem(folder)
    scheme = folder.partition("://")[0] + "://" if "://" in folder else ""
    infos: list[Any] = system.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    return {scheme + i.path: int(i.size) for i in infos if i.is_file}
