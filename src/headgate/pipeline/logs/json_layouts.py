"""
Unwrap request lines from JSON layouts, collectors and containers; say what is wrong with a line.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from typing import Any, Final

from headgate.pipeline.logs.time_stamps import Stamp, StampError, StampReader

START: Final = b'{"isForwarded":'
MARK: Final = b"Completed request:"
# Braces in front of a wrapper's own (a thread's name, say) that are looked past.
_MOST_BRACES: Final = 8


class BadLine(ValueError):
    """A line that holds no request we can read; the text is the reason."""


def unwrap(line: bytes, stamps: StampReader) -> tuple[bytes, Stamp, list[Stamp]]:
    """
    Return the message inside a JSON layout's object, its time stamp, and those of wrappers.

    Raises:
        BadLine: with the reason, if it holds none.
        StampError: if it holds no time.
    """
    if line.lstrip().startswith(b'"'):
        msg = "one line of a JSON event that is spread over several; make the layout compact"
        raise BadLine(msg)
    outer, broken = None, None
    for found in itertools.islice(re.finditer(rb"\{", line), _MOST_BRACES):
        try:
            outer = json.loads(line[found.start() : line.rfind(b"}") + 1])
        except ValueError as exc:
            broken = broken or BadLine(why(line[found.start() :], exc))
        else:
            break
    if not isinstance(outer, dict):
        plain = _unquoted(line)
        if plain:  # msg="..." among other words (logfmt)
            end = line.find(MARK)
            return plain, *stamps.stamps(line[: end if end >= 0 else line.find(b"{")])
        raise broken or BadLine("no JSON object in it")
    # Its key, quotes and all: a wrapper's own fields, such as a cursor, may hold the word.
    message = next((v for v in _strings(outer) if '"requestHeader"' in v), None)
    if message is None:
        msg = "no request in the JSON layout's fields"
        raise BadLine(msg)
    raw = message.encode("utf-8", "surrogatepass")
    own: Stamp | None = None
    others: list[Stamp] = []
    # A pattern line inside (container runtimes) has the logger's own time.
    with contextlib.suppress(StampError):
        own, others = stamps.stamps(raw[: raw.find(b"{")])
    if own is None or stamps.asks_others(own):
        others += _wrapper_stamps(outer, stamps)
        with contextlib.suppress(StampError):
            first, more = stamps.stamps(line[: line.find(b"{")])
            others += [first, *more]
    if own is None:
        if not others:
            msg = "no time in the JSON layout's fields"
            raise BadLine(msg)
        own, *others = others
    return raw, own, others


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for v in value.values() for s in _strings(v)]
    return []


# Where JSON layouts keep the time: log4j2 JsonLayout, JsonTemplateLayout (ECS, GELF), logstash.
_TIME_KEYS: Final = (
    "@timestamp",
    "timestamp",
    "timeMillis",
    "time",
    "ts",
    "date",
    "asctime",
    "__REALTIME_TIMESTAMP",  # journald's
)
# (numbers below this, ms in one): seconds, milliseconds, microseconds, nanoseconds.
_UNITS: Final = ((1e11, 1e3), (1e14, 1.0), (1e17, 1e-3), (math.inf, 1e-6))


def _wrapper_stamps(outer: dict[str, Any], stamps: StampReader) -> list[Stamp]:
    """Return the time stamps in a wrapper's fields, the likeliest first."""
    found: list[Stamp] = []
    instant = outer.get("instant")
    if isinstance(instant, dict):
        second, nano = instant.get("epochSecond"), instant.get("nanoOfSecond", 0)
        if isinstance(second, int | float) and isinstance(nano, int | float):
            found.append(Stamp(float(second) * 1000.0 + nano / 1e6, 1e-6, True))
    for key in _TIME_KEYS:
        value = outer.get(key)
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, int | float):
            unit = next((ms for below, ms in _UNITS if value < below), 1.0)
            grain = unit if isinstance(value, int) or value.is_integer() else 1e-3
            found.append(Stamp(float(value) * unit, grain, True))
            continue
        with contextlib.suppress(StampError):
            found.append(stamps.stamps(str(value).encode())[0])
    source = outer.get("_source")  # a search engine's export
    return found + (_wrapper_stamps(source, stamps) if isinstance(source, dict) else [])


def _unquoted(line: bytes) -> bytes:
    """Return the request's JSON that stands in quotes among other words; nothing if it doesn't."""
    quoted = line[line.find(b"{") : line.rfind(b"}") + 1]
    try:
        text: str = json.loads(b'"%b"' % quoted)
    except ValueError:
        return b""
    return text.encode("utf-8", "surrogatepass")


def other_line(line: bytes) -> str:
    """Say what a line is that begins like a request's and isn't one; "" where it's just broken."""
    if b" received request: " in line[: line.find(START)]:
        return "a request's arrival (logged at TRACE); its completion has a line of its own"
    if line.count(MARK) > 1:
        return "requests in one line: a newline is missing, or the first of them was cut off"
    if _PART.search(line) or _DOCKER_PART.search(line):
        return "part of a line: the container runtime has split it; log to a file instead"
    return ""


# Container runtimes split lines of more than 16 KB: CRI's lines bear a P where more follows.
_PART: Final = re.compile(rb"^[\dT:.,+Z-]+ std(?:out|err) P ")
# Docker's hold a newline unless more follows.
_DOCKER_PART: Final = re.compile(rb'^\{"log": ?".*(?<!\\n)", ?"stream":')


def why(body: bytes, error: Exception | None) -> str:
    """Say what is wrong with a JSON body: cut off, garbled, or a field missing."""
    depth = body.count(b"{") - body.count(b"}")
    if depth > 0 or not body:
        return f"cut off: {depth} braces of its JSON are open at the end"
    try:
        value = json.loads(body[: body.rfind(b"}") + 1])
    except UnicodeDecodeError as exc:
        return f"not UTF-8 at byte {exc.start} of the JSON"
    except ValueError as exc:
        return f"broken JSON: {exc}"
    if not isinstance(value, dict):
        return "the JSON isn't an object"
    return f"not the JSON of a request: {error}" if error else "the JSON holds no requestHeader"
