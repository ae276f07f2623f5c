"""
Find the requests in a line, wherever they stand, and the time of each.

A request is the JSON object that has ``requestHeader``. It may stand in text, be a JSON layout's
field, a string in a string at any depth, an element of a list, a cell of CSV, or an array of bytes;
its keys may be in any order, and a line may hold several. Before Kafka 2.8 it is the rest of a text
that isn't JSON. Its time is the nearest: in the text in front of it, in the fields beside it, or in
what stands around these. What a request says itself (a client's name, which a collector may have
copied into a field) is none.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from headgate.pipeline.logs.bad_lines import MARK, BadLine, not_a_request, why
from headgate.pipeline.logs.csv_lines import cells_of
from headgate.pipeline.logs.field_times import TimesBeside, raw
from headgate.pipeline.logs.old_text import OLD, OldRequest, read_old
from headgate.pipeline.logs.time_stamps import Stamp, StampError, StampReader

_HEADER: Final = "requestHeader"
_MARK: Final = MARK.decode()
# What tells a request: its key, or how a line of Kafka before 2.8 begins.
_SIGN: Final = re.compile(rf"{_HEADER}(?!\.(?!requestApiKey\b))|{re.escape(OLD.decode())}")
_JSON: Final = json.JSONDecoder()
_OPENS: Final = re.compile(r'[{\[](?=\s*["{\[])')
_ESCAPED: Final = re.compile(r'[{\[]\s*\\+"')
_MOST_BRACES: Final = 8
"""Braces in front of a request (a thread's name, say) that are looked past."""
_MOST_LOOKED: Final = 16
"""Characters that are decoded in vain, for each of a line."""
_NEAR: Final = 512
_WINDOW: Final = 4096
_EDGE: Final = 16
"""Characters before a part's end where an error may come from its end: an escape, say."""
_KEY: Final = re.compile(r'(?<=")requestHeader(?=\\*"|\.requestApiKey\b)')
_MOST_DEPTH: Final = 64
_SAID: Final = 64
"""Characters by which the beginning of a text is found again in one that is cut off."""
_FLAT: Final = re.compile(r"(.*\.)?requestHeader\.requestApiKey")


class Found(NamedTuple):
    """
    A request in a line.

    Attributes:
        body: its JSON, compact.
        own: its time.
        others: times of what stands around, nearest first.
        old: as Kafka wrote it before 2.8; None: it was JSON.
    """

    body: bytes
    own: Stamp
    others: list[Stamp]
    old: OldRequest | None = None


class _Place(NamedTuple):
    """A request, or why none is; what stands around it; which event of the line it belongs to."""

    value: dict[str, Any] | OldRequest | BadLine
    around: tuple[Any, ...]
    event: tuple[int, ...]

    def text_below(self, depth: int) -> str:
        """Return the text of the field, below so many levels, that it is read from."""
        for level in reversed(self.around[depth:]):
            if isinstance(level, tuple) and isinstance(level[1], str):
                return level[1]
        return json.dumps(self.value, ensure_ascii=False, default=str)


def find(
    line: bytes, stamps: StampReader, columns: tuple[str, ...] = ()
) -> Iterator[Found | BadLine | StampError]:
    """
    Yield the requests in a line, in order, each once; for one that can't be read, why.

    Args:
        line: the line.
        stamps: reads stamps of its file.
        columns: what CSV's are called, where the file says so.

    Raises:
        RecursionError: the line is nested too deep.
    """
    text = line.decode("utf-8", "surrogateescape")
    places = list(_Finder(len(text), columns).in_text(text, (), (0,)))
    by_event: dict[tuple[int, ...], list[_Place]] = {}
    for place in places:  # a field may hold two events, and another the same two again
        by_event.setdefault(place.event, []).append(place)
    beside = TimesBeside(stamps)
    for group in by_event.values():
        for place in _each_once(group):
            if isinstance(place.value, BadLine):
                yield place.value
                continue
            try:
                own, others = beside.moment(place.around)
                if isinstance(place.value, OldRequest):
                    yield Found(_encoded(place.value.request), own, others, place.value)
                else:
                    yield Found(_encoded(place.value), own, others)
            except (StampError, BadLine) as exc:
                yield exc


def _each_once(group: list[_Place]) -> list[_Place]:
    """Return an event's requests: of short and full messages, originals and copies, one."""
    if len(group) == 1:
        return group
    good: dict[Any, _Place] = {}
    for place in group:
        if not isinstance(place.value, BadLine):
            good.setdefault(_frozen(place.value), place)
    return list(good.values()) or group[:1]


def _frozen(value: Any) -> Any:
    """Return a JSON value as one that can be looked up."""
    if isinstance(value, dict):
        return frozenset((key, _frozen(each)) for key, each in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


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
        columns: as for ``find``.
    """

    def __init__(self, size: int, columns: tuple[str, ...]) -> None:
        self._room = _MOST_LOOKED * size
        self._columns = columns

    def in_text(
        self, text: str, around: tuple[Any, ...], event: tuple[int, ...]
    ) -> Iterator[_Place]:
        """Yield the requests in a text."""
        if len(around) > _MOST_DEPTH:
            raise RecursionError
        at = front = number = 0  # front: where the text begins in front of what is next
        whole = self._decoded(text, 0) if text[:1] in ("{", "[", '"', " ", "\t") else None
        sign = _SIGN.search(text)
        if whole is not None and (sign is None or whole[1] > sign.start()):
            yield from self.in_value(whole[0], around, (*event, 0))
            at, number = whole[1], 1
            front = at
        elif (cells := cells_of(text, self._columns)) is not None:
            yield from self.in_value(cells, around, event)
            return
        while (sign := _SIGN.search(text, at)) is not None:
            header = sign.start()
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
            if sign[0] != _HEADER:
                if not self._is_cut_json(text, at, header):
                    yield from _old(
                        text[header + len(_MARK) :], (*around, text[front:header]), inner
                    )
                    return
                at = front = sign.end()
                continue
            after = _next_request(text, header)
            reason = why(raw(text[max(text.find("{", at), 0) : after]), None)
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
            if _SIGN.search(value):
                yield from self.in_text(value, around, event)
        elif isinstance(value, dict):
            request = _request_in(value)
            if request is not None:
                yield _Place(request, (*around, (value, None)), event)
                return
            fields = [
                list(self.in_value(each, (*around, (value, each)), event))
                for each in value.values()
            ]
            yield from self._unsaid([each for each in fields if each], len(around))
        elif isinstance(value, list):
            told = _text_of_bytes(value)
            if told is not None:
                yield from self.in_value(told, around, event)
                return
            # A list is of events, unless it is one: a time, and a line.
            is_row = sum(isinstance(each, str | int) for each in value) == len(value) <= 4
            signed = sum(isinstance(each, str) and _HEADER in each for each in value)
            events = []
            for number, each in enumerate(value):
                inner = event if is_row and signed < 2 else (*event, number)
                events.append(list(self.in_value(each, (*around, (value, each)), inner)))
            if is_row:
                yield from self._unsaid([each for each in events if each], len(around))
                return
            like = next((each for each, found in zip(value, events, strict=True) if found), None)
            for number, (each, found) in enumerate(zip(value, events, strict=True)):
                yield from found
                if not found and _is_alike(each, like):
                    yield _Place(BadLine("not a request line"), around, (*event, number))

    def _unsaid(self, fields: list[list[_Place]], depth: int) -> Iterator[_Place]:
        """Yield the requests in fields of one object, but for what another's request says."""
        if len(fields) < 2:
            yield from itertools.chain.from_iterable(fields)
            return
        texts = [dict.fromkeys(place.text_below(depth) for place in each) for each in fields]
        for number, (places, own) in enumerate(zip(fields, texts, strict=True)):
            others = [text for n, each in enumerate(texts) if n != number for text in each]
            said = {text for text in own if any(self._says(other, text) for other in others)}
            for place in places:
                if place.text_below(depth) not in said:
                    yield place

    def _says(self, text: str, said: str) -> bool:
        """Say whether a text holds another behind where its request begins, or is cut off in it."""
        self._room -= len(text) + len(said)
        if self._room <= 0:
            return False
        # Whatever has escaped them how often.
        text = text.replace("\\", "")
        said = json.dumps(said, ensure_ascii=False)[1:-1].replace("\\", "")
        begin = text.find(_HEADER[1:]) + 1
        cut = text.rfind(said[:_SAID], begin)
        return text.find(said, begin) >= 0 or (cut >= 0 and said.startswith(text[cut:]))

    def _is_cut_json(self, text: str, at: int, end: int) -> bool:
        """Say whether JSON begins in a text and isn't whole before a place."""
        while (opens := _OPENS.search(text, at, end)) is not None:
            decoded = self._decoded(text, opens.start())
            if decoded is None:
                return True
            at = decoded[1]
        return False

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
        if not text.startswith(_HEADER, header):
            return None
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


def _old(text: str, around: tuple[Any, ...], event: tuple[int, ...]) -> Iterator[_Place]:
    """Yield the request of a line of Kafka before 2.8; one refusal for each that it may be."""
    value: OldRequest | BadLine
    try:
        value = read_old(raw(text).decode("utf-8", "replace"))
        count = 1
    except BadLine as exc:
        value, count = exc, 1 + text.count(_MARK)
    for number in range(count):
        yield _Place(value, around, (*event, number))


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


def _encoded(request: dict[str, Any]) -> bytes:
    """Return a request's JSON."""
    try:
        return msgspec.json.encode(request)
    except (UnicodeEncodeError, msgspec.EncodeError, OverflowError):
        return json.dumps(request, separators=(",", ":")).encode()
