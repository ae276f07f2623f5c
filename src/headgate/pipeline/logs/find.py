"""
Find the requests in a line, wherever they stand, and the time of each.

A request is the JSON object that has ``requestHeader``. It may stand in text, be a JSON layout's
field, a string in a string at any depth, an element of a list, a cell of CSV, or an array of bytes;
its keys may be in any order, and a line may hold several. Its time is the nearest: in the text in
front of it, in the fields beside it, or in what stands around these.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from headgate.pipeline.logs.bad_lines import MARK, BadLine, not_a_request, why
from headgate.pipeline.logs.field_times import times_beside
from headgate.pipeline.logs.time_stamps import Stamp, StampError, StampReader

_HEADER: Final = "requestHeader"
_MARK: Final = MARK.decode()
_JSON: Final = json.JSONDecoder()
_OPENS: Final = re.compile(r'[{\[](?=\s*["{\[])')
_ESCAPED: Final = re.compile(r'[{\[]\s*\\+"')
# Of CSV, a cell in quotes up to the word, its own quotes doubled.
_CELL: Final = re.compile(r'(?:^|[,;\t|])"(?:[^"]|"")*requestHeader')
_FIRST_CELLS: Final = re.compile(r'(?:[^",;\t|{]*[,;\t|])*"(?!\s*:)')
_BEHIND: Final = re.compile(r'[^"]"([,;\t|])')
_MOST_BRACES: Final = 8
"""Braces in front of a request (a thread's name, say) that are looked past."""
_MOST_LOOKED: Final = 16
"""Characters that are decoded in vain, for each of a line."""
_NEAR: Final = 512
_WINDOW: Final = 4096
_EDGE: Final = 16
"""Characters before a part's end where an error may come from its end: an escape, say."""
_KEY: Final = re.compile(r'(?<=")requestHeader(?=\\*"|\.requestApiKey)')
_MOST_DEPTH: Final = 64
_FLAT: Final = re.compile(r"(.*\.)?requestHeader\.requestApiKey")
csv.field_size_limit(1 << 30)


class Found(NamedTuple):
    """
    A request in a line.

    Attributes:
        body: its JSON, compact.
        own: its time.
        others: times of what stands around, nearest first.
    """

    body: bytes
    own: Stamp
    others: list[Stamp]


class _Place(NamedTuple):
    """A request, or why none is; what stands around it; which event of the line it belongs to."""

    value: dict[str, Any] | BadLine
    around: tuple[Any, ...]
    event: tuple[int, ...]


def find(line: bytes, stamps: StampReader) -> Iterator[Found | BadLine | StampError]:
    """
    Yield the requests in a line, in order, each once; for one that can't be read, why.

    Raises:
        RecursionError: the line is nested too deep.
    """
    text = line.decode("utf-8", "surrogateescape")
    places = list(_Finder(len(text)).in_text(text, (), (0,)))
    by_event: dict[tuple[int, ...], list[_Place]] = {}
    for place in places:  # a field may hold two events, and another the same two again
        by_event.setdefault(place.event, []).append(place)
    for group in by_event.values():
        good: list[_Place] = []
        for place in group:  # short and full messages, the original beside what was made of it
            if not any(place.value == other.value for other in good):
                good += [place] if isinstance(place.value, dict) else []
        for place in good or group[:1]:
            if isinstance(place.value, BadLine):
                yield place.value
                continue
            try:
                own, others = moment(place.around, stamps)
                yield Found(_encoded(place.value), own, others)
            except (StampError, BadLine) as exc:
                yield exc


def find_one(line: bytes, stamps: StampReader) -> Found:
    """
    Return the only request in a line.

    Raises:
        BadLine, StampError: it holds none that can be read, or several.
        RecursionError: the line is nested too deep.
    """
    found = list(find(line, stamps))
    if len(found) != 1:
        raise BadLine(not_a_request(line) if not found else f"{len(found)} requests")
    if not isinstance(found[0], Found):
        raise found[0]
    return found[0]


class _Finder:
    """
    Finds the requests of one line.

    Args:
        size: of the line; what is decoded in vain grows with it, and no faster.
    """

    def __init__(self, size: int) -> None:
        self._room = _MOST_LOOKED * size

    def in_text(
        self, text: str, around: tuple[Any, ...], event: tuple[int, ...]
    ) -> Iterator[_Place]:
        """Yield the requests in a text."""
        if len(around) > _MOST_DEPTH:
            raise RecursionError
        at = front = number = 0  # front: where the text begins in front of what is next
        whole = self._decoded(text, 0) if text[:1] in ("{", "[", '"', " ", "\t") else None
        if whole is not None and whole[1] > text.find(_HEADER):
            yield from self.in_value(whole[0], around, (*event, 0))
            at, number = whole[1], 1
            front = at
        elif (cells := _cells(text)) is not None:
            yield from self.in_value(cells, around, event)
            return
        while (header := text.find(_HEADER, at)) >= 0:
            inner = (*event, number)
            number += 1
            here = self._object_around(text, at, header)
            if here is not None:
                begin, (value, end) = here
                yield from self.in_value(value, (*around, text[front:begin]), inner)
                at = front = end
                continue
            escaped = self._string_around(text, at, header)
            if escaped is not None:
                begin, (plain, end) = escaped
                yield from self.in_text(plain, (*around, text[front:begin]), inner)
                at = front = end
                continue
            after = _next_request(text, header)
            reason = why(_raw(text[max(text.find("{", at), 0) : after]), None)
            if self._room <= 0:
                reason = "too much of this line is broken JSON; what follows isn't read"
            yield _Place(BadLine(reason), around, inner)
            # No string of the broken request's own is in front of the next.
            at, front = after, max(text.rfind('"', header, after) + 1, header)

    def in_value(
        self, value: Any, around: tuple[Any, ...], event: tuple[int, ...]
    ) -> Iterator[_Place]:
        """Yield the requests in a JSON value."""
        if isinstance(value, str):
            if _HEADER in value:
                yield from self.in_text(value, around, event)
        elif isinstance(value, dict):
            request = _request_in(value)
            if request is not None:
                yield _Place(request, (*around, (value, None)), event)
                return
            for each in value.values():
                yield from self.in_value(each, (*around, (value, each)), event)
        elif isinstance(value, list):
            told = _text_of_bytes(value)
            if told is not None:
                yield from self.in_value(told, around, event)
                return
            # A list is of events, unless it is one: a time, and a line.
            is_one = sum(isinstance(each, str | int) for each in value) == len(value) <= 4
            events = []
            for number, each in enumerate(value):
                inner = event if is_one else (*event, number)
                events.append(list(self.in_value(each, (*around, (value, each)), inner)))
            like = [each for each, found in zip(value, events, strict=True) if found]
            for number, (each, found) in enumerate(zip(value, events, strict=True)):
                yield from found
                if not found and not is_one and any(_is_alike(each, other) for other in like[:1]):
                    yield _Place(BadLine("not a request line"), around, (*event, number))

    def _object_around(self, text: str, at: int, header: int) -> tuple[int, tuple[Any, int]] | None:
        """Return (where it begins, (value, end)) of the JSON around a place in a text."""
        mark = text.rfind(_MARK, at, header)
        opens = [text.find("{", mark, header)] if mark >= 0 else []
        first = (m.start() for m in _OPENS.finditer(text, at, header))
        for begin in dict.fromkeys((*opens, *itertools.islice(first, _MOST_BRACES))):
            if begin >= 0:
                decoded = self._decoded(text, begin)
                if decoded is not None and decoded[1] > header:
                    return begin, decoded
        return None

    def _string_around(self, text: str, at: int, header: int) -> tuple[int, tuple[str, int]] | None:
        """Return (where it begins, (text, end)) of the escaped string around a place in a text."""
        opens = _ESCAPED.search(text, at, header)
        if opens is None:
            return None
        begin = opens.start()
        quote = text.rfind('"', at, begin)
        while quote > at and text[quote - 1] == "\\":
            quote = text.rfind('"', at, quote)
        if quote >= 0:
            decoded = self._decoded(text, quote)
            if decoded is not None and decoded[1] > header:
                return quote, decoded
        end = text.rfind("}", begin, _next_request(text, header)) + 1
        self._room -= max(end - begin, 0)
        if self._room <= 0:
            return None
        try:  # without its quotes
            plain = json.loads(f'"{text[begin:end]}"', strict=False)
        except ValueError:
            return None
        return (begin, (plain, end)) if _HEADER in plain else None

    def _decoded(self, text: str, begin: int) -> tuple[Any, int] | None:
        """Return the JSON value that begins at a place, and its end."""
        while text[begin : begin + 1] in (" ", "\t"):
            begin += 1
        # An error counts newlines from the text's beginning: far behind it, a part is decoded.
        size = _WINDOW if begin > _NEAR else len(text)
        while self._room > 0:
            part, at = (text, begin) if begin <= _NEAR else (text[begin : begin + size], 0)
            try:
                value, end = _JSON.raw_decode(part, at)
            except json.JSONDecodeError as exc:
                is_open = exc.msg.startswith("Unterminated")
                self._room -= (len(part) if is_open else exc.pos) - at + 1
                if begin + size >= len(text) or not (is_open or exc.pos + _EDGE >= len(part)):
                    return None
                size *= 4
            except ValueError:
                self._room -= len(part) - at
                return None
            else:
                return value, begin - at + end
        return None


def _is_alike(value: Any, other: Any) -> bool:
    """Say whether two elements of a list are events of one kind: they have a key in common."""
    if isinstance(value, dict) and isinstance(other, dict):
        return not value.keys().isdisjoint(other)
    return isinstance(value, list) and isinstance(other, list)


def _next_request(text: str, header: int) -> int:
    """
    Return where the next request may begin behind a broken one; the text's end: nowhere.

    It is as deep in strings as the broken one: what is deeper is in one of that one's own.
    """
    depth = _depth(text, header)
    found = _KEY.finditer(text, header + len(_HEADER))
    key = next((m.start() for m in found if _depth(text, m.start()) == depth), -1)
    mark = text.find(_MARK, header, key) if key >= 0 else -1
    if key < 0 or mark >= 0:
        return text.rfind(_MARK, header, key) if key >= 0 else len(text)
    closed = 0  # objects between the key and the one that has it
    at = key
    while at > header:
        at = max(text.rfind("{", header, at), text.rfind("}", header, at))
        if at < 0 or (text[at] == "{" and not closed):
            break
        closed += 1 if text[at] == "}" else -1
    return at if at >= 0 else key


def _depth(text: str, header: int) -> int:
    """Return how many backslashes are in front of the quote of a key: how deep in strings it is."""
    at = header - 1
    while at > 0 and text[at - 1] == "\\":
        at -= 1
    return header - 1 - at


def _request_in(value: dict[Any, Any]) -> dict[str, Any] | None:
    """Return the request that an object is; None: it is none."""
    if _HEADER in value:
        return {k: _opened(k, v) for k, v in value.items()}
    flat = next((m for k in value if isinstance(k, str) and (m := _FLAT.fullmatch(k))), None)
    if flat is None:
        return None
    made: dict[str, Any] = {}
    before = flat[1] or ""
    for key, each in value.items():  # a.b.c: keys as search engines flatten them
        if key.startswith(before):
            *above, last = key.removeprefix(before).split(".")
            inner = made
            for name in above:
                deeper = inner.setdefault(name, {})
                inner = deeper if isinstance(deeper, dict) else {}
            inner[last] = each
    return made if isinstance(made.get(_HEADER), dict) else None


def _opened(key: str, value: Any) -> Any:
    """Return a part of a request; as JSON where a collector has made a string of it."""
    if key in (_HEADER, "request", "response") and isinstance(value, str) and value[:1] == "{":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _text_of_bytes(value: list[Any]) -> str | None:
    """Return the text of an array of bytes (journald's, of what isn't plain text)."""
    if len(value) < len(_HEADER) or not isinstance(value[0], int):
        return None
    try:
        return bytes(value).decode("utf-8", "surrogateescape")
    except (TypeError, ValueError):
        return None


def is_csv(line: bytes) -> bool:
    """Say whether a line is of CSV, and a request is, or begins, in one of its cells."""
    text = line.decode("utf-8", "replace")
    return _cells(text) is not None or (
        text.count('"') % 2 == 1 and _FIRST_CELLS.match(text) is not None
    )


def _cells(text: str) -> dict[int, str] | None:
    """Return the cells of a line of CSV, by column; None: it isn't one with a request."""
    cell = _CELL.search(text)
    if cell is None or '""' not in cell[0]:
        return None
    delimiter = cell[0][0] if cell[0][0] != '"' else next(iter(_BEHIND.findall(text)), ",")
    try:
        return dict(enumerate(next(csv.reader([text], delimiter=delimiter), [])))
    except csv.Error:
        return None


def _raw(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _encoded(request: dict[str, Any]) -> bytes:
    """Return a request's JSON."""
    try:
        return msgspec.json.encode(request)
    except (UnicodeEncodeError, msgspec.EncodeError, OverflowError):
        return json.dumps(request, separators=(",", ":")).encode()


def moment(around: tuple[Any, ...], stamps: StampReader) -> tuple[Stamp, list[Stamp]]:
    """
    Return the nearest time of a request, and those farther away.

    Raises:
        StampError: there is none.
    """
    own: Stamp | None = None
    others: list[Stamp] = []
    unread: StampError | None = None
    for level in reversed(around):
        if own is not None and not stamps.asks_others(own):
            break
        if isinstance(level, str):
            try:
                first, more = stamps.stamps(_raw(level))
            except StampError as exc:
                unread = unread or exc
                continue
            found = [first, *more]
        else:
            found = times_beside(level[0], stamps, level[1])
        if own is None and found:
            own, *found = found
        others += found
    if own is None:
        if any(isinstance(level, tuple) for level in around) and (
            unread is None or "no time stamp" in str(unread)
        ):
            unread = StampError("no time in the JSON layout's fields")
        raise unread or StampError("no time stamp in front of the request")
    return own, others
