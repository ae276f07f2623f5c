"""
Find the requests of several lines that are under way at a place of a file.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.pipeline.logs.joining import MOST_BETWEEN, MOST_BYTES, Joiner
from headgate.pipeline.logs.line_parser import LineParser

_WIDER: Final = 4


def under_way(
    file: Any, begin: int, at: int, columns: tuple[str, ...] = ()
) -> tuple[Joiner, bytes]:
    """
    Return what is under way at a place of a file, and the line before it.

    So much text before the place is looked at that a part of any request under way is in it, and
    more, within bounds, where its beginning isn't.

    Args:
        file: plain, and open.
        begin: nothing before this counts.
        at: the place, at the start of a line.
        columns: what a file of CSV calls its columns.
    """
    size = MOST_BETWEEN
    while True:
        start = max(at - size, begin)
        file.seek(start)
        text: bytes = file.read(at - start)
        behind = text.find(b"\n") + 1 if start > begin else 0  # what ends a line under way
        joiner, line, offset = Joiner(LineParser(columns=columns)), b"", start + behind
        for line in text[behind:].split(b"\n")[:-1]:
            joiner.pass_over(offset, line)
            offset += len(line) + 1
        if start == begin or size == MOST_BYTES or not joiner.is_torn:
            return joiner, line
        size = min(_WIDER * size, MOST_BYTES)
