"""
Add up lines by second, one at a time: for lines that aren't scanned (``scan``), and for messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from headgate.pipeline.emitted import SAME_SECOND, activity_batch, client_ip
from headgate.pipeline.logs.line_parser import LogRow

# Sums kept before a hand-over: 200,000 keys are about 100 MB of Python objects.
MAX_KEYS: Final = 200_000


class Sums:
    """Sums by second under way, and first sights of connections if wanted."""

    def __init__(self, *, connections: bool = False) -> None:
        self.totals: dict[tuple[Any, ...], list[Any]] = {}
        self._seen: dict[tuple[Any, ...], float] = {}
        self.wants_connections = connections

    def __len__(self) -> int:
        return len(self.totals) + len(self._seen)

    def add(self, broker: int | None, row: LogRow) -> None:
        """Add a request line."""
        (record_ms, listener, connection, principal, client) = row[:5]
        (bytes_, exact, handler, throttle, quota_type, amount, charged) = row[8:]
        key = (broker, listener, principal, client, quota_type, charged, record_ms // 1000.0)
        total = self.totals.get(key)
        ns = int(handler * 1e6 + 0.5)
        if total is None:
            over = 1 if throttle > 0 else 0
            estimated = 0 if exact else bytes_
            self.totals[key] = [1, bytes_, estimated, amount, ns, throttle, over, throttle]
        else:
            total[0] += 1
            total[1] += bytes_
            total[3] += amount
            total[4] += ns
            if not exact:
                total[2] += bytes_
            if throttle > 0:
                total[5] += throttle
                total[6] += 1
                if throttle > total[7]:
                    total[7] = throttle
        if self.wants_connections and not row[7]:
            self.see(broker, listener, connection, record_ms)

    def see(self, broker: int | None, listener: str, connection: str, record_ms: float) -> None:
        """Keep when a connection's first request was seen, epoch ms."""
        seen = (broker, listener, connection)
        first = self._seen.get(seen)
        if first is None or record_ms < first:
            self._seen[seen] = record_ms

    def take(self) -> Iterator[Any]:
        """Yield Arrow batches of what was added up, and begin again."""
        if self.totals:
            keys = list(zip(*self.totals, strict=True))
            values = list(zip(*self.totals.values(), strict=True))
            columns: dict[str, Any] = dict(zip(SAME_SECOND, keys, strict=True))
            columns["second_ms"] = [int(s) * 1000 for s in keys[6]]
            columns.update(zip(_SUM_VALUES, values, strict=True))
            columns["request_ns"] = columns["handler_ns"]
            yield activity_batch("activity", len(self.totals), columns)
            self.totals.clear()
        if self._seen:
            keys = list(zip(*self._seen, strict=True))
            columns = dict(zip(("broker_id", "listener", "connection"), keys, strict=True))
            columns["client_ip"] = [client_ip(c) for c in columns["connection"]]
            columns["first_ms"] = list(self._seen.values())
            yield activity_batch("connection", len(self._seen), columns)
            self._seen.clear()


_SUM_VALUES: Final = (
    "requests",
    "bytes",
    "bytes_estimated",
    "amount",
    "handler_ns",
    "throttle_time_ms",
    "throttled_requests",
    "max_throttle_time_ms",
)
