"""One bound for all that is collected or held: counts of bytes, without a socket."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging.plans import build_plans
from headgate.gateway.connection.link import Link
from headgate.gateway.connection.pool import (
    MINIMUM_BYTES,
    READ_BUFFER_BYTES,
    STUCK_MS,
    Account,
    ConnectionKind,
    Pool,
    ReadBuffer,
)
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_IDS
from headgate.steps import finish

from .conftest import Nobody, Setup, StillFace, StillIdentity, answer, produce, request

Make = Callable[..., Setup]
MB = 1_000_000
LIMIT = 16 * MB
PLANS = build_plans()


class Pipe(Nobody):
    """A transport that says whether it is read, and takes all or nothing."""

    def __init__(self, side: Any) -> None:
        self.side = side
        self.read = True
        self.sent = self.waiting = 0
        self.takes = True

    def pause_reading(self) -> None:
        self.read = False

    def resume_reading(self) -> None:
        self.read = True

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def write(self, piece: Any) -> None:
        if self.takes:
            self.sent += len(piece)
            return
        self.waiting += len(piece)
        if not self.side.full:
            self.side.pause_writing()

    def writelines(self, pieces: list[Any]) -> None:
        for piece in pieces:
            self.write(piece)

    def drain(self) -> None:
        """Take everything after all."""
        self.takes, self.sent, self.waiting = True, self.sent + self.waiting, 0
        self.side.resume_writing()


class Peer:
    """A client and its broker, as transports of a link."""

    def __init__(self, house: House, session: Session) -> None:
        self.house = house
        self.link = Link(session, house.buffer, Nobody(), self._asked, self._closed)  # type: ignore[arg-type]
        self.reason: str | None = None
        self.client, self.broker = Pipe(self.link.client), Pipe(self.link.broker)
        self.link.client.connection_made(self.client)  # type: ignore[arg-type]
        self.link.broker.connection_made(self.broker)  # type: ignore[arg-type]
        self.link.upstream_ready()

    def _asked(self, *_: Any) -> None:
        return

    def _closed(self, _link: Link, reason: str, _detail: str) -> None:
        self.reason = reason

    def says(self, data: bytes | memoryview, side: str = "client") -> int:
        """Send as much as is read; return how much that was."""
        to = getattr(self.link, side)
        pipe: Pipe = getattr(self, side)
        sent = 0
        while sent < len(data) and pipe.read and self.reason is None:
            into = to.get_buffer(-1)
            piece = data[sent : sent + len(into)]
            into[: len(piece)] = piece
            to.buffer_updated(len(piece))
            sent += len(piece)
            self.house.look()
        return sent

    @property
    def held(self) -> int:
        if self.reason is not None:
            return 0
        return self.link.session.retained() + self.link.client.owed + self.link.broker.owed


class House:
    """Links of one loop, with a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: int = LIMIT) -> None:
        self.buffer = ReadBuffer(limit)
        self.pool = self.buffer.pool
        self.now_ms = 1_000
        self.peers: list[Peer] = []
        self.most = 0
        monkeypatch.setattr(
            "headgate.gateway.connection.link.time.monotonic_ns", lambda: self.now_ms * 1_000_000
        )

    def peer(self, session: Session) -> Peer:
        made = Peer(self, session)
        self.peers.append(made)
        return made

    def look(self) -> None:
        self.most = max(self.most, self.pool.used)

    def bound(self) -> int:
        return self.pool.limit + READ_BUFFER_BYTES + 2 * MINIMUM_BYTES * len(self.peers)

    def wait(self, ms: int) -> None:
        for _ in range(ms // 1_000):
            self.now_ms += 1_000
            finish(self.pool.expire(self.now_ms))

    def check(self) -> None:
        held = [peer.held for peer in self.peers]
        assert self.pool.used == sum(max(size - MINIMUM_BYTES, 0) for size in held)
        assert sum(held) <= self.bound()


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    return House(monkeypatch)


def session(setup: Setup, **options: Any) -> Session:
    identity = StillIdentity("alice", **options)
    return Session(setup.rules, identity, PLANS, StillFace())  # type: ignore[arg-type]


def share_fetch(size: int, correlation: int = 1) -> bytes:
    return request(78, 1, correlation, bytes(size))


def test_eight_share_fetches_of_100_mb_take_what_the_pool_has(gateway: Make, house: House) -> None:
    setup = gateway()
    peers = [house.peer(session(setup)) for _ in range(8)]
    piece = memoryview(bytes(MB))
    begun = share_fetch(100 * MB)[:100]
    for peer in peers:
        assert peer.says(begun) == 100
    for _ in range(99):  # none of them ends
        for peer in peers:
            peer.says(piece)
        house.check()
    assert house.most <= house.bound()
    assert house.pool.used >= LIMIT
    assert house.pool.waiting == 8
    # A small request of somebody else's passes, and one that is collected too.
    other = house.peer(session(setup))
    assert other.says(produce(1_000)) == 1_004
    assert other.says(share_fetch(4_500, 2)) > 4_500
    assert other.broker.sent > 5_000
    # Nobody waits for long: those without progress go, the largest first.
    house.wait(STUCK_MS + 1_000)
    assert [peer.reason for peer in peers].count("memory") >= 1
    assert house.pool.used <= LIMIT * 7 // 8
    assert other.reason is None
    house.check()


def test_500_unauthenticated_tokens_take_an_eighth(gateway: Make, house: House) -> None:
    setup = gateway()
    peers = [house.peer(session(setup, authenticated=False)) for _ in range(500)]
    token = request(36, 2, 1, bytes(520_000))[:-1]
    sent = [peer.says(token) for peer in peers]
    house.check()
    most = LIMIT // 8 + 2 * MINIMUM_BYTES * 500
    assert sum(peer.held for peer in peers) <= most
    assert sum(sent) <= most
    assert min(sent) <= 2 * MINIMUM_BYTES
    # A client that has authenticated isn't limited.
    known = house.peer(session(setup))
    assert known.says(share_fetch(4 * MB)) > 4 * MB
    assert known.broker.sent > 4 * MB
    house.wait(STUCK_MS + 2_000)
    assert house.pool.used <= LIMIT // 8 * 7 // 8
    fresh = house.peer(session(setup, authenticated=False))
    assert fresh.says(request(36, 2, 1, bytes(200_000))) > 200_000
    house.check()


def test_a_length_that_is_declared_takes_nothing(gateway: Make, house: House) -> None:
    setup = gateway()
    begun = share_fetch(50 * MB)[:4_000]
    for _ in range(100):
        house.peer(session(setup)).says(begun)
    assert house.pool.used == 0


def test_produce_under_a_producer_id_quota_isnt_collected(gateway: Make, house: House) -> None:
    setup = gateway({QuotaEntity.of(user="bob"): {PRODUCER_IDS: 1.0}})
    peers = [house.peer(session(setup)) for _ in range(20)]
    body = produce(2 * MB)[:-1]
    for peer in peers:
        assert peer.says(body) == len(body)
    assert house.pool.used == 0


def test_answers_that_are_collected_are_of_the_pool(gateway: Make, house: House) -> None:
    setup = gateway()
    peers = [house.peer(session(setup)) for _ in range(8)]
    said = answer(1, bytes(10 * MB))[:-1]
    for peer in peers:
        peer.says(share_fetch(100))
        peer.says(said, "broker")
    house.check()
    assert house.pool.used >= LIMIT
    assert [peer.broker.read for peer in peers].count(False) >= 6
    house.wait(STUCK_MS + 1_000)
    assert [peer.reason for peer in peers].count("memory") == 1


async def test_what_muted_clients_sent_takes_half_and_closes_none(
    gateway: Make, house: House
) -> None:
    setup = gateway({QuotaEntity.of(user="alice"): {PRODUCER: 10.0}})
    peers = [house.peer(session(setup)) for _ in range(200)]
    for peer in peers:
        peer.says(produce(5_000))
        peer.says(answer(1, _produced_body()), "broker")
        assert peer.link.session.throttled_until_ms
        peer.says(bytes(250_000))
    house.check()
    assert LIMIT // 2 <= house.pool.used <= LIMIT // 2 + 2 * MINIMUM_BYTES * 200 + 300_000
    house.wait(60_000)
    assert {peer.reason for peer in peers} == {None}
    # What the others collect has the rest.
    other = house.peer(session(gateway()))
    assert other.says(share_fetch(4 * MB)) > 4 * MB
    assert other.broker.sent > 4 * MB


def _produced_body() -> bytes:
    body = struct.pack(">i", 1) + b"\0\1t" + struct.pack(">i", 1)
    return body + struct.pack(">ihqqqi", 0, 0, 0, -1, 0, 0)


def test_clients_that_never_read_take_what_the_pool_has(gateway: Make, house: House) -> None:
    setup = gateway()
    peers = [house.peer(session(setup)) for _ in range(300)]
    for peer in peers:
        peer.says(request(12, 3, 1, bytes(200)))
        peer.client.takes = False
        peer.says(answer(1, bytes(300_000)), "broker")
        assert not peer.broker.read
    house.check()
    assert house.most <= house.bound()
    house.wait(STUCK_MS + 2_000)
    assert house.pool.used <= LIMIT
    assert len(house.buffer.memory) in (MINIMUM_BYTES, READ_BUFFER_BYTES)


def test_who_reads_again_gives_back_what_was_lent(gateway: Make, house: House) -> None:
    peer = house.peer(session(gateway()))
    peer.says(request(12, 3, 1, bytes(200)))
    peer.client.takes = False
    peer.says(answer(1, bytes(100_000)), "broker")
    assert house.pool.used > 90_000
    peer.client.drain()
    assert house.pool.used == 0
    assert peer.broker.read


def test_who_waits_is_read_again_when_there_is_room_the_smallest_first() -> None:
    pool = Pool(1_000_000)
    woken: list[str] = []
    accounts = {
        name: Account(lambda name=name: woken.append(name), lambda: None) for name in "abcd"
    }
    assert pool.hold(accounts["a"], 900_000, ConnectionKind.KNOWN, 0)
    assert not pool.hold(accounts["b"], 150_000, ConnectionKind.KNOWN, 0)
    assert not pool.hold(accounts["c"], 60_000, ConnectionKind.KNOWN, 0)
    assert pool.hold(accounts["d"], MINIMUM_BYTES, ConnectionKind.KNOWN, 0)
    pool.hold(accounts["a"], 0, ConnectionKind.KNOWN, 0)
    assert woken == ["c", "b"]
    assert pool.used == 150_000 + 60_000 - 2 * MINIMUM_BYTES


def test_a_byte_now_and_then_is_no_progress() -> None:
    pool = Pool(1_000_000)
    closed: list[str] = []
    slow = Account(lambda: None, lambda: closed.append("slow"))
    quick = Account(lambda: None, lambda: closed.append("quick"))
    pool.hold(slow, 900_000, ConnectionKind.KNOWN, 0)
    for second in range(1, 7):
        pool.hold(slow, 900_000 + second, ConnectionKind.KNOWN, second * 1_000)
        pool.hold(quick, 50_000 + second * 70_000, ConnectionKind.KNOWN, second * 1_000)
        finish(pool.expire(second * 1_000))
    assert closed == ["slow"]


def test_nobody_is_closed_while_nobody_waits() -> None:
    pool = Pool(1_000_000)
    closed: list[int] = []
    pool.hold(Account(lambda: None, lambda: closed.append(1)), 990_000, ConnectionKind.KNOWN, 0)
    finish(pool.expire(3_600_000))
    assert not closed
