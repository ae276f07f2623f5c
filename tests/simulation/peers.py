"""
The far side of a connection that isn't the product's: brokers and clients are made of it.

A peer writes without bound and reads frames. It can stop reading, stop sending in the middle of a
frame, hang up, reset, or vanish.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from simulation.network import End

_SIZE: Final = struct.Struct(">i").unpack_from
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

    def reset(self) -> None:
        """Hang up with a reset."""
        self.gone = True
        self._waiting.clear()
        self.end.reset()
