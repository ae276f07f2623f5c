"""
Make a picture of a past moment from brokers' request logs, in this process and without Spark.

A log names no quota. Each request is charged again to the quotas given, so that rates are known.
Waits are those in the log. A wait counts as that of the request's own quota if that quota was
exceeded, else as the request quota's.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headgate.live.past import Past
from headgate.pipeline.logs.line_parser import BadLine
from headgate.pipeline.replaying.charges import throttled_fetches
from headgate.pipeline.sources.chunks import read_lines
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.workers.log_reader import ReadOptions, RequestsOfLogs
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, REQUEST
from headgate.quota.precedence import resolve
from headgate.quota.table import QuotaTable
from headgate.throttle.sensor import SampledRate
from headgate.usage.format import Event, Origin
from headgate.usage.rows import batch_of

PERIOD_MS: Final = 1_800_000
"""How far back requests are read. Longer waits, told before that, are missing."""
MOST_LINES: Final = 10_000_000
"""Lines read at most, give or take a piece of a file; they take a minute or two."""
MOST_REQUESTS: Final = 500_000
"""Requests kept at most, of the quota-ids asked about; charging them takes half a minute."""
_TAIL_BYTES: Final = 1 << 20
_AT_ONCE: Final = 10_000
_SAMPLES, _WINDOW_MS = 11, 1_000
_NOTE: Final = (
    "Times are those of the log; what it doesn't hold isn't seen: the bytes of throttled fetches, "
    "all of the thread time, and windows other than 11 of 1 s."
)
_WANTED: Final = (
    "record_ms", "broker_id", "principal", "client_id", "client_ip", "connection", "quota_type",
    "amount", "handler_ms", "throttle_time_ms",
)  # fmt: skip


class _Charge(NamedTuple):
    """A quota-id that a client is charged to."""

    key: str
    user: str
    client_id: str
    bound: float


def last_ms(pieces: Iterable[FilePiece], time_zone: str) -> int | None:
    """Return when the last request of logs was charged, epoch ms; None: there are none."""
    latest = {piece.path: piece for piece in pieces}  # each file's last one
    found: list[float] = []
    for piece in latest.values():
        start = piece.start if piece.compression else max(piece.start, piece.end - _TAIL_BYTES)
        tail = replace(piece, start=start)
        for batch in RequestsOfLogs(ReadOptions((tail,), time_zone)).read(tail):
            found += [v for v in [pc.max(batch["record_ms"]).as_py()] if v is not None]
    return math.floor(max(found) + 0.5) if found else None


class PastLogs:
    """
    Reads logs' last minutes before a moment, and charges them again.

    Args:
        table: the quotas then.
        at_ms: the moment, epoch ms.
        user: the principal asked about, raw.
        client_id: its client-id; None: any.
        options: how logs are read.

    Attributes:
        past: what was found.
        note: what isn't known, and why.
        read: how many requests were read of the minutes before the moment, of everybody.
    """

    def __init__(
        self,
        table: QuotaTable,
        at_ms: int,
        user: str,
        client_id: str | None,
        options: ReadOptions,
    ) -> None:
        self.past = Past(at_ms, user, client_id)
        self.note = _NOTE
        self.read = 0
        self._table = table
        self._until_ms = at_ms + 0.5  # the log's estimate is rounded to the nearest ms
        self._since_ms = float(at_ms - PERIOD_MS)
        self._options = options
        self._charges: dict[tuple[str, str], list[_Charge]] = {}
        self._user = user
        own = () if client_id is None else self._charged(user, client_id)
        self._asked = None if client_id is None else {charge[:3] for charge in own}

    def take(self, pieces: Iterable[FilePiece]) -> None:
        """
        Take logs in: the newest pieces first, until there are too many lines.

        Args:
            pieces: of logs, as ``pieces_of`` gives them.

        Raises:
            ReadError: a file can't be read.
        """
        kept: list[Any] = []
        lines = unread = bad = 0
        room = MOST_REQUESTS
        for _, piece in sorted(self._within(pieces), key=lambda part: -part[0]):
            if lines >= MOST_LINES or room <= 0:
                unread += 1
                continue
            mine: deque[Any] = deque()
            for batch in RequestsOfLogs(self._options).read(piece):
                rows = batch.filter(pc.equal(batch["kind"], "request"))
                bad += pc.sum(pc.equal(batch["kind"], "bad")).as_py() or 0
                lines += rows.num_rows
                if rows.num_rows and pc.min(rows["record_ms"]).as_py() >= self._until_ms:
                    break
                mine.append(self._shared(rows))
                room -= mine[-1].num_rows
                # Drop the oldest of a large piece, such as a compressed file.
                while room < 0 and len(mine) > 1:
                    room += mine.popleft().num_rows
                    unread += 1
            kept.extend(mine)
        if unread:
            self.note += f" The logs are large: of these {PERIOD_MS // 60_000} minutes only the "
            self.note += "latest part was read."
        if bad:
            self.note += f" {bad} lines couldn't be read."
        if kept:
            self._charge_all(pa.Table.from_batches(kept).sort_by("record_ms"))

    def _within(self, pieces: Iterable[FilePiece]) -> Iterator[tuple[float, FilePiece]]:
        """Yield the pieces that may hold requests of the period, with when each one begins."""
        for _, same in groupby(pieces, key=lambda piece: piece.path):
            several = list(same)
            first = max(bisect_right(several, self._since_ms, key=self._begins_ms) - 1, 0)
            for piece in several[first:]:
                begins_ms = self._begins_ms(piece)
                if begins_ms >= self._until_ms:
                    break
                yield begins_ms, piece

    def _begins_ms(self, piece: FilePiece) -> float:
        """Return when a piece's first request was charged, as far as its beginning tells."""
        parser = self._options.parser_of(piece)
        for _, lines in () if piece.unread else read_lines(piece):
            for line in lines:
                for row in parser.rows(line):
                    if not isinstance(row, BadLine):
                        return row.record_ms
            break
        return -math.inf

    def _charged(self, principal: str, client_id: str) -> list[_Charge]:
        """Return the quota-ids of a client that have a limit."""
        found = self._charges.get((principal, client_id))
        if found is None:
            keys = (PRODUCER, CONSUMER, MUTATION, REQUEST)
            each = ((key, resolve(self._table, principal, client_id, key)) for key in keys)
            found = [_Charge(k.name, *f.tags, f.value) for k, f in each if f.value is not None]
            self._charges[principal, client_id] = found
        return found

    def _wanted(self, principal: str, client_id: str) -> bool:
        """Say whether a client shares a quota-id that is asked about."""
        charges = self._charged(principal, client_id)
        if self._asked is None:
            return principal == self._user or any(not charge.user for charge in charges)
        return any(charge[:3] in self._asked for charge in charges)

    def _shared(self, rows: Any) -> Any:
        """Return the period's charges that count; ``emptied`` says which are throttled fetches."""
        times = rows["record_ms"]
        within = pc.and_(pc.greater(times, self._since_ms), pc.less(times, self._until_ms))
        self.read += within.true_count
        rows = rows.filter(pc.and_(within, rows["is_charged"]))
        names = [pc.fill_null(rows[n].cast(pa.string()), "") for n in ("principal", "client_id")]
        who = zip(*(name.to_pylist() for name in names), strict=True)
        rows = rows.filter(pa.array([self._wanted(*pair) for pair in who], pa.bool_()))
        taken = pa.array(throttled_fetches(rows))
        return rows.select(_WANTED).append_column("emptied", taken)

    def _charge_all(self, table: Any) -> None:
        rates: dict[tuple[int, str, str, str], SampledRate] = {}
        for batch in table.to_batches(_AT_ONCE):
            events = [event for row in batch.to_pylist() for event in self._events(row, rates)]
            if events:
                self.past.take(batch_of(events, "log", 0))

    def _events(
        self, row: dict[str, Any], rates: dict[tuple[int, str, str, str], SampledRate]
    ) -> Iterator[Event]:
        """Yield a request's charges, as a gateway would write them down."""
        whose = (row["principal"] or "", row["client_id"] or "")
        t_ms, told = math.floor(row["record_ms"] + 0.5), row["throttle_time_ms"] or 0
        broker = -1 if row["broker_id"] is None else row["broker_id"]
        charges = {charge.key: charge for charge in self._charged(*whose)}
        own, request = charges.get(row["quota_type"]), charges.get(REQUEST.name)
        made: list[tuple[_Charge, str, float]] = []
        decided = own if own is not None and request is None else None
        if own is not None and own is not request:
            strict = own.key == MUTATION.name
            amount = 0.0 if row["emptied"] else row["amount"] or 0.0
            made.append((own, "strict" if strict else "record", amount))
            at = (broker, *own[:3])
            rate = rates.setdefault(at, SampledRate(_SAMPLES, _WINDOW_MS))
            rate.record(amount, t_ms)
            if strict or row["emptied"] or rate.peek(t_ms)[0] > own.bound:
                decided = own
        if request is not None:
            # Percent of a thread: 1 s of its time is 100.
            made.append((request, "record", (row["handler_ms"] or 0.0) / 10))
        for charge, kind, amount in made:
            origin = Origin(
                kind, charge.key, broker, "", charge.user, charge.client_id, "", *whose,
                row["client_ip"] or "", row["connection"] or "", num_samples=_SAMPLES,
                window_ms=_WINDOW_MS, rule="sampled",
            )  # fmt: skip
            mine = told if charge is (decided or request) else 0
            yield Event(origin, t_ms, amount, charge.bound, mine, told, 0)
