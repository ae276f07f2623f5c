"""Sessions at their edges: what is kept, counted and charged where a conversation turns or ends."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging.gates import GateKey, Gates
from headgate.gateway.charging.hold import HELD, Hold
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session import answers
from headgate.gateway.session.commands import ResumeBroker
from headgate.gateway.session.fetch import FetchSession
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, REQUEST
from headgate.quota.table import QuotaTable, table_delta
from headgate.wire import apis
from headgate.wire.messages import fetch as fetch_message
from kit.playbook import (
    NOTHING,
    START_MS,
    Answer,
    Asked,
    Closed,
    FromBroker,
    FromClient,
    Mute,
    Ready,
    ToBroker,
    ToClient,
)
from kit.wire_oracles import kio_request, kio_response, random_kio

from .conftest import (
    Setup,
    StillFace,
    StillIdentity,
    answer,
    beaten,
    fetch,
    fetched,
    heartbeat,
    produce,
    produced,
    request,
    string,
)
from .enforcement_kit import T0, Client, Kept, plan_of
from .enforcement_kit import made as rules_made
from .test_edges_of_sessions import DESCRIBE_CONFIGS, described, question
from .test_session_addresses import HOST, OURS, upstreams
from .test_session_sasl import CHALLENGE, FIRST, begun, handshake, identity

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")
BOB = QuotaEntity.of(user="bob")
BAD = struct.pack(">i", 3) + bytes(14)
"""A request that is shorter than any."""


def view(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


# -- what is weighed: ``retains`` tells the shell to ask how much is kept


def test_whatever_begins_to_be_kept_has_the_shell_ask_how_much(gateway: Make) -> None:
    tokens = begun(gateway, "SCRAM-SHA-256")
    tokens.play >> FromClient(FIRST) << ToBroker(FIRST)
    muted = gateway({ALICE: {PRODUCER: 1_000.0}})
    muted.play >> Ready() << NOTHING
    muted.session.client_data(view(produce(11_000) + heartbeat(2)), START_MS)
    assert muted.session.retains
    for setup, take, more in (
        (tokens, tokens.session.broker_data, CHALLENGE[:2]),
        (muted, muted.session.client_data, heartbeat(3)),
    ):
        before = setup.session.retained()
        setup.session.retains = False
        take(view(more), START_MS)
        assert setup.session.retains
        assert setup.session.retained() == before + len(more)


def held_answer(gateway: Make, more: bytes = b"") -> tuple[Session, int]:
    """A session with an answer, and what came with it, that waits; and until when it does."""
    rules = gateway({ALICE: {CONSUMER: 10_000.0}}).rules
    first, second = (
        Session(rules, StillIdentity("alice"), build_plans(), StillFace()) for _ in range(2)
    )
    for session in (first, second):
        session.upstream_ready(START_MS)
        session.client_data(view(fetch()), START_MS)
    first.broker_data(view(fetched(150_000)), START_MS)
    assert not second.retains
    second.broker_data(view(fetched(2_000) + more), START_MS)
    assert second.made_to_wait
    assert not second.to_client
    hold = second.hold
    assert hold is not None
    return second, hold.wake_ms


def test_an_answer_that_waits_counts_and_the_broker_is_read_again_when_it_is_told(
    gateway: Make,
) -> None:
    session, until_ms = held_answer(gateway)
    assert session.retains
    assert session.retained() == len(fetched(2_000))
    session.commands.clear()
    session.wake(until_ms)
    assert len(b"".join(session.to_client)) == len(fetched(2_000))
    assert any(isinstance(command, ResumeBroker) for command in session.commands)
    assert (session.retained(), session.rules.gates.kept_bytes) == (0, 0)


def test_what_can_not_be_behind_an_answer_that_waited_closes(gateway: Make) -> None:
    session, until_ms = held_answer(gateway, struct.pack(">ii", 2, 1))
    session.wake(until_ms)
    closed = session.closed
    assert closed is not None
    assert (closed.reason, closed.detail[:17]) == ("upstream-malformed", "from the broker: ")


# -- fetches


def test_the_longest_answer_that_is_rewritten_keeps_its_addresses(
    gateway: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = kio_request(random_kio(apis.FETCH, 16, False, 5), 7, "app")

    def told(frame: bytes) -> bytes:
        session = gateway().session
        session.upstream_ready(START_MS)
        session.client_data(view(said), START_MS)
        session.broker_data(view(frame), START_MS)
        answered = b"".join(session.to_client)
        assert HOST.encode() not in answered
        return answered

    frames = (kio_response(upstreams(random_kio(apis.FETCH, 16, True, seed))) for seed in range(99))
    frame = next(frame for frame in frames if OURS.encode() in told(frame))
    for most, shown in ((len(frame), True), (len(frame) - 1, False)):
        monkeypatch.setattr(answers, "SMALL_ANSWER_BYTES", most)
        assert (OURS.encode() in told(frame)) is shown


def test_a_fetch_that_is_answered_empty_has_nothing_behind_its_throttle(gateway: Make) -> None:
    setup = gateway({ALICE: {CONSUMER: 1.0}}, {"headgate.fetch": "kafka"})
    said = kio_request(random_kio(apis.FETCH, 16, False, 5), 7, "app")
    setup.session.upstream_ready(START_MS)
    setup.session.client_data(view(said), START_MS)
    full = kio_response(upstreams(random_kio(apis.FETCH, 16, True, 3)))
    setup.session.broker_data(view(full), START_MS)
    told = b"".join(setup.session.to_client)
    assert len(told) == len(fetch_message.empty_response(16, 7, 1)) < len(full)


def test_only_a_full_fetch_closes_the_session_that_a_client_was_not_told_of() -> None:
    kept = FetchSession()

    def asked(session: int, epoch: int) -> bytes:
        data = view(fetch())
        struct.pack_into(">ii", data, 17 + 17, session, epoch)
        kept.requested(data, 11, 17)
        return bytes(data[34:42])

    asked(0, 0)
    kept.emptied(view(answer(1, struct.pack(">ihi", 0, 0, 5))), 1, 11, 100)
    for session, epoch, then in ((9, 3, (9, 3)), (9, 0, (9, 0)), (0, -1, (0, -1)), (0, 0, (5, 0))):
        assert asked(session, epoch) == struct.pack(">ii", *then)
    assert asked(0, 0) == bytes(8)  # it was closed


def test_a_held_fetch_goes_on_when_its_quota_has_gone(gateway: Make) -> None:
    session, _ = held_answer(gateway)
    rules = session.rules
    ask = fetch()[:-10] + struct.pack(">i", 1) + string("t") + bytes(4) + fetch()[-6:]
    ask = struct.pack(">i", len(ask) - 4) + ask[4:]
    second = Session(rules, StillIdentity("alice"), build_plans(), StillFace())
    second.upstream_ready(START_MS)
    second.client_data(view(ask), START_MS)
    assert second.made_to_wait
    assert not second.to_broker
    rules.update(table_delta(QuotaTable.of({ALICE: {CONSUMER: 10_000.0}}), QuotaTable()), START_MS)
    second.wake(START_MS + 70)
    assert len(b"".join(second.to_broker)) == len(ask)
    assert not second.made_to_wait
    assert second.hold is not None
    assert second.hold.take_waited() == 0  # it is written down already
    assert rules.meters.fetch_held_ms == 70


def test_a_gate_that_is_not_there_says_nothing_of_the_next() -> None:
    keys = tuple(GateKey(name, "alice", "") for name in ("one", "two"))
    gates = Gates(lambda _: None)
    gates.charged(keys[1], 500, 100.0, START_MS)
    assert Hold(gates).admit(keys, "alice", START_MS, 5_000, START_MS) == HELD


# -- requests


def test_acks_are_never_read_beyond_their_request(gateway: Make) -> None:
    """Neither where a transactional id stands before them, nor from what follows."""
    play = gateway().play
    half = request(0, 7, 1, string("tx") + b"\xff")  # the first byte of its acks
    play >> Ready() << NOTHING
    play >> FromClient(half + b"\xff" + heartbeat(2)) << Closed("malformed") << NOTHING


def test_a_fetch_that_ends_in_its_fixed_fields_closes_whatever_follows(gateway: Make) -> None:
    play = gateway({ALICE: {CONSUMER: 1e6}}).play
    play >> Ready() << NOTHING
    play >> FromClient(request(1, 11, 1, bytes(24)) + heartbeat(2)) << Closed("malformed")
    play << NOTHING


def test_each_question_counts_and_waits_for_all_before_it(gateway: Make) -> None:
    play = gateway().play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1) + heartbeat(2) + question(3)) << ToBroker() << NOTHING
    play >> FromBroker(beaten(1)) << ToClient(beaten(1)) << NOTHING
    play >> FromBroker(beaten(2)) << ToClient(beaten(2)) << Asked(DESCRIBE_CONFIGS) << NOTHING
    play >> Answer(described(3)) << ToClient(described(3)) << NOTHING
    play >> FromClient(question(4)) << Asked(DESCRIBE_CONFIGS) << NOTHING
    assert play.session.requests_taken == 4


def test_what_nobody_offers_is_refused_as_that_before_a_login_too(gateway: Make) -> None:
    for said, reason in ((request(200, 0, 1, b""), "unknown-api"),
                         (heartbeat(1), "unauthenticated")):  # fmt: skip
        play = gateway(identity=identity()).play
        play >> Ready() << NOTHING
        play >> FromClient(said) << Closed(reason) << NOTHING


def test_a_request_whose_header_came_in_two_pieces_is_half_here_no_more(gateway: Make) -> None:
    session = gateway().session
    session.upstream_ready(START_MS)
    for piece, since_ms in ((heartbeat()[:9], START_MS), (heartbeat()[9:], 0)):
        session.client_data(view(piece), START_MS)
        assert session.partial_since_ms == since_ms


def test_a_muted_client_is_made_to_wait_and_one_that_is_not_is_not(gateway: Make) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0}}).play
    play >> Ready() << NOTHING
    assert not play.session.made_to_wait
    play >> FromClient(produce(11_000)) << ToBroker() << Mute(1_000) << NOTHING
    assert play.session.made_to_wait


# -- charges


def test_the_time_of_a_brokers_next_request_begins_with_the_answer_before(gateway: Make) -> None:
    """However it came, whole or in pieces; a broker takes one request at a time."""
    for kind, ask, told in (
        ("Fetch", fetch(1), fetched(100, 1)),
        ("Heartbeat", heartbeat(1), beaten(1)),
        ("Produce", produce(200, 1), produced(1)),
    ):
        for pieces in (len(told), 30):
            setup = gateway({BOB: {REQUEST: 1.0}}, {"headgate.request.time": "upstream"})
            session, took = setup.session, []
            setup.rules._time.network = lambda *given, took=took: took.append(given[2])
            session.upstream_ready(START_MS)
            session.client_data(view(ask + produce(300, 2)), START_MS)
            session.broker_data(view(told[:pieces]), START_MS + 50)
            if told[pieces:]:
                session.broker_data(view(told[pieces:]), START_MS + 80)
            session.broker_data(view(produced(2)), START_MS + 100)
            ended_ms = 50 if not told[pieces:] else 80
            assert took[-1] == (100 - ended_ms) * 1_000_000, (kind, pieces)


def test_the_size_that_is_written_down_is_the_requests(gateway: Make) -> None:
    share = kio_request(random_kio(apis.SHARE_FETCH, 1, False, 5), 7, "app")
    shared = kio_response(random_kio(apis.SHARE_FETCH, 1, True, 5))
    offered = answer(1, struct.pack(">hi", 0, 1) + string("PLAIN"))
    for said, told in ((share, shared), (handshake(version=1), offered)):
        kept = Kept()
        setup = gateway({ALICE: {REQUEST: 50.0}}, journal=kept)
        session = setup.session
        session.upstream_ready(START_MS)
        session.client_data(view(said), START_MS)
        session.broker_data(view(told), START_MS)
        sizes = {row[1]: row[-3] for row in kept.rows if row[0] == "record"}
        assert sizes[REQUEST.name] == len(said) - 4


@pytest.mark.parametrize("when", ["the broker is there", "a question is answered"])
def test_what_was_passed_before_a_mistake_is_charged(gateway: Make, when: str) -> None:
    setup = gateway({ALICE: {PRODUCER: 1e6}})
    play, session = setup.play, setup.session
    said = produce(5_000, 2) + BAD
    if when == "the broker is there":
        session.client_data(view(said), START_MS)
        play >> Ready()
    else:
        play >> Ready() << NOTHING
        play >> FromClient(question(1) + said) << Asked(DESCRIBE_CONFIGS) << NOTHING
        play >> Answer(described(1))
    assert session.closed is not None
    assert session.closed.reason == "malformed"
    assert setup.rules.managers.produce.peek(("alice", ""), START_MS) == 500.0


def test_what_is_charged_at_a_hang_up_was_told_by_nobody(gateway: Make) -> None:
    kept = Kept()
    setup = gateway({ALICE: {REQUEST: 50.0, PRODUCER: 1e6}}, journal=kept)
    session = setup.session
    session.upstream_ready(START_MS)
    session.client_data(view(heartbeat(1) + request(12, 3, 2, bytes(300))[:200]), START_MS)
    assert session.begun is not None
    session.close("client-gone", "", START_MS)
    (row,) = (row for row in kept.rows if row[0] == "record")
    assert (row[1], row[5:7]) == (REQUEST.name, (0, 25))  # no mute; and nothing was produced


def test_a_produce_that_is_answered_before_it_is_all_here_is_charged_once(gateway: Make) -> None:
    """No broker does that. Its rest never passes."""
    setup = gateway({ALICE: {PRODUCER: 1e6}})
    session = setup.session
    session.upstream_ready(START_MS)
    session.client_data(view(produce(5_000)[:3_000]), START_MS)
    session.broker_data(view(produced()), START_MS)
    session.close("client-gone", "", START_MS)
    assert setup.rules.managers.produce.peek(("alice", ""), START_MS) == 299.6


def test_a_refused_topic_is_written_down_as_given_back_without_a_throttle() -> None:
    rules, kept = rules_made({ALICE: {MUTATION: 1.0}})
    client: Any = Client()
    context, plan = rules.context("alice", "c"), plan_of(apis.CREATE_TOPICS, 5)
    rules.mutations.quota(context, plan, T0).record(20, T0)
    rules.mutations.give_back(client, context, plan, 5)
    assert kept.rows[-1] == ("unrecord", MUTATION.name, T0, 5, (0, "alice", "", 1.0))


# -- headroom
