"""
Say what is wrong with a line that holds no request that can be read.
"""

from __future__ import annotations

import json
import re
from typing import Final

START: Final = b'{"isForwarded":'
MARK: Final = b"Completed request:"
HEADER: Final = b"requestHeader"


class BadLine(ValueError):
    """A line that holds no request we can read; the text is the reason."""


ARRIVAL: Final = "a request's arrival (logged at TRACE); its completion has a line of its own"
_RECEIVED: Final = b" received request: "
_OLD: Final = re.compile(rb"Completed request:\s*(?:RequestHeader\(|[A-Za-z])")
# journalctl without --all leaves out what is long.
_LEFT_OUT: Final = re.compile(rb'"MESSAGE"\s*:\s*null')


# Container runtimes split lines of more than 16 KB: CRI's lines bear a P where more follows,
# docker's hold a newline unless more follows.
_PART: Final = re.compile(
    rb"[^{}]{0,256}?\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) std(?:out|err) P(?::\S*)? "
)
_DOCKERS_END: Final = re.compile(rb'(\\n)?", ?')
_UNENDED: Final = (b"{", b"[", b",", b".")
_MOST_FRONT: Final = 384
"""Bytes in front of a CRI line's text."""
_TOLD: Final = (b'"logtag"', b"partial_message", b"PARTIAL_MESSAGE", b"_LINE_BREAK")
# The rest of a string, and how it ends if it holds a whole request.
_STRING: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ENDED: Final = re.compile(rb'\}(?:\s|\([\w.$]+\)|\\[nrt])*"\Z')
_MOST_BEHIND: Final = 512
"""Bytes behind it, in its layout."""


def is_part(line: bytes) -> bool:
    """Say whether a container runtime has split a line, and this is a part with more behind it."""
    if not line.startswith(b'{"log":'):
        return _PART.match(line) is not None
    at = line.rfind(b'"stream":')
    found = _DOCKERS_END.search(line, max(at - 5, 0), at) if at > 0 else None
    return found is not None and found[1] is None


# As JSON printed over several lines goes on.
_INNER: Final = re.compile(
    rb'[ \t]+(?:["}\]]|[{\[]\s*$|(?:-?\d[\d.eE+-]*|true|false|null),?\s*$)|[}\]]'
)


def goes_on(before: bytes, line: bytes) -> bool:
    """Say whether a line goes on with what the line before it has begun."""
    return is_part(before) or _INNER.match(line) is not None


def may_go_on(line: bytes) -> bool:
    """Say whether others may go on with a line, as far as a glance tells (``joining``)."""
    text = line.strip()
    if text[-1:] in _UNENDED:
        return True
    if text[:1] != b"{":
        return b" P" in line[:_MOST_FRONT]
    if is_part(line) or any(name in line for name in _TOLD):
        return True
    at = line.find(MARK)
    at = line.find(HEADER) if at < 0 else at
    string = _STRING.match(line, at) if at >= 0 else None
    if string is None:
        return at >= 0
    end = string.end()
    ended = _ENDED.search(line, max(end - _MOST_BEHIND, at), end) is not None
    return not ended or line.count(b"{", at, end) != line.count(b"}", at, end)


def is_rest(line: bytes) -> bool:
    """Say whether a line seems a later part of a request, as far as a glance tells."""
    key = b'\\":' if line.startswith(b"{") else b'":'
    return key in line and MARK not in line and HEADER not in line


def not_a_request(line: bytes) -> str:
    """Say what a line is that has no JSON of a request."""
    if _LEFT_OUT.search(line):
        return "journalctl left the message out, as it is long: export with journalctl --all"
    if line.count(b"\0") * 3 > len(line) > 40 and any(line.strip(b"\0\r\n\t ")):
        return "every other byte is zero: UTF-16 text in a file that doesn't begin as such"
    if _OLD.search(line):
        return "free text of Kafka before 2.8, cut off, or of Kafka before 1.0"
    if MARK in line:
        return "cut off before its JSON"
    return "not a request line"


def is_field(before: bytes) -> bool:
    """Say whether what stands behind a text is a value in JSON: its time is in fields."""
    return before.rstrip().endswith((b'":', b",", b"["))


def is_arrival(line: bytes) -> bool:
    """Say whether a line is about a request that has only just come."""
    return _RECEIVED in line[: max(line.find(START), 0)]


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


def reason_of(exc: Exception) -> BadLine:
    """Return why a line can't be read that no rule of ours refuses."""
    if isinstance(exc, RecursionError):
        return BadLine("nested too deep")
    if isinstance(exc, OverflowError):
        return BadLine("a number larger than any broker writes")
    return BadLine(str(exc))
