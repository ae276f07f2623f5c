"""
Recover the bytes Kafka charged from the sizes a request-log line holds.

A log line has no request or response size, but the JSON body holds all that the size depends on:
names, counts and, in place of each ``records`` field, its size. A produce request is charged its
header and body, a fetch response 4 bytes and its body. Sources: Kafka's
message schemas ProduceRequest, FetchResponse and RequestHeader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

# The newest versions whose body we know; a newer one is measured as the newest known, "not exact".
NEWEST_PRODUCE: Final = 13
NEWEST_FETCH: Final = 18
EXACT_SHARE: Final = (1, 2)
# Brokers before 4.0 convert records for fetches before version 4, and log the size after that;
# what they charge is the size before, which may be another.
OLDEST_EXACT_FETCH: Final = 4
# Where they can't convert (the topic's zstd is too new, its conversion is off), a partition is sent
# with one of these errors and no records, of whatever size these had.
UNSENT_BELOW: Final = 10
UNSUPPORTED_VERSION: Final = 35
UNSUPPORTED_COMPRESSION: Final = 76


def varint_bytes(n: int) -> int:
    """Return how many bytes an unsigned varint of ``n`` takes."""
    if n < 128:
        return 1
    if n < 16384:
        return 2
    if n < 2097152:
        return 3
    return 4 if n < 268435456 else 5


def _compact(length: int | None) -> int:
    """Return the size of a compact string or bytes, with its own length before it (KIP-482)."""
    return 1 if length is None else varint_bytes(length + 1) + length


def _topic_frame(name: str | None, has_id: bool, partitions: int) -> int:
    """Return the bytes of a topic in a flexible version, beside those of its partitions."""
    named = 16 if name is None or has_id else _compact(utf8_bytes(name))
    return named + varint_bytes(partitions + 1) + 1


def utf8_bytes(text: str) -> int:
    """Return the length of ``text`` in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def header_bytes(client_id: str, flexible: bool) -> int:
    """
    Return the size of a request header.

    Args:
        client_id: as logged; a null one (logged as "") takes the same two bytes.
        flexible: header version 2 (Produce 9+, Fetch 12+), one byte of tags more than version 1.
    """
    return (11 if flexible else 10) + utf8_bytes(client_id)


def produce_bytes(
    version: int,
    client_id: str,
    transactional_id: str | None,
    topics: Iterable[tuple[str | None, Sequence[int | None]]],
) -> int:
    """
    Return the bytes that the produce quota is charged for one request.

    Args:
        version: request version.
        client_id: header's client id, "" where null.
        transactional_id: None where null or not in this version.
        topics: (name, records sizes in bytes) per topic; name is None where the version carries a
            topic id (13+); a size is None where records are null.

    Returns:
        Bytes of request header and body, that is the frame without its 4-byte length.
    """
    if version <= 8:
        total = header_bytes(client_id, False) + 10
        if version >= 3:
            total += 2 + (utf8_bytes(transactional_id) if transactional_id else 0)
        for name, sizes in topics:
            total += 6 + utf8_bytes(name or "")
            for size in sizes:
                total += 8 + (size or 0)
        return total
    total = header_bytes(client_id, True) + 7
    total += _compact(None if transactional_id is None else utf8_bytes(transactional_id))
    n_topics = 0
    for name, sizes in topics:
        n_topics += 1
        total += _topic_frame(name, version >= 13, len(sizes))
        for size in sizes:
            total += 5 + _compact(size)
    return total + varint_bytes(n_topics + 1)


def fetch_bytes(
    version: int,
    topics: Iterable[tuple[str | None, Sequence[tuple[int | None, int | None, int]]]],
) -> int:
    """
    Return the bytes that the fetch quota is charged for one response.

    Args:
        version: response version.
        topics: (name, partitions) per topic in the response; name is None where the version
            carries a topic id (13+). A partition is (records size in bytes or None where null,
            number of aborted transactions or None where null, bytes of its tagged fields with
            their count, 1 when it has none).

    Returns:
        4 bytes and the response body, without the response header: what Kafka's
        ``FetchResponse.sizeOf`` gives.
    """
    if version <= 11:
        total = 8
        if version >= 1:
            total += 4
        if version >= 7:
            total += 6
        # index, error, high watermark, records length; then by version last stable offset and
        # aborted transactions (4+), log start offset (5+), preferred read replica (11+)
        partition = 18 + (12 if version >= 4 else 0) + (8 if version >= 5 else 0)
        partition += 4 if version >= 11 else 0
        for name, partitions in topics:
            total += 6 + utf8_bytes(name or "")
            for size, aborted, _ in partitions:
                total += partition + (size or 0)
                if version >= 4:
                    total += 16 * (aborted or 0)
        return total
    total = 4 + 4 + 2 + 4 + 1
    n_topics = 0
    for name, partitions in topics:
        n_topics += 1
        total += _topic_frame(name, version >= 13, len(partitions))
        for size, aborted, tags in partitions:
            total += 34 + tags
            total += 1 if aborted is None else varint_bytes(aborted + 1) + 17 * aborted
            total += _compact(size)
    return total + varint_bytes(n_topics + 1)


# Bytes of a fetch partition's tagged fields, whose structs have a fixed size: tag + size + struct.
_TAGGED: Final = {"divergingEpoch": 2 + 13, "currentLeader": 2 + 9, "snapshotId": 2 + 13}


def fetch_tag_bytes(diverging_epoch: bool, current_leader: bool, snapshot_id: bool) -> int:
    """Return the bytes of a fetch partition's tag section: its count and the fields present."""
    return (
        1
        + (_TAGGED["divergingEpoch"] if diverging_epoch else 0)
        + (_TAGGED["currentLeader"] if current_leader else 0)
        + (_TAGGED["snapshotId"] if snapshot_id else 0)
    )


def share_fetch_bytes(version: int, topics: Iterable[Sequence[tuple[int | None, int]]]) -> int:
    """
    Return the bytes that the fetch quota is charged for a share fetch's response.

    Args:
        version: response version.
        topics: per topic its partitions with records: (records size in bytes or None where null,
            acquired batches). Those that only acknowledge come after the charge.

    Returns:
        4 bytes and the response body without error messages and node endpoints, as in Kafka's
        ``ShareFetchResponse.sizeOf``.
    """
    # throttle time, error, its message; the lock's timeout (1+); endpoints, tags
    total = 4 + 4 + 2 + 1 + (4 if version >= 1 else 0) + 2
    n_topics = 0
    for partitions in topics:
        n_topics += 1
        total += 16 + varint_bytes(len(partitions) + 1) + 1
        for size, acquired in partitions:
            # index, two errors with messages, the leader's struct, tags
            total += 4 + 2 + 1 + 2 + 1 + 9 + 1 + varint_bytes(acquired + 1) + 19 * acquired
            total += _compact(size)
    return total + varint_bytes(n_topics + 1)
