"""
Cut a byte stream into Kafka frames, copying as little as can be.

A frame is a 4-byte length and that many bytes. Most frames arrive whole in one read and are given
out as they are; one that doesn't is collected, or, when the caller says so, passed on in pieces as
they come, so that a 50 MB fetch costs no memory and no copy here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from headgate.errors import RemoteProtocolError
from headgate.wire.fields import Buffer

# socket.request.max.bytes, Kafka's own default for what a broker takes in.
MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
# A peer that hasn't said who it is: sasl.server.max.receive.size, Kafka's default (KIP-684).
MAX_UNAUTHENTICATED: Final = 512 * 1024
# Enough for every fixed field that decides what to do with a frame, with a client id of 200 bytes.
HEAD_BYTES: Final = 256
# Kept without copying only when it is most of what was read: else a few bytes of an unfinished
# frame would pin a whole read buffer (256 KB in uvloop) for as long as the peer likes.
_PIN_BYTES: Final = 32 * 1024
# A response holds its correlation id; a request more, which its header's reader checks.
_MIN_LENGTH: Final = 4

WHOLE: Final = 0
HEAD: Final = 1
BODY: Final = 2
TAIL: Final = 3

Piece: TypeAlias = tuple[int, int, Buffer]
StreamDecision: TypeAlias = Callable[[Buffer, int], bool]

_LENGTH = struct.Struct(">i")
_unpack = _LENGTH.unpack_from


class FrameScanner:
    """
    Turn reads into frames.

    Args:
        max_frame_bytes: the longest frame taken, with its prefix; may be changed at any time and
            counts from the next frame.
        stream: asked once for a frame that isn't complete yet, with its first bytes (at least
            ``HEAD_BYTES``) and its size in bytes: True passes it on in pieces, False collects it.
            None collects all.
    """

    __slots__ = (
        "_left",
        "_need",
        "_parts",
        "_stream",
        "_undecided",
        "max_frame_bytes",
        "pending_bytes",
    )

    def __init__(
        self, max_frame_bytes: int = MAX_FRAME_BYTES, stream: StreamDecision | None = None
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.pending_bytes = 0  # bytes held of a frame that isn't complete
        self._stream = stream
        self._parts: list[Buffer] = []
        self._need = 0  # size of the frame being collected or streamed; 0 while unknown
        self._left = 0  # bytes to come of the frame being streamed
        self._undecided = False

    @property
    def idle(self) -> bool:
        """Whether the stream stands between two frames."""
        return not self._left and not self.pending_bytes

    def feed(self, data: Buffer) -> list[Piece]:
        """
        Take what was read and return what is ready, in order.

        Args:
            data: bytes as read. Returned views point into it, so a buffer that is to be read into
                again must have been sent or copied first.

        Returns:
            ``(kind, frame_bytes, view)``: kind ``WHOLE``, or ``HEAD``, ``BODY``..., ``TAIL`` of a
            frame passed in pieces; frame_bytes is the whole frame's size with its prefix.

        Raises:
            RemoteProtocolError: the length is impossible (``malformed``) or above
                ``max_frame_bytes`` (``oversized``).
        """
        size = len(data)
        if not self._left and not self.pending_bytes:
            if size >= 8:
                need = _unpack(data)[0] + 4
                if need == size and size <= self.max_frame_bytes:
                    return [(WHOLE, size, data)]
            return self._scan(data, 0, [])
        if self._left:
            if size < self._left:
                self._left -= size
                return [(BODY, self._need, data)]
            pos, self._left = self._left, 0
            view = data if pos == size else memoryview(data)[:pos]
            return self._scan(data, pos, [(TAIL, self._need, view)])
        return self._continue(data)

    def _continue(self, data: Buffer) -> list[Piece]:
        """Add to a frame that was begun."""
        if not self._need:  # fewer than four bytes were in
            joined = b"".join((*self._parts, data))
            self._forget()
            return self._scan(joined, 0, [])
        missing = self._need - self.pending_bytes
        if len(data) >= missing:
            need = self._need
            self._parts.append(memoryview(data)[:missing])
            frame = b"".join(self._parts)
            self._forget()
            return self._scan(data, missing, [(WHOLE, need, frame)])
        self._keep(data)
        if self._undecided and self.pending_bytes >= HEAD_BYTES:
            assert self._stream is not None
            self._undecided = False
            head = b"".join(self._parts)
            if self._stream(head, self._need):
                need = self._need
                self._forget()
                self._need, self._left = need, need - len(head)
                return [(HEAD, need, head)]
            self._parts = [head]
        return []

    def _scan(self, data: Buffer, pos: int, pieces: list[Piece]) -> list[Piece]:
        """Cut frames from ``pos`` on."""
        size = len(data)
        if pos == size:
            return pieces
        view = memoryview(data)
        while pos < size:
            left = size - pos
            if left < 4:
                self._need = 0
                self._keep(view[pos:])
                break
            need = _unpack(data, pos)[0] + 4
            if need - 4 < _MIN_LENGTH:
                raise RemoteProtocolError(f"a frame of {need - 4} bytes can't be")
            if need > self.max_frame_bytes:
                raise RemoteProtocolError(
                    f"a frame of {need - 4} bytes; at most {self.max_frame_bytes - 4} are taken",
                    reason="oversized",
                )
            if left >= need:
                pieces.append((WHOLE, need, view[pos : pos + need]))
                pos += need
                continue
            self._need = need
            rest = view[pos:]
            if self._stream is not None:
                self._undecided = left < HEAD_BYTES
                if not self._undecided and self._stream(rest, need):
                    self._left = need - left
                    pieces.append((HEAD, need, rest))
                    break
            self._keep(rest)
            break
        return pieces

    def _keep(self, view: Buffer) -> None:
        self.pending_bytes += len(view)
        whole = view.obj if isinstance(view, memoryview) else view
        pin = isinstance(whole, bytes) and len(view) >= _PIN_BYTES
        self._parts.append(view if pin else bytes(view))

    def _forget(self) -> None:
        self._parts = []
        self.pending_bytes = 0
        self._need = 0
        self._undecided = False
