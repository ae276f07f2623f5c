"""
Offsets of a stream of growing logs: what was read of which file, whatever it is called by then.

An offset holds what ``RolledFiles`` remembers, and the pieces of the batch that ends there, with
device and inode of each file. So a batch that is run again after a kill reads the same bytes, also
of a file that was renamed meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.errors import ConfigError
from headgate.pipeline.growing.directories import Paths
from headgate.pipeline.growing.rotation import RolledFiles
from headgate.pipeline.growing.rounds import Input
from headgate.pipeline.sources.compressed import ReadError
from headgate.pipeline.sources.pieces import FilePiece

_ALL: Final = 1 << 30
"""Files of a batch that has no limit."""


@dataclass(frozen=True)
class Batch:
    """
    What a batch reads.

    Args:
        pieces: of files.
        places: device and inode of each plain log, by path.
    """

    pieces: list[FilePiece]
    places: dict[str, tuple[int, int]]


class LogStream:
    """
    Says what is new of growing logs.

    Args:
        paths: local directories, patterns and files.
        broker_id: of all logs; None = unknown.
        broker_id_pattern: regex on a log's path whose first group is the broker's id.
    """

    def __init__(
        self, paths: Sequence[str], broker_id: int | None, broker_id_pattern: str | None
    ) -> None:
        self._given = tuple(paths)
        self._broker = {"broker_id": broker_id, "broker_id_pattern": broker_id_pattern}

    def begin(self) -> dict[str, Any]:
        """Return the offset of a stream that has read nothing."""
        return {"round": 0, "read": "[]", "pieces": "[]", "places": "{}"}

    def after(self, start: Mapping[str, Any], most: int | None) -> dict[str, Any]:
        """
        Return the offset after what is there now; ``start`` itself where nothing is new.

        Args:
            start: where the last batch ended.
            most: files, at most; None = all.

        Raises:
            ConfigError, ReadError: the files can't be followed, or one can't be read.
        """
        known = [Input(*row) for row in json.loads(start["read"])]
        rolled = RolledFiles(files_per_round=most or _ALL, **self._broker)  # type: ignore[arg-type]
        rolled.remember(known)
        found = rolled.take(Paths(self._given).files(rolled.places))
        if not found.pieces and not found.inputs:
            return dict(start)
        return {
            "round": int(start["round"]) + 1,
            "read": json.dumps(_latest([*known, *found.inputs])),
            "pieces": json.dumps([dataclasses.astuple(piece) for piece in found.pieces]),
            "places": json.dumps(found.places),
        }

    def between(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Batch:
        """Return what the batch that ends at an offset reads."""
        if start["round"] == end["round"]:
            return Batch([], {})
        places = {path: (d, i) for path, (d, i) in json.loads(end["places"]).items()}
        return Batch([_piece(row) for row in json.loads(end["pieces"])], places)


def _latest(rows: Sequence[Input]) -> list[Input]:
    """Return what is to be remembered: of a log that grew, only how much of it was read last."""
    kept: dict[Any, Input] = {}
    for row in rows:
        key = row.head if row.head is not None else tuple(row[:4])
        kept[key] = row
    return list(kept.values())


def _piece(row: Sequence[Any]) -> FilePiece:
    made = FilePiece(*row)
    starts = tuple((broker, (seq, ms)) for broker, (seq, ms) in made.starts)
    return dataclasses.replace(made, starts=starts)


def found_again(piece: FilePiece, place: tuple[int, int] | None) -> FilePiece:
    """
    Return a piece under the name that its file has now.

    Args:
        piece: as it was planned.
        place: device and inode of its file; None: it isn't one that grows.

    Raises:
        ConfigError: the file isn't in its folder any more, under any name.
    """
    if place is None or piece.unread or _place(Path(piece.path)) == place:
        return piece
    for file in Path(piece.path).parent.iterdir():
        if _place(file) == place:
            return dataclasses.replace(piece, path=str(file))
    raise ConfigError(
        f"{piece.path}: it was renamed or removed while its lines were to be read, and its folder "
        "doesn't hold it any more; put it back, and start the query again"
    )


def check_still_there(piece: FilePiece, place: tuple[int, int] | None) -> None:
    """
    Make sure that what was just read under a name was the file that was meant.

    Raises:
        ReadError: the name is another file's now; Spark tries the task again, by the new name.
    """
    if place is not None and not piece.unread and _place(Path(piece.path)) != place:
        raise ReadError(f"{piece.path}: it was renamed while it was read")


def _place(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
