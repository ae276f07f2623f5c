"""
Parts of a stream's offsets: what was read of which file, whatever it is called by then.

An offset (of ``request_log.RequestLogStream``) holds what ``RolledFiles`` remembers, and the pieces
of the batch that ends there, with device and inode of each file. So a batch that is run again after
a kill reads the same bytes, also of a file that was renamed meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headgate.errors import ConfigError
from headgate.pipeline.growing.rotation import place_of
from headgate.pipeline.growing.rounds import Input
from headgate.pipeline.sources.compressed import ReadError
from headgate.pipeline.sources.pieces import FilePiece


def latest(rows: Sequence[Input]) -> list[Input]:
    """Return what is to be remembered: of a log that grew, only how much of it was read last."""
    kept: dict[Any, Input] = {}
    for row in rows:
        key = row.head if row.head is not None else tuple(row[:4])
        kept[key] = row
    return list(kept.values())


def piece_of(row: Sequence[Any]) -> FilePiece:
    """Return a piece of an offset."""
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
    if place is None or piece.unread or place_of(piece.path) == place:
        return piece
    for file in Path(piece.path).parent.iterdir():
        if place_of(file) == place:
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
    if place is not None and not piece.unread and place_of(piece.path) != place:
        raise ReadError(f"{piece.path}: it was renamed while it was read")
