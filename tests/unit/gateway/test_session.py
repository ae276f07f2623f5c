"""A session is a conversation: what comes in, what goes out, when the client waits."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.requests import HELD_BYTES, MAX_IN_FLIGHT
from headgate.gateway.session.session import Session
from headgate.gateway.session.waits import Waits
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST, QuotaKey
from headgate.quota.table import QuotaTable, table_delta
from kit.playbook import (
    ANY,
    NOTHING,
    After,
    Closed,
    FromBroker,
    FromClient,
    Mute,
    Pause,
    Playbook,
    Ready,
    Resume,
    ToBroker,
    ToClient,
)

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
)

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")


def test_what_the_client_says_early_waits_for_the_upstream(gateway: Make) -> None:
    play = gateway().play
    play >> FromClient(heartbeat()) << NOTHING
    play >> Ready() << ToBroker(heartbeat()) << NOTHING


@pytest.mark.parametrize("pieces", [0, 1, 3, 13, 14, 15, 64])
def test_bytes_pass_unchanged_however_they_are_cut(gateway: Make, pieces: int) -> None:
    play = gateway().play
    said = heartbeat(1) + produce(5_000, 2) + fetch(3) + heartbeat(4)
    told = beaten(1) + produced(2) + fetched(3_000, 3) + beaten(4)
    play >> Ready() << NOTHING
    play >> FromClient(said, pieces) << ToBroker(said) << NOTHING
    play >> FromBroker(told, pieces) << ToClient(told) << NOTHING
    assert play.session.at_rest


def test_a_client_without_quotas_is_pipelined(gateway: Make) -> None:
    play = gateway({QuotaEntity.of(user="bob"): {PRODUCER: 1.0}}).play
    play >> Ready() << NOTHING
    play >> FromClient(produce(90_000, 1)) << ToBroker()
    play >> FromClient(produce(90_000, 2)) << ToBroker()
    assert play.session.in_flight == 2


@pytest.mark.parametrize(
    ("quota", "said", "told"),
    [
        (REQUEST, heartbeat, beaten),  # 0.9 ms in 9 s: any request's time may be too long
        (REQUEST, produce, produced),
        (CONSUMER, fetch, fetched),  # nobody knows how large the answer will be
        (PRODUCER, produce, produced),  # 12,000 bytes in 9 s are more than 1,000 B/s
    ],
)
def test_a_request_that_may_be_throttled_is_alone_in_flight(
    gateway: Make, quota: QuotaKey, said: Any, told: Any
) -> None:
    play = gateway({ALICE: {quota: 0.01 if quota is REQUEST else 1_000.0}}).play
    one = produce(10_000, 1) if said is produce else said(1)
    two = heartbeat(2) if said is heartbeat else produce(2_000, 2)
    answered = told(100, 1) if told is fetched else told(1)
    play >> Ready() << NOTHING
    play >> FromClient(one + two) << ToBroker(ANY) << NOTHING
    assert play.session.waits == Waits.ANSWER
    play >> FromBroker(answered) << ToBroker(two) << ToClient(answered) << NOTHING


@pytest.mark.parametrize("pacing", ["kafka", "smooth"])
def test_requests_that_no_quota_can_throttle_are_pipelined(gateway: Make, pacing: str) -> None:
    paced = {"headgate.pacing": pacing, "headgate.pacing.burst.seconds": "9"}
    play = gateway({ALICE: {PRODUCER: 1_000.0, CONSUMER: 1_000.0}}, paced).play
    early = heartbeat(1) + produce(4_000, 2) + produce(4_999, 3) + heartbeat(4)
    late = produce(60, 5)  # 8,999 bytes are sure to pass, whatever the clock does
    play >> Ready() << NOTHING
    play >> FromClient(early + late + heartbeat(6)) << ToBroker(early) << NOTHING
    play >> FromBroker(beaten(1) + produced(2)) << ToClient() << NOTHING
    play >> FromBroker(produced(3)) << ToClient() << NOTHING
    play >> FromBroker(beaten(4)) << ToBroker(late) << ToClient() << NOTHING
    # The bucket is short of 59 bytes, the rate over ten seconds nowhere near its bound.
    if pacing == "smooth":
        play >> FromBroker(produced(5)) << ToClient(produced(5, throttle_ms=59)) << Mute(59)
        play >> After(59)
        play << ToBroker(heartbeat(6))
    else:
        play >> FromBroker(produced(5)) << ToBroker(heartbeat(6)) << ToClient(produced(5))


def test_what_another_connection_has_in_flight_is_charged_where_both_may_not_fit(
    gateway: Make,
) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    play, charged = setup.play, setup.rules.managers.produce
    other = Playbook(Session(setup.rules, StillIdentity("alice"), build_plans(), StillFace()))
    other >> Ready() << NOTHING
    play >> Ready() << NOTHING
    other >> FromClient(produce(6_000, 1) + produce(2_000, 2)) << ToBroker()
    assert charged.peek(("alice", ""), play.now_ms) == 0.0
    # 11,000 in all might be too many: nobody waits, but from here on nothing is early.
    play >> FromClient(produce(3_000, 1) + produce(90, 2)) << ToBroker(produce(3_000, 1)) << NOTHING
    assert charged.peek(("alice", ""), play.now_ms) == 800.0
    other >> FromClient(produce(100, 3) + produce(100, 4)) << NOTHING
    # The first two were certain to get no throttle, and get none, in either order.
    play >> FromBroker(produced(1)) << ToClient(produced(1, 1_000)) << Mute(1_000)
    other >> FromBroker(produced(1) + produced(2)) << ToBroker(produce(100, 3))
    other << ToClient(produced(1) + produced(2)) << NOTHING
    other >> FromBroker(produced(3)) << ToClient(produced(3, 1_100)) << Mute(1_100)
    assert charged.peek(("alice", ""), play.now_ms) == 1_110.0


def test_nobody_waits_for_a_half_sent_request(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    others = [
        Playbook(Session(setup.rules, StillIdentity("alice"), build_plans(), StillFace()))
        for _ in range(10)
    ]
    for other in others:
        other >> Ready() << NOTHING
        other >> FromClient(produce(8_000, 1)[:-1]) << ToBroker()
    play = setup.play
    said = produce(4_000, 1) + produce(4_999, 2)
    play >> Ready() << NOTHING
    play >> FromClient(said) << ToBroker(said) << NOTHING
    assert play.session.in_flight == 2


def test_nobody_loses_room_to_a_client_that_takes_no_answers(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    play = setup.play
    other = Playbook(Session(setup.rules, StillIdentity("alice"), build_plans(), StillFace()))
    other >> Ready() << NOTHING
    play >> Ready() << NOTHING
    other >> FromClient(produce(11_000, 2)) << ToBroker() << NOTHING
    other.session.set_stalled(True, play.now_ms)  # its answers aren't even read
    assert other.session.throttled_until_ms == play.now_ms + 1_000  # as at a broker
    play >> After(12_000)
    play >> FromClient(produce(60, 0)) << ToBroker()
    play >> FromBroker(produced(0)) << ToClient(produced(0))  # measuring forgets what is old
    said = produce(4_000, 1) + produce(4_939, 2)
    play >> FromClient(said) << ToBroker(said) << NOTHING
    other.session.commands.clear()
    other.session.set_stalled(False, play.now_ms)
    other >> After(12_000)
    other >> FromBroker(produced(2)) << ToClient(produced(2, 1_000))
    other >> FromClient(produce(100, 3)) << ToBroker()


def test_what_a_closed_connection_had_in_flight_is_charged(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    play, charged = setup.play, setup.rules.managers.produce
    play >> Ready() << NOTHING
    play >> FromClient(produce(8_000, 1) + produce(500, 2)[:304]) << ToBroker()
    assert charged.peek(("alice", ""), play.now_ms) == 0.0
    play >> FromBroker(b"\0\0\0\0\0\0\0\0") << Closed("upstream-malformed")
    # All of the first; of the second what was passed, but its length field.
    assert charged.peek(("alice", ""), play.now_ms) == 830.0
    other = Playbook(Session(setup.rules, StillIdentity("alice"), build_plans(), StillFace()))
    other >> Ready() << NOTHING
    said = produce(600, 1) + produce(99, 2)
    other >> FromClient(said) << ToBroker(said) << NOTHING


def test_client_is_told_and_muted_for_the_throttle_time(gateway: Make) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0}}).play  # 11 samples of 1 s
    one, two = produce(11_000, 1), produce(100, 2)
    play >> Ready() << NOTHING
    play >> FromClient(one) << ToBroker(one)
    # Kafka counts what the length field says: 11,000 over 10 s is 1,100 B/s.
    play >> FromBroker(produced(1)) << ToClient(produced(1, 1_000)) << Mute(1_000)
    assert play.session.waits == Waits.THROTTLE
    play >> FromClient(two) << NOTHING
    play >> After(999) << Mute(1)
    play >> After(1) << ToBroker(two) << NOTHING
    assert play.session.waits == Waits.ANSWER


def test_the_larger_of_upstreams_throttle_and_ours_is_told(gateway: Make) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0}}).play
    play >> Ready() << NOTHING
    play >> FromClient(produce(11_000, 1)) << ToBroker()
    play >> FromBroker(produced(1, 5_000)) << ToClient(produced(1, 5_000)) << Mute(1_000)


def test_acks_0_has_no_answer_but_mutes(gateway: Make) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0}}).play
    one, two = produce(11_000, 1, acks=0), heartbeat(2)
    play >> Ready() << NOTHING
    play >> FromClient(one + two, 4_096) << ToBroker(one) << Mute(1_000) << NOTHING
    assert play.session.in_flight == 0
    play >> After(1_000) << ToBroker(two)
    play >> FromBroker(beaten(2)) << ToClient(beaten(2)) << NOTHING


def test_acks_0_is_exempt_from_the_request_quota(gateway: Make) -> None:
    setup = gateway({ALICE: {REQUEST: 0.001}})
    play, request = setup.play, setup.rules.managers.request
    play >> Ready() << NOTHING
    play >> FromClient(produce(500, 1)) << ToBroker()
    setup.session.account_client(5_000_000)
    play >> FromBroker(produced(1)) << ToClient(produced(1, 1_000)) << Mute(1_000)
    play >> After(1_000)
    play.said.clear()
    charged = request.peek(("alice", ""), play.now_ms)
    setup.session.account_client(5_000_000)
    play >> FromClient(produce(500, 2, acks=0), 4_096) << ToBroker() << NOTHING  # and no Mute
    assert request.peek(("alice", ""), play.now_ms) == charged


def test_a_fetch_is_delivered_charged_told_and_muted(gateway: Make) -> None:
    play = gateway({ALICE: {CONSUMER: 1_000.0}}).play
    asked = fetch(1, max_bytes=52_428_800, min_bytes=20_000)
    capped = fetch(1, max_bytes=10_000, min_bytes=10_000)
    full = fetched(11_000)
    size = len(full) - 4 + 4 - 4  # Kafka's: 4 + body = the frame's length field
    expected = round((size / 10 - 1_000) / 1_000 * 10_000)
    play >> Ready() << NOTHING
    play >> FromClient(asked) << ToBroker(capped)
    told = fetched(11_000, 1, expected)
    play >> FromBroker(full, 1_000) << ToClient(told[:1_000]) << Mute(expected)
    play << ToClient(told[1_000:])


def test_a_mute_begins_when_it_is_decided_however_long_the_answer_takes(gateway: Make) -> None:
    play = gateway({ALICE: {CONSUMER: 1_000.0}}).play
    full = fetched(15_000)
    expected = round(((len(full) - 4) / 10 - 1_000) / 1_000 * 10_000)
    play >> Ready() << NOTHING
    play >> FromClient(fetch(1, max_bytes=10_000)) << ToBroker()
    play >> FromBroker(full[:1_000]) << ToClient() << Mute(expected)
    play >> FromClient(heartbeat(2)) << NOTHING
    play >> After(expected - 1_000) << Mute(1_000)
    play >> FromBroker(full[1_000:]) << ToClient()
    play >> After(1_000) << ToBroker(heartbeat(2))


def test_a_mute_that_is_over_before_its_answer_has_come_waits_for_that(gateway: Make) -> None:
    play = gateway({ALICE: {CONSUMER: 1_000.0}}).play
    full = fetched(11_000)
    play >> Ready() << NOTHING
    play >> FromClient(fetch(1, max_bytes=10_000)) << ToBroker()
    play >> FromBroker(full[:1_000]) << ToClient()
    expected = play.said.pop(0).ms
    play >> FromClient(heartbeat(2)) << NOTHING
    play >> After(expected) << NOTHING
    play >> FromBroker(full[1_000:]) << ToBroker(heartbeat(2)) << ToClient()


def test_an_answer_before_the_end_of_its_request_doesnt_lock_the_client_out(gateway: Make) -> None:
    play = gateway({ALICE: {PRODUCER: 1e9}}).play
    one = produce(1_000, 1)
    play >> Ready() << NOTHING
    play >> FromClient(one[:500]) << ToBroker(one[:500])
    play >> FromBroker(produced(1)) << ToClient(produced(1))
    play >> FromClient(one[500:] + heartbeat(2)) << ToBroker(one[500:] + heartbeat(2))


def test_limits_set_while_requests_are_in_flight_hold_from_then_on(gateway: Make) -> None:
    setup = gateway()
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(produce(20_000, 1)) << ToBroker()
    play >> FromClient(produce(20_000, 2)) << ToBroker()
    _change(setup, {}, {ALICE: {PRODUCER: 1_000.0}})
    play >> FromBroker(produced(1)) << ToClient(produced(1, 10_000)) << Mute(10_000)
    assert play.session.waits == Waits.THROTTLE | Waits.ANSWER
    play >> FromBroker(produced(2)) << ToClient(produced(2, 30_000)) << Mute(30_000)
    assert play.session.waits == Waits.THROTTLE
    play >> FromClient(heartbeat(3)) << NOTHING
    play >> After(10_000) << Mute(20_000)
    play >> After(20_000) << ToBroker(heartbeat(3))


def test_a_throttle_in_the_middle_of_a_request_lets_the_rest_of_it_through(gateway: Make) -> None:
    setup = gateway()
    play = setup.play
    two = produce(20_000, 2)
    play >> Ready() << NOTHING
    play >> FromClient(produce(20_000, 1) + two[:5_000]) << ToBroker()
    _change(setup, {}, {ALICE: {PRODUCER: 1_000.0}})
    play >> FromBroker(produced(1)) << ToClient(produced(1, 10_000)) << Mute(10_000)
    play >> FromClient(two[5_000:] + heartbeat(3)) << ToBroker(two[5_000:]) << NOTHING
    play >> FromBroker(produced(2)) << ToClient(produced(2, 30_000)) << Mute(30_000)
    play >> After(30_000) << ToBroker(heartbeat(3)) << NOTHING


def test_a_client_that_is_never_answered_is_held_at_a_bound(gateway: Make) -> None:
    play = gateway().play
    play >> Ready() << NOTHING
    many = b"".join(heartbeat(n) for n in range(MAX_IN_FLIGHT + 10))
    play >> FromClient(many)
    assert play.session.in_flight == MAX_IN_FLIGHT
    play.said.clear()
    play >> FromBroker(b"".join(beaten(n) for n in range(MAX_IN_FLIGHT - 1))) << ToClient()
    assert play.session.in_flight == 1
    last = b"".join(heartbeat(n) for n in range(MAX_IN_FLIGHT, MAX_IN_FLIGHT + 10))
    play >> FromBroker(beaten(MAX_IN_FLIGHT - 1)) << ToBroker(last) << ToClient()


def test_lifting_a_quota_lets_a_client_pipeline_again(gateway: Make) -> None:
    setup = gateway({ALICE: {REQUEST: 0.01}})
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1) + heartbeat(2)) << ToBroker(heartbeat(1))
    _change(setup, {ALICE: {REQUEST: 0.01}}, {})
    play >> FromBroker(beaten(1)) << ToBroker(heartbeat(2)) << ToClient(beaten(1))
    play >> FromClient(heartbeat(3)) << ToBroker(heartbeat(3))


def test_exempt_principals_are_measured_never_throttled(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}}, {"headgate.exempt.principals": "User:alice"})
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(produce(50_000, 1)) << ToBroker()
    play >> FromBroker(produced(1)) << ToClient(produced(1)) << NOTHING
    assert setup.rules.managers.produce.peek(("alice", ""), play.now_ms) == 5_000.0


def test_observe_measures_and_throttles_nobody(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}}, {"headgate.enforce": "observe"})
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(produce(50_000, 1) + heartbeat(2)) << ToBroker()
    play >> FromBroker(produced(1) + beaten(2)) << ToClient(produced(1) + beaten(2)) << NOTHING
    assert setup.rules.managers.produce.peek(("alice", ""), play.now_ms) == 5_000.0


def test_request_time_is_charged_with_a_check_and_network_time_without(gateway: Make) -> None:
    setup = gateway({ALICE: {REQUEST: 1.0}})  # 10 ms of thread time per s
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1)) << ToBroker()
    play.session.account_client(50_000_000)
    play >> FromBroker(beaten(1)) << ToClient(beaten(1)) << NOTHING  # 5 % s over 10 s: 0.5
    play.session.account_broker(200_000_000, play.now_ms)  # unchecked: nothing happens now
    play >> FromClient(heartbeat(2)) << ToBroker()
    # 25 % s over 10 s is 2.5, of 1: 15 s, capped at one window.
    play >> FromBroker(beaten(2)) << ToClient(beaten(2, 1_000)) << Mute(1_000)


def test_the_upstreams_time_may_be_charged_instead_of_ours(gateway: Make) -> None:
    setup = gateway({ALICE: {REQUEST: 1.0}}, {"headgate.request.time": "upstream"})
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1)) << ToBroker()
    play >> After(200) << NOTHING  # 20 % s over 10 s is 2, of 1: 10 s, capped at one window
    play >> FromBroker(beaten(1)) << ToClient(beaten(1, 1_000)) << Mute(1_000)
    play >> After(1_000) << NOTHING
    play >> FromClient(fetch(2)) << ToBroker()
    play >> After(500)
    play >> FromBroker(fetched(10, 2))
    # A long poll's wait isn't charged: still 20 % s in the window, not 70.
    assert setup.rules.managers.request.peek(("alice", ""), play.now_ms) < 3


def test_ties_go_to_the_request_quota(gateway: Make) -> None:
    setup = gateway({ALICE: {REQUEST: 0.1, PRODUCER: 1_000.0}})
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(produce(11_000, 1)) << ToBroker()
    play.session.account_client(1_000_000_000)
    play >> FromBroker(produced(1)) << ToClient(produced(1, 1_000)) << Mute(1_000)
    assert play.session.muted_by.key == "request_percentage"
    assert list(setup.rules.meters.throttled) == ["request_percentage"]


def test_what_a_muted_client_sends_is_held_up_to_a_bound(gateway: Make) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0, REQUEST: 0.01}}).play
    one = produce(11_000, 1)
    many = b"".join(heartbeat(n) for n in range(2, 10_000))
    play >> Ready() << NOTHING
    play >> FromClient(one) << ToBroker(one)
    play >> FromBroker(produced(1)) << ToClient(produced(1, 1_000)) << Mute(1_000)
    play >> FromClient(many[:HELD_BYTES]) << NOTHING
    play >> FromClient(many[HELD_BYTES : HELD_BYTES + 1]) << Pause() << NOTHING
    play >> After(1_000) << ToBroker(heartbeat(2)) << NOTHING
    for number in range(2, 10_000):
        play >> FromBroker(beaten(number))
        resumed = Resume() in play.said
        play.said.clear()
        if resumed:
            break
    assert HELD_BYTES // 2 - 100 <= play.session.held_bytes <= HELD_BYTES // 2


def test_a_client_id_counts_from_the_request_that_names_it(gateway: Make) -> None:
    quotas = {QuotaEntity.of(client_id="slow"): {PRODUCER: 1_000.0}}
    play = gateway(quotas).play
    play >> Ready() << NOTHING
    play >> FromClient(produce(11_000, 1, client="fast")) << ToBroker()
    play >> FromBroker(produced(1)) << ToClient(produced(1)) << NOTHING
    play >> FromClient(produce(11_000, 2, client="slow")) << ToBroker()
    play >> FromBroker(produced(2)) << ToClient(produced(2, 1_000)) << Mute(1_000)


def test_answers_without_the_field_only_mute(gateway: Make) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0}}).play
    said = produce(11_000, 1, version=0)
    body = struct.pack(">i", 0)
    play >> Ready() << NOTHING
    # Version 0 has neither a transactional id nor the field; the bytes are what counts here.
    said = said[:6] + struct.pack(">h", 0) + said[8:]
    play >> FromClient(said) << ToBroker(said)
    play >> FromBroker(answer(1, body)) << ToClient(answer(1, body)) << Mute(1_000)


def _change(setup: Setup, before: Any, after: Any) -> None:
    """Put another table in force."""
    setup.rules.update(
        table_delta(QuotaTable.of(before), QuotaTable.of(after, version=1)), setup.play.now_ms
    )
