"""
Produce 0, as far as quotas care: acks, and whose batches are in it.

``acks`` is the hot path (it decides whether there will be an answer); ``producer_ids`` is asked
only where a producer id quota is in force; ``IdWalker`` is used in its place for a request that
comes in pieces.

Source: Apache Kafka's ``ProduceRequest.json``; ``DefaultRecordBatch`` for the batch header.
"""

from __future__ import annotations

import struct
from typing import Final

from headgate.errors import RemoteProtocolError
from headgate.wire import skim
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
# Of one request. An honest client sends none; skipping a million would stop all others.
MOST_EMPTY: Final = 64
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


def least_records(version: int) -> int:
    """Return how many bytes the shortest records of a Produce of this version have."""
    return BATCH_HEADER if version >= 3 else 26  # a message of magic 0 without key and value


def counted(empty: int, more: int = 1) -> int:
    """
    Count what a Produce has in place of records: topics and partitions without, tagged fields.

    Raises:
        RemoteProtocolError: it is too much.
    """
    empty += more
    if empty > MOST_EMPTY:
        # Differs: more than 64 empty topics or partitions in one Produce close, where producer ids
        # are read; a client has none.
        raise RemoteProtocolError(
            f"a Produce of more than {MOST_EMPTY} topics and partitions without records, and "
            "tagged fields",
            reason="producer-ids",
        )
    return empty


class IdWalker:
    """
    Find the producer ids of a Produce request in its pieces, as they pass.

    Args:
        version: 0 to 13.
    """

    __slots__ = ("_empty", "_ids", "_skimmer")

    def __init__(self, version: int) -> None:
        self._ids: set[int] = set()
        self._empty = 0
        self._skimmer = skim.Skimmer(self._walk(version))

    def feed(self, piece: Buffer) -> None:
        """
        Take the next piece of the request's body.

        Raises:
            RemoteProtocolError: it doesn't parse, or has too many ids.
        """
        self._skimmer.feed(piece)

    def end(self) -> frozenset[int]:
        """
        Return the ids of the whole request.

        Raises:
            RemoteProtocolError: it ends too early.
        """
        self._skimmer.finish()
        return frozenset(self._ids)

    def _walk(self, version: int) -> skim.Walk:
        # A varint's first byte is read here, not by a call: mostly it is the only one.
        flexible = version >= 9
        least = least_records(version)
        if version >= 3:
            yield from self._string(flexible)
        yield -6  # acks, timeout
        for _ in range((yield from self._count(flexible))):
            if version >= 13:
                yield -16
            else:
                yield from self._string(flexible)
            partitions = yield from self._count(flexible)
            if partitions <= 0:
                self._empty = counted(self._empty)
            for _ in range(partitions):
                if flexible:
                    size = (yield 5)[4]
                    if size >= 0x80:
                        size = yield from skim.rest_of_varint(size)
                    size -= 1
                else:
                    size = _int32((yield 8), 4)[0]
                if size < least:
                    self._empty = counted(self._empty)
                yield from self._records(size)
                if flexible and (tags := (yield 1)[0]):
                    yield from self._tags(tags)
            if flexible and (tags := (yield 1)[0]):
                yield from self._tags(tags)
        if flexible and (tags := (yield 1)[0]):
            yield from self._tags(tags)

    def _string(self, flexible: bool) -> skim.Walk:
        if flexible:
            size = (yield 1)[0]
            if size >= 0x80:
                size = yield from skim.rest_of_varint(size)
            size -= 1
        else:
            size = _int16((yield 2))[0]
        if size > 0:
            yield -size

    def _count(self, flexible: bool) -> skim.Step:
        if not flexible:
            return int(_int32((yield 4))[0])
        count = (yield 1)[0]
        if count >= 0x80:
            count = yield from skim.rest_of_varint(count)
        return count - 1

    def _tags(self, first: int) -> skim.Walk:
        count = check_tag_count((yield from skim.rest_of_varint(first)))
        self._empty = counted(self._empty, count)
        yield from skim.tagged_fields(count)

    def _records(self, size: int) -> skim.Walk:
        while size >= BATCH_HEADER:
            batch_size, magic, producer_id = _batch((yield BATCH_HEADER), 0)
            size -= BATCH_HEADER
            if magic != 2 or batch_size < BATCH_HEADER - _LOG_OVERHEAD:
                break
            if producer_id >= 0:
                self._ids.add(producer_id)
                if len(self._ids) > MOST_PRODUCER_IDS:
                    raise too_many_ids()
            rest = min(_LOG_OVERHEAD + batch_size - BATCH_HEADER, size)
            if rest:
                yield -rest
                size -= rest
        if size > 0:
            yield -size


def _producer_ids(frame: Buffer, version: int, at: int) -> set[int]:
    flexible = version >= 9
    if version >= 3:  # the transactional id
        size, at = quick_varint(frame, at) if flexible else (_int16(frame, at)[0] + 1, at + 2)
        at += size - 1 if size > 0 else 0
    at += 6  # acks, timeout
    ids: set[int] = set()
    empty, least = 0, least_records(version)
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
        if count <= 0:
            empty = counted(empty)
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
            if size < least:
                empty = counted(empty)
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
                if frame[at]:
                    at, empty = _tagged(frame, at, empty)
                else:
                    at += 1
        if flexible:
            if frame[at]:
                at, empty = _tagged(frame, at, empty)
            else:
                at += 1
    if flexible:
        at, _ = _tagged(frame, at, empty)
    if at > len(frame):
        raise truncated("topics", at)
    return ids


def _tagged(frame: Buffer, at: int, empty: int) -> tuple[int, int]:
    """Return the offset after a tagged-field section, and ``empty`` with its fields counted."""
    count, _ = quick_varint(frame, at)
    return skip_tags(frame, at), counted(empty, count)
