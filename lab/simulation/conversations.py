"""
One connection of a simulated client: what it asks, what it hears, how it ends.

Every correlation id is used once in a life and names its connection, so that on any wire it is
plain whose it is.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simulation import speech as say
from simulation.brokers import ENDLESS
from simulation.network import End
from simulation.peers import Frames, TlsPeer

if TYPE_CHECKING:
    from simulation.clients import Client

IDS: Final = 4_096
"""Correlation ids of one connection."""
LOGIN: Final = {say.SASL_HANDSHAKE, say.SASL_AUTHENTICATE, say.API_VERSIONS}
"""What may be asked before a login is over."""


def conversation_of(correlation: int) -> int:
    """Return the number of the connection that a correlation id belongs to; 0: nobody's here."""
    return correlation // IDS if 0 <= correlation < 2**31 else 0


def address_of(number: int) -> str:
    """Return the address from which a connection comes."""
    return f"10.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


@dataclass(slots=True)
class Sent:
    """A request that a client sent."""

    correlation: int
    key: int
    version: int
    size: int
    token: int
    acks: int
    sent_ns: int
    done: Callable[[Sent], None] | None = None
    answered_ns: int = -1
    told_ms: int = 0
    error: int = 0
    records: int = 0


class Conversation:
    """
    One connection of a client, from its side.

    Attributes:
        number: of the connection; never used again.
        due: correlation ids whose answers are due, oldest first.
        sent: requests by correlation id.
        ready: it is logged in.
        gone: why it ended; "" while it hasn't.
        came_ns: when the client asked for it.
        certificate: the serial number of the gateway's, over TLS.
    """

    def __init__(self, client: Client, number: int, end: End, came_ns: int = 0) -> None:
        self.client = client
        self.life = client.life
        self.loop = client.life.loop
        self.number = number
        self.address = end.name[0]
        self.frames = Frames()
        self.due: deque[int] = deque()
        self.sent: dict[int, Sent] = {}
        self.ready = False
        self.gone = ""
        self.broken = False  # what it said can't be understood any more
        self.muted_until_ns = 0
        self._count = 0
        self._waiting: list[Callable[[], None]] = []
        self._half = b""
        self.came_ns = came_ns
        self.certificate = 0
        self.peer = client.peer(end, self._data, self._gone, self._shaken)
        self.ask(say.API_VERSIONS, 1, b"", lambda _: self._log_in())
        self.peer.look()

    def _shaken(self, error: str) -> None:
        if not error and isinstance(self.peer, TlsPeer):
            self.certificate = self.peer.certificate
        self.life.shaken(self, error)

    def _log_in(self) -> None:
        self.ask(say.SASL_HANDSHAKE, 1, say.text("PLAIN"), lambda _: self._authenticate())

    def _authenticate(self) -> None:
        token = f"\0{self.client.principal}\0{self.client.password}".encode()
        body = struct.pack(">i", len(token)) + token
        self.ask(say.SASL_AUTHENTICATE, 1, body, self._logged_in)

    def _logged_in(self, sent: Sent) -> None:
        if sent.error:
            return
        self.ready = True
        waiting, self._waiting = self._waiting, []
        for what in waiting:
            what()

    def when_ready(self, what: Callable[[], None]) -> None:
        """Do something as soon as the client is logged in."""
        if self.ready:
            what()
        elif not self.gone:
            self._waiting.append(what)

    # --- requests ---------------------------------------------------------------------------

    def next_id(self) -> int:
        """Return an id that nobody had."""
        self._count += 1
        if self._count >= IDS:
            self.hang_up("close")
        return self.number * IDS + self._count

    def ask(
        self, key: int, version: int, body: bytes, done: Callable[[Sent], None] | None = None
    ) -> None:
        """Send a request that nothing is special about."""
        correlation = self.next_id()
        data = say.request(key, version, correlation, self.client.client_id, body)
        self.say(data, Sent(correlation, key, version, len(data) - 4, 0, -1, 0, done))

    def produce(
        self,
        size: int,
        acks: int,
        done: Callable[[Sent], None] | None,
        cut: int = 0,
        name: str | None = None,
    ) -> None:
        """Produce ``size`` bytes under a transactional id; ``cut``: only the first for now."""
        client, correlation = self.client, self.next_id()
        token = self.life.new_token()
        version = client.produce_version
        producer, epoch, sequence = client.next_sequence()
        records = say.batch(token, max(size, 0), producer, epoch, sequence)
        data = say.produce(
            version, correlation, client.client_id, "t", client.partition, records, acks, name
        )
        sent = Sent(correlation, say.PRODUCE, version, len(data) - 4, token, acks, 0, done)
        self.say(data, sent, cut)

    def fetch(
        self, topic: str, wait_ms: int, most: int, done: Callable[[Sent], None] | None
    ) -> None:
        """Fetch from where it left off."""
        client, correlation = self.client, self.next_id()
        version = client.fetch_version
        data = say.fetch(
            version, correlation, client.client_id, topic, client.partition,
            client.offsets.get(topic, 0), wait_ms=wait_ms, most=most,
        )  # fmt: skip
        endless = int(topic == ENDLESS)
        self.say(data, Sent(correlation, say.FETCH, version, len(data) - 4, endless, -1, 0, done))

    def share(self, most: int, done: Callable[[Sent], None] | None) -> None:
        """Fetch as a member of a share group."""
        client, correlation = self.client, self.next_id()
        data = say.share_fetch(correlation, client.client_id, client.partition, 500, most)
        self.say(data, Sent(correlation, say.SHARE_FETCH, 1, len(data) - 4, 0, -1, 0, done))

    def say(self, data: bytes, sent: Sent | None, cut: int = 0) -> None:
        """Send bytes; behind a half-sent request they wait."""
        if self.gone:
            return
        if self._half and cut >= 0:
            self._half += data
        elif cut > 0:
            self.peer.send(data[:cut])
            self._half = data[cut:]
        else:
            self.peer.send(data)
        if sent is not None:
            sent.sent_ns = self.loop.now_ns
            self.sent[sent.correlation] = sent
            if sent.key != say.PRODUCE or sent.acks:
                self.due.append(sent.correlation)
            elif sent.done is not None:
                self.loop.after(5.0, sent.done, sent)

    def say_the_rest(self) -> None:
        """Send what was held back of a half-sent request, and all that waits behind it."""
        rest, self._half = self._half, b""
        if rest:
            self.say(rest, None, cut=-1)

    # --- answers ----------------------------------------------------------------------------

    def _data(self, data: bytes) -> None:
        for frame in self.frames.feed(data):
            if not self.gone:
                self._answer(frame)

    def _answer(self, data: bytes) -> None:
        correlation = say.correlation_of(data)
        life = self.life
        if not self.due or self.due[0] != correlation:
            due = self.due[0] if self.due else None
            if not self.broken:
                life.broken("order", f"{self.client.name} got {correlation}, due is {due}")
            return
        self.due.popleft()
        sent = self.sent[correlation]
        sent.answered_ns = self.loop.now_ns
        self._read(sent, data)
        life.digest("answer", correlation, self.loop.now_ns, sent.told_ms, len(data))
        for law in life.laws:
            law.answered(self, sent, data)
        if sent.told_ms and self.client.obeys:
            until = self.loop.now_ns + sent.told_ms * 1_000_000
            self.muted_until_ns = max(self.muted_until_ns, until)
        if sent.done is not None:
            wait_ns = self.muted_until_ns - self.loop.now_ns
            if wait_ns > 0 and self.client.obeys and sent.key not in LOGIN:
                self.loop.after(wait_ns / 1e6, self._done, sent)
            else:
                sent.done(sent)

    def _done(self, sent: Sent) -> None:
        if not self.gone and sent.done is not None:
            sent.done(sent)

    def _read(self, sent: Sent, data: bytes) -> None:
        if sent.key == say.PRODUCE:
            found = say.read_produce_answer(data, sent.version)
            sent.told_ms, sent.error = found.told_ms, found.error
            if not found.error:
                self.life.acknowledged(self, sent, found.offset)
        elif sent.key == say.FETCH:
            got = say.read_fetch_answer(data, sent.version)
            sent.told_ms, sent.error, sent.records = got.told_ms, got.error, got.records
            if got.next_offset >= 0:
                self.client.offsets[ENDLESS if sent.token else "t"] = got.next_offset
        elif sent.key == say.SHARE_FETCH:
            sent.told_ms = struct.unpack_from(">i", data, 9)[0]
        elif sent.key == say.INIT_PRODUCER_ID:
            _, sent.error, producer, epoch = struct.unpack_from(">ihqh", data, 8)
            self.client.has_producer(producer, epoch)
        elif sent.key == say.SASL_AUTHENTICATE:
            sent.error = struct.unpack_from(">h", data, 8)[0]

    # --- the end ----------------------------------------------------------------------------

    def _gone(self, how: str) -> None:
        self._end(f"the gateway: {how}")

    def hang_up(self, how: str) -> None:
        """
        End the connection: ``close``, ``reset``, ``vanish``, ``unseen``.

        The last is an end behind all that was sent, which a muted connection doesn't read.
        """
        if self.gone:
            return
        if how == "unseen":
            self.peer.leave()
            self._end("itself: unseen")
            return
        if how == "reset":
            self.peer.reset()
        elif how == "vanish":
            self.peer.end.vanish()
            self.peer.gone = True
        else:
            self.peer.close()
        self._end(f"itself: {how}")

    def _end(self, how: str) -> None:
        if not self.gone:
            self.gone = how
            self._waiting.clear()
            self.client.ended(self)
