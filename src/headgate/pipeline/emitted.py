"""
What workers hand over: tables of rows of several kinds, and how rows become Arrow batches.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from headgate.pipeline import schema
from headgate.pipeline.table import Column, Table, make_table

LINE_CHARS: Final = 2000

# Columns that every kind of row may carry beside its own.
_EXTRA = (
    Column("kind", "string", "request (any row of REQUESTS), activity, connection, bad or stat"),
    Column("offset", "long", "bad: byte offset"),
    Column("reason", "string", "bad: why"),
    Column("line", "string", "bad: its beginning"),
    Column("lines", "long", "stat: lines read"),
    Column("input_bytes", "long", "stat: bytes read, uncompressed"),
)

EMITTED_REQUESTS: Final = make_table(
    "emitted_requests",
    "One row per row of REQUESTS, bad line, or piece read (`kind` tells).",
    *schema.REQUESTS.columns,
    *_EXTRA,
)

ACTIVITY: Final = make_table(
    "activity",
    "One row per (broker_id, listener, principal, client_id, quota_type, is_charged, second_ms, "
    "and a journal's own quota-id and limit); what all answers by second are made of.",
    ("broker_id", "int", "broker"),
    ("listener", "string", "listener name"),
    ("principal", "string", "name part of the principal, raw"),
    ("client_id", "string", "client-id, raw"),
    ("quota_type", "string", "quota type the requests are charged to; null: ids given out"),
    ("is_charged", "bool", "counts against a client quota"),
    ("second_ms", "long", "start of the second, epoch ms"),
    ("requests", "long", "requests"),
    ("bytes", "long", "bytes charged"),
    ("bytes_estimated", "long", "of these, not exact"),
    ("amount", "double", "charged in the quota's own unit (not for request_percentage)"),
    ("handler_ns", "long", "handler thread time, ns"),
    ("request_ns", "long", "thread time charged to the request quota, ns"),
    ("throttle_time_ms", "long", "throttle time told, ms"),
    ("throttled_requests", "long", "requests told a throttle time > 0"),
    ("max_throttle_time_ms", "long", "largest throttle time told, ms"),
    ("producer_ids", "long", "new producer ids"),
    ("quota_id", "string", "a journal's own; null from logs"),
    ("quota_user", "string", "a journal's own"),
    ("quota_client_id", "string", "a journal's own"),
    ("quota", "double", "a journal's own limit; null from logs, and where unlimited"),
)

SAME_SECOND: Final = ACTIVITY.names[:7]
"""Columns that tell rows of logs apart: whose requests, what they are charged to, and when."""

OWN_QUOTA: Final = ("quota_id", "quota_user", "quota_client_id", "quota")
"""Columns of ACTIVITY that hold a journal's own quota-id and limit; rows of logs have none."""

CONNECTIONS: Final = make_table(
    "connections",
    "First sights of connections, one row per piece of input that shows one.",
    ("broker_id", "int", "broker"),
    ("listener", "string", "listener name"),
    ("client_ip", "string", "peer address"),
    ("connection", "string", "connection id as logged"),
    ("first_ms", "double", "when it was first seen, epoch ms"),
)

EMITTED_ACTIVITY: Final = make_table(
    "emitted_activity",
    "One row per sum of ACTIVITY, first sight of a connection, bad line, piece read.",
    *ACTIVITY.columns,
    ("connection", "string", "connection: its id"),
    ("client_ip", "string", "connection: peer address"),
    ("first_ms", "double", "connection: first request seen, epoch ms"),
    ("file", "string", "bad, stat: file"),
    *_EXTRA,
)


_CONNECTION: Final = re.compile(r".*?:\d+-(.*):\d+(?:-\d+){1,2}")


@functools.lru_cache(maxsize=65536)
def client_ip(connection: str) -> str:
    """
    Return the peer's address of a connection id, "" if it has none.

    ``localIP:port-remoteIP:port-processor-index`` (3.8 and older without the processor); an IPv6
    address holds colons, and a dash only in its interface's name (``%br-7``).
    """
    found = _CONNECTION.fullmatch(connection)
    return found[1].strip("[]").partition("%")[0] if found else ""


class Columns:
    """Rows under way to Arrow: a list per column of one table; absent columns become null."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, **values: Any) -> None:
        """Add a row."""
        self._rows.append(values)

    def take(self) -> Any:
        """Return the added rows as one Arrow batch, and drop them."""
        rows, self._rows = self._rows, []
        columns = {name: [row.get(name) for row in rows] for name in self._table.names}
        return self._table.batch(len(rows), columns)

    def add_bad(self, file: str, offset: int, reason: str, line: bytes) -> None:
        """Add a line that couldn't be read."""
        text = line[: LINE_CHARS * 4].decode("utf-8", "replace")[:LINE_CHARS]
        self.add(kind="bad", file=file, offset=offset, reason=reason, line=text)

    def add_stat(self, file: str, lines: int, input_bytes: int) -> None:
        """Add how much was read of a file."""
        self.add(kind="stat", file=file, lines=lines, input_bytes=input_bytes)


def activity_batch(kind: str, n: int, columns: dict[str, Any]) -> Any:
    """Return columns of one kind as a batch of EMITTED_ACTIVITY."""
    return EMITTED_ACTIVITY.batch(n, columns | {"kind": [kind] * n})
