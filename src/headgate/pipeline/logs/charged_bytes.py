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


def compact(length: int) -> int:
    """Return the size of a compact string or bytes, with its own length before it (KIP-482)."""
    return 1 if length < 0 else varint_bytes(length + 1) + length


def topic_frame(flexible: bool, has_id: bool, name: int, partitions: int) -> int:
    """
    Return the bytes of a topic beside those of its partitions.

    Args:
        flexible: whether the version is one of KIP-482's.
        has_id: whether the version names topics by their ids.
        name: bytes of the topic's name, -1: it has none.
        partitions: how many.
    """
    if not flexible:
        return 6 + max(name, 0)
    return (16 if name < 0 or has_id else compact(name)) + varint_bytes(partitions + 1) + 1


def produce_partition(version: int, size: int) -> int:
    """Return the bytes of a produce request's partition, by the size of its records."""
    return 8 + max(size, 0) if version <= 8 else 5 + compact(size)


def produce_frame(version: int, transactional_id: int, topics: int) -> int:
    """Return how many bytes of a produce request's body aren't its topics'."""
    if version <= 8:
        return 10 + (2 + max(transactional_id, 0) if version >= 3 else 0)
    return 7 + compact(transactional_id) + varint_bytes(topics + 1)


def fetch_partition(version: int, size: int, aborted: int, tags: int) -> int:
    """
    Return the bytes of a fetch response's partition.

    Args:
        version: response version.
        size: of its records.
        aborted: number of aborted transactions.
        tags: bytes of its tagged fields with their count, 1 when it has none.
    """
    size, aborted = max(size, 0), max(aborted, 0)
    if version > 11:
        return 34 + tags + varint_bytes(aborted + 1) + 17 * aborted + compact(size)
    # index, error, high watermark, records length; then by version last stable offset and
    # aborted transactions (4+), log start offset (5+), preferred read replica (11+)
    total = 18 + size
    if version >= 4:
        total += 12 + 16 * aborted
    if version >= 5:
        total += 8
    if version >= 11:
        total += 4
    return total


def fetch_frame(version: int, topics: int) -> int:
    """Return the bytes of a fetch response beside those of its topics, with its length's 4."""
    if version > 11:
        return 15 + varint_bytes(topics + 1)
    return 8 + (4 if version >= 1 else 0) + (6 if version >= 7 else 0)


# Bytes of a fetch partition's tagged fields, whose structs have a fixed size: tag + size + struct.
_DIVERGING_EPOCH: Final = 2 + 13
_CURRENT_LEADER: Final = 2 + 9
_SNAPSHOT_ID: Final = 2 + 13


def fetch_tag_bytes(diverging_epoch: bool, current_leader: bool, snapshot_id: bool) -> int:
    """Return the bytes of a fetch partition's tag section: its count and the fields present."""
    return (
        1
        + (_DIVERGING_EPOCH if diverging_epoch else 0)
        + (_CURRENT_LEADER if current_leader else 0)
        + (_SNAPSHOT_ID if snapshot_id else 0)
    )


FORMULAS: Final = (
    varint_bytes,
    compact,
    topic_frame,
    produce_partition,
    produce_frame,
    fetch_partition,
    fetch_frame,
    fetch_tag_bytes,
)
"""The scan compiles these. They take whole numbers, -1 where something is null."""


def utf8_bytes(text: str) -> int:
    """Return the length of ``text`` in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _text_bytes(text: str | None) -> int:
    return -1 if text is None else utf8_bytes(text)


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
    total, n_topics = header_bytes(client_id, version > 8), 0
    for name, sizes in topics:
        n_topics += 1
        total += topic_frame(version > 8, version >= 13, _text_bytes(name), len(sizes))
        for size in sizes:
            total += produce_partition(version, size or 0)
    return total + produce_frame(version, _text_bytes(transactional_id), n_topics)


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
    total = n_topics = 0
    for name, partitions in topics:
        n_topics += 1
        total += topic_frame(version > 11, version >= 13, _text_bytes(name), len(partitions))
        for size, aborted, tags in partitions:
            total += fetch_partition(version, size or 0, aborted or 0, tags)
    return total + fetch_frame(version, n_topics)


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
            total += compact(size or 0)
    return total + varint_bytes(n_topics + 1)
