"""
Tell a line's message from what wraps it, which source it is of, and whether more of it follows.

Runtimes, syslog and shippers split long messages, and mix those of many sources in one file. A
source is all that a wrapper tells but its times and what numbers the part: host, container, stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

from headgate.pipeline.logs.bad_lines import HEADER, MARK

_HEADER: Final = HEADER.decode()
_MARK: Final = MARK.decode()
_CRI: Final = re.compile(
    r"(?P<front>[^{}]{0,256}?)\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?P<stream>stdout|stderr) "
    r"(?P<tag>[PF])(?::\S*)? (?P<text>.*)",
    re.DOTALL,
)
# What differs between parts of one message: when each was seen, which one it is, ids of documents.
_VARIES: Final = re.compile(
    r"time|date|stamp|instant|epoch|nano|^_?@?ts?$|_ts$|_at$|created|ingest|observed|receive|arriv"
    r"|partial(?!_?id$)|logtag|^_p$|line_break|ordinal|offset|seq|cursor|^(?:_|event[._])?id$|uuid",
    re.IGNORECASE,
)
_TEXTS: Final = re.compile(r"(?:\w*_)?(?:message|msg|raw|original|log|line)", re.IGNORECASE)
_MOST_NESTED: Final = 3


class Part(NamedTuple):
    """
    A line, as what wraps it has it.

    ``source`` tells whose it is, nothing where no wrapper does; ``path`` in which field its message
    is; ``text`` is that; ``more``: the rest follows, None where that isn't told; ``rebuilt`` makes
    a line of another message.
    """

    source: tuple[Any, ...]
    path: tuple[str, ...]
    text: str
    more: bool | None
    rebuilt: Callable[[str], str]


class WrappedLine:
    """
    A line that may be a part of a request.

    Args:
        line: the line.
    """

    def __init__(self, line: bytes) -> None:
        self._text = line.decode("utf-8", "surrogateescape")
        self._sources: dict[tuple[str, ...], tuple[Any, ...]] = {}

    @cached_property
    def fields(self) -> dict[str, Any] | None:
        """The line's JSON object."""
        if not self._text.lstrip().startswith("{"):
            return None
        try:
            fields = json.loads(self._text)
        except (ValueError, RecursionError):
            return None
        return fields if isinstance(fields, dict) else None

    @cached_property
    def _of_runtime(self) -> Part | None:
        """The line as one of CRI."""
        found = _CRI.fullmatch(self._text)
        if found is None:
            return None
        front = self._text[: found.start("text")]
        source = ("CRI", found["front"], found["stream"])
        return Part(source, (), found["text"], found["tag"] == "P", lambda whole: front + whole)

    def begins(self) -> Part:
        """Return the line as one in whose message a request may begin."""
        path = None
        if self._of_runtime is None and self.fields is not None:
            path = _path_of(self.fields, _MOST_NESTED)
        return self._part(path)

    def goes_on(self, first: Part) -> Part:
        """Return the line as one that may go on with a message: it is in the same field."""
        return self._part(first.path or None)

    def _part(self, path: tuple[str, ...] | None) -> Part:
        if self._of_runtime is not None:
            return self._of_runtime
        plain = Part((), (), self._text, None, str)
        fields = self.fields if path else None
        if fields is None or path is None:
            return plain
        message: Any = fields
        for name in path:
            message = message.get(name) if isinstance(message, dict) else None
        if not isinstance(message, str):
            return plain

        def rebuilt(whole: str) -> str:
            inner = fields
            for name in path[:-1]:
                inner = inner[name]
            inner[path[-1]] = whole
            return json.dumps(fields)

        if path not in self._sources:
            try:
                own = json.dumps(_own(fields, message), sort_keys=True)
            except RecursionError:
                return plain
            self._sources[path] = ("JSON", path, own)
        more = _has_more(fields, path, message)
        return Part(self._sources[path], path, message, more, rebuilt)


def _own(value: dict[str, Any], message: str) -> dict[str, Any]:
    """Return the fields of an object that all parts of one source share."""
    own: dict[str, Any] = {}
    for name, each in value.items():
        if _VARIES.search(name):
            continue
        if isinstance(each, dict):
            own[name] = _own(each, message)
        elif not isinstance(each, str) or not (each == message or _TEXTS.fullmatch(name)):
            own[name] = each
    return own


def _path_of(fields: dict[str, Any], deepest: int) -> tuple[str, ...] | None:
    """Return in which field, of which field, the text stands in which a request begins."""
    for name, value in fields.items():
        if isinstance(value, str) and (_MARK in value or _HEADER in value):
            return (name,)
        if isinstance(value, dict) and deepest and (inner := _path_of(value, deepest - 1)):
            return (name, *inner)
    return None


def _has_more(fields: dict[str, Any], path: tuple[str, ...], message: str) -> bool | None:
    """Say whether a runtime or a shipper says that it has split a message here."""
    if "partial_message" in fields or "CONTAINER_PARTIAL_MESSAGE" in fields:
        last = fields.get("partial_last", fields.get("CONTAINER_PARTIAL_LAST"))
        return str(last).lower() != "true"
    if fields.get("logtag") in ("P", "F"):
        return bool(fields["logtag"] == "P")
    if "_LINE_BREAK" in fields:
        return fields["_LINE_BREAK"] == "line-max"
    if path == ("log",) and "stream" in fields:  # docker's
        return not message.endswith("\n")
    return None
