"""
Identify log files by their content, so that one that is renamed or compressed is known again.

A log is identified by its first whole request line, under any name, compressed or not; one without
a request in its first megabytes by how it begins. A file that wasn't written to for a while and has
no request is identified by its device, inode and first line. Of two files that begin with the same
line, device and inode tell which was read before.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from headgate.pipeline.logs.bad_lines import is_part
from headgate.pipeline.sources.compressed import Damaged, decompressed, reading
from headgate.pipeline.sources.files import filesystem
from headgate.pipeline.sources.heads import first_request, head_of
from headgate.pipeline.sources.under_way import under_way

# A file that wasn't written to for so long is whole, though its last line has no newline.
SETTLED_S: Final = 60.0
_HEAD_BYTES: Final = 65536


@dataclass(frozen=True, slots=True)
class Seen:
    """
    A file as a round finds it.

    Attributes:
        place: device and inode.
        head: identifies it (see the module); "" while it is too short to be identified.
        size: in bytes.
        compressed: whether it is; then its text is longer than ``size``.
        modified_ns: when it was last written.
        elder: identified it before it had a request.
    """

    path: str
    place: tuple[int, int]
    head: str
    size: int
    compressed: bool
    modified_ns: int
    elder: str = ""

    def is_settled(self, now_s: float) -> bool:
        """Say whether it isn't being written."""
        return now_s - self.modified_ns / 1e9 > SETTLED_S


def place_of(path: str | Path) -> tuple[int, int] | None:
    """Return a file's device and inode; None: it isn't there."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def look_at(path: str, now_s: float) -> Seen:
    """
    Look at a file.

    Raises:
        ReadError: it can't be read; its cause is a FileNotFoundError where it has gone.
    """
    with reading(path):
        found = Path(path).stat()
        head, compression, _ = head_of(path)
    place = found.st_dev, found.st_ino
    request = first_request(head)
    first = hashlib.sha256(head[: head.find(b"\n") + 1 or _HEAD_BYTES]).hexdigest()
    elder = f"{place[0]}:{place[1]}:{first}"
    seen = Seen(path, place, "", found.st_size, bool(compression), found.st_mtime_ns, elder)
    if request:
        return replace(seen, head=hashlib.sha256(request).hexdigest())
    return replace(seen, head=elder) if seen.is_settled(now_s) else seen


def is_whole(path: str) -> bool:
    """Say whether a compressed file can be read to its end: nobody is writing it."""
    system, inner = filesystem(path)
    try:
        with reading(path):
            for _ in decompressed(system, inner, head_of(path)[1]):
                pass
    except Damaged:
        return False
    return True


def whole_lines(path: str, begin: int, end: int) -> int:
    """
    Return where the last whole line of a file ends, of those that a runtime hasn't split.

    Args:
        path: of the file, plain.
        begin: offset of the first line to look at; returned if no line is whole.
        end: offset at which to stop.

    Raises:
        ReadError: it can't be read.
    """
    with reading(path), Path(path).open("rb") as file:
        while end > begin:
            start = max(begin, end - _HEAD_BYTES)
            file.seek(start)
            data = file.read(end - start)
            newline = data.rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                before = data.rfind(b"\n", 0, newline)
                if start + before + 1 < begin or not is_part(data[before + 1 : newline]):
                    return _before_parts(file, begin, end)
                newline = before  # the rest of it is still to come
            end = start + max(newline + 1, 0)
    return begin


def _before_parts(file: Any, begin: int, end: int) -> int:
    """Return where a request begins before ``end`` whose last part is still to come; else that."""
    joiner, _ = under_way(file, begin, end)
    return min(joiner.awaiting, default=end)
