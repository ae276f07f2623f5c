"""What one client can leave to be done in one piece: charges, ends, gates, each a few at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging.headroom import (
    MOST_EARLY,
    MOST_EARLY_CLIENTS,
    Allowance,
    Headroom,
    IdAllowance,
)
from headgate.gateway.session.session import Session
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER
from kit.playbook import START_MS

from .conftest import Setup, StillFace, StillIdentity, fetch, plans, produce, produced
from .enforcement_kit import T0, Client

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")


def session_of(setup: Setup, principal: str = "alice") -> Session:
    made = Session(setup.rules, plans(pass_unknown=False), StillIdentity(principal), StillFace())
    made.upstream_ready(START_MS)
    return made


def reads(session: Session, said: bytes) -> None:
    session.client_data(memoryview(bytearray(said)), START_MS)


def uncharged(session: Session) -> int:
    claims = [asked[6] for asked in session.state.unanswered]
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
    seen = []
    answered = 0
    while session.state.unanswered:
        seen.append(len(session.state.unanswered))
        for _ in range(seen[-1]):
            answered += 1
            session.broker_data(memoryview(bytearray(produced(answered))), START_MS)
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
