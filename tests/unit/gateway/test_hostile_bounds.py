"""What a hostile peer may cost: bytes one by one, endless headers, names, large questions."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from headgate.gateway.charging import contexts
from headgate.gateway.session import produce as produce_handler
from headgate.gateway.session.commands import Continue
from headgate.gateway.session.relay import Collecting
from headgate.gateway.session.requests import HELD_BYTES
from headgate.gateway.session.session import BUDGET
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_IDS
from headgate.wire.fields import Buffer, write_varint
from headgate.wire.header import RequestHeader, build_request, parse_request_header
from headgate.wire.messages.produce import MOST_EMPTY
from kit.playbook import START_MS

from .conftest import Setup, beaten, gone_on, heartbeat, produce, produced, request, string

Make = Callable[..., Setup]


def test_bytes_held_one_by_one_take_about_the_memory_they_are(gateway: Make) -> None:
    session = gateway().session  # its upstream isn't there yet: everything is held
    byte = memoryview(bytearray(1))
    while not session.commands:
        session.client_data(byte, START_MS)
    assert session.held_bytes == HELD_BYTES + 1
    assert len(session.requests.held.pieces) <= HELD_BYTES // 1_024


def test_what_was_held_one_by_one_goes_on_in_its_order(gateway: Make) -> None:
    session = gateway().session
    said = b"".join(heartbeat(n) for n in range(1, 2_000))
    for n in range(len(said)):
        session.client_data(memoryview(bytearray(said[n : n + 1])), START_MS)
    session.upstream_ready(START_MS)
    gone_on(session)
    assert b"".join(map(bytes, session.to_broker)) == said


def test_a_header_that_dribbles_in_began_with_its_first_byte(gateway: Make) -> None:
    session = gateway().session
    session.upstream_ready(START_MS)
    head = struct.pack(">ihhih", 40_000, 12, 3, 1, 32_000) + bytes(1_000)
    for n in range(len(head)):
        session.client_data(memoryview(bytearray(head[n : n + 1])), START_MS + 1_000 * n)
    assert session.partial_since_ms == START_MS


def test_the_next_header_begins_anew(gateway: Make) -> None:
    session = gateway().session
    session.upstream_ready(START_MS)
    frame = heartbeat(1)
    session.client_data(memoryview(bytearray(frame[:5])), START_MS)
    session.client_data(memoryview(bytearray(frame[5:] + frame[:5])), START_MS + 7_000)
    assert session.partial_since_ms == START_MS + 7_000


@pytest.mark.parametrize("quotas", [{}, {QuotaEntity.of(user="alice"): {PRODUCER: 1e9}}])
def test_client_ids_of_32_kb_are_forgotten_before_they_are_many_mb(
    gateway: Make, quotas: dict[QuotaEntity, dict[object, float]]
) -> None:
    setup = gateway(quotas)
    for n in range(2_000):
        name = f"{n:032000}"
        setup.rules.context("alice", name)
        setup.rules.managers.produce.record("alice", name, 1, START_MS)
    known = setup.rules.contexts._contexts, setup.rules.managers.produce._charged
    assert all(sum(len(name) for _, name in names) < 1 << 25 for names in known)
    assert contexts.MOST_CONTEXTS > 2_000


@pytest.mark.parametrize("key_version", [(32, 4), (44, 1), (48, 1), (49, 1)])
def test_a_question_that_is_too_large_to_read_is_refused(
    gateway: Make, key_version: tuple[int, int]
) -> None:
    session = gateway().session
    session.upstream_ready(START_MS)
    frame = request(*key_version, 1, bytes(2_000_000))
    session.client_data(memoryview(bytearray(frame[:65_536])), START_MS)
    assert session.closed is not None
    assert session.closed.reason == "oversized"


def ids(count: int, version: int = 7) -> bytearray:
    """A Produce of ``count`` producers, each with a partition and a batch of its own."""
    parts = [struct.pack(">hhii", -1, -1, 1_000, 1), b"\0\1t", struct.pack(">i", count)]
    for number in range(count):
        batch = struct.pack(">qiib", 0, 49, 0, 2) + bytes(26)
        batch += struct.pack(">qhii", number, 0, 0, 0)
        parts.append(struct.pack(">ii", number, len(batch)) + batch)
    body = b"".join(parts)
    return bytearray(request(0, version, 1, body))


@pytest.mark.parametrize("piece", [1 << 30, 5_000])
def test_a_produce_of_many_producers_is_refused_before_it_stops_the_others(
    gateway: Make, piece: int
) -> None:
    quota = {QuotaEntity.of(user="alice"): {PRODUCER_IDS: 1.0}}
    for count, reason in ((256, None), (257, "producer-ids"), (20_000, "producer-ids")):
        session = gateway(quota).session
        session.upstream_ready(START_MS)
        frame = ids(count)
        read = 0
        for at in range(0, len(frame), piece):
            if session.closed is None:
                read += 1
                session.client_data(memoryview(frame[at : at + piece]), START_MS)
        assert (session.closed.reason if session.closed else None) == reason
        assert read * min(piece, len(frame)) <= max(257 * 80 + piece, len(frame[:piece]))


def test_without_a_quota_of_producer_ids_nobody_looks_at_them(gateway: Make) -> None:
    session = gateway().session
    session.upstream_ready(START_MS)
    session.client_data(memoryview(ids(1_000)), START_MS)
    assert session.closed is None


def empty(version: int, count: int, *, partitions: int = 0, tags: int = 0) -> bytearray:
    """A Produce of ``count`` topics with empty partitions, and tagged fields behind each topic."""
    flexible = version >= 9

    def length(number: int) -> bytes:
        return write_varint(number + 1) if flexible else struct.pack(">i", number)

    tagged = write_varint(tags) + b"\x7f\0" * tags if flexible else b""
    partition = bytes(4) + (b"\x01\0" if flexible else struct.pack(">i", 0))
    name = bytes(16) if version >= 13 else b"\x02t" if flexible else string("t")
    topic = name + length(partitions) + partition * partitions + tagged
    none = b"\0" if flexible else struct.pack(">h", -1)
    body = none + struct.pack(">hi", -1, 1_000) + length(count) + topic * count
    return bytearray(build_request(0, version, 1, "app", body + (b"\0" if flexible else b"")))


@pytest.mark.parametrize("version", [7, 9, 13])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("count", "partitions", "tags", "refused"),
    [
        (MOST_EMPTY, 0, 0, False),
        (MOST_EMPTY + 1, 0, 0, True),
        (80_000, 0, 0, True),
        (1, MOST_EMPTY, 0, False),
        (1, MOST_EMPTY + 1, 0, True),
        (2, 1, 30, False),
        (4, 1, 30, True),
    ],
)
def test_a_produce_of_much_without_records_is_refused_before_it_stops_the_others(
    gateway: Make,
    version: int,
    whole: bool,
    count: int,
    partitions: int,
    tags: int,
    refused: bool,
) -> None:
    session = gateway({QuotaEntity.of(user="bob"): {PRODUCER_IDS: 1.0}}).session
    session.upstream_ready(START_MS)
    frame = empty(version, count, partitions=partitions, tags=tags)
    last = len(frame) if whole else len(frame) - 1
    session.client_data(memoryview(frame[:last]), START_MS)
    session.client_data(memoryview(frame[last:]), START_MS)
    closed = session.closed
    if tags and version < 9:  # there are no tagged fields
        refused = False
    assert (closed.reason if closed else None) == ("producer-ids" if refused else None)


def test_acks_that_come_late_are_not_looked_for_with_each_byte(
    gateway: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def counting(frame: Buffer) -> RequestHeader:
        nonlocal looks
        looks += 1
        return parse_request_header(frame)

    monkeypatch.setattr(produce_handler, "parse_request_header", counting)
    session = gateway().session
    session.upstream_ready(START_MS)
    tags = write_varint(1_024) + (b"\x7f" + write_varint(60) + bytes(60)) * 1_024
    head = struct.pack(">hhi", 0, 9, 1) + string("app") + tags
    body = b"\0" + struct.pack(">hi", -1, 1_000) + b"\x01\0"
    frame = struct.pack(">i", len(head + body)) + head + body
    for n in range(len(frame)):
        session.client_data(memoryview(bytearray(frame[n : n + 1])), START_MS)
    assert session.closed is None
    assert b"".join(map(bytes, session.to_broker)) == frame
    assert looks <= 12


def test_a_request_that_was_collected_is_not_copied_again(gateway: Make) -> None:
    session = gateway().session
    session.upstream_ready(START_MS)
    frame = bytearray(request(78, 1, 1, bytes(100_000)))
    session.client_data(memoryview(frame[:50_000]), START_MS)
    begun = session.begun
    assert isinstance(begun, Collecting)
    session.client_data(memoryview(frame[50_000:] + heartbeat(2)), START_MS)
    gone_on(session)
    passed = [piece.obj for piece in session.to_broker if isinstance(piece, memoryview)]
    assert any(kept is begun.frame for kept in passed)
    assert b"".join(map(bytes, session.to_broker)) == frame + heartbeat(2)


def late(correlation: int, acks: int) -> bytes:
    """A Produce v9 whose header has 1,024 tagged fields, two bytes each."""
    head = struct.pack(">hhi", 0, 9, correlation) + string("") + write_varint(1_024)
    body = b"\0" + struct.pack(">hi", acks, 1_000) + b"\x01\0"
    frame = head + b"\x7f\0" * 1_024 + body
    return struct.pack(">i", len(frame)) + frame


def silent(correlation: int, client: str) -> bytes:
    """The smallest Produce: no topics, no answer."""
    return request(0, 2, correlation, struct.pack(">hii", 0, 1_000, 0), client)


@pytest.mark.parametrize(
    ("made", "count", "at_once"),
    [
        (lambda n: silent(n, ""), 10_000, BUDGET),
        (lambda n: silent(n, f"{n:05d}"), 5_000, 10),
        (lambda n: late(n, 0), 100, 4),
        (lambda n: request(78, 1, n, bytes(2_000)), 100, 4),
    ],
    ids=["small", "of new clients", "with many tagged fields", "collected"],
)
def test_requests_of_one_read_are_taken_a_few_at_a_time(
    gateway: Make, made: Callable[[int], bytes], count: int, at_once: int
) -> None:
    session = gateway().session
    session.upstream_ready(START_MS)
    said = [made(n) for n in range(1, count + 1)]
    session.client_data(memoryview(bytearray(b"".join(said))), START_MS)
    first = b"".join(map(bytes, session.to_broker))
    assert len(first) <= sum(map(len, said[: at_once + 1]))
    assert not session.at_rest
    assert gone_on(session) >= count // (at_once + 1)
    assert b"".join(map(bytes, session.to_broker)) == b"".join(said)
    assert session.closed is None
    assert session.requests_taken == count


def test_answers_to_many_client_ids_are_charged_a_few_at_a_time(gateway: Make) -> None:
    """Each may be the first that is charged to its client id: sensors, and lines in the journal."""
    session = gateway({QuotaEntity.of(user="alice"): {PRODUCER: 1e12}}).session
    session.upstream_ready(START_MS)
    count = 200
    asked = [produce(100, n, client=f"app-{n}") for n in range(1, count + 1)]
    session.client_data(memoryview(bytearray(b"".join(asked))), START_MS)
    gone_on(session)
    assert len(session.unanswered) == count
    said = b"".join(produced(n) for n in range(1, count + 1))
    session.broker_data(memoryview(bytearray(said)), START_MS)
    assert count - 21 <= len(session.unanswered) < count
    gone_on(session)
    assert b"".join(map(bytes, session.to_client)) == said
    # Of those to one client id, far more are charged in one callback.
    same = [produce(100, n) for n in range(1, count + 1)]
    session.client_data(memoryview(bytearray(b"".join(same))), START_MS)
    gone_on(session)
    session.broker_data(memoryview(bytearray(said)), START_MS)
    assert len(session.unanswered) < count - 100


def test_what_comes_meanwhile_keeps_its_place(gateway: Make) -> None:
    session = gateway().session
    session.upstream_ready(START_MS)
    said = [silent(n, "") for n in range(1, 3 * BUDGET)]
    session.client_data(memoryview(bytearray(b"".join(said[:-2]))), START_MS)
    for last in said[-2:]:
        session.client_data(memoryview(bytearray(last)), START_MS)
    assert sum(isinstance(command, Continue) for command in session.commands) == 1
    gone_on(session)
    assert b"".join(map(bytes, session.to_broker)) == b"".join(said)


def test_support_of_one_read_are_passed_on_a_few_at_a_time(gateway: Make) -> None:
    session = gateway({QuotaEntity.of(user="alice"): {PRODUCER: 1e12}}).session
    session.upstream_ready(START_MS)
    count = 3 * BUDGET
    for n in range(1, count + 1):
        session.client_data(memoryview(bytearray(heartbeat(n))), START_MS)
    said = b"".join(beaten(n) for n in range(1, count + 1))
    session.broker_data(memoryview(bytearray(said)), START_MS)
    assert len(session.unanswered) >= count - BUDGET
    assert gone_on(session) >= 2
    assert b"".join(map(bytes, session.to_client)) == said
    assert not session.unanswered
