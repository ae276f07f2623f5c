"""What an attacker found on 2026-11-23: memory nobody counted, long pieces of work, lost claims."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from headgate.gateway.connection.pool import MINIMUM_BYTES, STUCK_MS, Account, ConnectionKind, Pool
from headgate.gateway.session.rewrite import Addresses, rewriting
from headgate.gateway.usage_journal import UsageJournal
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import REQUEST
from headgate.steps import finish
from headgate.usage.format import Origin
from headgate.usage.rows import MOST_NAMED, Rows
from headgate.wire import apis
from headgate.wire.fields import write_varint
from headgate.wire.header import build_request, build_response
from headgate.wire.messages.addresses import COPIED
from kit.playbook import START_MS

from .conftest import Setup, gone_on, heartbeat, produce, produced
from .test_journal import Kept

Make = Callable[..., Setup]
READ = 262_144


def said(setup: Setup, data: bytes) -> None:
    """Have a client say something, as the shell reads it."""
    session = setup.session
    for at in range(0, len(data), READ):
        session.client_data(memoryview(bytearray(data[at : at + READ])), START_MS)
        gone_on(session)
        session.to_broker.clear()


def test_bytes_that_wait_behind_a_long_request_keep_none_of_it(gateway: Make) -> None:
    setup = gateway()
    setup.session.upstream_ready(START_MS)
    long = build_request(
        apis.SHARE_FETCH, 1, 1, "app",
        b"\x02g\x02m" + struct.pack(">iiii", 0, 30_000, 1, 100) + bytes(3_000_000),
    )  # fmt: skip
    said(setup, long + build_request(apis.DESCRIBE_CLIENT_QUOTAS, 1, 2, "app", b"\x01\0\0"))
    (piece,) = setup.session.requests.held.pieces
    assert len(piece.obj) <= 2 * setup.session.held_bytes  # type: ignore[arg-type]


def test_bytes_that_wait_behind_many_requests_keep_none_of_them(gateway: Make) -> None:
    setup = gateway()
    session = setup.session
    early = b"".join(heartbeat(n) for n in range(1, 1_500))  # more than one callback reads
    question = build_request(apis.DESCRIBE_CLIENT_QUOTAS, 1, 1_500, "app", b"\x01\0\0")
    session.client_data(memoryview(bytearray(early + question)), START_MS)
    session.upstream_ready(START_MS)
    gone_on(session)
    kept = sum(len(piece.obj) for piece in session.requests.held.pieces)  # type: ignore[misc, arg-type]
    assert kept <= 2 * session.held_bytes == 2 * len(question)


@pytest.mark.parametrize(("key", "version"), [(17, 1), (36, 2)])
def test_a_long_sasl_request_is_refused_at_its_header(
    gateway: Make, key: int, version: int
) -> None:
    setup = gateway()
    setup.session.upstream_ready(START_MS)
    said(setup, build_request(key, version, 1, "app", bytes(600_000))[:1_000])
    assert setup.session.closed is not None
    assert setup.session.closed.reason == "oversized"


def metadata(topics: int) -> bytes:
    """A Metadata v12 answer with one broker."""
    topic = struct.pack(">h", 0) + b"\x06topic" + bytes(17) + b"\x01" + struct.pack(">i", 0) + b"\0"
    nodes = b"\x02" + struct.pack(">i", 1) + b"\x05host" + struct.pack(">i", 9) + b"\0\0"
    body = struct.pack(">i", 0) + nodes + b"\x02c" + struct.pack(">i", 1)
    return build_response(3, 12, 7, body + write_varint(topics + 1) + topic * topics + b"\0")


@pytest.mark.parametrize("any_controller", [False, True])
def test_a_long_answer_is_copied_in_steps(any_controller: bool) -> None:
    ours = Addresses({1: ("gate", 19092)})
    ours.any_controller = any_controller
    frame = metadata(100_000)
    assert len(frame) > 10 * COPIED
    assert len(list(rewriting(3, 12, frame, ours))) >= len(frame) // COPIED
    rewritten = bytes(finish(rewriting(3, 12, frame, ours)).frame)
    short = bytes(finish(rewriting(3, 12, metadata(100), ours)).frame)
    head = short.index(write_varint(101) + b"\0\0\x06topic")
    assert rewritten[4:head] == short[4:head]
    assert rewritten[head:] == frame[len(frame) - len(rewritten) + head :]
    assert struct.unpack_from(">i", rewritten) == (len(rewritten) - 4,)


def test_an_answer_without_brokers_is_not_copied() -> None:
    body = struct.pack(">ih", 0, 0) + b"\0" + struct.pack(">i", 0) + b"\x01\x01\0"
    frame = memoryview(bytearray(build_response(apis.SHARE_FETCH, 1, 7, body)))
    assert finish(rewriting(apis.SHARE_FETCH, 1, frame, {})).frame is frame


def test_thousands_of_unknown_clients_are_closed_one_by_one_and_few_are_woken() -> None:
    pool = Pool(1 << 27)
    closed: list[int] = []
    woken: list[int] = []
    for number in range(6_000):
        account = Account(
            lambda number=number: woken.append(number),  # type: ignore[misc]
            lambda number=number: closed.append(number),  # type: ignore[misc]
        )
        pool.hold(account, 2 * MINIMUM_BYTES, ConnectionKind.UNKNOWN, 1_000)
    assert pool.waiting > 3_000
    known = Account(lambda: None, lambda: None)
    pool.hold(known, 50_000, ConnectionKind.KNOWN, 1_000)
    pool.hold(known, 0, ConnectionKind.KNOWN, 1_000)
    assert not woken  # there is room, but not for unknown clients
    before = 0
    for _ in pool.expire(1_000 + STUCK_MS):
        assert len(closed) - before <= 1
        assert not woken
        before = len(closed)
    assert 3_000 < len(closed) < 6_000
    assert 0 < len(woken) <= 64


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (build_request(18, 3, 1, "app", b"\x02a\x02b\0"), build_response(18, 3, 1, b"\0\0\x7f\0")),
        (
            build_request(
                1, 17, 1, "app", struct.pack(">iiibii", 500, 1, 1_000, 0, 0, -1) + b"\1\1\1\0"
            ),
            build_response(1, 17, 1, struct.pack(">ihi", 0, 0, 0) + b"\xff" * 40),
        ),
    ],
)
def test_a_request_whose_answer_does_not_parse_claims_nothing_any_more(
    gateway: Make, request_: bytes, answer: bytes
) -> None:
    setup = gateway({QuotaEntity.of(user="alice"): {REQUEST: 100.0}})
    session = setup.session
    session.upstream_ready(START_MS)
    said(setup, request_)
    headroom = session.context.headroom
    assert headroom is not None
    session.broker_data(memoryview(bytearray(answer)), START_MS)
    assert session.closed is not None
    assert not any(one.claimed for one in headroom.all)
    assert all(allowance.requests == 0 for allowance in headroom.all)


def test_a_connection_keeps_few_long_client_ids_in_the_journal(gateway: Make) -> None:
    journal = UsageJournal(Kept(), 11, 1_000)  # type: ignore[arg-type]
    setup = gateway(journal=journal)
    session = setup.session
    session.upstream_ready(START_MS)
    for n in range(1, 100):
        said(setup, produce(33_000, n, client=f"{n:032000}"))
        session.broker_data(memoryview(bytearray(produced(n))), START_MS)
        session.to_client.clear()
    kept = session.origins.values()
    assert 0 < sum(len(origin.client_id) for origin in kept) <= 64_000
    assert not journal._shared


def test_rows_end_when_their_names_are_long() -> None:
    rows = Rows(4_096)
    for n in range(4_096):
        if rows.at >= rows.end:
            break
        origin = Origin("record", client_id=f"{n:032000}")
        rows.append((origin, 0.0, 1.0, None, None, None, None, None, None, None))
    assert rows.count == MOST_NAMED // 32_000 + 1
