"""Request-log lines in the layouts that people have, made of lines in Kafka's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple


class Line(NamedTuple):
    """What a stock line is made of: its time, its request's JSON, and its number in the log."""

    time: datetime
    body: str
    number: int

    @property
    def thread(self) -> str:
        """The thread that logged it."""
        return f"data-plane-kafka-request-handler-{self.number % 8}"

    @property
    def message(self) -> str:
        """What the logger was given."""
        return f"Completed request:{self.body}"

    def at(self, pattern: str = "%Y-%m-%d %H:%M:%S", sep: str = ",", late_ms: int = 0) -> str:
        """The time by ``strftime``, with milliseconds behind ``sep``; none for an empty one."""
        time = self.time + timedelta(milliseconds=late_ms)
        fraction = f"{sep}{time.microsecond // 1000:03d}" if sep else ""
        return time.strftime(pattern) + fraction

    def nanos(self, zone: str = "Z") -> str:
        """The time at which a wrapper saw it: RFC 3339 with nanoseconds, without last zeros."""
        time = self.time + timedelta(milliseconds=2)
        fraction = f"{time.microsecond * 1000 + self.number * 7919 % 1000:09d}".rstrip("0")
        return f"{time:%Y-%m-%dT%H:%M:%S}.{fraction or 0}{zone}"


def split(line: bytes, number: int) -> Line:
    """Take a stock line apart."""
    stamp, _, rest = line.decode().partition("] ")
    time = datetime.strptime(stamp[1:24], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    body = rest[rest.index("{") : rest.rindex("}") + 1]
    return Line(time, body, number)


def _json(**fields: Any) -> str:
    return json.dumps(
        {k.replace("__dot__", "."): v for k, v in fields.items()}, separators=(",", ":")
    )


def _docker(text: str, line: Line) -> str:
    return _json(log=text + "\n", stream="stdout", time=line.nanos())


def _stock(line: Line) -> str:
    return f"[{line.at()}] DEBUG {line.message} (kafka.request.logger)"


def _strimzi(line: Line) -> str:
    return f"{line.at()} DEBUG {line.message} (kafka.request.logger) [{line.thread}]"


def _strimzi_seconds(line: Line) -> str:
    return f"{line.at(sep='')} DEBUG [{line.thread}] logger:283 - {line.message}"


def _ecs(line: Line) -> str:
    return (
        f'{{"@timestamp":"{line.at("%Y-%m-%dT%H:%M:%S", ".")}Z","ecs.version":"1.2.0",'
        f'"log.level":"DEBUG","message":{json.dumps(line.message)},'
        f'"process.thread.name":"{line.thread}","log.logger":"kafka.request.logger"}}'
    )


def _logstash(line: Line) -> str:
    return (
        f'{{"@timestamp":"{line.at("%Y-%m-%dT%H:%M:%S", ".")}+01:00","@version":"1",'
        f'"message":{json.dumps(line.message)},"logger_name":"kafka.request.logger",'
        f'"thread_name":"{line.thread}","level":"DEBUG","level_value":10000}}'
    )


def _log4j2_json(line: Line) -> str:
    us = int(line.time.timestamp() * 1000) * 1000
    instant = {"epochSecond": us // 10**6, "nanoOfSecond": us % 10**6 * 1000}
    return _json(
        instant=instant,
        thread=line.thread,
        level="DEBUG",
        loggerName="kafka.request.logger",
        message=line.message,
        endOfBatch=False,
        loggerFqcn="org.apache.logging.slf4j.Log4jLogger",
        threadId=30 + line.number % 8,
        threadPriority=5,
    )


def _log4j2_json_old(line: Line) -> str:
    ms = int(line.time.timestamp() * 1000)
    return _json(timeMillis=ms, thread=line.thread, level="DEBUG", message=line.message)


def _journal(line: Line) -> str:
    us = int(line.time.timestamp() * 1000) * 1000 + 2153
    return _json(
        __CURSOR=f"s=5d1c;i={line.number + 0x1A2B:x};b=9f3e;t={us:x};x={us ^ 77:x}",
        __REALTIME_TIMESTAMP=str(us),
        __MONOTONIC_TIMESTAMP=str(us % 10**10),
        _BOOT_ID="9f3e",
        _PID="812",
        SYSLOG_IDENTIFIER="kafka",
        MESSAGE=_stock(line),
        _HOSTNAME="broker-1",
    )


_STOCK: Final = re.compile(rb"\[[-\d]{10} [:\d]{8},\d{3}\] ")
LAYOUTS: Final[dict[str, Callable[[Line], str]]] = {
    "stock": _stock,
    "Strimzi, on stdout": _strimzi,
    "Strimzi since 0.46, whole seconds": _strimzi_seconds,
    "ISO 8601 with T": lambda x: f"[{x.at('%Y-%m-%dT%H:%M:%S')}] DEBUG {x.message} (k)",
    "ISO 8601 with a zone": lambda x: (
        f"[{x.at('%Y-%m-%dT%H:%M:%S', '.')}+0000] DEBUG [{x.thread}] {x.message} (k)"
    ),
    "CRI, stock inside": lambda x: f"{x.nanos()} stdout F {_stock(x)}",
    "CRI, Strimzi inside": lambda x: f"{x.nanos()} stdout F {_strimzi(x)}",
    "CRI, Strimzi since 0.46 inside": lambda x: f"{x.nanos()} stdout F {_strimzi_seconds(x)}",
    "CRI, ECS inside": lambda x: f"{x.nanos()} stdout F {_ecs(x)}",
    "kubectl logs --prefix": lambda x: f"[pod/kafka-{x.number % 3}/kafka] {_strimzi(x)}",
    "docker json-file, stock inside": lambda x: _docker(_stock(x), x),
    "docker json-file, whole seconds inside": lambda x: _docker(_strimzi_seconds(x), x),
    "ECS": _ecs,
    "logstash": _logstash,
    "log4j2 JsonLayout": _log4j2_json,
    "log4j2 JsonLayout, timeMillis": _log4j2_json_old,
    "syslog, stock inside": lambda x: (
        f"{x.at('%b %d %H:%M:%S', '')} broker-1 kafka[812]: {_stock(x)}"
    ),
    "syslog, RFC 5424": lambda x: (
        f"<15>1 {x.nanos()} broker-1 kafka 812 - - DEBUG {x.message} (kafka.request.logger)"
    ),
    "journalctl -o short-iso": lambda x: (
        f"{x.at('%Y-%m-%dT%H:%M:%S', '')}+0000 broker-1 kafka[812]: {_stock(x)}"
    ),
    "journalctl -o json": _journal,
    "log4j's DATE": lambda x: f"{x.at('%d %b %Y %H:%M:%S')} DEBUG {x.message} (k)",
    "logfmt": lambda x: (
        f"time={x.at('%Y-%m-%dT%H:%M:%S', '.')}Z level=debug msg={json.dumps(x.message)}"
    ),
}


def rewrapped(stock: bytes, layout: str) -> Iterator[bytes]:
    """Yield the lines of a stock log in another layout."""
    wrap = LAYOUTS[layout]
    for number, line in enumerate(stock.split(b"\n")):
        if _STOCK.match(line):
            yield wrap(split(line, number)).encode()
