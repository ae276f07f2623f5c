"""
The far side of a connection that isn't the product's: brokers and clients are made of it.

A peer writes without bound and reads frames. It can stop reading, stop sending in the middle of a
frame, hang up, reset, or vanish. One that speaks TLS encrypts at its edge, with OpenSSL in memory.
"""

from __future__ import annotations

import contextlib
import ssl
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from simulation.network import End

_SIZE: Final = struct.Struct(">i").unpack_from
AGAIN: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
AT_ONCE: Final = 262_144
LEFT: Final = "left: "
LARGEST_FRAME: Final = 16 << 20


class Frames:
    """Bytes in, whole frames out, each with its length prefix."""

    __slots__ = ("have",)

    def __init__(self) -> None:
        self.have = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the frames that are whole now."""
        have = self.have
        have += data
        found = []
        at = 0
        while len(have) - at >= 4:
            end = at + 4 + _SIZE(have, at)[0]
            if end > len(have):
                break
            found.append(bytes(have[at:end]))
            at = end
        if at:
            del have[:at]
        return found


class Peer:
    """
    One side of a connection.

    Args:
        end: its socket.
        on_data: called with what comes.
        on_gone: called once when the other side has ended the connection, with how.
    """

    def __init__(
        self, end: End, on_data: Callable[[bytes], None], on_gone: Callable[[str], None]
    ) -> None:
        self.end = end
        self._on_data = on_data
        self._on_gone = on_gone
        self._waiting: list[bytes | memoryview] = []
        self.reads = True
        self.gone = False
        self._orphan = False
        end.on_readable, end.on_writable = self._readable, self._writable

    def send(self, data: bytes) -> None:
        """Send bytes, now or as soon as there is room."""
        if self.gone or self.end.closed:
            return
        if not self._waiting:
            count = self._put(data)
            data = data[count:]
        if data:
            self._waiting.append(data)

    def _put(self, data: bytes | memoryview) -> int:
        try:
            return self.end.send(data)
        except OSError as error:
            self._end(error.strerror or "broken")
            return len(data)

    def _writable(self) -> None:
        while self._waiting and not self.gone:
            data = self._waiting[0]
            count = self._put(data)
            if self.gone:
                return
            if count < len(data):
                self._waiting[0] = memoryview(data)[count:]
                return
            self._waiting.pop(0)
        if self._orphan:
            self.close()

    @property
    def unsent(self) -> int:
        """Bytes that wait for room."""
        return sum(map(len, self._waiting))

    def look(self) -> None:
        """Read what is there, if this side reads."""
        self._readable()

    def _readable(self) -> None:
        while self.reads and not self.gone and not self.end.closed:
            try:
                data = self.end.recv(1 << 20)
            except OSError as error:
                self._end(error.strerror or "broken")
                return
            if data is None:
                return
            if not data:
                self._end("closed")
                return
            if self._orphan:  # nobody is there who could read it
                self.reset()
                return
            self._on_data(data)

    def _end(self, how: str) -> None:
        if not self.gone:
            self.gone = True
            self._waiting.clear()
            self.end.close()
            self._on_gone(how)

    def close(self) -> None:
        """Hang up, as a process that ends does."""
        self.gone = True
        self._waiting.clear()
        self.end.close()

    def leave(self) -> None:
        """
        Hang up with a clean end, as a process that closes its socket.

        Its kernel still sends what waits for room, and the end behind it.
        """
        self._orphan = True
        if not self._waiting:
            self.close()

    def reset(self) -> None:
        """Hang up with a reset."""
        self.gone = True
        self._waiting.clear()
        self.end.reset()


class TlsPeer(Peer):
    """
    A peer that speaks TLS, as a client or as a server; what it is given and gives is plain.

    Args:
        end: its socket.
        on_data: called with what comes.
        on_gone: called once when the other side has ended the connection, with how.
        context: of TLS.
        name: that a client wants the server's certificate to bear; None: this is the server.
        on_shaken: called when the handshake is over, with what failed; "": nothing. It begins with
            ``LEFT`` where the other side has ended the connection.
    """

    def __init__(
        self,
        end: End,
        on_data: Callable[[bytes], None],
        on_gone: Callable[[str], None],
        context: ssl.SSLContext,
        name: str | None = None,
        on_shaken: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(end, self._came, on_gone)
        self._on_plain = on_data
        self._on_shaken = on_shaken
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=name is None, server_hostname=name
        )
        self._early: list[bytes] = []
        self.shaken = self._failed = False
        if name is not None:
            self._shake()

    @property
    def certificate(self) -> int:
        """The serial number of the other side's certificate."""
        told: Any = self._tls.getpeercert()
        return int(told["serialNumber"], 16)

    def send(self, data: bytes) -> None:
        """Send bytes, as soon as the handshake is over and there is room."""
        if not self.shaken:
            self._early.append(data)
        elif not self.gone:
            self._write(data)
            self._flush()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while len(left):
            left = left[self._tls.write(left) :]

    def _flush(self) -> None:
        told = self._out.read()
        if told:
            super().send(told)

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except AGAIN:
            self._flush()
        except ssl.SSLError as error:
            self._flush()  # an alert
            self._failed = True
            self._on_shaken(error.reason)
            self._end(f"TLS: {error.reason}")
        else:
            self.shaken = True
            self._flush()
            self._on_shaken("")
            early, self._early = self._early, []
            for data in early:
                self.send(data)

    def _came(self, data: bytes) -> None:
        self._in.write(data)
        if not self.shaken:
            self._shake()
        while self.shaken and not self.gone:
            try:
                plain = self._tls.read(AT_ONCE)
            except AGAIN:
                self._flush()
                return
            except ssl.SSLError as error:
                self._flush()
                self._end(f"TLS: {error.reason}")
                return
            if not plain:  # the other side has said goodbye
                self._say_goodbye()
                self._end("closed")
                return
            self._on_plain(plain)

    def _end(self, how: str) -> None:
        if not (self.gone or self.shaken or self._failed):
            self._on_shaken(f"{LEFT}{how}")
        super()._end(how)

    def _say_goodbye(self) -> None:
        with contextlib.suppress(ssl.SSLError):  # of the other side's, for which nobody waits here
            self._tls.unwrap()
        self._flush()

    def close(self) -> None:
        """Hang up, with TLS's goodbye in front."""
        if self.shaken and not self.gone:
            self._say_goodbye()
        super().close()
