"""
Produce 0, as far as quotas care: acks, and whose batches are in it.

``acks`` is the hot path (it decides whether there will be an answer); ``producer_ids`` is asked
only where a producer id quota is in force; ``IdWalker`` is used in its place for a request that
comes in pieces.

Source: Apache Kafka's ``ProduceRequest.json``; ``DefaultRecordBatch`` for the batch header.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Final

from headgate.errors import RemoteProtocolError
from headgate.wire.fields import (
    Buffer,
    check_tag_count,
    quick_varint,
    read_varint,
    skip_tags,
    truncated,
)

# Of one request. An honest client has one; looking up a million would stop all others.
MOST_PRODUCER_IDS: Final = 256
# A batch's first bytes, up to its records.
BATCH_HEADER: Final = 61
# Of the batch header: length, magic, producer id.
_BATCH = struct.Struct(">8xi4xb26xq")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_batch = _BATCH.unpack_from
_int16 = _INT16.unpack_from
_int32 = _INT32.unpack_from
# Base offset and length, which the length itself doesn't count (Records.LOG_OVERHEAD).
_LOG_OVERHEAD: Final = 12


def acks(frame: Buffer, version: int, body_offset: int) -> int:
    """Return the acks of a Produce request; its first bytes are enough."""
    try:
        if version >= 9:
            size = frame[body_offset]
            if size >= 0x80:
                size, body_offset = read_varint(frame, body_offset)
                body_offset -= 1
            at = body_offset + (size if size else 1)
            return int(_int16(frame, at)[0])
        if version >= 3:
            size = _int16(frame, body_offset)[0]
            body_offset += 2 + (size if size > 0 else 0)
        return int(_int16(frame, body_offset)[0])
    except (IndexError, struct.error):
        raise truncated("acks", body_offset) from None


def producer_ids(frame: Buffer, version: int, body_offset: int) -> frozenset[int]:
    """
    Return the ids of the idempotent producers whose batches are in a whole Produce request.

    Args:
        frame: the request with its length prefix.
        version: 0 to 13.
        body_offset: where its body begins.

    Raises:
        RemoteProtocolError: it doesn't parse, or has too many.
    """
    try:
        return frozenset(_producer_ids(frame, version, body_offset))
    except (IndexError, struct.error):
        raise truncated("a Produce request", body_offset) from None


def too_many_ids() -> RemoteProtocolError:
    """Return what is raised at a Produce of more producer ids than one request may have."""
    # Differs: more than 256 producer ids in one Produce close; a client has one.
    return RemoteProtocolError(
        f"a Produce of more than {MOST_PRODUCER_IDS} producer ids", reason="producer-ids"
    )


class IdWalker:
    """
    Find the producer ids of a Produce request in its pieces, as they pass.

    Args:
        version: 0 to 13.
        left: bytes of its body.

    Attributes:
        ids: those found so far.
    """

    __slots__ = ("_have", "_left", "_steps", "_want", "ids")

    def __init__(self, version: int, left: int) -> None:
        self.ids: set[int] = set()
        self._left = left
        self._have = bytearray()
        self._steps = self._walk(version)
        self._want = next(self._steps)  # bytes to collect, or with a minus to pass over

    def feed(self, data: Buffer) -> None:
        """
        Take the next piece.

        Raises:
            RemoteProtocolError: it doesn't parse.
        """
        at, end = 0, len(data)
        while at < end and self._want:
            want = self._want
            if want < 0:
                step = min(-want, end - at)
                self._want += step
                if not self._want:
                    self._go_on(b"")
            else:
                step = min(want - len(self._have), end - at)
                self._have += data[at : at + step]
                if len(self._have) == want:
                    have, self._have = bytes(self._have), bytearray()
                    self._go_on(have)
            at += step

    def end(self) -> frozenset[int]:
        """
        Return the ids of the whole request.

        Raises:
            RemoteProtocolError: it ends too early.
        """
        if self._want:
            raise truncated("a Produce request", 0)
        return frozenset(self.ids)

    def _go_on(self, have: bytes) -> None:
        self._left -= len(have)
        try:
            self._want = self._steps.send(have)
        except StopIteration:
            self._want = 0

    def _skip(self, size: int) -> Generator[int, bytes, None]:
        if size > self._left:
            raise truncated("a Produce request", 0)
        if size > 0:
            self._left -= size
            yield -size

    def _size(self, flexible: bool, width: int) -> Generator[int, bytes, int]:
        """Read a length: a compact one, or one of ``width`` bytes; -1 for null."""
        if not flexible:
            return int.from_bytes((yield width), "big", signed=True)
        return (yield from self._number()) - 1

    def _number(self) -> Generator[int, bytes, int]:
        value = shift = 0
        while True:
            byte = (yield 1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise truncated("a length", 0)

    def _tags(self, flexible: bool) -> Generator[int, bytes, None]:
        if flexible:
            for _ in range(check_tag_count((yield from self._number()))):
                yield from self._number()
                yield from self._skip((yield from self._number()))

    def _walk(self, version: int) -> Generator[int, bytes, None]:
        flexible = version >= 9
        if version >= 3:
            yield from self._skip((yield from self._size(flexible, 2)))
        yield from self._skip(6)  # acks, timeout
        for _ in range((yield from self._size(flexible, 4))):
            yield from self._skip(16 if version >= 13 else (yield from self._size(flexible, 2)))
            for _ in range((yield from self._size(flexible, 4))):
                yield from self._skip(4)
                yield from self._records((yield from self._size(flexible, 4)))
                yield from self._tags(flexible)
            yield from self._tags(flexible)
        yield from self._tags(flexible)

    def _records(self, size: int) -> Generator[int, bytes, None]:
        if size > self._left:
            raise truncated("records", 0)
        while size >= BATCH_HEADER:
            batch_size, magic, producer_id = _batch((yield BATCH_HEADER), 0)
            size -= BATCH_HEADER
            if magic != 2 or batch_size < BATCH_HEADER - _LOG_OVERHEAD:
                break
            if producer_id >= 0:
                self.ids.add(producer_id)
                if len(self.ids) > MOST_PRODUCER_IDS:
                    raise too_many_ids()
            rest = min(_LOG_OVERHEAD + batch_size - BATCH_HEADER, size)
            yield from self._skip(rest)
            size -= rest
        yield from self._skip(size)


def _producer_ids(frame: Buffer, version: int, at: int) -> set[int]:
    flexible = version >= 9
    if version >= 3:  # the transactional id
        size, at = quick_varint(frame, at) if flexible else (_int16(frame, at)[0] + 1, at + 2)
        at += size - 1 if size > 0 else 0
    at += 6  # acks, timeout
    ids: set[int] = set()
    if flexible:
        topics, at = quick_varint(frame, at)
        topics -= 1
    else:
        topics, at = _int32(frame, at)[0], at + 4
    for _ in range(topics):
        if version >= 13:
            at += 16
        elif flexible:
            size, at = quick_varint(frame, at)
            at += size - 1 if size else 0
        else:
            at += 2 + max(_int16(frame, at)[0], 0)
        if flexible:
            count, at = quick_varint(frame, at)
            count -= 1
        else:
            count, at = _int32(frame, at)[0], at + 4
        for _ in range(count):
            if flexible:
                # Read here, not by a call: mostly two or three bytes long.
                at += 4
                size = frame[at]
                if size < 0x80:
                    at += 1
                else:
                    more = frame[at + 1]
                    if more < 0x80:
                        size += (more << 7) - 0x80
                        at += 2
                    elif (last := frame[at + 2]) < 0x80:
                        size += (more << 7) + (last << 14) - 0x4080
                        at += 3
                    else:
                        size, at = read_varint(frame, at)
                size -= 1
            else:
                size, at = _int32(frame, at + 4)[0], at + 8
            if size > 0:
                end = at + size
                if end > len(frame):
                    raise truncated("records", at)
                while end - at >= BATCH_HEADER:
                    batch_size, magic, producer_id = _batch(frame, at)
                    if magic != 2 or batch_size < BATCH_HEADER - _LOG_OVERHEAD:
                        break  # magic 0 and 1 know no producers; a broker judges the rest
                    if producer_id >= 0:
                        ids.add(producer_id)
                        if len(ids) > MOST_PRODUCER_IDS:
                            raise too_many_ids()
                    at += _LOG_OVERHEAD + batch_size
                at = end
            if flexible:
                at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
        if flexible:
            at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    if flexible:
        at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    if at > len(frame):
        raise truncated("topics", at)
    return ids
