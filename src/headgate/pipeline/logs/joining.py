"""
Put lines together that are parts of one request: split by a runtime, or printed over several.

Container runtimes, syslog and shippers split long lines; exports print JSON over several lines; a
cell of CSV may hold newlines. A line that ends inside the JSON of a request is kept, as long as
lines that go on with it follow; what all of them give is read as one line. What never becomes whole
is as many bad lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from headgate.pipeline.logs.bad_lines import HEADER, MARK, BadLine, is_rest, may_go_on
from headgate.pipeline.logs.csv_lines import names_in
from headgate.pipeline.logs.line_parser import LineParser, LogRow
from headgate.pipeline.logs.parts import Part, WrappedLine
from headgate.pipeline.logs.stamp_forms import EPOCH, STAMP, is_dated

MOST_BYTES: Final = 8 << 20
"""Bytes of lines that are kept for one request; its fetch may name thousands of partitions."""
_MOST_OPEN: Final = 32
"""Requests under way at once: streams and pods whose lines are mixed in one file."""
MOST_BETWEEN: Final = 1 << 18
"""Bytes of other lines between two parts."""
_HEADER: Final = HEADER.decode()
_MARK: Final = MARK.decode()
_DOTS: Final = "..."
_TIME: Final = re.compile(r"\d?\d:\d\d:\d\d(?:[.,]\d+)?")
_BEGIN: Final = re.compile(r'[{\[](?=\s*(?:["{\[}\]]|$))')
_TOKEN: Final = re.compile(r'["{}\[\]]')
_IN_STRING: Final = re.compile(r'["\\]|requestHeader')
_PRETTY: Final = re.compile(r'\s|["}\]{\[]|(?:-?\d[\d.eE+-]*|true|false|null),?\s*$')
_BEGINS: Final = re.compile(r'Completed request:|\{\\*"isForwarded')
_BEHIND: Final = re.compile(rb"\s+\([\w.$]+\)\s*")
_MEMBER: Final = re.compile(r'\s*"')
_LEVEL: Final = re.compile(r"(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b", re.IGNORECASE)
Read = tuple[int, LogRow | BadLine, bytes]
"""The offset of a line; what it holds, or why not; the line."""


class _Open:
    """Lines that are kept because the JSON in them isn't at its end."""

    def __init__(self, part: Part) -> None:
        self.part = part
        # Of a text with dots at its end, without times: syslog's, and so its source.
        self.front = ""
        self.texts: list[str] = []
        self._ends: list[int] = []  # of each, what isn't taken out behind it
        self.kept: list[tuple[int, bytes]] = []
        self.size = self.last = 0
        self.more: bool | None = None
        self.dotted = False
        self._closers: list[tuple[str, int, int]] = []  # what is open, the text and place of it
        self._in_string = self._escaped = self._begun = False
        self._named = (-1, -1)  # where the key of a request is: the last one's text and place

    @property
    def depth(self) -> int:
        """How many objects and lists are open; a string counts as one."""
        return len(self._closers) + self._in_string

    def is_of_one_source(self, other: _Open) -> bool:
        """Say whether two are of one source; where nothing tells it, all are."""
        return (self.part.source, self.front) == (other.part.source, other.front)

    def take(self, offset: int, line: bytes, part: Part) -> list[str]:
        """Add a line; return the elements of lists that have become whole and hold a request."""
        self.kept.append((offset, line))
        self.last = offset
        self.size += len(line)
        self.more = part.more
        text = part.text
        self.dotted = part.more is None and not part.source and text.endswith(_DOTS)
        if self.dotted and not self.texts:
            self.front = _TIME.sub("", text[: max(text.find(_MARK), 0)])
        text = text[: -len(_DOTS)] if self.dotted else text
        at = 0
        if not self._begun:
            in_json = text.lstrip().startswith(("{", "["))
            begin = _BEGIN.search(text, 0 if in_json else max(text.find(_MARK), 0))
            at = len(text) if begin is None else begin.start()
            self._begun = begin is not None
        self.texts.append(text)
        self._ends.append(len(text))
        return list(self._walk(at))

    @property
    def text(self) -> str:
        """What all lines say together, but for elements that were taken out."""
        return "".join(text[:end] for text, end in zip(self.texts, self._ends, strict=True))

    def _walk(self, at: int) -> Iterator[str]:
        """Follow the JSON through the last text, and take elements out of it that are whole."""
        text, number = self.texts[-1], len(self.texts) - 1
        gone: list[tuple[int, int]] = []  # where such elements were in it
        if self._escaped:
            at, self._escaped = at + 1, False
        while (found := (_IN_STRING if self._in_string else _TOKEN).search(text, at)) is not None:
            at, c = found.end(), found[0]
            if c == '"':
                self._in_string = not self._in_string
            elif c == "\\":
                at += 1
                self._escaped = at > len(text)
            elif c == _HEADER:
                self._named = (number, found.start())
            elif c in "{[":
                self._closers.append((c, number, at - 1))
            elif self._closers:
                kind, begun, place = self._closers.pop()
                listed = bool(self._closers) and self._closers[-1][0] == "["
                if kind == "{" and listed and self._named >= (begun, place):
                    before = self._cut(begun, place) if begun < number else []
                    begin = 0 if begun < number else place
                    number = len(self.texts) - 1
                    own = []
                    end = at
                    while gone and gone[-1][0] >= begin:  # those within it
                        start, stop = gone.pop()
                        own.append(text[stop:end])
                        end = start
                    yield "".join((*before, text[begin:end], *reversed(own)))
                    gone.append((begin, at))
                    self._named = (-1, -1)
                if not self._closers:
                    break
        self._drop(gone)

    def _cut(self, begun: int, place: int) -> list[str]:
        """Take out what stands behind a place in the texts before the last."""
        first = self.texts[begun]
        cut = [first[place : self._ends[begun]]]
        between = zip(self.texts[begun + 1 : -1], self._ends[begun + 1 : -1], strict=True)
        cut += [text[:end] for text, end in between]
        del self.texts[begun + 1 : -1], self._ends[begun + 1 : -1]
        self._ends[begun] = place
        if place * 2 < len(first):  # else copying what stays would cost more than what goes
            self.texts[begun] = first[:place]
        return cut

    def _drop(self, gone: list[tuple[int, int]]) -> None:
        """Take stretches out of the last text."""
        if not gone:
            return
        text, number = self.texts[-1], len(self.texts) - 1
        first = len(self._closers)
        while first and self._closers[first - 1][1] == number:
            first -= 1
        rest, at, before = [], 0, 0
        for begin, end in (*gone, (len(text), len(text))):
            while first < len(self._closers) and self._closers[first][2] < begin:
                kind, _, place = self._closers[first]
                self._closers[first] = (kind, number, place - before)
                first += 1
            if at <= self._named[1] < begin and self._named[0] == number:
                self._named = (number, self._named[1] - before)
            rest.append(text[at:begin])
            at, before = end, before + end - begin
        self.texts[-1] = "".join(rest)
        self._ends[-1] = len(self.texts[-1])


class Joiner:
    """
    Reads lines, and puts those together that belong together.

    Args:
        parser: reads lines of one file.
        is_document: the file is JSON over several lines; what wraps its requests is no bad line.

    Lines that hold a part of a request, or what wraps requests, give nothing.

    Attributes:
        is_torn: a line that was passed over seems a part of a request whose beginning wasn't there.
    """

    def __init__(self, parser: LineParser, *, is_document: bool = False) -> None:
        self._parser = parser
        self._open: list[_Open] = []
        self._is_csv = bool(parser.columns)
        self._in_cell = False
        self._is_document = is_document
        self._has_read = self.is_torn = False
        self._ended = False  # a request of several lines has, in the line before

    def take(self, offset: int, line: bytes) -> Iterator[Read]:
        """
        Yield what a line holds, and lines before it that it has made whole or bad.

        A request of several lines has the offset of its last.
        """
        if self._open:
            for opened in [each for each in self._open if offset - each.last > MOST_BETWEEN]:
                yield from self._bad(opened)
            goes_on = self._continued(line)
            if goes_on is not None:
                yield from self._add(offset, line, *goes_on)
                return
        if self._in_cell and self._ends_in_cell(line):
            return
        ended, self._ended = self._ended, False
        if ended and _BEHIND.fullmatch(line):
            return  # the layout's text behind the JSON
        if offset == 0 and self._is_csv and names_in(line) == self._parser.columns:
            return
        found = self._parser.rows(line)
        if len(found) == 1 and isinstance(found[0], BadLine):
            given = self._kept(offset, line)
            if given is not None:
                yield from given
                return
        elif self._is_csv:
            self._in_cell = line.count(b'"') % 2 == 1
        for number, row in enumerate(found):
            self._has_read |= isinstance(row, LogRow)
            yield offset + number, row, line

    def _kept(self, offset: int, line: bytes) -> list[Read] | None:
        """Keep a line that others may go on with; return what it and elder ones give."""
        part = self._begun(line)
        if part is None:
            return None
        opened = _Open(part)
        given = list(self._elements(opened, opened.take(offset, line, part), line, offset))
        if not opened.depth:
            return None
        for other in [each for each in self._open if each.is_of_one_source(opened)]:
            given += self._bad(other)
        self._open.append(opened)
        if len(self._open) > _MOST_OPEN:
            given += self._bad(self._open[0])
        return given

    def _ends_in_cell(self, line: bytes) -> bool:
        """Say whether a line is the rest of a cell of CSV whose request was read."""
        if HEADER in line or MARK in line:
            self._in_cell = False
            return False
        self._in_cell = line.count(b'"') % 2 == 0
        return True

    def pass_over(self, offset: int, line: bytes) -> None:
        """Take a line only for what is under way behind it; what it holds is another's to read."""
        alone = True
        if self._open or self._is_csv or may_go_on(line):
            alone = any(at == offset for at, _, _ in self.take(offset, line))
        self.is_torn |= alone and is_rest(line)

    @property
    def is_under_way(self) -> bool:
        """Whether lines are kept that others may go on with."""
        return bool(self._open)

    @property
    def awaiting(self) -> list[int]:
        """Where requests begin of which a runtime says that more follows."""
        return [each.kept[0][0] for each in self._open if each.more and each.kept]

    def end(self) -> Iterator[Read]:
        """Yield what the lines hold that are still kept."""
        for opened in list(self._open):
            yield from self._bad(opened)

    def _begun(self, line: bytes) -> Part | None:
        """Return a line in whose message the JSON of a request, or of several, begins."""
        part = WrappedLine(line).begins()
        text = part.text.rstrip()
        marked = _MARK in text or _HEADER in text
        if part.more or text.endswith(_DOTS):
            return part if marked else None
        if text.endswith(("{", "[", ",")) and (marked or text.lstrip().startswith(("{", "["))):
            return part
        if part.more is None and part.source and marked:
            return part  # a shipper's field, split without a word
        if self._is_csv and marked and text.count('"') % 2:
            return part
        return None

    def _continued(self, line: bytes) -> tuple[_Open, Part] | None:
        """Return what a line goes on with, and its part of it; None where it stands alone."""
        wrapped = WrappedLine(line)
        for opened in reversed(self._open):
            part = wrapped.goes_on(opened.part)
            if part.source != opened.part.source:
                continue
            is_marked = _MARK in part.text
            is_anew = not opened.dotted and _begins_anew(part.text)
            if opened.more and not (is_anew and is_marked):
                return opened, part
            if is_anew or (is_marked and not _MEMBER.match(part.text)):
                continue
            if opened.more is None and part.source and not opened.dotted:
                return opened, part
            if opened.dotted:
                front, dots, rest = part.text.partition(_DOTS)
                if dots and front and opened.front.startswith(_TIME.sub("", front)):
                    return opened, part._replace(text=rest)
            elif _PRETTY.match(part.text) or (self._is_csv and _HEADER not in part.text):
                return opened, part._replace(text="\n" + part.text)
        return None

    def _add(self, offset: int, line: bytes, opened: _Open, part: Part) -> Iterator[Read]:
        """Add a line to those it goes on with; yield what has become whole."""
        yield from self._elements(opened, opened.take(offset, line, part), line, offset)
        if opened.depth and opened.size <= MOST_BYTES:
            return
        if opened.depth:
            yield from self._bad(opened)
            return
        self._open.remove(opened)
        whole = opened.part.rebuilt(opened.text)
        raw = whole.encode("utf-8", "surrogateescape")
        found = self._parser.rows(raw)
        is_read = any(isinstance(row, LogRow) for row in found)
        if is_read or (self._is_document and self._has_read and _HEADER in whole):
            self._ended = not opened.part.source
            for number, row in enumerate(found):
                yield offset + number, row, raw if isinstance(row, BadLine) else line
        elif not (self._is_document and self._has_read):
            yield from self._each(opened)

    def _elements(
        self, opened: _Open, given: list[str], line: bytes, offset: int
    ) -> Iterator[Read]:
        """Yield what elements of a list hold; unless all of it is bad, as its lines are then."""
        for text in given:
            raw = text.encode("utf-8", "surrogateescape")
            found = self._parser.rows(raw)
            good = any(isinstance(row, LogRow) for row in found)
            self._has_read |= good
            if not good and not self._is_document:
                continue
            opened.kept, opened.size = [], 0  # its lines, and what wraps them
            for number, row in enumerate(found):
                yield offset + number, row, raw if isinstance(row, BadLine) else line

    def _bad(self, opened: _Open) -> Iterator[Read]:
        """Give up what doesn't become whole."""
        self._open.remove(opened)
        yield from self._each(opened)

    def _each(self, opened: _Open) -> Iterator[Read]:
        """Yield what each of the lines kept holds on its own."""
        lines = len(opened.kept)
        for number, (offset, line) in enumerate(opened.kept):
            found = self._parser.rows(line)
            if lines > 1 and opened.depth and isinstance(found[0], BadLine):
                end = f"{opened.depth} brackets of its JSON are open at the end, {lines} lines on"
                why = (
                    "a line of a request that is cut off further on"
                    if number
                    else f"cut off: {end}"
                )
                found = [BadLine(why)]
            for place, row in enumerate(found):
                yield offset + place, row, line


def _begins_anew(text: str) -> bool:
    """Say whether a text begins as a logger's line does: with a time, a level, or a request."""
    if text.startswith(_MARK):
        return True
    begin = 1 if text[:1] in ("[", "(", "<") else 0
    if _LEVEL.match(text, begin):
        return True
    raw = text[begin : begin + 64].encode("utf-8", "replace")
    stamp = STAMP.match(raw)
    if stamp is not None:
        return is_dated(stamp) or b":" in stamp[0] or bool(stamp["mon4"])
    epoch = EPOCH.match(raw)
    return epoch is not None and raw[epoch.end() : epoch.end() + 1] in (b" ", b"\t", b"]")
