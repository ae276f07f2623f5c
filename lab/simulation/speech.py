"""
Kafka's frames as simulated clients and brokers write and read them; none of the product's code.

Only the versions that are spoken here: Produce 7 and 9, Fetch 11 and 12, ShareFetch 1, the rest in
their last versions without compact fields. Sources: Apache Kafka's message schemas.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT = 0, 1, 2, 3, 8
FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 10, 11, 12, 13, 14
SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID = 17, 18, 22
ADD_PARTITIONS, END_TXN, SASL_AUTHENTICATE, SHARE_FETCH = 24, 26, 36, 78
FLEXIBLE_SINCE: Final = {PRODUCE: 9, FETCH: 12, SHARE_FETCH: 0}
BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
BATCH_BYTES: Final = 61
_HEAD: Final = struct.Struct(">ihhih")


def text(value: str | None) -> bytes:
    """Return a nullable string."""
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def compact(value: str) -> bytes:
    """Return a compact string, short ones only."""
    raw = value.encode()
    return varint(len(raw) + 1) + raw


def varint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def frame(*parts: bytes) -> bytes:
    """Return a frame with its length."""
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def request(key: int, version: int, correlation: int, client: str | None, *body: bytes) -> bytes:
    """Return a request frame."""
    head = struct.pack(">hhi", key, version, correlation) + text(client)
    if version >= FLEXIBLE_SINCE.get(key, 99):
        head += b"\0"
    return frame(head, *body)


def answer(key: int, version: int, correlation: int, *body: bytes) -> bytes:
    """Return an answer frame."""
    head = struct.pack(">i", correlation)
    if version >= FLEXIBLE_SINCE.get(key, 99):
        head += b"\0"
    return frame(head, *body)


@dataclass(slots=True)
class Head:
    """A request's header; ``body`` is where its body begins."""

    size: int
    key: int
    version: int
    correlation: int
    client: str | None
    body: int


def head_of(data: bytes) -> Head:
    """Read a request's header."""
    size, key, version, correlation, length = _HEAD.unpack_from(data)
    client = None if length < 0 else data[14 : 14 + length].decode("utf-8", "replace")
    body = 14 + max(length, 0) + (version >= FLEXIBLE_SINCE.get(key, 99))
    return Head(size, key, version, correlation, client, body)


def correlation_of(data: bytes) -> int:
    """Return an answer's correlation id."""
    return int(struct.unpack_from(">i", data, 4)[0])


class Reader:
    """Reads fields one after another."""

    def __init__(self, data: bytes, at: int, flexible: bool) -> None:
        self.data = data
        self.at = at
        self.flexible = flexible

    def fixed(self, code: str) -> int:
        """Read a number."""
        form = struct.Struct(">" + code)
        value = form.unpack_from(self.data, self.at)[0]
        self.at += form.size
        return int(value)

    def varint(self) -> int:
        """Read an unsigned varint."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def size(self) -> int:
        """Read an array's length."""
        return self.varint() - 1 if self.flexible else self.fixed("i")

    def blob(self, wide: bool = True) -> bytes | None:
        """Read bytes (with a length of 4), or a string (of 2)."""
        size = self.varint() - 1 if self.flexible else self.fixed("i" if wide else "h")
        if size < 0:
            return None
        raw = self.data[self.at : self.at + size]
        self.at += size
        return raw

    def text(self) -> str | None:
        """Read a string."""
        raw = self.blob(wide=False)
        return None if raw is None else raw.decode()

    def tags(self) -> None:
        """Read an empty tag section, where there is one."""
        if self.flexible:
            self.at += 1


# --- Produce --------------------------------------------------------------------------------------


def batch(
    token: int, payload: int, producer: int = -1, epoch: int = -1, sequence: int = -1
) -> bytes:
    """Return a record batch of one record whose first timestamp is a token."""
    length = BATCH_BYTES - 12 + payload
    head = BATCH_HEADER.pack(0, length, 0, 2, 0, 0, 0, token, token, producer, epoch, sequence, 1)
    return head + bytes(payload)


@dataclass(slots=True)
class Batch:
    """What a broker looks at of a batch."""

    token: int
    producer: int
    epoch: int
    sequence: int


def batch_of(data: bytes) -> Batch:
    """Read a batch's header."""
    fields = BATCH_HEADER.unpack_from(data)
    return Batch(fields[7], fields[9], fields[10], fields[11])


def produce(
    version: int,
    correlation: int,
    client: str | None,
    topic: str,
    partition: int,
    records: bytes,
    acks: int = -1,
    transactional: str | None = None,
) -> bytes:
    """Return a Produce of one batch."""
    if version >= 9:
        name = b"\0" if transactional is None else compact(transactional)
        body = (
            name + struct.pack(">hi", acks, 30_000) + b"\x02" + compact(topic) + b"\x02"
            + struct.pack(">i", partition) + varint(len(records) + 1) + records + b"\0\0\0"
        )  # fmt: skip
    else:
        body = (
            text(transactional) + struct.pack(">hii", acks, 30_000, 1) + text(topic)
            + struct.pack(">iii", 1, partition, len(records)) + records
        )  # fmt: skip
    return request(PRODUCE, version, correlation, client, body)


@dataclass(slots=True)
class Produced:
    """A Produce, as a broker reads it: one batch."""

    transactional: str | None
    acks: int
    topic: str
    partition: int
    records: bytes


def read_produce(data: bytes, head: Head) -> Produced:
    """Read a Produce of one batch."""
    reader = Reader(data, head.body, head.version >= 9)
    transactional = reader.text()
    acks = reader.fixed("h")
    reader.fixed("i")
    reader.size()
    topic = reader.text() or ""
    reader.size()
    partition = reader.fixed("i")
    records = reader.blob() or b""
    return Produced(transactional, acks, topic, partition, records)


def produce_answer(
    version: int, correlation: int, topic: str, partition: int, error: int, offset: int, told: int
) -> bytes:
    """Return the answer to a Produce of one batch."""
    fixed = struct.pack(">ihqqq", partition, error, offset, -1, 0)
    if version >= 9:
        body = b"\x02" + compact(topic) + b"\x02" + fixed + b"\x01\0\0\0"
        return answer(PRODUCE, version, correlation, body + struct.pack(">i", told) + b"\0")
    body = struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + fixed
    return answer(PRODUCE, version, correlation, body + struct.pack(">i", told))


@dataclass(slots=True)
class Acknowledged:
    """What a Produce's answer says."""

    error: int
    offset: int
    told_ms: int


def read_produce_answer(data: bytes, version: int) -> Acknowledged:
    """Read the answer to a Produce of one batch."""
    flexible = version >= 9
    reader = Reader(data, 9 if flexible else 8, flexible)
    reader.size()
    reader.text()
    reader.size()
    reader.fixed("i")
    error, offset = reader.fixed("h"), reader.fixed("q")
    reader.fixed("q"), reader.fixed("q")
    if flexible:
        reader.size()
        reader.blob(wide=False)
        reader.tags(), reader.tags()
    return Acknowledged(error, offset, reader.fixed("i"))


# --- Fetch ----------------------------------------------------------------------------------------


def fetch(
    version: int,
    correlation: int,
    client: str | None,
    topic: str,
    partition: int,
    offset: int,
    *,
    wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 52_428_800,
    most: int = 1_048_576,
    session: tuple[int, int] = (0, -1),
) -> bytes:
    """Return a Fetch of one partition; a session's later ones name none."""
    flexible = version >= 12
    head = struct.pack(">iiiibii", -1, wait_ms, min_bytes, max_bytes, 0, *session)
    if session[1] > 0:
        body = b"\x01\x01\x01\0" if flexible else struct.pack(">ii", 0, 0) + text("")
        return request(FETCH, version, correlation, client, head, body)
    if flexible:
        place = struct.pack(">iiqiqi", partition, -1, offset, -1, -1, most)
        body = b"\x02" + compact(topic) + b"\x02" + place + b"\0\0\x01\x01\0"
    else:
        place = struct.pack(">iiqqi", partition, -1, offset, -1, most)
        body = struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + place
        body += struct.pack(">i", 0) + text("")
    return request(FETCH, version, correlation, client, head, body)


@dataclass(slots=True)
class Fetched:
    """A Fetch, as a broker reads it; no topic: the session's."""

    wait_ms: int
    min_bytes: int
    max_bytes: int
    session: int
    epoch: int
    topic: str | None
    partition: int
    offset: int
    most: int


def read_fetch(data: bytes, head: Head) -> Fetched:
    """Read a Fetch of at most one partition."""
    reader = Reader(data, head.body, head.version >= 12)
    _, wait, low, high = (reader.fixed("i") for _ in range(4))
    reader.fixed("b")
    session, epoch = reader.fixed("i"), reader.fixed("i")
    if reader.size() <= 0:
        return Fetched(wait, low, high, session, epoch, None, 0, 0, 0)
    topic = reader.text()
    reader.size()
    partition = reader.fixed("i")
    reader.fixed("i")
    offset = reader.fixed("q")
    if reader.flexible:
        reader.fixed("i")
    reader.fixed("q")
    return Fetched(wait, low, high, session, epoch, topic, partition, offset, reader.fixed("i"))


def fetch_answer(
    version: int,
    correlation: int,
    topic: str | None,
    partition: int,
    error: int,
    high_watermark: int,
    records: bytes,
    session: int = 0,
    told: int = 0,
) -> bytes:
    """Return the answer to a Fetch; without a topic it names no partition."""
    head = struct.pack(">ihi", told, 0, session)
    flexible = version >= 12
    if topic is None:
        none = b"\x01\0" if flexible else struct.pack(">i", 0)
        return answer(FETCH, version, correlation, head, none)
    fixed = struct.pack(">ihqqq", partition, error, high_watermark, high_watermark, 0)
    if flexible:
        body = b"\x02" + compact(topic) + b"\x02" + fixed + b"\0" + struct.pack(">i", -1)
        body += varint(len(records) + 1) + records + b"\0\0\0"
    else:
        body = struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + fixed
        body += struct.pack(">iii", -1, -1, len(records)) + records
    return answer(FETCH, version, correlation, head, body)


@dataclass(slots=True)
class Delivered:
    """What a Fetch's answer brings."""

    told_ms: int
    error: int
    session: int
    records: int
    next_offset: int
    partitions: int


def read_fetch_answer(data: bytes, version: int) -> Delivered:
    """Read the answer to a Fetch of at most one partition."""
    flexible = version >= 12
    reader = Reader(data, 9 if flexible else 8, flexible)
    told, error, session = reader.fixed("i"), reader.fixed("h"), reader.fixed("i")
    if reader.size() <= 0:
        return Delivered(told, error, session, 0, -1, 0)
    reader.text()
    reader.size()
    reader.fixed("i")
    error = reader.fixed("h") or error
    for _ in range(3):
        reader.fixed("q")
    reader.size()
    reader.fixed("i")
    records = reader.blob() or b""
    at, following = 0, -1
    while len(records) - at >= BATCH_BYTES:
        base, length = struct.unpack_from(">qi", records, at)
        following = base + 1
        at += 12 + length
    return Delivered(told, error, session, len(records), following, 1)


# --- ShareFetch -----------------------------------------------------------------------------------


def share_fetch(
    correlation: int, client: str | None, partition: int, wait_ms: int, most: int
) -> bytes:
    """Return a ShareFetch (version 1) of one partition that acknowledges nothing."""
    limits = struct.pack(">iiiiii", 0, wait_ms, 1, most, 500, 500)
    place = bytes(16) + b"\x02" + struct.pack(">i", partition) + b"\x01\0\0"
    body = compact("group") + compact("member") + limits + b"\x02" + place + b"\x01\0"
    return request(SHARE_FETCH, 1, correlation, client, body)


def read_share_fetch(data: bytes, head: Head) -> int:
    """Return the most bytes that a ShareFetch asks for."""
    reader = Reader(data, head.body, True)
    reader.text(), reader.text()
    return struct.unpack_from(">i", data, reader.at + 12)[0]


def share_answer(correlation: int, partition: int, records: bytes) -> bytes:
    """Return the answer to a ShareFetch of one partition."""
    fixed = struct.pack(">ih", partition, 0) + b"\0" + struct.pack(">h", 0) + b"\0"
    fixed += struct.pack(">ii", -1, -1) + b"\0" + varint(len(records) + 1) + records + b"\x01\0"
    body = struct.pack(">ih", 0, 0) + b"\0" + struct.pack(">i", 30_000)
    body += b"\x02" + bytes(16) + b"\x02" + fixed + b"\0\x01\0"
    return answer(SHARE_FETCH, 1, correlation, body)
