"""
Structured log lines: an event and its fields, as ``key=value`` for people or JSON for machines.

``get_logger`` gives a structlog logger over the standard library's; an application that brings its
own logging gets plain records whose message has the fields in it. ``set_up`` is for ``headgate
serve``: one handler on stderr, through which libraries' records (kazoo, uvicorn) go as well.
Secrets aren't logged; a field with a secret's name would be hidden. Text that clients chose can
neither forge a line nor move a cursor. ``LogLimit`` limits the lines that unknown clients can
cause: a few a minute of each kind, then a count.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final, TextIO

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter

_SECRET: Final = re.compile(r"passw|secret|token|credential|keystore.key|sasl.jaas", re.IGNORECASE)
HIDDEN: Final = "[hidden]"
_FIELDS: Final = "headgate"
"""Attribute of a log record that holds our event and its fields."""
LIBRDKAFKA: Final = "librdkafka"
_PER_MINUTE: Final = 10
"""Lines a minute of librdkafka and of uvicorn.error: each repeats the same line over and over."""
_KEPT: Final = frozenset("\n\t")
_NEEDS_QUOTES: Final = re.compile(r'[\s"=]|^$')

Fields = MutableMapping[str, Any]


_GATEWAY: Final = logging.getLogger("headgate.gateway")


def get_logger(name: str) -> BoundLogger:
    """Return a logger whose calls take an event and fields: ``log.info("ready", process=7)``."""
    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _to_record],
        wrapper_class=BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return logger


tells_all: Final = partial(_GATEWAY.isEnabledFor, logging.DEBUG)
"""Says whether the gateway's debug lines are shown: asked where making one takes time."""


def set_up(
    form: str,
    *,
    verbose: bool = False,
    stream: TextIO | None = None,
    bound: Mapping[str, object] | None = None,
) -> None:
    """
    Send every log line of this process to one stream.

    Args:
        form: ``headgate.log.format``: "text" or "json".
        verbose: whether Headgate's debug lines are shown.
        stream: by default stderr; coloured where it is a terminal and NO_COLOR isn't set.
        bound: fields of every line.
    """
    target = sys.stderr if stream is None else stream
    renderer: Any
    if form == "json":
        renderer = structlog.processors.JSONRenderer(default=str)
    else:
        renderer = _text_renderer(colours=target.isatty() and not os.environ.get("NO_COLOR"))
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[_from_record],
            processors=[
                _bind(bound or {}),
                structlog.processors.format_exc_info,
                ProcessorFormatter.remove_processors_meta,
                _harmless,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # we log its start and end
    for name in (LIBRDKAFKA, "uvicorn.error"):  # a line for each request that can't be read
        logging.getLogger(name).filters[:] = [_Sparing(_PER_MINUTE)]
    logging.getLogger("headgate").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.captureWarnings(capture=True)


class _Sparing(logging.Filter):
    """Lets ``per_minute`` records of a logger pass in each minute, by the records' timestamps."""

    def __init__(self, per_minute: int) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._minute = self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record passes."""
        minute = int(record.created // 60)
        self._count = self._count + 1 if minute == self._minute else 1
        self._minute = minute
        return self._count <= self._per_minute


def _to_record(logger: Any, method: str, event: Fields) -> tuple[tuple[str], dict[str, Any]]:
    """Make a standard record: a text for plain formatters, and the fields beside it."""
    kwargs = {key: event.pop(key) for key in ("exc_info", "stack_info") if key in event}
    said = event.pop("event", "")
    fields = {key: _hidden(key, value) for key, value in event.items()}
    shown = " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())
    text = f"{said}  {shown}" if shown else str(said)
    return (text,), {**kwargs, "extra": {_FIELDS: {"event": said, **fields}}}


def _from_record(logger: Any, method: str, event: Fields) -> Fields:
    """Read a standard record: time, level and logger, then our fields, or a library's message."""
    record: logging.LogRecord = event["_record"]
    when = dt.datetime.fromtimestamp(record.created, dt.UTC)
    head = {
        "timestamp": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
    }
    ours: Mapping[str, Any] = getattr(record, _FIELDS, {})
    return {**event, **head, **ours}


def _bind(bound: Mapping[str, object]) -> Any:
    def bind(logger: Any, method: str, event: Fields) -> Fields:
        return {**event, **bound}

    return bind


def _hidden(key: str, value: object) -> object:
    return HIDDEN if _SECRET.search(key) else value


def _harmless(logger: Any, method: str, event: Fields) -> Fields:
    """Hide what is named like a secret; spell out control characters."""
    return {
        key: value
        if isinstance(value, bool | int | float | None)
        else printable(str(_hidden(key, value)), _KEPT if key == "exception" else frozenset())
        for key, value in event.items()
    }


def printable(text: str, kept: frozenset[str] = frozenset()) -> str:
    r"""Return text with every character spelled out that a terminal might obey: ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def _quoted(value: object) -> str:
    text = printable(str(value))
    if not _NEEDS_QUOTES.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text_renderer(*, colours: bool) -> Any:
    dev = structlog.dev
    bright, dim, cyan, off = (
        (dev.BRIGHT, dev.DIM, dev.CYAN, dev.RESET_ALL) if colours else ("", "", "", "")
    )

    def column(style: str, width: int = 0) -> Any:
        return dev.KeyValueColumnFormatter(
            key_style=None, value_style=style, reset_style=off, value_repr=str, width=width
        )

    rest = dev.KeyValueColumnFormatter(
        key_style=cyan, value_style="", reset_style=off, value_repr=_quoted
    )
    return dev.ConsoleRenderer(
        sort_keys=False,
        exception_formatter=dev.plain_traceback,
        columns=[
            dev.Column("", rest),
            dev.Column("timestamp", column(dim)),
            dev.Column("level", column(bright, 8)),
            dev.Column("event", column(bright)),
            dev.Column("logger", rest),
        ],
    )


_log: Final = get_logger("headgate.gateway")

PER_MINUTE: Final = 10
_MOST_KINDS: Final = 1_000
"""Kinds remembered; principals are among them. The oldest is logged and forgotten early."""
_MINUTE_S: Final = 60.0


class _Kind:
    """Lines of one kind in its minute."""

    __slots__ = ("began_s", "count", "fields", "left_out")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.count = self.left_out = 0
        self.fields: Mapping[str, Any] = {}


class LogLimit:
    """
    Decides which lines are written.

    Args:
        event: what the lines are about. When a kind's minute is over, one line says how many of
            the kind were left out, and what they have in common.
        per_minute: lines of one kind.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        event: str,
        per_minute: int = PER_MINUTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._event = f"{event}; not every one is logged"
        self._per_minute = per_minute
        self._clock = clock
        self._kinds: dict[Hashable, _Kind] = {}

    def passes(self, *kind: Hashable, **fields: Any) -> bool:
        """
        Say whether a line may be written; it is counted in any case.

        Args:
            kind: which lines are of a kind.
            fields: what all of them have in common, for the line that counts those left out.
        """
        now = self._clock()
        found = self._kinds.get(kind)
        if found is None or now - found.began_s >= _MINUTE_S:
            if found is not None:
                self._tell(kind, found)
            elif len(self._kinds) >= _MOST_KINDS:
                oldest = next(iter(self._kinds))
                self._tell(oldest, self._kinds[oldest])
            found = self._kinds[kind] = _Kind(now)
        found.count += 1
        if found.count <= self._per_minute:
            return True
        found.left_out += 1
        found.fields = fields
        return False

    def tell(self) -> None:
        """Log what was left out in minutes that are over; called now and then."""
        now = self._clock()
        # Kinds stand in the order in which their minutes began.
        while self._kinds:
            kind, oldest = next(iter(self._kinds.items()))
            if now - oldest.began_s < _MINUTE_S:
                return
            self._tell(kind, oldest)

    def _tell(self, kind: Any, oldest: _Kind) -> None:
        del self._kinds[kind]
        if oldest.left_out:
            _log.warning(self._event, left_out=oldest.left_out, **oldest.fields)
