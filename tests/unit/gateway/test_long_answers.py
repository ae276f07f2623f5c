"""Answers that name so many brokers that their addresses are replaced in slices."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import RemoteProtocolError
from headgate.gateway.connection import transports
from headgate.gateway.connection.pool import ReadBuffer
from headgate.gateway.connection.transports import ClientSide
from headgate.gateway.session.commands import PauseBroker, ResumeBroker
from headgate.gateway.session.rewrite import STEPS_AT_ONCE, Rewrite, rewriting
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import REQUEST
from headgate.steps import FEW, finish
from headgate.wire import apis
from headgate.wire.fields import write_varint
from headgate.wire.header import build_request
from kit.playbook import START_MS

from .conftest import Setup, StillFace, answer, beaten, frame, heartbeat
from .enforcement_kit import Kept

Make = Callable[..., Setup]
MANY = STEPS_AT_ONCE * FEW + 1
OURS = StillFace().addresses
THEIRS = b"\0\0\0\1\x09upstream\0\0\x23\x84"  # broker 1, its host and port


def coordinators(count: int, correlation: int = 1) -> bytes:
    """A FindCoordinator v4 answer: broker 1 coordinates each of ``count`` groups."""
    one = b"\x06group" + THEIRS + b"\0\0" + b"\x01" + b"\0"
    return answer(correlation, b"\0" + bytes(4) + write_varint(count + 1) + one * count + b"\0")


def asks_for_coordinators(correlation: int = 1) -> bytes:
    return build_request(apis.FIND_COORDINATOR, 4, correlation, "app", b"\0\x01\0")


def shared(count: int) -> bytes:
    """A ShareAcknowledge v1 answer of ``count`` partitions in one topic."""
    one = bytes(6) + b"\0" + bytes(8) + b"\0" + b"\0"
    topic = bytes(16) + write_varint(count + 1) + one * count + b"\0"
    nodes = b"\x02" + THEIRS + b"\0\0"
    return answer(1, b"\0" + bytes(6) + b"\0" + b"\x02" + topic + nodes + b"\0")


def quorum(
    topics: int = 0, partitions: int = 0, replicas: int = 0, nodes: bytes = b"\x01"
) -> bytes:
    """A DescribeQuorum v2 answer of as many topics, partitions of each and replicas of each."""
    seen = (bytes(44) + b"\0") * replicas
    one = bytes(6) + b"\0" + bytes(16) + write_varint(replicas + 1) + seen + b"\x01\0"
    topic = b"\x02t" + write_varint(partitions + 1) + one * partitions + b"\0"
    all_of_them = write_varint(topics + 1) + topic * topics
    return answer(1, b"\0" + bytes(2) + b"\0" + all_of_them + nodes + b"\0")


def controllers(count: int, listeners: int = 0) -> bytes:
    """A DescribeQuorum v2 answer that names controllers, and where each listens."""
    where = (b"\x02L" + b"\x02h" + b"\x23\x84" + b"\0") * listeners
    one = bytes(4) + write_varint(listeners + 1) + where + b"\0"
    return quorum(nodes=write_varint(count + 1) + one * count)


PARTITION = struct.pack(
    ">ihqqq", 0, 3, -1, -1, -1
)  # of a Produce answer, up to its records' errors


def produced(
    topics: int,
    partitions: int = 1,
    errors: int = 0,
    *,
    version: int = 10,
    throttle_ms: int = 0,
    correlation: int = 1,
) -> bytes:
    """A Produce answer of as many topics, partitions of each, and bad records of each."""
    one = PARTITION + write_varint(errors + 1) + (bytes(4) + b"\0\0") * errors + b"\0\0"
    topic = b"\x02t" + write_varint(partitions + 1) + one * partitions + b"\0"
    nodes = b"\x02" + THEIRS + b"\0\0"
    tail = b"\x01\0" + write_varint(len(nodes)) + nodes if version >= 10 else b"\0"
    told = struct.pack(">i", throttle_ms)
    all_of_them = write_varint(topics + 1) + topic * topics
    return answer(correlation, b"\0" + all_of_them + told + tail)


def asks_to_produce(version: int, correlation: int = 1) -> bytes:
    acks = struct.pack(">hi", 1, 1000)
    return build_request(apis.PRODUCE, version, correlation, "app", b"\0" + acks + b"\x01\0")


def tokens(count: int, renewers: int = 0, *, version: int = 3) -> bytes:
    """A DescribeDelegationToken answer of as many tokens, and those who may renew each."""
    user = b"\x05User\x06alice"
    requester = user if version >= 3 else b""
    who = write_varint(renewers + 1) + (user + b"\0") * renewers
    one = user + requester + bytes(24) + b"\x03id" + b"\x03ab" + who + b"\0"
    return answer(1, b"\0" + bytes(2) + write_varint(count + 1) + one * count + bytes(4) + b"\0")


def asks_for_tokens(version: int = 3) -> bytes:
    return build_request(apis.DESCRIBE_DELEGATION_TOKEN, version, 1, "app", b"\0\0")


def cluster(count: int) -> bytes:
    """A DescribeCluster v0 answer of ``count`` brokers."""
    node = THEIRS + b"\0\0"
    body = bytes(6) + b"\0" + b"\x02c" + bytes(4)
    return answer(1, b"\0" + body + write_varint(count + 1) + node * count + bytes(4) + b"\0")


def share_fetched(count: int, acquired: int = 0) -> bytes:
    """A ShareFetch v1 answer of ``count`` partitions, without records."""
    ranges = write_varint(acquired + 1) + (bytes(18) + b"\0") * acquired
    one = bytes(6) + b"\0" + bytes(2) + b"\0" + bytes(8) + b"\0" + b"\0" + ranges + b"\0"
    topic = bytes(16) + write_varint(count + 1) + one * count + b"\0"
    nodes = b"\x02" + THEIRS + b"\0\0"
    return answer(1, b"\0" + bytes(6) + b"\0" + bytes(4) + b"\x02" + topic + nodes + b"\0")


@pytest.mark.parametrize(
    ("key", "version", "made"),
    [
        (apis.FIND_COORDINATOR, 4, coordinators),
        (apis.SHARE_ACKNOWLEDGE, 1, shared),
        (apis.SHARE_FETCH, 1, share_fetched),
        (apis.SHARE_FETCH, 1, lambda count: share_fetched(1, count)),
        (apis.SHARE_FETCH, 1, lambda count: share_fetched(count // 64, 63)),
        (apis.DESCRIBE_QUORUM, 2, quorum),
        (apis.DESCRIBE_QUORUM, 2, lambda count: quorum(1, count)),
        (apis.DESCRIBE_QUORUM, 2, lambda count: quorum(count // 2, 1)),
        (apis.DESCRIBE_QUORUM, 2, lambda count: quorum(1, 1, count)),
        (apis.DESCRIBE_QUORUM, 2, lambda count: quorum(count // 64, 1, 62)),
        (apis.DESCRIBE_QUORUM, 2, controllers),
        (apis.DESCRIBE_QUORUM, 2, lambda count: controllers(1, count)),
        (apis.DESCRIBE_QUORUM, 2, lambda count: controllers(count // 64, 63)),
        (apis.DESCRIBE_CLUSTER, 0, cluster),
        (apis.PRODUCE, 10, lambda count: produced(1, count)),
        (apis.PRODUCE, 10, lambda count: produced(count // 2)),
        (apis.PRODUCE, 10, lambda count: produced(count // 64, 1, 62)),
        (apis.PRODUCE, 9, lambda count: produced(1, count, version=9, throttle_ms=5)),
        (apis.DESCRIBE_DELEGATION_TOKEN, 3, tokens),
        (apis.DESCRIBE_DELEGATION_TOKEN, 2, lambda count: tokens(count, version=2)),
        (apis.DESCRIBE_DELEGATION_TOKEN, 3, lambda count: tokens(1, count)),
        (apis.DESCRIBE_DELEGATION_TOKEN, 3, lambda count: tokens(count // 64, 63)),
    ],
)
def test_an_answer_is_read_a_few_at_a_time(
    key: int, version: int, made: Callable[[int], bytes]
) -> None:
    for times in (1, 40):
        steps = list(rewriting(key, version, made(times * FEW), OURS))
        assert times <= len(steps) <= times + 4  # a long one is copied in steps, too


def settled(session: Session) -> Rewrite:
    """Return what the session wants to have done in slices."""
    paused, rewrite = session.commands
    assert isinstance(paused, PauseBroker)
    assert isinstance(rewrite, Rewrite)
    session.commands.clear()
    return rewrite


def begun(gateway: Make, said: bytes, *requests: bytes, piece: int = 1 << 30) -> Session:
    """A session whose client has asked, and whose broker has answered."""
    session = gateway().session
    session.upstream_ready(START_MS)
    for asked in requests:
        session.client_data(memoryview(bytearray(asked)), START_MS)
    session.to_broker.clear()
    for at in range(0, len(said), piece):
        session.broker_data(memoryview(bytearray(said[at : at + piece])), START_MS)
    return session


@pytest.mark.parametrize("piece", [1 << 30, 1_000])
def test_a_long_answer_is_rewritten_in_slices_and_those_behind_it_wait(
    gateway: Make, piece: int
) -> None:
    long = coordinators(MANY, 2)
    said = beaten(1) + long + beaten(3)
    asked = heartbeat(1), asks_for_coordinators(2), heartbeat(3)
    session = begun(gateway, said, *asked, piece=piece)
    rewrite = settled(session)
    assert b"".join(map(bytes, session.to_client)) == beaten(1)
    assert not session.at_rest
    assert session.retained() >= len(long)
    session.to_client.clear()
    session.rewritten(rewrite, finish(rewrite.work), START_MS)
    ours = finish(rewriting(apis.FIND_COORDINATOR, 4, long, OURS)).frame
    assert b"upstream" not in ours
    assert b"".join(map(bytes, session.to_client)) == bytes(ours) + beaten(3)
    assert any(isinstance(command, ResumeBroker) for command in session.commands)
    assert session.at_rest
    assert not session.retained()


def test_a_short_one_is_rewritten_at_once(gateway: Make) -> None:
    session = begun(gateway, coordinators(FEW), asks_for_coordinators())
    assert not session.commands
    assert b"upstream" not in b"".join(map(bytes, session.to_client))


def test_memory_of_the_loop_is_not_read_later(gateway: Make) -> None:
    session = begun(gateway, b"", asks_for_coordinators())
    read = bytearray(coordinators(MANY))
    session.broker_data(memoryview(read), START_MS)
    rewrite = settled(session)
    read[:] = bytes(len(read))
    session.rewritten(rewrite, finish(rewrite.work), START_MS)
    assert b"".join(map(bytes, session.to_client)).count(b"gate") == MANY


def test_a_second_long_answer_behind_the_first_waits_for_its_own_slices(gateway: Make) -> None:
    said = coordinators(MANY, 1) + coordinators(MANY, 2)
    session = begun(gateway, said, asks_for_coordinators(1), asks_for_coordinators(2))
    first = settled(session)
    session.rewritten(first, finish(first.work), START_MS)
    resumed, *others = session.commands
    assert isinstance(resumed, ResumeBroker)
    session.commands[:] = others
    second = settled(session)
    session.rewritten(first, finish(rewriting(10, 4, said, OURS)), START_MS)  # told twice: nothing
    session.rewritten(second, finish(second.work), START_MS)
    assert b"".join(map(bytes, session.to_client)).count(b"gate") == 2 * MANY


def test_a_long_answer_is_charged_when_it_is_told(gateway: Make) -> None:
    setup = gateway({QuotaEntity.of(user="alice"): {REQUEST: 1.0}})
    session = setup.session
    session.upstream_ready(START_MS)
    session.client_data(memoryview(bytearray(asks_for_coordinators())), START_MS)
    session.account_client(10_000_000_000)
    session.broker_data(memoryview(bytearray(coordinators(MANY))), START_MS)
    rewrite = settled(session)
    assert not session.throttled_until_ms
    session.rewritten(rewrite, finish(rewrite.work), START_MS)
    told = b"".join(map(bytes, session.to_client))
    throttle_ms = session.throttled_until_ms - START_MS
    assert throttle_ms > 0
    assert struct.unpack_from(">i", told, 9)[0] == throttle_ms


@pytest.mark.parametrize(
    ("asked", "long", "ends"),
    [
        (asks_to_produce(9), produced(1, MANY, version=9, throttle_ms=5), 5),
        (asks_to_produce(10), produced(1, MANY, throttle_ms=5), 27),
        (asks_for_tokens(), tokens(1, MANY), 5),
        (asks_for_tokens(), tokens(MANY), 5),
    ],
    ids=("produced", "endpoints", "renewers", "tokens"),
)
@pytest.mark.parametrize("limited", [False, True])
def test_a_long_answer_is_walked_in_slices_to_its_throttle_time(
    gateway: Make, asked: bytes, long: bytes, ends: int, limited: bool
) -> None:
    setup = gateway({QuotaEntity.of(user="alice"): {REQUEST: 1.0}} if limited else {})
    session = setup.session
    session.upstream_ready(START_MS)
    session.client_data(memoryview(bytearray(asked)), START_MS)
    session.account_client(10_000_000_000 if limited else 0)
    session.broker_data(memoryview(bytearray(long)), START_MS)
    rewrite = settled(session)
    assert not session.to_client
    session.rewritten(rewrite, finish(rewrite.work), START_MS)
    told = b"".join(map(bytes, session.to_client))
    at = len(long) - ends
    throttle_ms = session.throttled_until_ms - START_MS
    assert throttle_ms > 5 or not limited
    assert told[at : at + 4] == (struct.pack(">i", throttle_ms) if limited else long[at : at + 4])
    assert not session.unanswered


def test_a_long_answer_is_walked_once(gateway: Make) -> None:
    setup = gateway({QuotaEntity.of(user="alice"): {REQUEST: 1.0}})
    session = setup.session
    session.upstream_ready(START_MS)
    session.client_data(memoryview(bytearray(asks_to_produce(10))), START_MS)
    session.account_client(10_000_000_000)
    session.broker_data(memoryview(bytearray(produced(1, MANY))), START_MS)
    rewrite = settled(session)
    found = finish(rewrite.work)
    session.rewritten(rewrite, found._replace(throttle_at=20), START_MS)
    told = b"".join(map(bytes, session.to_client))
    assert struct.unpack_from(">i", told, 20)[0] == session.throttled_until_ms - START_MS


def test_the_time_of_the_slices_is_not_the_brokers(gateway: Make) -> None:
    kept = Kept()
    setup = gateway({}, {"headgate.request.time": "upstream"}, journal=kept)
    session = setup.session
    session.upstream_ready(START_MS)
    asked = asks_to_produce(10, 1) + asks_to_produce(10, 2)
    session.client_data(memoryview(bytearray(asked)), START_MS)
    session.broker_data(memoryview(bytearray(produced(1, MANY))), START_MS + 3)
    rewrite = settled(session)
    session.rewritten(rewrite, finish(rewrite.work), START_MS + 4_000)
    assert kept.rows[-1][-2] == 3_000_000
    session.broker_data(memoryview(bytearray(produced(1, correlation=2))), START_MS + 4_005)
    assert kept.rows[-1][-2] == 5_000_000


def test_a_client_that_leaves_meanwhile_is_charged_once(gateway: Make) -> None:
    session = begun(gateway, coordinators(MANY), asks_for_coordinators())
    rewrite = settled(session)
    session.close("client-gone", "", START_MS)
    assert not session.unanswered
    session.rewritten(rewrite, finish(rewrite.work), START_MS)
    assert not session.to_client


def test_an_answer_that_is_malformed_far_behind_its_beginning_closes(gateway: Make) -> None:
    whole = coordinators(4 * FEW)
    session = begun(gateway, frame(whole[4:-30]), asks_for_coordinators())
    rewrite = settled(session)
    with pytest.raises(RemoteProtocolError):
        finish(rewrite.work)
    assert not session.to_client


@pytest.mark.parametrize(("size", "slow"), [(transports.WATCHED_BYTES, 1), (4_095, 0)])
def test_large_reads_are_watched(
    gateway: Make, monkeypatch: pytest.MonkeyPatch, size: int, slow: int
) -> None:
    ticks = iter(range(1, 1_000_000_000, 20_000_000))
    monkeypatch.setattr(transports, "_cpu_ns", lambda: next(ticks))
    session = gateway().session
    buffer = ReadBuffer()
    link: Any = SimpleNamespace(
        session=session, bytes_in=0, settle=lambda: None, weigh=lambda: None
    )
    ClientSide(link, buffer).buffer_updated(size)
    assert buffer.stall_meter.slow == slow
