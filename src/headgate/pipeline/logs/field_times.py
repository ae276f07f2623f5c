"""
Find the time of a request in the fields beside it: of JSON layouts, collectors and exports.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from headgate.pipeline.logs.stamp_forms import STAMP, is_dated
from headgate.pipeline.logs.time_stamps import Stamp, StampError, StampReader

# Where layouts and collectors keep the logger's time, the likeliest first: log4j2's layouts, ECS,
# logstash, GELF; Fluent Bit and Vector; journald; OpenTelemetry; Splunk; CloudWatch.
KNOWN: Final = (
    "instant",
    "@timestamp",
    "timestamp",
    "timeMillis",
    "time",
    "ts",
    "date",
    "asctime",
    "__REALTIME_TIMESTAMP",
    "timeUnixNano",
    "_time",
    "datetime",
    "eventTime",
)
_RANK: Final = {name: rank for rank, name in enumerate(KNOWN)}
_OTHER, _NESTED, _LATER = len(KNOWN), len(KNOWN) + 1, len(KNOWN) + 2
# When somebody else saw the line.
_LATE: Final = re.compile(r"ingest|index|receive|observe|arriv|load|insert|stored|expire|updated")
_BETWEEN: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9@]+")
# By the words that a name is made of (``_words``), the short ones at its end.
_TIMELY: Final = re.compile(
    r"(?:^|_)(?:(?:\w*(?:time|stamp|epoch|instant)|(?:log|event|local)?date)(?:s|millis)?(?:_|$)"
    r"|(?:@?ts?|at|secs?|seconds?)_?$)"
)
# Names of texts that are times, besides.
_WHEN: Final = re.compile(
    r"(?:^|_)(?:when|created|logged|written|moment|clock|seen)(?:_(?:on|utc|local))?$"
)
# journald's others count from a start, and the scan takes none of them for a time.
_SINCE_START: Final = "IMESTAMP"
# What a request holds itself (RequestConvertToJson), at the end of a prefix where it is flattened.
_KAFKAS: Final = re.compile(
    r"(?:.*\.)?(?:requestHeader|request|response|clientInformation|isForwarded|connection|principal"
    r"|(?:total|requestQueue|local|remote|throttle|responseQueue|send)TimeMs|securityProtocol"
    r"|listener|temporaryMemoryBytes|messageConversionsTime)(?:\..*)?"
)
_HEADER: Final = re.compile(r"(?:.*\.)?requestHeader(?:\..*)?")
_MOST_NESTED: Final = 3
_MOST_LISTED: Final = 16
_NUMBER: Final = re.compile(r"\d{10}(?:\.\d{1,9})?|\d{13}(?:\.\d{1,6})?|\d{16}|\d{19}")
# (numbers below this, ms in one): seconds, milliseconds, microseconds, nanoseconds.
_UNITS: Final = ((1e11, 1e3), (1e14, 1.0), (1e17, 1e-3), (1e20, 1e-6))
_SINCE_2001_S: Final = 1e9
_UNTIL_2100_S: Final = 4.1e9


class TimesBeside:
    """
    Finds the times in the JSON objects and lists of one line; each is looked at once.

    Args:
        stamps: reads stamps of the file.
    """

    def __init__(self, stamps: StampReader) -> None:
        self._stamps = stamps
        self._found: dict[int, list[tuple[int, int, Stamp]]] = {}

    def of(self, value: Any, chosen: Any = None) -> list[Stamp]:
        """
        Return the times in an object or list, the likeliest first, some at most.

        Args:
            value: the object or list, which must live as long as this.
            chosen: that of its values which holds the request; not looked at.
        """
        found = self._found.get(id(value))
        if found is None:
            found = self._found[id(value)] = list(_times(value, self._stamps, _MOST_NESTED))
            found.sort(key=lambda each: each[0])
        others = (stamp for _, of, stamp in found if of != id(chosen))
        return list(itertools.islice(others, _MOST_LISTED))

    def moment(self, around: tuple[Any, ...]) -> tuple[Stamp, list[Stamp]]:
        """
        Return the nearest time of a request, and those farther away.

        Args:
            around: what stands around it, the outermost first: the text in front, or (an object or
                a list, which of its values holds the request).

        Raises:
            StampError: there is none.
        """
        own: Stamp | None = None
        others: list[Stamp] = []
        unread: StampError | None = None
        for level in reversed(around):
            if own is not None and not self._stamps.asks_others(own):
                break
            if isinstance(level, str):
                try:
                    first, more = self._stamps.stamps(raw(level))
                except StampError as exc:
                    unread = unread or exc
                    continue
                found = [first, *more]
            else:
                found = self.of(level[0], level[1])
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


def _times(value: Any, stamps: StampReader, nested: int) -> Iterator[tuple[int, int, Stamp]]:
    """Yield (rank, which of the values it is in, time)."""
    if isinstance(value, list):
        for each in value[:_MOST_LISTED]:
            if isinstance(each, str):
                stamp = _of_text("", each, stamps)
                if stamp is not None:
                    yield _OTHER, id(each), stamp
        return
    for key, each in value.items():
        name = str(key)
        if _KAFKAS.fullmatch(name):
            continue
        stamp = _of_field(name, each, stamps)
        late = _LATE.search(name.lower())
        if stamp is not None:
            yield _RANK.get(name, _LATER if late else _OTHER), id(each), stamp
        elif isinstance(each, dict) and nested and not any(map(_HEADER.fullmatch, map(str, each))):
            for rank, _, inner in _times(each, stamps, nested - 1):
                yield max(rank, _LATER if late else _NESTED), id(each), inner


def raw(text: str) -> bytes:
    """Return a text as its line has it, whatever was escaped in it."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


@functools.lru_cache(4096)
def _words(name: str) -> str:
    """Return a name in small letters, its words apart."""
    return _BETWEEN.sub("_", name).lower()


def _of_field(name: str, value: Any, stamps: StampReader) -> Stamp | None:
    if isinstance(value, dict):
        return _of_parts(name, value, stamps)
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _of_number(value) if _TIMELY.search(_words(name)) else None
    if isinstance(value, str):
        if name.endswith(_SINCE_START) and name not in _RANK and value.isdigit():
            return None
        return _of_text(name, value, stamps)
    return None


def _of_text(name: str, text: str, stamps: StampReader) -> Stamp | None:
    """Return the time that a text is; under a known name, that it holds."""
    text = text.strip()
    if len(text) > 64 or not text.isascii():
        return None
    if _NUMBER.fullmatch(text):
        known = _TIMELY.search(_words(name)) or (not name and len(text) >= 13)
        return _of_number(float(text), text) if known else None
    raw = text.encode()
    whole = STAMP.fullmatch(raw)
    # Elements of lists and cells of CSV have no name.
    named = not name or name.isdigit() or _TIMELY.search(_words(name)) or _WHEN.search(_words(name))
    if name in _RANK or (named and whole is not None and is_dated(whole)):
        with contextlib.suppress(StampError):
            return stamps.stamps(raw)[0]
    return None


def _of_number(value: float, text: str = "") -> Stamp | None:
    """Return the time that a number since 1970 is, in whatever unit; None: it can't be one."""
    unit = next((ms for below, ms in _UNITS if value < below), 0.0)
    if not unit or not _SINCE_2001_S * 1e3 <= value * unit <= _UNTIL_2100_S * 1e3:
        return None
    fraction = text.partition(".")[2]
    if fraction:
        return Stamp(value * unit, unit / 10.0 ** len(fraction), zoned=True)
    grain = unit if value == math.floor(value) else 1e-3
    return Stamp((int(text) if text else value) * unit, grain, zoned=True)


_SECONDS: Final = re.compile(r"(?:epoch|unix)?_?-?(?:s|secs?|seconds?)", re.IGNORECASE)
_PARTS: Final = (
    (re.compile(r"nano", re.IGNORECASE), 1e-6),
    (re.compile(r"micro|usec", re.IGNORECASE), 1e-3),
    (re.compile(r"milli|msec", re.IGNORECASE), 1.0),
)
_INNER: Final = ("$date", "$numberLong", "value", "stringValue", "intValue")


def _of_parts(name: str, value: dict[str, Any], stamps: StampReader) -> Stamp | None:
    """Return the time that an object is: seconds and what is beside them, or ``$date``."""
    for key in _INNER:
        if key in value:
            return _of_field(name, value[key], stamps)
    second = next((v for k, v in value.items() if _SECONDS.fullmatch(k)), None)
    if isinstance(second, str) and second.isdigit():
        second = int(second)
    if isinstance(second, bool) or not isinstance(second, int | float):
        return None
    base = _of_number(second)
    if base is None:
        return None
    for pattern, unit in _PARTS:
        part = next((v for k, v in value.items() if pattern.search(k)), None)
        if isinstance(part, str) and part.isdigit():
            part = int(part)
        if isinstance(part, int | float) and not isinstance(part, bool):
            return Stamp(base.ms + part * unit, unit, zoned=True)
    return base
