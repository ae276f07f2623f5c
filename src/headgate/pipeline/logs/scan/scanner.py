"""
Scan chunks of a log in machine code, and hand over what they hold: rows, or sums by second.

What the scan doesn't take it gives back, line by line, for ``line_parser.LineParser``; what it does
take, that parser would have read the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.pipeline.emitted import client_ip
from headgate.pipeline.logs.api_names import is_brokers_own
from headgate.pipeline.logs.line_parser import FETCH, MUTATION, PRODUCE, REQUEST
from headgate.pipeline.logs.principals import Principals
from headgate.pipeline.logs.scan import arguments as to
from headgate.pipeline.logs.scan import columns as at
from headgate.pipeline.logs.scan import machine
from headgate.pipeline.logs.scan import names as role
from headgate.pipeline.logs.scan.frames import meaning
from headgate.pipeline.logs.time_stamps import StampError, StampReader

# Lines of one call: what it works on stays in a core's cache.
ROOM: Final = 8192
# Groups kept before a hand-over, about 100 bytes each.
MOST_GROUPS: Final = 400_000
_SLOTS: Final = 1 << 20
_MOST_MINUTES: Final = 10_000
_FEW_FRAMES: Final = 200
_MOST_FRAMES: Final = 4_096
"""With as many, files to come are read by frames that are known already."""

# By kind: at.OTHER, at.PRODUCE, at.FETCH, at.MUTATION.
_TYPES: Final = pa.array([REQUEST, PRODUCE, FETCH, MUTATION])


class LineScanner:
    """
    Scans buffers of whole lines.

    Args:
        zone: as ``LineParser``, of the first lines.
        connections: also number connections.

    Attributes:
        ints: columns of the lines just taken, whole numbers (``scan.columns``).
        doubles: those of doubles.
        names: names seen so far.
        principals: reads the users' names.
        arguments: of the next step (``scan.arguments``).
        sums: of lines added up, by second.
    """

    def __init__(self, zone: tzinfo, *, connections: bool = False) -> None:
        self.ints = np.empty((at.INTS, ROOM), np.int64)
        self.doubles = np.empty((at.DOUBLES, ROOM), np.float64)
        self._given = np.empty((2 * ROOM, 2), np.int64)
        self._found = np.zeros(at.ALL_FOUND, np.int64)
        sizes = (at.FRAME_ROOM, at.MOST_TEXT + 4 * role.PADDING)
        self._rooms = tuple(np.empty(n, np.uint8) for n in sizes)
        self.principals = Principals()
        self._stamps = StampReader(zone)
        self._file: tuple[Any, ...] = ()
        self._file_stamps: StampReader | None = None
        self._frames: list[int] = []
        self._stale: set[int] = set()  # of these, what meant something in an earlier file
        self._reads_frames = True
        self._minutes: dict[bytes, float] = {}
        self._values = np.zeros(role.MOST_NAMES)
        self._understood = 0
        self._enter = machine.load()
        self.arguments = np.zeros(to.ALL, np.int64)
        self.point(to.INTS, self.ints)
        self.point(to.DOUBLES, self.doubles)
        self.point(to.GIVEN, self._given)
        self.point(to.FOUND, self._found)
        self.point(to.VALUES, self._values)
        self.point(to.FRAME, self._rooms[0])
        self.point(to.TEXT_ROOM, self._rooms[1])
        self.arguments[to.ROOM] = ROOM
        self.arguments[to.GIVEN_ROOM] = len(self._given)
        self.wants_connections(connections)
        self.use(role.Names())
        self.sums = ScannedSums(self)

    def wants_connections(self, wanted: bool) -> None:
        """Number connections from now on, or don't."""
        self.arguments[to.CONNECTIONS] = wanted

    def point(self, place: int, array: Any) -> None:
        """Give a step an array, which must live as long as the scanner."""
        self.arguments[place] = array.ctypes.data

    def do(self, step: int) -> int:
        """Call the machine code for one step, with ``arguments``."""
        self.arguments[to.STEP] = step
        return self._enter(self.arguments.ctypes.data)

    def use(self, names: role.Names) -> None:
        """Number names by these from now on."""
        self.names = names
        self.point(to.SLOTS, names.slots)
        self.point(to.ENTRIES, names.entries)
        self.point(to.ARENA, names.arena)
        self.point(to.STATE, names.state)
        self.arguments[to.MOST] = len(names.entries)
        self.arguments[to.ARENA_BYTES] = len(names.arena)
        self._understood = 0
        self._frames = []
        self._stale = set()

    def forget(self) -> None:
        """Forget all names; what was kept by their numbers must be handed over before."""
        self.names.clear()
        self._understood = 0
        self._frames = []
        self._stale = set()

    def scan(
        self, text: Any, end: int, stamps: StampReader
    ) -> Iterator[tuple[int, list[tuple[int, int]], int]]:
        """
        Scan the lines of a buffer, some thousands at a time.

        Args:
            text: uint8 array with PADDING readable bytes beyond ``end``.
            end: where the lines end, behind a newline.
            stamps: the parser's of lines given back.

        Yields:
            (lines taken, their columns are in ``ints`` and ``doubles``; (start, end) of lines
            given back; lines in all). No line at all asks for ``forget``: there's no more room for
            names.
        """
        found, arguments = self._found, self.arguments
        arguments[to.TEXT] = text.ctypes.data
        arguments[to.END] = end
        arguments[to.NANOS] = stamps.nanos
        if stamps.zone != self._stamps.zone:
            yield 0, [], 0
            self._stamps = StampReader(stamps.zone)
            self._minutes.clear()
        shifts_ms = stamps.shifts_ms or (0.0,)
        arguments[to.LEAST_SHIFT_MS] = int(shifts_ms[0])
        arguments[to.MOST_SHIFT_MS] = int(shifts_ms[-1])
        self._begin(stamps)
        begin = 0
        stuck = False
        while begin < end:
            arguments[to.BEGIN] = begin
            arguments[to.FRAMES_BELOW] = role.MOST_NAMES if self._reads_frames else 0
            self.do(to.SCAN)
            if found[at.STOPPED] == begin:  # no room for this line's names
                given = []
                if stuck:  # not even among no others
                    newline = begin + int(np.argmax(text[begin:end] == ord("\n")))
                    given = [(begin, newline)]
                    begin = newline + 1
                yield 0, given, len(given)
                stuck = not stuck
                continue
            stuck = False
            begin = int(found[at.STOPPED])
            lines = int(found[at.LINES])
            self._understand(stamps, lines)
            self.do(to.SETTLE)
            given = [(a, b) for a, b in self._given[: found[at.GIVEN]].tolist()]
            yield int(found[at.TAKEN]), sorted(given), lines

    def _begin(self, stamps: StampReader) -> None:
        """Forget what frames meant in another file, if stamps are read differently there."""
        file = (stamps.nanos, len(stamps.shifts_ms), stamps.file_date)
        if stamps is self._file_stamps:
            return
        self._file_stamps = stamps
        self._reads_frames = len(self._frames) < _MOST_FRAMES
        if file != self._file:
            self._file = file
            self._stale = set(self._frames)

    def _meaning(self, number: int, stamps: StampReader) -> float:
        in_string = self.names.role(number) == role.STRING_FRAME
        return meaning(self.names.text(number), stamps, in_string=in_string)

    def _understand(self, stamps: StampReader, lines: int) -> None:
        """Work out what names mean that weren't seen before."""
        names, values = self.names, self._values
        if self._stale:
            here = np.unique(self.ints[at.FRAME_NAME, : self._found[at.TAKEN]]).tolist()
            for number in self._stale.intersection(here):
                values[number] = self._meaning(number, stamps)
            self._stale.difference_update(here)
        frames = len(self._frames)
        for number in range(self._understood, len(names)):
            kind = names.role(number)
            if kind == role.STAMP:
                second = self._second(names.text(number))
                values[number] = np.nan if second is None else second
            elif kind == role.ZONED:
                values[number] = self._zoned_second(names.text(number))
            elif kind in (role.FRAME, role.STRING_FRAME):
                self._frames.append(number)
                values[number] = self._meaning(number, stamps)
            elif kind == role.API:
                values[number] = _sender(names.text(number).decode("ascii"))
        self._understood = len(names)
        # A frame for each few lines holds something else that varies: the parser is as fast.
        self._reads_frames &= len(self._frames) - frames <= _FEW_FRAMES + lines // 8

    def _second(self, stamp: bytes) -> float | None:
        """Return ``StampReader.second``, which is asked once for each minute."""
        minute = self._minutes.get(stamp[:16])
        own = stamp[17:]
        if minute is not None and stamp[16:17] == b":" and own.isdigit() and own < b"60":
            return minute + 1000.0 * int(own)
        second = self._stamps.second(stamp)
        if second is not None and own < b"60":
            if len(self._minutes) >= _MOST_MINUTES:
                self._minutes.clear()
            self._minutes[stamp[:16]] = second - 1000.0 * int(own)
        return second

    def _zoned_second(self, text: bytes) -> float:
        """Return the epoch ms of a stamp and its zone, for which the parser is asked."""
        minute = text[:16] + text[19:]
        if text[17:19] != b"00" and minute in self._minutes:
            return self._minutes[minute] + 1000.0 * int(text[17:19])
        try:
            ms = self._stamps.stamps(b"[" + text + b"]")[0].ms
        except StampError:
            return np.nan
        if len(self._minutes) >= _MOST_MINUTES:
            self._minutes.clear()
        self._minutes[minute] = ms - 1000.0 * int(text[17:19])
        return ms

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
            "record_ms": pa.array(doubles[at.RECORD_MS].copy()),
            "listener": self.texts(ints[at.LISTENER_NAME]),
            "connection": pa.array(connections, pa.string()).take(places),
            "client_ip": pa.array([client_ip(c) for c in connections], pa.string()).take(places),
            "principal": self.users(ints[at.PRINCIPAL_NAME]),
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
            "is_charged": pa.array(ints[at.CHARGED] != 0),
        }

    def first_seen(self, n: int) -> Iterator[tuple[str, str, float]]:
        """Yield (listener, connection, earliest ms) of those in the lines just taken."""
        here = np.flatnonzero(self.ints[at.FORWARDED, :n] == 0)
        listener = self.ints[at.LISTENER_NAME, here]
        connection = self.ints[at.CONNECTION_NAME, here]
        both, places = np.unique(listener << at.NAME_BITS | connection, return_inverse=True)
        first = np.full(len(both), np.inf)
        np.minimum.at(first, places, self.doubles[at.RECORD_MS, here])
        for numbers, first_ms in zip(both.tolist(), first.tolist(), strict=True):
            listener_name = self.names.text(numbers >> at.NAME_BITS).decode("ascii")
            connection_name = self.names.text(numbers & (1 << at.NAME_BITS) - 1).decode("ascii")
            yield listener_name, connection_name, first_ms

    def texts(self, numbers: Any) -> Any:
        """Return the names of an array of numbers, as an Arrow array of strings."""
        distinct, places = np.unique(numbers, return_inverse=True)
        texts = [self.names.text(n).decode("ascii") for n in distinct.tolist()]
        return pa.array(texts, pa.string()).take(pa.array(places))

    def users(self, numbers: Any) -> Any:
        """Return the users of an array of principals' numbers, as an Arrow array of strings."""
        distinct, places = np.unique(numbers, return_inverse=True)
        names = [self.names.text(n).decode("ascii") for n in distinct.tolist()]
        users = [self.principals.name_of(f"User:{name}") for name in names]
        return pa.array(users, pa.string()).take(pa.array(places))


def _sender(api: str) -> float:
    if is_brokers_own(api, 0):
        return at.BROKERS
    return at.BROKERS_FROM_4 if is_brokers_own(api, 4) else at.CLIENTS


class ScannedSums:
    """Sums by second of the lines that a scanner takes."""

    def __init__(self, scanner: LineScanner) -> None:
        self._scanner = scanner
        self._count = 0
        self._slots = np.zeros(_SLOTS, np.int32)
        most = MOST_GROUPS + ROOM
        self._keys = np.empty((most, at.KEYS), np.int64)
        self._sums = np.empty((most, at.SUMS), np.int64)
        self._amounts = np.empty(most, np.float64)
        scanner.point(to.GROUP_SLOTS, self._slots)
        scanner.point(to.KEYS, self._keys)
        scanner.point(to.SUMS, self._sums)
        scanner.point(to.AMOUNTS, self._amounts)
        scanner.arguments[to.GROUP_SLOTS_LENGTH] = len(self._slots)
        scanner.arguments[to.MOST_GROUPS] = most

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether ``take`` must come before the next ``add``."""
        return self._count > MOST_GROUPS

    def add(self, n: int, broker: int) -> None:
        """Add the ``n`` lines that the scanner has just taken."""
        arguments = self._scanner.arguments
        arguments[to.COUNT] = self._count
        arguments[to.LINES] = n
        arguments[to.BROKER] = broker
        self._count = self._scanner.do(to.ADD_UP)

    def take(self) -> dict[str, Any]:
        """Return the sums as columns of ``activity``, and begin again."""
        n = self._count
        keys, sums = self._keys[:n], self._sums[:n]
        who = keys[:, at.WHO]
        mask = (1 << at.NAME_BITS) - 1
        client = who >> 3 & mask
        principal = who >> 3 + at.NAME_BITS & mask
        listener = who >> 3 + 2 * at.NAME_BITS
        broker = keys[:, at.BROKER]
        columns: dict[str, Any] = {
            "broker_id": pa.array(broker, pa.int32(), mask=broker < 0),
            "listener": self._scanner.texts(listener),
            "principal": self._scanner.users(principal),
            "client_id": self._scanner.texts(client),
            "quota_type": _TYPES.take(pa.array(who >> 1 & 3)),
            "is_charged": pa.array((who & 1).astype(np.bool_)),
            "second_ms": pa.array(keys[:, at.SECOND] * 1000),
            "amount": pa.array(self._amounts[:n].copy()),
        }
        for name, column in _SUM_COLUMNS.items():
            columns[name] = pa.array(sums[:, column])
        self._slots[:] = 0
        self._count = 0
        return columns


_SUM_COLUMNS: Final = {
    "requests": at.REQUESTS,
    "bytes": at.SUM_BYTES,
    "bytes_estimated": at.ESTIMATED,
    "handler_ns": at.NANOS,
    "request_ns": at.NANOS,
    "throttle_time_ms": at.TOLD,
    "throttled_requests": at.THROTTLED,
    "max_throttle_time_ms": at.MOST_TOLD,
}
