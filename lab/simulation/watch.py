"""
What passes a gateway, read off its wires: bytes in and out of both sides of every connection.

Nothing here asks the gateway anything. A frame's correlation id says whose it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from simulation import speech as say
from simulation.conversations import conversation_of

if TYPE_CHECKING:
    from simulation.life import Life
    from simulation.loop import Process
    from simulation.tls import TlsTransport
    from simulation.transports import SimTransport

_SIZE: Final = struct.Struct(">i").unpack_from
ANSWER_HEAD: Final = 24
"""Bytes of an answer that tell all that a fetch is charged by."""
CLIENTS: Final = 64
"""Clients' connections come from 10.64.0.0 on: each from an address of its own."""


class Stream:
    """
    Finds frames in bytes, keeping only the head of each.

    Args:
        begun: called with the head and the size of a frame when its head is there.
        ended: called when its last byte is.
        most: bytes of a head.
    """

    __slots__ = ("_begun", "_ended", "_most", "head", "left", "size", "total")

    def __init__(
        self, begun: Callable[[bytes, int], None], ended: Callable[[], None], most: int
    ) -> None:
        self._most = most
        self._begun = begun
        self._ended = ended
        self.head = b""
        self.size = -1  # of the frame that has begun, its length prefix included
        self.left = 0
        self.total = 0

    @property
    def inside(self) -> int:
        """Bytes of an unfinished frame so far."""
        return self.size - self.left if self.size >= 0 else len(self.head)

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self.total += len(data)
        at, end = 0, len(data)
        while at < end:
            if self.size >= 0:
                step = min(self.left, end - at)
                self.left -= step
                at += step
            else:
                known = len(self.head)
                want = 4 if known < 4 else min(4 + max(_SIZE(self.head)[0], 0), self._most)
                step = min(want - known, end - at)
                self.head += data[at : at + step]
                at += step
                if len(self.head) < want:
                    return
                size = 4 + max(_SIZE(self.head)[0], 0)
                if len(self.head) < min(size, self._most):
                    continue
                self.size, self.left = size, size - len(self.head)
                self._begun(self.head, size)
            if not self.left and self.size >= 0:
                self.size, self.head = -1, b""
                self._ended()


@dataclass(slots=True)
class Asked:
    """A request on its way through the gateway; times are simulated ns, -1 while it hasn't."""

    correlation: int
    key: int
    version: int
    size: int
    client: str
    acks: int
    head_ns: int = -1
    read_ns: int = -1
    begun_ns: int = -1
    passed_ns: int = -1
    answer_bytes: int = 0
    answer_begun_ns: int = -1
    answer_ns: int = -1
    told_ns: int = -1
    written_ns: int = -1
    told_ms: int = 0
    error: int = 0


class View:
    """
    One conversation, as the gateway's wires show it.

    Attributes:
        number: of the conversation.
        asked: requests by correlation id.
        reading: the requests that came whole from the client, in order, and haven't been passed.
        flying: those that were passed and aren't answered, in order.
        client_open, broker_open: whether the gateway still has that side.
    """

    def __init__(self, watch: Watch, number: int) -> None:
        self.watch = watch
        self.life = watch.life
        self.number = number
        self.asked: dict[int, Asked] = {}
        self.waiting: dict[int, Asked] = {}
        self.flying: dict[int, Asked] = {}
        self.unwritten: dict[int, Asked] = {}
        self.client_open = True
        self.broker_open = False
        self.broker_ready_ns = -1
        self.opened_ns = self.life.loop.now_ns
        self.closed_ns = -1
        self.client_closed_ns = -1
        self.last_asked: dict[int, Asked] = {}  # by kind
        self.muted_ns = 0  # until when it was told to be muted
        self.from_client = Stream(self._request, self._request_whole, 32)
        self.to_broker = Stream(self._passing, self._passed, 12)
        self.from_broker = Stream(self._answer, self._answer_whole, ANSWER_HEAD)
        self.to_client = Stream(self._telling, self._told, 8)
        self.client_end: Any = None
        self.client_side: Any = None
        self.last_answer_ns = self.passed_ns = -1
        self.broker_end: Any = None
        self._reading: Asked | None = None
        self._going: Asked | None = None
        self._coming: Asked | None = None
        self._leaving: Asked | None = None

    # --- from the client --------------------------------------------------------------------

    def _request(self, data: bytes, size: int) -> None:
        self._reading = None
        if len(data) < 14:
            return
        key, version, correlation, length = struct.unpack_from(">hhih", data, 4)
        if conversation_of(correlation) != self.number or correlation in self.asked:
            return
        acks = self.life.acks_of(correlation)
        client = data[14 : 14 + length].decode() if length > 0 else ""
        now_ns = self.life.loop.now_ns
        self._reading = Asked(correlation, key, version, size - 4, client, acks, now_ns)
        self.asked[correlation] = self.last_asked[key] = self._reading
        for law in self.life.laws:
            law.asking(self, self._reading)

    def _request_whole(self) -> None:
        asked = self._reading
        if asked is not None:
            asked.read_ns = self.life.loop.now_ns
            if asked.passed_ns < 0:
                self.waiting[asked.correlation] = asked

    # --- to the broker ----------------------------------------------------------------------

    def _passing(self, data: bytes, size: int) -> None:
        asked = self.asked.get(struct.unpack_from(">i", data, 8)[0]) if len(data) >= 12 else None
        self._going = asked
        if asked is None:
            return
        asked.begun_ns = self.life.loop.now_ns
        for law in self.life.laws:
            law.passing(self, asked)

    def _passed(self) -> None:
        asked = self._going
        if asked is not None:
            asked.passed_ns = self.passed_ns = self.life.loop.now_ns
            self.waiting.pop(asked.correlation, None)
            if asked.acks or asked.key != say.PRODUCE:
                self.flying[asked.correlation] = asked
            for law in self.life.laws:
                law.passed(self, asked)
        self._going = None

    # --- from the broker --------------------------------------------------------------------

    def _answer(self, data: bytes, size: int) -> None:
        asked = self._coming = self.asked.get(say.correlation_of(data))
        if asked is None:
            return
        asked.answer_bytes = size
        asked.answer_begun_ns = self.life.loop.now_ns
        for law in self.life.laws:
            law.answer_begun(self, asked)

    def _answer_whole(self) -> None:
        asked = self._coming
        if asked is not None:
            asked.answer_ns = self.last_answer_ns = self.life.loop.now_ns
            self.flying.pop(asked.correlation, None)
            if asked.written_ns < 0:
                self.unwritten[asked.correlation] = asked

    # --- to the client ----------------------------------------------------------------------

    def _telling(self, data: bytes, size: int) -> None:
        asked = self._leaving = self.asked.get(say.correlation_of(data))
        if asked is not None:
            asked.told_ns = self.life.loop.now_ns
            for law in self.life.laws:
                law.telling(self, asked, data, size)

    def _told(self) -> None:
        asked = self._leaving
        if asked is not None:
            # What was asked behind an answer that was held goes on now.
            asked.written_ns = self.last_answer_ns = self.life.loop.now_ns
            self.unwritten.pop(asked.correlation, None)
            self.waiting.pop(asked.correlation, None)  # the gateway answered it itself

    # --- the end ----------------------------------------------------------------------------

    def left(self) -> None:
        """The gateway ends the connection."""
        for law in self.life.laws:
            law.left(self)

    def side_closed(self, *, client: bool) -> None:
        """One side's socket was closed by the gateway."""
        now = self.life.loop.now_ns
        if client:
            self.client_open, self.client_closed_ns = False, now
        else:
            self.broker_open = False
        if not self.client_open and not self.broker_open and self.closed_ns < 0:
            self.closed_ns = now
            for law in self.life.laws:
                law.closed(self)


class Watch:
    """All conversations of a life, by number."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.views: dict[int, View] = {}
        self.open: dict[int, View] = {}
        life.net.on_transport = self._transport

    def _transport(self, transport: SimTransport | TlsTransport, process: Process) -> None:
        if not process.name.startswith("gateway"):
            return
        end = transport.end
        address = end.peer.name[0].split(".")
        if int(address[1]) >= CLIENTS:
            number = (int(address[1]) - CLIENTS << 16) + (int(address[2]) << 8) + int(address[3])
            view = self.views[number] = self.open[number] = View(self, number)
            view.client_end, view.client_side = end, transport
            transport.on_read = view.from_client.feed
            transport.on_write = view.to_client.feed
            transport.on_leave = view.left
            end.on_closed = lambda: self._closed(view, client=True)
        else:
            _Upstream(self, transport)

    def _closed(self, view: View, *, client: bool) -> None:
        view.side_closed(client=client)
        if view.closed_ns >= 0:
            self.open.pop(view.number, None)

    def crashed(self) -> None:
        """The gateway has crashed: nothing is open any more."""
        for view in list(self.open.values()):
            view.client_open = view.broker_open = False
            view.closed_ns = self.life.loop.now_ns
        self.open.clear()


class _Upstream:
    """A connection of the gateway to a broker, whose client isn't known before its first frame."""

    def __init__(self, watch: Watch, transport: SimTransport | TlsTransport) -> None:
        self.watch = watch
        self.transport = transport
        self._first = b""
        transport.on_write = self._written

    def _written(self, data: bytes) -> None:
        self._first += data
        if len(self._first) < 12:
            return
        number = conversation_of(struct.unpack_from(">i", self._first, 8)[0])
        view = self.watch.views.get(number)
        if view is None:
            self.transport.on_write = None
            return
        end = self.transport.end
        view.broker_end = end
        view.broker_open = True
        view.closed_ns = -1  # its client may have left before the broker was reached
        self.watch.open[number] = view
        view.broker_ready_ns = self.transport.ready_ns
        self.transport.on_read = view.from_broker.feed
        end.on_closed = lambda: self.watch._closed(view, client=False)
        self.transport.on_write = view.to_broker.feed
        view.to_broker.feed(self._first)
