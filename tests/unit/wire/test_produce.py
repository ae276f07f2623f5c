"""What a Produce request holds: batches, producer ids, odd content."""

import struct

import pytest

from headgate.errors import RemoteProtocolError
from headgate.wire.fields import MOST_TAGS, write_tags, write_varint
from headgate.wire.header import build_request, parse_request_header
from headgate.wire.messages import produce


def batch(producer_id: int = -1, records: int = 1, payload: int = 20, magic: int = 2) -> bytes:
    return (
        struct.pack(
            ">qiibIhiqqqhii", 0, 49 + payload, 0, magic, 0, 0, 0, 0, 0, producer_id, 0, 0, records
        )
        + b"r" * payload
    )


def request(partitions: list[bytes | None], version: int = 9, acks: int = -1) -> bytes:
    if version >= 9:
        body = (
            b"\x00" + struct.pack(">hi", acks, 30_000) + b"\x02\x02t" + bytes([len(partitions) + 1])
        )
        for index, records in enumerate(partitions):
            head = write_varint(0 if records is None else len(records) + 1)
            body += struct.pack(">i", index) + head + (records or b"") + b"\x00"
        body += b"\x00\x00"
    else:
        body = b"\xff\xff" if version >= 3 else b""
        body += (
            struct.pack(">hii", acks, 30_000, 1) + b"\x00\x01t" + struct.pack(">i", len(partitions))
        )
        for index, records in enumerate(partitions):
            size = -1 if records is None else len(records)
            body += struct.pack(">ii", index, size) + (records or b"")
    return build_request(0, version, 1, "app", body)


def ids_in(frame: bytes, version: int) -> set[int]:
    """Return the producer ids that are found, in the whole request and in its pieces."""
    body = parse_request_header(frame)[4]
    found = produce.producer_ids(frame, version, body)
    walker = produce.IdWalker(version)
    for at in range(body, len(frame), 7):
        walker.feed(frame[at : at + 7])
    assert walker.end() == found
    return set(found)


@pytest.mark.parametrize("version", [1, 2, 3, 8, 9, 12])
def test_each_batch_of_an_idempotent_producer_counts(version: int) -> None:
    frame = request([batch(7, 3), batch(8, 1) + batch(9, 2), batch(), None, b""], version, acks=1)
    assert ids_in(frame, version) == {7, 8, 9}


@pytest.mark.parametrize(
    "payload", [60, 66, 67, 16_000, 16_321, 16_322, 16_323, 2_097_100, 2_100_000]
)
def test_records_of_any_length(payload: int) -> None:
    records = batch(7, payload=payload), batch(8, payload=payload)
    assert ids_in(request([*records, batch(9)]), 9) == {7, 8, 9}


@pytest.mark.parametrize("version", [3, 9])
def test_old_message_sets_know_no_producers(version: int) -> None:
    assert ids_in(request([batch(7, magic=1), batch(8, magic=0)], version), version) == set()


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("lie", [0, -1, -(2**31), 2**31 - 1, 48, 49])
def test_a_batch_length_that_lies_is_left_to_the_broker(version: int, lie: int) -> None:
    lying = bytearray(batch(7) + batch(8))
    struct.pack_into(">i", lying, 8, lie)
    found = ids_in(request([bytes(lying), batch(9)], version), version)
    assert {9} <= found <= {7, 8, 9}


@pytest.mark.parametrize("name", ["", "tx", "x" * 300])
@pytest.mark.parametrize("version", [3, 9])
def test_ids_behind_a_transactional_id(version: int, name: str) -> None:
    frame = request([batch(7)], version)
    at = parse_request_header(frame)[4]
    raw = name.encode()
    flexible = write_varint(len(raw) + 1)
    told = (flexible if version >= 9 else struct.pack(">h", len(raw))) + raw
    body = told + frame[at + (1 if version >= 9 else 2) :]
    assert ids_in(build_request(0, version, 1, "app", body), version) == {7}


@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 13])
def test_acks_need_only_the_first_bytes(version: int, acks: int) -> None:
    frame = request([batch()], version, acks)
    offset = parse_request_header(frame)[4]
    assert produce.acks(frame[: offset + 4], version, offset) == acks


@pytest.mark.parametrize("name", ["", "tx", "x" * 126, "x" * 127, "x" * 300])
def test_acks_after_a_transactional_id(name: str) -> None:
    raw = name.encode()
    size = len(raw) + 1
    compact = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    for version, prefix in ((9, compact), (3, struct.pack(">h", len(raw)))):
        frame = build_request(0, version, 1, "c", prefix + raw + struct.pack(">h", 1))
        assert produce.acks(frame, version, parse_request_header(frame)[4]) == 1


@pytest.mark.parametrize("version", [3, 9])
def test_a_cut_request_is_the_peers_fault(version: int) -> None:
    frame = request([batch(7)], version)
    offset = parse_request_header(frame)[4]
    for end in range(offset, len(frame)):
        with pytest.raises(RemoteProtocolError):
            produce.producer_ids(frame[:end], version, offset)
    with pytest.raises(RemoteProtocolError):
        produce.acks(frame[:offset], version, offset)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_tagged_fields_are_bounded(places: int) -> None:
    """After the partition, the topic and the last topic there may be 64, and no more."""
    frame = request([batch(7)])
    at = len(frame) - places

    def with_tags(count: int) -> bytes:
        tags = write_tags(dict.fromkeys(range(count), b""))
        body = frame[parse_request_header(frame)[4] : at] + tags + frame[at + 1 :]
        return build_request(0, 9, 1, "app", body)

    assert ids_in(with_tags(produce.MOST_EMPTY), 9) == {7}
    for count, said in ((produce.MOST_EMPTY + 1, "tagged fields"), (MOST_TAGS + 1, "1025 tagged")):
        more = with_tags(count)
        body = parse_request_header(more)[4]
        with pytest.raises(RemoteProtocolError, match=said):
            produce.producer_ids(more, 9, body)
        with pytest.raises(RemoteProtocolError, match=said):
            produce.IdWalker(9).feed(more[body:])
