"""Sessions at their edges: what they count, keep and read of requests as these pass."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from headgate.gateway.charging.headroom import MOST_TIMED
from headgate.gateway.charging.lanes import Lane, lane_key
from headgate.gateway.session.commands import Close
from headgate.gateway.session.relay import IN_FLIGHT_BYTES
from headgate.gateway.session.waits import Waits
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_IDS, REQUEST, QuotaKey
from kit.playbook import (
    NOTHING,
    START_MS,
    After,
    Asked,
    Closed,
    FromBroker,
    FromClient,
    Mute,
    Ready,
    ToBroker,
    ToClient,
)

from .conftest import (
    Setup,
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
from .test_edges_of_sessions import DESCRIBE_CONFIGS, question

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")


# -- what is counted and kept


def test_what_is_held_is_a_copy_since_the_buffer_it_came_in_is_used_again(gateway: Make) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0}}).play
    session = play.session
    play >> Ready() << NOTHING
    # The first may not fit, so the second is put back; the third comes while all waits.
    for said in (produce(11_000, 1) + heartbeat(2), heartbeat(3), heartbeat(4)[:9]):
        buffer = bytearray(said)
        session.client_data(memoryview(buffer), play.now_ms)
        session.to_broker[:] = [bytes(piece) for piece in session.to_broker]
        buffer[:] = bytes(len(buffer))
    assert b"".join(session.to_broker) == produce(11_000, 1)
    session.to_broker.clear()
    assert session.retains
    assert session.held_bytes == 2 * len(heartbeat()) + 9
    play >> FromBroker(produced(1)) << ToClient(produced(1, 1_000)) << Mute(1_000) << NOTHING
    play >> After(1_000) << ToBroker(heartbeat(2) + heartbeat(3)) << NOTHING
    assert session.held_bytes == 0
    assert session.partial_since_ms == play.now_ms
    play >> FromClient(heartbeat(4)[9:]) << ToBroker(heartbeat(4)) << NOTHING
    assert session.partial_since_ms == 0
    assert session.requests_taken == 4


def test_a_session_says_why_it_was_closed_once(gateway: Make) -> None:
    play = gateway().play
    session = play.session
    session.close("idle", "for ten minutes", play.now_ms)
    session.close("again", "", play.now_ms)
    assert session.commands == [Close("idle", "for ten minutes")]


def test_time_is_charged_once_with_the_next_request_or_as_that_of_sending(gateway: Make) -> None:
    setup = gateway({ALICE: {REQUEST: 50.0}})
    play, session = setup.play, setup.session
    play >> Ready() << NOTHING
    talk = [
        (heartbeat(1), beaten(1)),
        (produce(100, 2), produced(2)),
        (fetch(3), fetched(10, 3)),
    ]
    for ask, got in talk:
        play >> FromClient(ask) << ToBroker(ask) << NOTHING
        session.account_client(3_000_000)
        session.account_broker(2_000_000, play.now_ms)
        assert session.spent_ns == 5_000_000
        play >> FromBroker(got) << ToClient(got) << NOTHING
        assert (session.spent_ns, session.answer_sent) == (0, True)
        session.account_broker(1_000_000, play.now_ms)
        assert (session.spent_ns, session.answer_sent) == (0, False)
    (sensor,) = setup.rules.managers.request.sensors()
    assert sensor.peek(play.now_ms)[0] == pytest.approx(3 * 0.6 / 10)


def test_a_question_is_asked_when_it_is_whole_and_alone(gateway: Make) -> None:
    """From then on a broker's time would count."""
    play = gateway({ALICE: {REQUEST: 1.0}}, {"headgate.request.time": "upstream"}).play
    state = play.session
    play >> Ready() << NOTHING
    long = question(1, 300)
    play >> FromClient(long[:200]) << NOTHING
    assert state.begun is not None
    play.now_ms += 70
    play >> FromClient(long[200:]) << Asked(DESCRIBE_CONFIGS) << NOTHING
    assert state.asked_ms == play.now_ms
    assert state.requests_taken == 1


def test_requests_that_wait_to_be_answered_count_in_what_is_retained(gateway: Make) -> None:
    session = gateway().session
    session.upstream_ready(START_MS)
    session.client_data(memoryview(bytearray(heartbeat(1) + heartbeat(2))), START_MS)
    assert (session.retained(), session.retains) == (0, False)
    session.waits |= Waits.ANSWERS
    assert (session.retained(), session.retains) == (2 * IN_FLIGHT_BYTES, True)


def test_a_fetch_behind_an_answer_that_is_half_here_is_still_wanted(gateway: Make) -> None:
    setup = gateway({ALICE: {CONSUMER: 1e6}})
    play, session = setup.play, setup.session
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1) + fetch(2)) << ToBroker() << NOTHING
    long = answer(1, struct.pack(">ih", 0, 0) + bytes(100))
    play >> FromBroker(long[:50]) << ToClient(long[:50]) << NOTHING
    assert session.client_gone(play.now_ms)
    play >> FromBroker(long[50:]) << ToClient(long[50:]) << NOTHING
    play >> FromBroker(fetched(1_000, 2)) << ToClient(fetched(1_000, 2)) << Closed("client-gone")
    charged = len(fetched(1_000)) - 4
    assert setup.rules.managers.fetch.peek(("alice", ""), play.now_ms) == charged / 10


def test_a_newcomer_waits_for_what_another_owes(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1e6}})
    play = setup.play
    key = lane_key(PRODUCER.name, "alice", "", "alice")
    setup.rules.lanes.leave(key, Lane(play.now_ms + 500, play.now_ms, 1e6), play.now_ms)
    play >> Ready() << NOTHING
    play >> FromClient(produce(100)) << Mute(500) << NOTHING
    play >> After(500) << ToBroker(produce(100)) << NOTHING
    assert len(setup.rules.lanes) == 0


def test_a_kind_of_request_waits_once_for_what_others_owe(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1e6, REQUEST: 50.0}})
    play = setup.play
    play >> Ready() << NOTHING
    for number, said in enumerate((produce(100, 1), heartbeat(2), produce(100, 3)), 1):
        play >> FromClient(said) << ToBroker(said) << NOTHING
        play >> FromBroker(beaten(2) if number == 2 else produced(number)) << ToClient()
        key = lane_key(PRODUCER.name, "alice", "", "alice")
        setup.rules.lanes.leave(key, Lane(play.now_ms + 500, play.now_ms, 1e6), play.now_ms)
    assert len(setup.rules.lanes) == 3


# -- producer ids


def idempotent(correlation: int, version: int, *producer_ids: int) -> bytes:
    """A Produce with one batch, without records, for each of these ids."""
    batches = b"".join(
        struct.pack(">qiibihiqqqhii", 0, 49, 0, 2, 0, 0, 0, 0, 0, producer_id, 0, 0, 0)
        for producer_id in producer_ids
    )
    acks = struct.pack(">hi", -1, 1_000)
    if version < 9:
        body = string(None) + acks + struct.pack(">i", 1) + string("t")
        body += struct.pack(">iii", 1, 0, len(batches)) + batches
    else:
        size = len(batches) + 1
        body = b"\0\0" + acks + b"\x02\x02t\x02" + struct.pack(">i", 0)
        body += bytes([size & 0x7F | 0x80, size >> 7]) + batches + b"\0\0\0"
    return request(0, version, correlation, body)


@pytest.mark.parametrize("version", [7, 8, 9, 12])
def test_ids_are_read_however_a_produce_is_cut(gateway: Make, version: int) -> None:
    said = idempotent(1, version, 5, 6, 7)
    for cut in (0, 1, 40, len(said) // 2, len(said) - 2, len(said) - 1):
        setup = gateway({ALICE: {PRODUCER_IDS: 100.0}})
        play = setup.play
        play >> Ready() << NOTHING
        for piece in (said[:cut], said[cut:]):
            play.session.client_data(memoryview(bytearray(piece)), play.now_ms)
        assert b"".join(play.session.to_broker) == said
        (asked,) = play.session.unanswered
        assert asked[4] == {5, 6, 7}, cut


def test_the_shortest_request_and_the_shortest_answer_pass(gateway: Make) -> None:
    play = gateway().play
    said = request(16, 0, 1, b"", None)  # type: ignore[arg-type]
    assert len(said) == 14
    play >> Ready() << NOTHING
    play >> FromClient(said) << ToBroker(said) << NOTHING
    play >> FromBroker(answer(1, b"")) << ToClient(answer(1, b"")) << NOTHING
    play >> FromClient(request(16, 0, 2, b"")) << ToBroker() << NOTHING
    play >> FromBroker(answer(3, b"") + bytes(16)) << Closed("upstream-out-of-order") << NOTHING


@pytest.mark.parametrize("limit", [REQUEST, CONSUMER])
def test_a_fetch_whose_client_takes_no_answers_mutes_nobody_yet(
    gateway: Make, limit: QuotaKey
) -> None:
    play = gateway({ALICE: {limit: 50.0}}).play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1) + fetch(2)) << ToBroker() << NOTHING
    play.session.account_client(1_000_000)
    play.session.set_stalled(True, play.now_ms)
    assert (play.session.commands, play.session.throttled_until_ms) == ([], 0)
    play.session.set_stalled(False, play.now_ms)
    play >> FromBroker(beaten(1)) << ToClient(beaten(1)) << NOTHING


def test_a_session_is_at_rest_between_requests_only(gateway: Make) -> None:
    play = gateway().play
    session = play.session
    play >> Ready() << NOTHING
    assert session.at_rest
    for cut in (1, 13, 20):
        session.client_data(memoryview(bytearray(heartbeat(cut)[:cut])), play.now_ms)
        assert not session.at_rest
        session.client_data(memoryview(bytearray(heartbeat(cut)[cut:])), play.now_ms)
        assert not session.at_rest
        session.broker_data(memoryview(bytearray(beaten(cut)[:5])), play.now_ms)
        session.broker_data(memoryview(bytearray(beaten(cut)[5:])), play.now_ms)
        assert session.at_rest
    session.to_client.clear()


def test_ids_are_not_read_beyond_their_request(gateway: Make) -> None:
    short = idempotent(1, 7, 5)[:-1]
    short = struct.pack(">i", len(short) - 4) + short[4:]
    play = gateway({ALICE: {PRODUCER_IDS: 100.0}}).play
    play >> Ready() << NOTHING
    play >> FromClient(short + heartbeat(2)) << Closed("malformed") << NOTHING


def test_a_request_passes_to_its_last_byte_and_the_next_begins_there(gateway: Make) -> None:
    long = request(12, 3, 1, bytes(300))
    for cut in (1, 5, 100):
        play = gateway().play
        play >> Ready() << NOTHING
        play >> FromClient(long[:-cut]) << ToBroker(long[:-cut]) << NOTHING
        play >> FromClient(long[-cut:] + heartbeat(2)) << ToBroker(long[-cut:] + heartbeat(2))
        play << NOTHING
        assert [asked[2] for asked in play.session.unanswered] == [
            len(long) - 4, len(heartbeat()) - 4,
        ]  # fmt: skip


def test_what_may_not_fit_goes_on_when_all_before_it_are_answered(gateway: Make) -> None:
    play = gateway({ALICE: {REQUEST: 50.0}}).play
    many = [heartbeat(number) for number in range(1, MOST_TIMED + 2)]
    play >> Ready() << NOTHING
    play >> FromClient(b"".join(many)) << ToBroker(b"".join(many[:-1])) << NOTHING
    for number in range(1, MOST_TIMED):
        play >> FromBroker(beaten(number)) << ToClient(beaten(number)) << NOTHING
    play >> FromBroker(beaten(MOST_TIMED)) << ToBroker(many[-1]) << ToClient() << NOTHING
