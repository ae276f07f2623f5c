"""
Fetch 1, as far as quotas care: what it may bring, its session, and what was charged for it.

All requests are patched in place, at fixed offsets after the header. An answer may pass in pieces:
its throttle is in the first bytes, its size is in the length prefix, and ``EndpointMasker`` sees to
it that no upstream address is in its tail.

Source: Apache Kafka's ``FetchRequest.json``, ``FetchResponse.json``;
``KafkaApis.handleFetchRequest`` (size caps, what is charged), ``FetchSession`` (throttled answers).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headgate.wire import skim
from headgate.wire.apis import FETCH
from headgate.wire.fields import Buffer, quick_varint, skip_tags, truncated
from headgate.wire.header import build_response, response_body_offset
from headgate.wire.throttle import overwrite, pack_throttle

_INT32 = struct.Struct(">i")
_TWO = struct.Struct(">ii")
_SESSION = struct.Struct(">hi")
_REQUEST = struct.Struct(">iiibii")  # from MaxWaitMs on, version 7 and later
_int32 = _INT32.unpack_from
_request = _REQUEST.unpack_from

# A tag no Fetch version uses; one byte like the tag it stands in for.
MASKED_TAG: Final = 0x7F
NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1


class FetchHead(NamedTuple):
    """
    The fixed fields of a Fetch request.

    The replica id isn't among them: nobody is exempt because of what they claim to be.

    Attributes:
        max_wait_ms: how long the broker may wait.
        min_bytes: fewer bytes make it wait.
        max_bytes: the most it may bring; 2^31-1 before version 3.
        session_id: 0 before version 7 or without a session.
        session_epoch: -1 (final or no session) before version 7.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int


def read_request(frame: Buffer, version: int, body_offset: int) -> FetchHead:
    """Read the fixed fields of a Fetch request; its first bytes are enough."""
    at = body_offset + 4 if version < 15 else body_offset  # behind the replica id
    try:
        if version >= 7:
            wait, min_bytes, max_bytes, _, session, epoch = _request(frame, at)
            return FetchHead(wait, min_bytes, max_bytes, session, epoch)
        wait, min_bytes = _TWO.unpack_from(frame, at)
        max_bytes = _int32(frame, at + 8)[0] if version >= 3 else 2**31 - 1
        return FetchHead(wait, min_bytes, max_bytes, NO_SESSION, FINAL_EPOCH)
    except struct.error:
        raise truncated("a Fetch request", at) from None


def cap_request(frame: Buffer, version: int, body_offset: int, limit: int) -> Buffer:
    """
    Lower MaxBytes and MinBytes to what the quota's window allows, never raise them.

    Args:
        frame: the request or its first piece.
        version: 0 to 18; MaxBytes is there from 3 on.
        body_offset: where its body begins.
        limit: quota times (samples - 1) times window, in bytes.

    Returns:
        The frame: the same object if nothing had to change or it could be written in place.
    """
    head = read_request(frame, version, body_offset)
    limit = max(0, min(limit, 2**31 - 1))
    min_bytes, max_bytes = min(head.min_bytes, limit), min(head.max_bytes, limit)
    if min_bytes == head.min_bytes and max_bytes == head.max_bytes:
        return frame
    at = body_offset + (8 if version < 15 else 4)
    raw = _TWO.pack(min_bytes, max_bytes) if version >= 3 else _INT32.pack(min_bytes)
    return overwrite(frame, at, raw)


def ask_little(frame: Buffer, version: int, body_offset: int) -> Buffer:
    """
    Have a Fetch request answered at once with as little as can be, and open no session.

    A broker still sends a batch, if it has one. What a session remembers stays as it was: the
    limits of partitions aren't touched.
    """
    head = read_request(frame, version, body_offset)
    at = body_offset + (4 if version < 15 else 0)
    limits = (0, 0, 1) if version >= 3 else (0, 0)
    frame = overwrite(frame, at, struct.pack(f">{len(limits)}i", *limits))
    if version >= 7 and head.session_id == NO_SESSION and head.session_epoch == 0:
        frame = set_session(frame, version, body_offset, NO_SESSION, FINAL_EPOCH)
    return frame


def shorten_wait(frame: Buffer, version: int, body_offset: int, by_ms: int) -> Buffer:
    """Subtract from a request's MaxWait the ms that it has waited here."""
    wait_ms = read_request(frame, version, body_offset).max_wait_ms
    at = body_offset + (4 if version < 15 else 0)
    return overwrite(frame, at, _INT32.pack(min(wait_ms, max(wait_ms - by_ms, 0))))


def asks_nothing(frame: Buffer, version: int, body_offset: int) -> bool:
    """Whether a Fetch request is for no partition at all, as one that ends its session is."""
    if version < 7 or read_request(frame, version, body_offset).session_epoch > 0:
        return False
    at = body_offset + (25 if version < 15 else 21)
    none = b"\x01" if version >= 12 else b"\0\0\0\0"
    return bytes(frame[at : at + len(none)]) == none


def set_session(
    frame: Buffer, version: int, body_offset: int, session_id: int, session_epoch: int
) -> Buffer:
    """Write a session id and epoch into a Fetch request; versions before 7 have none."""
    if version < 7:
        return frame
    at = body_offset + (17 if version < 15 else 13)
    if at + 8 > len(frame):
        raise truncated("a Fetch request", at)
    return overwrite(frame, at, _TWO.pack(session_id, session_epoch))


def response_session(frame: Buffer, version: int) -> tuple[int, int]:
    """Return (error code, session id) of a Fetch response; (0, 0) before version 7."""
    if version < 7:
        return 0, NO_SESSION
    at = response_body_offset(FETCH, version, frame) + 4
    try:
        return _SESSION.unpack_from(frame, at)
    except struct.error:
        raise truncated("a Fetch response", at) from None


def charged_bytes(frame_bytes: int, version: int) -> int:
    """
    Return what a broker charges for a Fetch response: 4 bytes and its body.

    Args:
        frame_bytes: the frame with its length prefix.
        version: of the request.
    """
    return frame_bytes - (5 if version >= 12 else 4)


def empty_response(
    version: int, correlation_id: int, throttle_ms: int, session_id: int = NO_SESSION
) -> bytes:
    """Return an answer without any partition, as a broker gives to a fetch over quota."""
    body = b"" if version < 1 else pack_throttle(throttle_ms)
    if version >= 7:
        body += _SESSION.pack(0, session_id)
    body += b"\x01\x00" if version >= 12 else b"\x00\x00\x00\x00"
    return build_response(FETCH, version, correlation_id, body)


def tail_offset(frame: Buffer, version: int) -> int:
    """
    Return where the tagged fields at the end of a Fetch response begin, version 12 or later.

    Raises:
        RemoteProtocolError: it doesn't parse.
    """
    at = response_body_offset(FETCH, version, frame) + 10  # throttle, error, session
    try:
        topics, at = quick_varint(frame, at)
        for _ in range(topics - 1):
            if version >= 13:
                at += 16
            else:
                size, at = quick_varint(frame, at)
                at += size - 1 if size else 0
            partitions, at = quick_varint(frame, at)
            for _ in range(partitions - 1):
                at += 30  # index, error, high watermark, last stable, log start
                aborted, at = quick_varint(frame, at)
                for _ in range(aborted - 1):
                    at = skip_tags(frame, at + 16)
                size, at = quick_varint(frame, at + 4)  # preferred read replica, records
                at += size - 1 if size else 0
                at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
            at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    except IndexError:
        raise truncated("a Fetch response", at) from None
    if at >= len(frame):
        raise truncated("a Fetch response", at)
    return at


class EndpointMasker:
    """
    Let a Fetch answer pass in pieces without its NodeEndpoints (version 16 and later).

    The tag gets a number that no client knows, and its value is overwritten with zeros. So no size
    changes and nothing has to be held. A client then asks for metadata, as it does of a broker
    before KIP-951. Answers short enough to be held are rewritten instead (``session.rewrite``).

    Args:
        version: of the request answered.

    Attributes:
        masked: whether there were endpoints.
    """

    __slots__ = ("_blank", "_mask_at", "_skimmer", "_version", "masked")

    def __init__(self, version: int) -> None:
        self.masked = False
        self._mask_at = -1
        self._blank = (0, 0)  # where the endpoints lie
        self._version = version
        self._skimmer: skim.Skimmer | None = None
        if version >= 16:
            self._skimmer = skim.Skimmer(self._walk())

    def feed(self, piece: Buffer) -> Buffer:
        """
        Return the piece as it may pass on: the same object unless the tag is in it.

        Raises:
            RemoteProtocolError: the upstream's answer doesn't parse.
        """
        skimmer = self._skimmer
        if skimmer is None or skimmer.done:
            return piece
        begin = skimmer.position
        skimmer.feed(piece)
        if self._mask_at < 0:
            return piece
        self.masked = True
        copy = bytearray(piece)
        if self._mask_at >= begin:
            copy[self._mask_at - begin] = MASKED_TAG
        blank, end = (min(max(at - begin, 0), len(copy)) for at in self._blank)
        copy[blank:end] = bytes(end - blank)
        return copy

    def finish(self) -> None:
        """Raise RemoteProtocolError if the answer ended before its tail."""
        if self._skimmer is not None:
            self._skimmer.finish()

    def _walk(self) -> skim.Walk:
        yield -8
        yield from skim.tags()
        yield -10
        for _ in range((yield from skim.varint()) - 1):
            yield -16
            for _ in range((yield from skim.varint()) - 1):
                # A length's first byte is read with the fields before it. An answer may have
                # thousands of partitions without records, and each read costs as much as any other.
                aborted = (yield 31)[30]
                if aborted > 1:
                    for _ in range((yield from skim.rest_of_varint(aborted)) - 1):
                        yield -16
                        yield from skim.tags()
                records = (yield 5)[4]
                if records > 1:
                    yield from skim.skip((yield from skim.rest_of_varint(records)) - 1)
                if tags := (yield 1)[0]:
                    yield from skim.rest_of_tags(tags)
            yield from skim.tags()
        for _ in range((yield from skim.varint())):
            tag = (yield 1)[0]
            if tag == 0:
                assert self._skimmer is not None
                self._mask_at = self._skimmer.position - 1
            elif tag >= 0x80:
                yield from skim.varint()
            size = yield from skim.varint()
            if tag == 0:
                assert self._skimmer is not None
                self._blank = (self._skimmer.position, self._skimmer.position + size)
            yield from skim.skip(size)
