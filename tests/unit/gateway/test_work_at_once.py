"""What one client can leave to be done in one piece: charges, ends, gates, each a few at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging import fetch_gate, lanes
from headgate.gateway.charging.fetch_gate import GateKey, Gates
from headgate.gateway.charging.headroom import (
    MOST_EARLY,
    MOST_EARLY_CLIENTS,
    Allowance,
    Headroom,
    IdAllowance,
)
from headgate.gateway.charging.lanes import FORGOTTEN_AT_ONCE, Lane, LaneBook, lane_key
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.session import Session
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_BPS
from kit.playbook import START_MS

from .conftest import Setup, StillFace, StillIdentity, fetch, gone_on, produce, produced
from .enforcement_kit import T0, Client

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")


def session_of(setup: Setup, principal: str = "alice") -> Session:
    made = Session(setup.rules, StillIdentity(principal), build_plans(), StillFace())
    made.upstream_ready(START_MS)
    return made


def reads(session: Session, said: bytes) -> None:
    session.client_data(memoryview(bytearray(said)), START_MS)


def uncharged(session: Session) -> int:
    claims = [asked[6] for asked in session.unanswered]
    return sum(isinstance(claim, Headroom) for claim in claims)


def counting_charges(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    charged: list[int] = []
    charge = setup.rules.produce

    def counted(*args: Any) -> int:
        charged.append(args[3])
        return charge(*args)

    monkeypatch.setattr(setup.rules, "produce", counted)
    return charged


# -- early requests


def test_a_request_that_does_not_fit_has_a_bounded_number_of_others_charged(
    gateway: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = gateway({ALICE: {PRODUCER: 1e6}})
    poll = fetch(1)
    small = b"".join(produce(70, n) for n in range(2, 1_000))
    sessions = [session_of(setup) for _ in range(8)]
    for session in sessions:
        reads(session, poll + small)
    # Each has one besides, on which nothing follows.
    assert MOST_EARLY <= sum(map(uncharged, sessions)) <= MOST_EARLY + len(sessions)
    charged = counting_charges(setup, monkeypatch)
    big = session_of(setup)
    reads(big, produce(20_000_000, 1))
    assert len(charged) == MOST_EARLY
    assert uncharged(big) == 1


def test_beyond_the_bound_a_connection_goes_on_when_its_requests_are_answered(
    gateway: Make,
) -> None:
    setup = gateway({ALICE: {PRODUCER: 1e6}})
    session = session_of(setup)
    said = b"".join(produce(70, n) for n in range(1, 1_201))
    reads(session, said)
    gone_on(session)
    seen = []
    answered = 0
    while session.unanswered:
        seen.append(len(session.unanswered))
        for _ in range(seen[-1]):
            answered += 1
            session.broker_data(memoryview(bytearray(produced(answered))), START_MS)
            gone_on(session)
    assert seen == [MOST_EARLY, MOST_EARLY, 200]
    assert b"".join(map(bytes, session.to_broker)) == said
    allowance = setup.rules.context("alice", "app").headroom.bytes[0]  # type: ignore[union-attr]
    assert (allowance.claimed, allowance.requests) == (0, 0)


@pytest.mark.parametrize("limits", ["bytes", "ids"])
def test_requests_are_counted_until_they_are_charged(limits: str) -> None:
    spare = IdAllowance(lambda: 1e9, {}) if limits == "ids" else Allowance(lambda: 1e9, {})
    room = Headroom((), spare) if isinstance(spare, IdAllowance) else Headroom((spare,))
    client: Any = Client()
    for _ in range(MOST_EARLY):
        assert room.fits(1, T0)
        assert room.claim_at_once(client, 1) or room.claim(client, 1, {7}, T0)
    assert spare.weight == MOST_EARLY + 1
    assert not room.fits(1, T0)
    assert not room.claim_at_once(client, 1)
    assert not room.claim(client, 1, {7}, T0)
    assert client.charged_early == 1  # when it first claimed: nothing more than is there was asked
    for _ in range(2):
        room.release(1, {7})
    assert room.fits(1, T0)
    assert room.claim(client, 1, {7}, T0)
    for _ in range(MOST_EARLY):
        room.release(1, {7})
    assert (spare.requests, spare.claimed) == (0, 0)


def test_connections_that_may_have_early_requests_are_bounded_the_first_is_charged() -> None:
    used: dict[Allowance, None] = {}
    one, other = Allowance(lambda: 1e9, used), Allowance(lambda: 1e9, used)
    room = Headroom((one, other))
    clients: list[Any] = [Client() for _ in range(MOST_EARLY_CLIENTS + 5)]
    for client in clients:
        assert room.claim(client, 1, None, T0)
        room.release(1, None)
    for allowance in (one, other):
        assert list(allowance.early) == clients[5:]
    assert [client.early_in for client in clients[:6]] == [None] * 5 + [room]
    one.settle(T0)
    assert not one.early
    assert not other.early
    assert {client.charged_early for client in clients} == {2}


def test_a_change_settles_by_the_number_of_requests(
    gateway: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = gateway({QuotaEntity.of(user=DEFAULT): {PRODUCER: 1e6}})
    sessions = [session_of(setup, f"u{n}") for n in range(30)]
    for session in sessions:
        reads(session, fetch(1) + b"".join(produce(70, n) for n in range(2, 302)))
    assert sum(map(uncharged, sessions)) == 9_000
    charged = counting_charges(setup, monkeypatch)
    by_step = [0, *(len(charged) for _ in setup.rules.contexts.settling(lambda: START_MS))]
    assert len(charged) == 9_000
    assert max(b - a for a, b in itertools.pairwise([*by_step, 9_000])) <= 2 * MOST_EARLY


@pytest.mark.parametrize("what", ["assigned", "brokers"])
def test_a_share_moves_in_steps_too_and_nothing_goes_early_meanwhile(
    gateway: Make, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    zed = QuotaEntity.of(user="zed")
    setup = gateway({QuotaEntity.of(user=DEFAULT): {PRODUCER: 1e6}, zed: {PRODUCER_BPS: 1e6}})
    sessions = [session_of(setup, f"u{n}") for n in range(30)]
    small = b"".join(produce(70, n) for n in range(1, 301))
    for session in sessions[:20]:
        reads(session, small)
    charged = counting_charges(setup, monkeypatch)
    manager = setup.rules.managers.produce_bps
    manager.record("zed", "c", 1, START_MS)
    if what == "assigned":
        work = manager.assigning([(("zed", ""), 5e5)], lambda: START_MS, START_MS + 9_000)
    else:
        work = manager.sharing_among(3, lambda: START_MS)
    by_step = [0]
    for _ in work:
        by_step.append(len(charged))
        if len(by_step) == 5:
            for session in sessions[20:]:
                reads(session, small)
    assert len(charged) == 20 * 300
    assert max(b - a for a, b in itertools.pairwise([*by_step, len(charged)])) <= 2 * MOST_EARLY
    assert [uncharged(session) for session in sessions] == [0] * 20 + [1] * 10
    assert manager.bound_in_force(("zed", "")) == {"assigned": 5e5, "brokers": 1e6 / 3}[what]


# -- ends of mutes


def key(name: str) -> Any:
    return lane_key("p", name, "", "")


def test_ends_that_are_over_are_forgotten_a_few_at_a_time() -> None:
    book = LaneBook()
    for n in range(1_000):
        book.leave(key(f"u{n}"), Lane(1_000 + n, 0, 1.0), 0)
    sizes = [len(book)]
    for n in range(20):
        book.leave(key(f"v{n}"), Lane(90_000 + n, 0, 1.0), 50_000)
        sizes.append(len(book))
    fewer = [a - b for a, b in itertools.pairwise(sizes)]
    assert max(fewer) == FORGOTTEN_AT_ONCE - 1  # one came
    assert sizes[-1] == 20
    assert all(book.take(key(f"v{n}"), 50_000) is not None for n in range(20))


def test_ends_that_were_taken_are_passed_over_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "MOST_LANES", 800)
    pops = 0
    pop = lanes.heappop

    def counted(heap: list[Any]) -> Any:
        nonlocal pops
        pops += 1
        return pop(heap)

    book = LaneBook()
    for n in range(799):
        book.leave(key(f"u{n}"), Lane(90_000 + n, 0, 1.0), 0)
    for n in range(1_600):  # left and taken: their ends are gone, and first
        book.leave(key("x"), Lane(1_000 + n, 0, 1.0), 0)
        assert book.take(key("x"), 0) is not None
    monkeypatch.setattr(lanes, "heappop", counted)
    sizes = []
    for n in range(100):
        before = pops
        book.leave(key(f"v{n}"), Lane(200_000 + n, 0, 1.0), 0)
        assert pops - before <= 2 * FORGOTTEN_AT_ONCE
        sizes.append(len(book))
    assert max(sizes) <= 800 + 1_600 // FORGOTTEN_AT_ONCE + 1
    assert sizes[-1] == 800  # the earliest were dropped
    assert [book.take(key(f"u{n}"), 0) is None for n in (0, 98, 99)] == [True, True, False]


def test_the_heap_of_ends_is_made_again_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pushes = 0
    push = lanes.heappush

    def counted(heap: list[Any], item: Any) -> None:
        nonlocal pushes
        pushes += 1
        push(heap, item)

    monkeypatch.setattr(lanes, "heappush", counted)
    monkeypatch.setattr(lanes, "heapify", lambda _: pytest.fail("all at once"))
    book = LaneBook()
    for n in range(1_000):
        book.leave(key(f"u{n}"), Lane(90_000 + n, 0, 1.0), 0)
    most = 0
    for n in range(6_000):
        before = pushes
        book.leave(key(f"x{n}"), Lane(1_000 + n, 0, 1.0), 0)
        most = max(most, pushes - before)
        if n < 5_990:
            assert book.take(key(f"x{n}"), 0) is not None
        assert len(book._ends) <= 2 * 1_000 + 1_024 + 30
    assert most <= FORGOTTEN_AT_ONCE + 3
    assert len(book) == 1_010
    # Every end that is left is still known: all are forgotten when they are over.
    for n in range(20):
        book.leave(key(f"y{n}"), Lane(900_000, 0, 1.0), 500_000)
    for n in range(60):
        book.leave(key(f"z{n}"), Lane(900_000, 0, 1.0), 500_000)
    assert len(book) == 80


def test_a_newcomer_passes_over_thousands_of_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pops = 0
    pop = lanes.heappop

    def counted(heap: list[Any]) -> Any:
        nonlocal pops
        pops += 1
        return pop(heap)

    book = LaneBook()
    for n in range(3_000):
        book.leave(key("u"), Lane(1_000 + n, 0, 1.0), 0)
    for end_ms in (90_002, 90_001, 90_003):
        book.leave(key("u"), Lane(end_ms, 0, 1.0), 0)
    monkeypatch.setattr(lanes, "heappop", counted)
    assert book.take(key("u"), 50_000) == Lane(90_001, 0, 1.0)
    assert pops == FORGOTTEN_AT_ONCE + 1
    assert len(book) == 2
    assert [book.take(key("u"), 50_000).end_ms for _ in "ab"] == [90_002, 90_003]  # type: ignore[union-attr]
    for n in range(FORGOTTEN_AT_ONCE):
        book.leave(key("u"), Lane(91_000 + n, 0, 1.0), 50_000)
    assert book.take(key("u"), 99_000) is None
    assert (len(book), book._named) == (0, 0)
    for n in range(FORGOTTEN_AT_ONCE + 9):
        book.leave(key("u"), Lane(91_000 + n, 0, 1.0), 50_000)
    assert book.take(key("u"), 99_000) is None
    assert (len(book), book._named) == (0, 0)


# -- gates


def test_gates_make_room_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_gate, "MOST_GATES", 1_000)
    gates = Gates(lambda _key: None)
    gates._most = 1_000
    sizes = []
    for n in range(1_012):
        now_ms = n if n < 1_000 else 100_000
        gates.charged(GateKey("q", f"u{n}", ""), 50, 100.0, now_ms)
        sizes.append(len(gates))
    assert max(sizes) == 1_000
    fewer = [a - b for a, b in itertools.pairwise(sizes)]
    assert max(fewer) == 127  # 128 are looked at, and one came
    assert len(gates) == 12  # those that came since, and are closed
    gates.charged(GateKey("q", "u9999", ""), 0, 100.0, 100_000)
    assert len(gates) == 12
