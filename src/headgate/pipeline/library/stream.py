"""
Files that grow as a stream of Spark's: every line once, whatever its file is called by then.

An offset holds what was read (``rotation.RolledFiles`` remembers it), and the pieces of the batch
that ends there, with device and inode of each log. So a batch that is run again after a kill reads
the same lines, also those of a log that was renamed, copied and truncated, or compressed meanwhile.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from headgate.errors import BadArgument, ConfigError
from headgate.pipeline.frames import tasks_for
from headgate.pipeline.sources.compressed import ReadError
from headgate.pipeline.sources.files import GrowingPaths
from headgate.pipeline.sources.heads import head_of
from headgate.pipeline.sources.identity import Seen, look_at, place_of
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.sources.rotation import Input, RolledFiles, name_now

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2, whose streams are refused (``BOUNDED_STREAM``)
        SupportsTriggerAvailableNow = object

_ALL: Final = 1 << 30
"""Files of a batch that has no limit."""
_TRIES: Final = 5
"""How often a piece is read whose file is renamed meanwhile."""


class Log(NamedTuple):
    """What tells a log from others: device and inode, and its content (``identity``)."""

    place: tuple[int, int]
    head: str


class Pieces(InputPartition):
    """
    What a task reads.

    Args:
        pieces: of files.
        logs: those that may be renamed, by the path of their pieces.
    """

    def __init__(self, pieces: Sequence[FilePiece], logs: Mapping[str, Log] | None = None) -> None:
        self.pieces = tuple(pieces)
        self.logs = dict(logs or {})


class PieceReader(Protocol):
    """Reads pieces in a worker."""

    def read(self, pieces: Iterable[FilePiece]) -> Iterator[Any]:
        """Yield Arrow batches."""


@dataclasses.dataclass(frozen=True)
class Followed:
    """
    Which files a stream follows.

    Args:
        paths: directories, patterns and files, local.
        broker_id: of all logs; None = unknown.
        broker_id_pattern: regex on a log's path whose first group is the broker's id.
        most_files: of one batch; None = all.
        tasks: how many are to read; 0 = as many as suit this machine's cores.
        kinds: of pieces that are read; (): all.
        source: the data source's name.
        goes_on: whether a log that was removed before it was read is a bad line, and no error.
    """

    paths: Sequence[str]
    broker_id: int | None = None
    broker_id_pattern: str | None = None
    most_files: int | None = None
    tasks: int = 0
    kinds: tuple[str, ...] = ()
    source: str = ""
    goes_on: bool = False


class RequestLogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    Reads files that grow, every line once.

    Args:
        followed: which files.
        task: what reads their pieces.

    Raises:
        ConfigError: a path isn't there, or isn't local.
    """

    def __init__(self, followed: Followed, task: PieceReader) -> None:
        self._followed = followed
        self._task = task
        self._paths = GrowingPaths(followed.paths)
        self._known: tuple[Any, list[Input], RolledFiles] | None = None
        self._is_now = False
        self._until: dict[tuple[int, int], int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": None, "_until": None}  # workers need neither

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a stream that has read nothing."""
        return {"round": 0, "read": "[]", "pieces": "[]", "places": "{}"}

    def getDefaultReadLimit(self) -> Any:
        """Return how many files a batch reads at most."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        most = self._followed.most_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than files are long when they are next listed."""
        self._is_now = True
        self._until = None

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """
        Return the offset after what is there now; ``start`` itself where nothing is new.

        Raises:
            ConfigError, ReadError: the offset isn't this source's, or a file can't be read.
        """
        inputs, rolled = self._remembered(start, getattr(limit, "max_files", None) or _ALL)
        files = self._paths.files(rolled.places)
        if self._is_now:
            if self._until is None:
                self._until = dict(_sizes(files))
            files = [path for path in files if place_of(path) in self._until]
        found = rolled.take(files, sizes=self._until)
        only(found.pieces, self._followed.kinds, self._followed.source)
        if not found.pieces and not found.inputs:
            return dict(start)
        rolled.remember(found.inputs)
        inputs = latest([*inputs, *found.inputs])
        end = {
            "round": int(start["round"]) + 1,
            "read": packed(inputs),
            "pieces": json.dumps([dataclasses.astuple(piece) for piece in found.pieces]),
            "places": json.dumps(found.places),
        }
        if self._known is not None:
            self._known = ((end["read"], self._known[0][1]), inputs, rolled)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Pieces]:
        """Return tasks for the pieces between two offsets."""
        if start["round"] == end["round"]:
            return [Pieces(())]
        heads = {(row.device, row.inode): row.head or "" for row in unpacked(end["read"])}
        places = {path: (d, i) for path, (d, i) in json.loads(end["places"]).items()}
        logs = {path: Log(place, heads.get(place, "")) for path, place in places.items()}
        pieces = [piece_of(row) for row in json.loads(end["pieces"])]
        tasks = min(self._followed.tasks or tasks_for(pieces, os.cpu_count() or 1), len(pieces))
        return [Pieces(pieces[n::tasks], logs) for n in range(tasks)] or [Pieces(())]

    def read(self, partition: Pieces) -> Iterator[Any]:
        """
        Yield Arrow batches.

        Raises:
            ConfigError: a log isn't there any more, under any name.
            ReadError: one can't be read, or is renamed again and again.
        """
        for planned in partition.pieces:
            log = partition.logs.get(planned.path)
            if planned.unread or log is None:
                yield from self._task.read([self._as_it_is_now(planned)])
            elif planned.compression:
                piece = self._found_again(planned, log)
                place = place_of(piece.path)
                yield from self._task.read([piece])
                if not piece.unread and place_of(piece.path) != place:
                    raise ReadError(f"{piece.path}: it was renamed while it was read")
            else:
                yield from self._of_log(planned, log)

    def _of_log(self, planned: FilePiece, log: Log) -> list[Any]:
        """Read a piece of a log until no rename comes between; a piece is held in memory."""
        for _ in range(_TRIES):
            piece = self._found_again(planned, log)
            place = place_of(piece.path)
            try:
                batches = list(self._task.read([piece]))
            except OSError:
                if self._found_again(planned, log) == piece and place_of(piece.path) == place:
                    raise
                continue
            # A copied and truncated log is the same file with other lines.
            if piece.unread or (
                place_of(piece.path) == place and self._found_again(planned, log) == piece
            ):
                return batches
        raise ReadError(f"{planned.path}: it was renamed while it was read, again and again")

    def _as_it_is_now(self, planned: FilePiece) -> FilePiece:
        """Return a piece of a journal or a table; where streams go on, a removed one is told."""
        piece = dataclasses.replace(planned, path=name_now(planned.path))
        if not self._followed.goes_on or piece.unread or place_of(piece.path) is not None:
            return piece
        return dataclasses.replace(
            piece, kind="log", unread="it was removed before its rows were read"
        )

    def _found_again(self, piece: FilePiece, log: Log) -> FilePiece:
        """
        Return a piece under the name that its log has now.

        Raises:
            ConfigError: the log isn't there any more, under any name.
        """
        seen = _seen(piece.path)
        if seen is not None and seen.place == log.place and _holds(seen, piece, log):
            return piece
        folder = Path(piece.path).parent
        others = {*self._paths.files({log.place})}
        with contextlib.suppress(FileNotFoundError):  # the folder was removed with its logs
            others |= {str(file) for file in folder.iterdir() if file.is_file()}
        found = [s for path in sorted(others) if (s := _seen(path)) and _holds(s, piece, log)]
        if found:
            best = min(found, key=lambda s: (s.place != log.place, s.compressed))
            kind = head_of(best.path)[1] if best.compressed else ""
            return dataclasses.replace(piece, path=best.path, compression=kind)
        why = "it was renamed or removed while its lines were to be read"
        if self._followed.goes_on:
            return dataclasses.replace(piece, unread=f"{why}, and no other file holds them")
        raise ConfigError(
            f"{piece.path}: {why}, and its folder doesn't hold it any more; put it back, and start "
            "the query again"
        )

    def _remembered(self, start: dict[str, Any], most: int) -> tuple[list[Input], RolledFiles]:
        """
        Return what was read up to an offset; kept from one batch to the next.

        Raises:
            ConfigError: the offset isn't this source's.
        """
        if "read" not in start:
            raise ConfigError(
                "the checkpoint is of another source, not of files; give another checkpointLocation"
            )
        if self._known is None or self._known[0] != (start["read"], most):
            rolled = RolledFiles(
                broker_id=self._followed.broker_id,
                broker_id_pattern=self._followed.broker_id_pattern,
                files_per_round=most,
            )
            inputs = unpacked(start["read"])
            rolled.remember(inputs)
            self._known = ((start["read"], most), inputs, rolled)
        return self._known[1], self._known[2]


def latest(rows: Sequence[Input]) -> list[Input]:
    """Return what is to be remembered: of a log that grew, only how much of it was read last."""
    kept: dict[Any, Input] = {}
    for row in rows:
        key = row.head if row.head is not None else tuple(row[:4])
        kept.pop(key, None)  # the latest row comes last: its inode may have been another file's
        kept[key] = row
    return list(kept.values())


def packed(rows: Sequence[Input]) -> str:
    """Return what was read as a text: Spark keeps the offsets of a hundred batches."""
    return base64.b64encode(zlib.compress(json.dumps(rows).encode())).decode()


def unpacked(text: str) -> list[Input]:
    """Return what was read; a text as JSON, of an offset of earlier versions, is read too."""
    data = text if text.startswith("[") else zlib.decompress(base64.b64decode(text))
    return [Input(*row) for row in json.loads(data)]


def piece_of(row: Sequence[Any]) -> FilePiece:
    """Return a piece of an offset."""
    made = FilePiece(*row)
    starts = tuple((broker, (seq, ms)) for broker, (seq, ms) in made.starts)
    return dataclasses.replace(
        made,
        starts=starts,
        shifts_ms=tuple(made.shifts_ms or ()),
        columns=tuple(made.columns or ()),
    )


def only(pieces: Sequence[FilePiece], kinds: tuple[str, ...], source: str) -> None:
    """
    Refuse files of other kinds than a source reads.

    Raises:
        BadArgument: names the first.
    """
    others = [piece.path for piece in pieces if kinds and piece.kind not in kinds]
    if others:
        raise BadArgument(
            f"{source}: {others[0]} isn't a journal; read it by format kafka-request-log"
        )


def _holds(seen: Seen, piece: FilePiece, log: Log) -> bool:
    """Say whether a file holds the lines of a log's piece."""
    known = log.head in (seen.head, seen.elder)
    return known and (seen.compressed or seen.size >= piece.end)


def _seen(path: str) -> Seen | None:
    """Look at a file; None: it isn't there, or can't be read."""
    try:
        return look_at(path, 0.0)
    except OSError:
        return None


def _sizes(files: Iterable[str]) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield (device, inode) and size in bytes of the files that are there."""
    for path in files:
        try:
            found = Path(path).stat()
        except FileNotFoundError:
            continue
        yield (found.st_dev, found.st_ino), found.st_size
