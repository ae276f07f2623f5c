"""
Scan chunks of a log in machine code, and hand over what they hold: rows, or sums by second.

What the scan doesn't take it gives back, line by line, for ``logline.LineParser``; what it does
take, that parser would have read the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.pipeline import logline
from headgate.pipeline.emitted import client_ip
from headgate.pipeline.scan import columns as at
from headgate.pipeline.scan import line
from headgate.pipeline.scan import names as role
from headgate.pipeline.scan import totals as to
from headgate.pipeline.stamps import StampReader, has_stamp

# Lines of one call: what it works on stays in a core's cache.
ROOM: Final = 8192
# Groups kept before a hand-over, about 100 bytes each.
MOST_GROUPS: Final = 400_000
_SLOTS: Final = 1 << 20

# By kind: at.OTHER, at.PRODUCE, at.FETCH, at.MUTATION.
_TYPES: Final = pa.array([logline.REQUEST, logline.PRODUCE, logline.FETCH, logline.MUTATION])


class LineScanner:
    """
    Scans buffers of whole lines.

    Args:
        zone: as ``LineParser``.
        connections: also number connections.

    Attributes:
        ints, doubles: columns of the lines just taken (``scan.columns``).
        names: names seen so far.
    """

    def __init__(self, zone: tzinfo, *, connections: bool = False) -> None:
        self.names = role.Names()
        self.ints = np.empty((at.INTS, ROOM), np.int64)
        self.doubles = np.empty((at.DOUBLES, ROOM), np.float64)
        self._connections = connections
        self._given = np.empty((2 * ROOM, 2), np.int64)
        self._found = np.zeros(4, np.int64)
        self._stamps = StampReader(zone)
        self._values = np.zeros(role.MOST_NAMES)
        self._understood = 0

    def forget(self) -> None:
        """Forget all names; what was kept by their numbers must be handed over before."""
        self.names.clear()
        self._understood = 0

    def scan(
        self, text: Any, end: int, *, nanos: bool
    ) -> Iterator[tuple[int, list[tuple[int, int]], int]]:
        """
        Scan the lines of a buffer, some thousands at a time.

        Args:
            text: uint8 array with PADDING readable bytes beyond ``end``.
            end: where the lines end, behind a newline.
            nanos: ``stamps.sniff_nanos``.

        Yields:
            (lines taken, their columns are in ``ints`` and ``doubles``; (start, end) of lines
            given back; lines in all). No line at all asks for ``forget``: there's no more room for
            names.
        """
        found = self._found
        begin = 0
        stuck = False
        while begin < end:
            line.scan(
                text,
                begin,
                end,
                nanos,
                self._connections,
                self.names.parts,
                self.ints,
                self.doubles,
                self._given[:ROOM],
                found,
            )
            if found[at.STOPPED] == begin:  # no room for this line's names
                given = []
                if stuck:  # not even among no others
                    newline = int(line.find_newline_in(text, begin))
                    given = [(begin, newline)]
                    begin = newline + 1
                yield 0, given, len(given)
                stuck = not stuck
                continue
            stuck = False
            begin = int(found[at.STOPPED])
            lines = int(found[at.LINES])
            self._understand()
            to.settle(text, self.ints, self.doubles, self._values, self._given, found)
            given = [(a, b) for a, b in self._given[: found[at.GIVEN]].tolist()]
            yield int(found[at.TAKEN]), given, lines

    def _understand(self) -> None:
        """Work out what names mean that weren't seen before."""
        names, values = self.names, self._values
        for number in range(self._understood, len(names)):
            kind = names.role(number)
            if kind == role.STAMP:
                second = self._stamps.second(names.text(number))
                values[number] = np.nan if second is None else second
            elif kind == role.MIDDLE:
                values[number] = np.nan if has_stamp(b"]" + names.text(number)) else 0.0
            elif kind == role.API:
                values[number] = _sender(names.text(number).decode("ascii"))
        self._understood = len(names)

    def columns(self, n: int, base: int) -> dict[str, Any]:
        """Return the lines just taken as columns of ``requests``; offsets count from ``base``."""
        ints, doubles = self.ints[:, :n], self.doubles[:, :n]
        kind = ints[at.KIND]
        handler = doubles[at.LOCAL].copy()
        amount = np.where(kind == at.OTHER, handler / 10.0, ints[at.BYTES])
        bytes_ = np.where(kind == at.MUTATION, 0, ints[at.BYTES])
        numbers, places = np.unique(ints[at.CONNECTION_NAME], return_inverse=True)
        connections = [self.names.text(c).decode("ascii") for c in numbers.tolist()]
        places = pa.array(places)
        return {
            "seq": pa.array(base + ints[at.OFFSET]),
            "record_ms": pa.array(doubles[to.RECORD_MS].copy()),
            "listener": self.texts(ints[at.LISTENER_NAME]),
            "connection": pa.array(connections, pa.string()).take(places),
            "client_ip": pa.array([client_ip(c) for c in connections], pa.string()).take(places),
            "principal": self.texts(ints[at.PRINCIPAL_NAME]),
            "client_id": self.texts(ints[at.CLIENT_NAME]),
            "api_name": self.texts(ints[at.API_NAME]),
            "api_version": pa.array(ints[at.VERSION].copy()),
            "is_forwarded": pa.array(ints[at.FORWARDED] != 0),
            "bytes_charged": pa.array(bytes_),
            "bytes_exact": pa.array(ints[at.EXACT] != 0),
            "handler_ms": pa.array(handler),
            "throttle_time_ms": pa.array(ints[at.THROTTLE].copy()),
            "quota_type": _TYPES.take(pa.array(kind.copy())),
            "amount": pa.array(amount),
            "is_charged": pa.array(ints[to.CHARGED] != 0),
        }

    def first_seen(self, n: int) -> Iterator[tuple[str, str, float]]:
        """Yield (listener, connection, earliest ms) of those in the lines just taken."""
        here = np.flatnonzero(self.ints[at.FORWARDED, :n] == 0)
        listener, connection = (
            self.ints[at.LISTENER_NAME, here],
            self.ints[at.CONNECTION_NAME, here],
        )
        both, places = np.unique(listener << to.NAME_BITS | connection, return_inverse=True)
        first = np.full(len(both), np.inf)
        np.minimum.at(first, places, self.doubles[to.RECORD_MS, here])
        for numbers, first_ms in zip(both.tolist(), first.tolist(), strict=True):
            listener_name = self.names.text(numbers >> to.NAME_BITS).decode("ascii")
            connection_name = self.names.text(numbers & (1 << to.NAME_BITS) - 1).decode("ascii")
            yield listener_name, connection_name, first_ms

    def texts(self, numbers: Any) -> Any:
        """Return the names of an array of numbers, as an Arrow array of strings."""
        distinct, places = np.unique(numbers, return_inverse=True)
        texts = [self.names.text(n).decode("ascii") for n in distinct.tolist()]
        return pa.array(texts, pa.string()).take(pa.array(places))


def _sender(api: str) -> float:
    if logline.is_brokers_own(api, 0):
        return to.BROKERS
    return to.BROKERS_FROM_4 if logline.is_brokers_own(api, 4) else to.CLIENTS


class ScannedSums:
    """Sums by second of scanned lines."""

    def __init__(self, scanner: LineScanner) -> None:
        self._scanner = scanner
        self._count = 0
        self._slots = np.zeros(_SLOTS, np.int32)
        most = MOST_GROUPS + ROOM
        self._keys = np.empty((most, to.KEYS), np.int64)
        self._sums = np.empty((most, to.SUMS), np.int64)
        self._amounts = np.empty(most, np.float64)

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether ``take`` must come before the next ``add``."""
        return self._count > MOST_GROUPS

    def add(self, n: int, broker: int) -> None:
        """Add the ``n`` lines that the scanner has just taken."""
        self._count = to.add_up(
            n,
            self._scanner.ints,
            self._scanner.doubles,
            broker,
            self._slots,
            self._keys,
            self._sums,
            self._amounts,
            self._count,
        )

    def take(self) -> dict[str, Any]:
        """Return the sums as columns of ``activity``, and start anew."""
        n = self._count
        keys, sums = self._keys[:n], self._sums[:n]
        who = keys[:, to.WHO]
        mask = (1 << to.NAME_BITS) - 1
        client = who >> 3 & mask
        principal = who >> 3 + to.NAME_BITS & mask
        listener = who >> 3 + 2 * to.NAME_BITS
        broker = keys[:, to.BROKER]
        columns: dict[str, Any] = {
            "broker_id": pa.array(broker, pa.int32(), mask=broker < 0),
            "listener": self._scanner.texts(listener),
            "principal": self._scanner.texts(principal),
            "client_id": self._scanner.texts(client),
            "quota_type": _TYPES.take(pa.array(who >> 1 & 3)),
            "is_charged": pa.array((who & 1).astype(np.bool_)),
            "second_ms": pa.array(keys[:, to.SECOND] * 1000),
            "amount": pa.array(self._amounts[:n].copy()),
        }
        for name, column in _SUM_COLUMNS.items():
            columns[name] = pa.array(sums[:, column])
        self._slots[:] = 0
        self._count = 0
        return columns


_SUM_COLUMNS: Final = {
    "requests": to.REQUESTS,
    "bytes": to.SUM_BYTES,
    "bytes_estimated": to.ESTIMATED,
    "handler_ns": to.NANOS,
    "request_ns": to.NANOS,
    "throttle_time_ms": to.TOLD,
    "throttled_requests": to.THROTTLED,
    "max_throttle_time_ms": to.MOST_TOLD,
}


def load() -> None:
    """Load or compile all machine code by scanning a line of nothing."""
    from datetime import UTC

    scanner = LineScanner(UTC)
    text = np.full(1 + 64, ord("\n"), np.uint8)
    text[0] = ord("-")
    for taken, _, _ in scanner.scan(text, 2, nanos=False):
        ScannedSums(scanner).add(taken, -1)
    line.find_newline_in(text, 0)
