"""What was passed on is charged once, however its client goes; and who may go early."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.session import Session
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONSUMER,
    CONSUMER_BPS,
    CONSUMER_SHARES,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)
from headgate.steps import finish
from kit.playbook import (
    NOTHING,
    START_MS,
    Closed,
    FromBroker,
    FromClient,
    Mute,
    Playbook,
    Ready,
    ToBroker,
    ToClient,
)

from .conftest import (
    Setup,
    StillFace,
    StillIdentity,
    beaten,
    fetch,
    fetched,
    gone_on,
    heartbeat,
    produce,
    produced,
    request,
    string,
)

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")
BOB = QuotaEntity.of(user="bob")
CAPACITY = {
    "headgate.capacity.producer_byte_rate": "100000",
    "headgate.capacity.consumer_byte_rate": "100000",
}


def transactional(version: int, name: str, acks: int, correlation: int = 1) -> bytes:
    """A Produce request of some 11,000 bytes with a transactional id."""
    if version >= 9:
        size = len(name) + 1
        start = b"\0" + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
        start += name.encode()
    else:
        start = string(name)
    return request(0, version, correlation, start + struct.pack(">hi", acks, 1000) + bytes(10_000))


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("pieces", [1, 14, 100, 1_448, 20_000])
def test_acks_0_after_a_long_transactional_id_is_charged_however_it_comes(
    gateway: Make, version: int, pieces: int
) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    play = setup.play
    said = transactional(version, "t" * 17_000, 0)
    play >> Ready() << NOTHING
    for at in range(0, len(said), pieces):
        play.session.client_data(memoryview(bytearray(said[at : at + pieces])), play.now_ms)
    assert b"".join(play.session.to_broker) == said
    assert play.session.in_flight == 0  # no answer is due
    assert setup.rules.managers.produce.peek(("alice", ""), play.now_ms) == (len(said) - 4) / 10


@pytest.mark.parametrize("quota", [None, 1e9])
@pytest.mark.parametrize("pieces", [2_048, 16_384, 262_144])
def test_what_was_held_in_pieces_passes_though_each_spends_a_callback(
    gateway: Make, quota: float | None, pieces: int
) -> None:
    """A long Produce with a transactional id uses up what may be done in one callback."""
    setup = gateway({ALICE: {PRODUCER: quota}} if quota else {})
    session = setup.play.session
    said = b"".join(transactional(7, "t", -1, correlation) for correlation in range(1, 7))
    for at in range(0, len(said), pieces):  # the upstream isn't up yet
        session.client_data(memoryview(bytearray(said[at : at + pieces])), START_MS)
    session.upstream_ready(START_MS)
    assert gone_on(session)
    assert not session.held_bytes
    assert b"".join(session.to_broker) == said


def test_acks_that_never_come_close_the_connection(gateway: Make) -> None:
    play = gateway().play
    tags = b"\x01\x07" + b"\xff\xff\x7f" + bytes(70_000)  # one tag, of two megabytes
    said = request(0, 9, 1, tags + bytes(2_100_000))
    play >> Ready() << NOTHING
    play >> FromClient(said[:60_000]) << NOTHING
    play >> FromClient(said[60_000:70_000]) << Closed("malformed") << NOTHING


@pytest.mark.parametrize("version", [2, 7, 9])
def test_a_produce_that_ends_before_its_acks_closes(gateway: Make, version: int) -> None:
    play = gateway().play
    play >> Ready() << NOTHING
    play >> FromClient(request(0, version, 1, b"\0")) << Closed("malformed") << NOTHING


@pytest.mark.parametrize("limited", [True, False])
def test_a_client_that_hangs_up_is_charged_for_what_was_passed(
    gateway: Make, limited: bool
) -> None:
    setup = gateway({ALICE if limited else BOB: {PRODUCER: 1e6}})
    play, session = setup.play, setup.session
    play >> Ready() << NOTHING
    said = produce(8_000, 1) + produce(6_000, 2) + produce(9_000, 3)
    play >> FromClient(said[:20_000]) << ToBroker(said[:20_000]) << NOTHING
    session.close("client-gone", "", play.now_ms)
    peek = setup.rules.managers.produce.peek
    assert (
        peek(("alice", ""), play.now_ms) == (20_000 - 3 * 4) / 10
    )  # the length fields don't count
    session.close("client-gone", "", play.now_ms)
    assert peek(("alice", ""), play.now_ms) == (20_000 - 3 * 4) / 10


def test_a_cut_request_without_an_answer_is_charged(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    play, session = setup.play, setup.session
    play >> Ready() << NOTHING
    play >> FromClient(produce(20_000, 1, acks=0)[:15_004]) << ToBroker()
    session.close("client-gone", "", play.now_ms)
    assert setup.rules.managers.produce.peek(("alice", ""), play.now_ms) == 1_500.0
    assert session.throttled_until_ms == play.now_ms + 5_000  # what it owes


def test_what_was_held_and_never_passed_is_charged_to_nobody(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    play, session = setup.play, setup.session
    play >> Ready() << NOTHING
    play >> FromClient(produce(11_000, 1) + produce(5_000, 2)) << ToBroker(produce(11_000, 1))
    session.close("client-gone", "", play.now_ms)
    assert setup.rules.managers.produce.peek(("alice", ""), play.now_ms) == 1_100.0


def test_what_comes_before_a_bad_request_is_passed_on_and_charged(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    play = setup.play
    good = produce(5_000, 1)
    play >> Ready() << NOTHING
    play >> FromClient(good + request(32_000, 0, 2, bytes(100)))
    play << ToBroker(good) << Closed("unknown-api") << NOTHING
    assert setup.rules.managers.produce.peek(("alice", ""), play.now_ms) == 500.0


def test_a_client_that_hangs_up_is_charged_the_time_it_took(gateway: Make) -> None:
    setup = gateway({ALICE: {REQUEST: 1.0}})
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1)) << ToBroker()
    play.session.account_client(200_000_000)
    play.session.close("client-gone", "", play.now_ms)
    assert setup.rules.managers.request.peek(("alice", ""), play.now_ms) == pytest.approx(2.0)


OTHERS: list[tuple[QuotaKey, QuotaEntity]] = [
    (PRODUCER_BPS, BOB),
    (PRODUCER_SHARES, BOB),
    (PRODUCER_IDS, BOB),
    (PRODUCER_IDS, QuotaEntity.of(user=DEFAULT)),
    (REQUEST, BOB),
    (PRODUCER_BPS, ALICE),
    (PRODUCER_SHARES, ALICE),
    (PRODUCER_IDS, ALICE),
    (REQUEST, ALICE),
    (CONSUMER, ALICE),
]


@pytest.mark.parametrize(("key", "entity"), OTHERS)
def test_no_quota_that_is_far_away_stops_pipelining(
    gateway: Make, key: QuotaKey, entity: QuotaEntity
) -> None:
    far = 1_000.0 if key in (REQUEST, PRODUCER_IDS) else 1e6
    quotas: dict[QuotaEntity, dict[QuotaKey, float]] = {ALICE: {PRODUCER: 1e6}}
    quotas.setdefault(entity, {})[key] = far
    play = gateway(quotas, CAPACITY).play
    play >> Ready() << NOTHING
    said = b"".join(produce(1_000, n) for n in range(5)) + heartbeat(6)
    play >> FromClient(said) << ToBroker(said) << NOTHING
    assert play.session.in_flight == 6


@pytest.mark.parametrize(
    ("key", "bound", "size", "early"),
    [
        (PRODUCER_BPS, 10_000.0, 2_500, 3),  # one second's worth is in the bucket
        (REQUEST, 0.05, 1_000, 4),  # 0.45 % s in nine seconds, at 0.1 % s each
        (REQUEST, 100.0, 1_000, 64),  # no more at once, whatever is left
    ],
)
def test_each_kind_of_quota_lets_as_much_go_early_as_is_left(
    gateway: Make, key: QuotaKey, bound: float, size: int, early: int
) -> None:
    play = gateway({ALICE: {key: bound, PRODUCER: 1e9}}).play
    play >> Ready() << NOTHING
    play >> FromClient(b"".join(produce(size, n) for n in range(100)))
    assert play.session.in_flight == early
    passed = b"".join(s.data for s in play.said if isinstance(s, ToBroker))
    assert len(passed) == early * (size + 4)


def test_the_time_of_the_broker_is_never_known_before(gateway: Make) -> None:
    play = gateway({ALICE: {REQUEST: 1e9}}, {"headgate.request.time": "upstream"}).play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1) + heartbeat(2)) << ToBroker(heartbeat(1)) << NOTHING


def test_a_slow_request_lets_fewer_go_early(gateway: Make) -> None:
    play = gateway({ALICE: {REQUEST: 1.01}}).play  # 91 ms in nine seconds
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1)) << ToBroker()
    play.session.account_client(10_000_000)
    play >> FromBroker(beaten(1)) << ToClient()
    # 81 ms are left, and each might take twice the slowest: four go early.
    play >> FromClient(b"".join(heartbeat(n) for n in range(2, 20))) << ToBroker() << NOTHING
    assert play.session.in_flight == 4


def test_a_request_slower_than_all_that_is_left_ends_pipelining_for_a_window(gateway: Make) -> None:
    play = gateway({ALICE: {REQUEST: 1.0}}).play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1) + heartbeat(2)) << ToBroker() << NOTHING
    play.session.account_client(60_000_000)
    play >> FromBroker(beaten(1)) << ToClient()
    play >> FromBroker(beaten(2)) << ToClient()
    play.now_ms += 10_900  # what was charged counts no more
    for number in range(3, 6):
        (
            play
            >> FromClient(heartbeat(number) + heartbeat(number + 10))
            << ToBroker(heartbeat(number))
        )
        play >> FromBroker(beaten(number)) << ToBroker() << ToClient()
        play >> FromBroker(beaten(number + 10)) << ToClient()


def idempotent(correlation: int, *producer_ids: int) -> bytes:
    """A Produce v7 with one batch, without records, for each of these ids."""
    batches = b"".join(
        struct.pack(">qiibihiqqqhii", 0, 49, 0, 2, 0, 0, 0, 0, 0, producer_id, 0, 0, 0)
        for producer_id in producer_ids
    )
    body = string(None) + struct.pack(">hi", -1, 1000) + struct.pack(">i", 1) + string("t")
    body += struct.pack(">iii", 1, 0, len(batches)) + batches
    return request(0, 7, correlation, body)


@pytest.mark.parametrize("pieces", [0, 50])
def test_producer_ids_in_flight_count_once(gateway: Make, pieces: int) -> None:
    setup = gateway({ALICE: {PRODUCER_IDS: 1.0}})  # 11 in the bucket, of which 5 count
    play = setup.play
    play >> Ready() << NOTHING
    for number in range(20):
        said = idempotent(number, 1, 2)
        for at in range(0, len(said), pieces or len(said)):
            piece = said[at : at + (pieces or len(said))]
            play.session.client_data(memoryview(bytearray(piece)), play.now_ms)
    for number, ids in enumerate([(3, 4), (5,), (6,), (7,)], 20):
        play.session.client_data(memoryview(bytearray(idempotent(number, *ids))), play.now_ms)
    assert play.session.in_flight == 23  # the one with the sixth id has come, and is the last
    play.session.to_broker.clear()
    for number in range(23):
        play >> FromBroker(produced(number))
        assert ToClient(produced(number)) in play.said  # 6 of 11 are charged
        play.said.clear()
    [sensor] = setup.rules.managers.producer_ids.sensors()
    assert sensor.peek(play.now_ms) == 5.0
    assert play.session.in_flight == 1


def test_exempt_principals_take_nothing_from_others_of_their_client_id(gateway: Make) -> None:
    quotas = {QuotaEntity.of(client_id="app"): {PRODUCER: 1_000.0}}
    setup = gateway(quotas, {"headgate.exempt.principals": "User:alice"})
    play, charged = setup.play, setup.rules.managers.produce
    play >> Ready() << NOTHING
    play >> FromClient(produce(50_000, 1)) << ToBroker()
    play >> FromBroker(produced(1)) << ToClient(produced(1)) << NOTHING
    assert charged.peek(("alice", "app"), play.now_ms) == 5_000.0
    assert charged.peek(("", "app"), play.now_ms) == 0.0
    other = Playbook(Session(setup.rules, StillIdentity("bob"), build_plans(), StillFace()))
    other >> Ready() << NOTHING
    said = produce(4_000, 1) + produce(4_900, 2)
    other >> FromClient(said) << ToBroker(said) << NOTHING
    assert other.session.in_flight == 2
    settings = type(setup.settings).from_properties(
        {
            "headgate.upstream": "127.0.0.1:9092",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
        }
    )
    setup.rules.clock = lambda: play.now_ms
    setup.rules.reload(settings)
    play >> FromClient(produce(100, 2)) << ToBroker()
    play >> FromBroker(produced(2)) << ToClient() << NOTHING  # bob's 8,900 and 100: 900 B/s
    assert charged.peek(("", "app"), play.now_ms) == 900.0


def test_a_lowered_quota_finds_what_went_early_charged_by_the_old_one(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1e6}})
    play, managers = setup.play, setup.rules.managers
    play >> Ready() << NOTHING
    play >> FromClient(produce(20_000, 1) + produce(20_000, 2)) << ToBroker()
    finish(setup.rules._steps([(ALICE, PRODUCER, 1_000.0)], lambda: play.now_ms))
    assert managers.produce.peek(("alice", ""), play.now_ms) == 4_000.0
    play >> FromBroker(produced(1) + produced(2)) << ToClient(produced(1) + produced(2)) << NOTHING
    play >> FromClient(produce(100, 3)) << ToBroker()
    play >> FromBroker(produced(3)) << ToClient(produced(3, 30_100)) << Mute(30_100)


def test_a_split_assigned_finds_what_went_early_charged(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER_BPS: 100_000.0}})
    play, manager = setup.play, setup.rules.managers.produce_bps
    play >> Ready() << NOTHING
    said = produce(40_000, 1) + produce(40_000, 2)
    play >> FromClient(said) << ToBroker(said)
    manager.assign({("alice", ""): 1_000.0}, play.now_ms, play.now_ms + 6_000)
    play >> FromBroker(produced(1) + produced(2)) << ToClient(produced(1) + produced(2)) << NOTHING
    # By the split, and by what it lapses to if that is less.
    play >> FromClient(produce(900, 3) + produce(200, 4)) << ToBroker(produce(900, 3)) << NOTHING


def test_a_split_that_lapses_finds_nothing_early_that_doesnt_fit_any_more(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER_BPS: 1_000.0}})
    play, manager = setup.play, setup.rules.managers.produce_bps
    manager.assign({("alice", ""): 50_000.0}, play.now_ms, play.now_ms + 1_000)
    play >> Ready() << NOTHING
    play >> FromClient(produce(600, 1) + produce(600, 2)) << ToBroker(produce(600, 1)) << NOTHING
    play.now_ms += 2_000
    play >> FromBroker(produced(1)) << ToBroker(produce(600, 2)) << ToClient(produced(1)) << NOTHING


def test_a_fetch_is_charged_time_and_bytes_where_both_are_limited(gateway: Make) -> None:
    setup = gateway({ALICE: {CONSUMER: 1_000.0, REQUEST: 1_000.0}})
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1) + fetch(2) + heartbeat(3))
    (passed,) = (s.data for s in play.said if isinstance(s, ToBroker))
    play.said.clear()
    assert play.session.in_flight == 2  # nothing after the fetch, whose answer may be any size
    assert len(passed) == len(heartbeat(1)) + len(fetch(2))
    play >> FromBroker(beaten(1)) << ToClient(beaten(1))
    told: Any = round(((len(fetched(11_000)) - 4) / 10 - 1_000) / 1_000 * 10_000)
    answer = fetched(11_000, 2, told)
    play >> FromBroker(fetched(11_000, 2), 1_000) << ToClient(answer[:1_000]) << Mute(told)
    play << ToClient(answer[1_000:])


def whichever(gateway: Make, first: QuotaKey, second: QuotaKey, bounds: tuple[float, float]) -> int:
    """Produce 3,000 bytes with two new ids, or fetch as much; return what is told, ms."""
    setup = gateway({ALICE: {first: bounds[0], second: bounds[1]}}, CAPACITY)
    play, managers = setup.play, setup.rules.managers
    play >> Ready() << NOTHING
    manager = managers.by_key[second]
    if second.name.endswith(":shares"):  # contested: a share is what it was assigned
        manager.assign({("alice", ""): bounds[1]}, play.now_ms, play.now_ms + 60_000)
    if first is PRODUCER:
        batch = idempotent(1, 7, 8)
        said = request(0, 7, 1, batch[17:] + bytes(3_000 - len(batch[17:]) - 13))
        play >> FromClient(said) << ToBroker(said)
        play >> FromBroker(produced(1))
    else:
        records = 3_000 - len(fetched(0)) + 4
        play >> FromClient(fetch(1)) << ToBroker()
        play >> FromBroker(fetched(records))
    told = [s.ms for s in play.said if isinstance(s, Mute)]
    assert play.session.throttled_until_ms == (play.now_ms + told[0] if told else 0)
    return told[0] if told else 0


PAIRS = [
    (PRODUCER, PRODUCER_BPS),
    (PRODUCER, PRODUCER_SHARES),
    (PRODUCER, PRODUCER_IDS),
    (CONSUMER, CONSUMER_BPS),
    (CONSUMER, CONSUMER_SHARES),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_whichever_limit_is_hit_first_throttles(
    gateway: Make, first: QuotaKey, second: QuotaKey
) -> None:
    far, near = 1e6, 1_000.0
    small = 0.1 if second is PRODUCER_IDS else near
    # The rate: 3,000 bytes over ten seconds are 300 a second.
    assert whichever(gateway, first, second, (200.0, far)) == 5_000
    # A bucket: 3,000 of 1,000 are repaid in two seconds; 1.1 ids of 2 in nine.
    assert whichever(gateway, first, second, (far, small)) == (9_000 if small < 1 else 2_000)
    # Both: the longer wait is told, and they are never added up.
    assert whichever(gateway, first, second, (200.0, small)) == (9_000 if small < 1 else 5_000)
    assert whichever(gateway, first, second, (20.0, small)) == 140_000
    assert whichever(gateway, first, second, (far, far)) == 0


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_whoever_is_near_either_limit_has_one_request_in_flight(
    gateway: Make, first: QuotaKey, second: QuotaKey
) -> None:
    for bounds, pipelined in (((1e6, 1e6), True), ((1.0, 1e6), False), ((1e6, 0.01), False)):
        setup = gateway({ALICE: {first: bounds[0], second: bounds[1]}}, CAPACITY)
        play = setup.play
        if second.name.endswith(":shares"):
            manager = setup.rules.managers.by_key[second]
            manager.assign({("alice", ""): bounds[1]}, play.now_ms, play.now_ms + 60_000)
        play >> Ready() << NOTHING
        if first is PRODUCER:
            play >> FromClient(idempotent(1, 7) + idempotent(2, 7))
            assert play.session.in_flight == (2 if pipelined else 1), bounds
        else:
            play >> FromClient(fetch(1) + fetch(2))
            assert play.session.in_flight == 1  # a fetch's answer may have any size


def test_a_bucket_in_use_has_room_for_no_more_than_it_lapses_to(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER_BPS: 1_000.0}})
    play, manager = setup.play, setup.rules.managers.produce_bps
    manager.assign({("alice", ""): 50_000.0}, play.now_ms, play.now_ms + 1_000)
    play >> Ready() << NOTHING
    play >> FromClient(produce(100, 1)) << ToBroker()
    play >> FromBroker(produced(1)) << ToClient()
    said = produce(400, 2) + produce(500, 3)
    play >> FromClient(said + produce(500, 4)) << ToBroker(said) << NOTHING
    play.now_ms += 2_000  # it has lapsed, and a full bucket holds 1,000
    play >> FromBroker(produced(2)) << ToClient(produced(2)) << NOTHING
    play >> FromBroker(produced(3)) << ToBroker() << ToClient(produced(3)) << NOTHING


def test_a_charge_that_claimed_elsewhere_finds_what_went_early_charged(gateway: Make) -> None:
    by_client = QuotaEntity.of(client_id="app")
    setup = gateway({by_client: {PRODUCER: 1_000.0}})
    play, charged = setup.play, setup.rules.managers.produce
    play >> Ready() << NOTHING
    play >> FromClient(produce(10_500, 1)) << ToBroker()  # claims of the client id's room
    finish(setup.rules._steps([(ALICE, PRODUCER, 1_000.0)], lambda: play.now_ms))
    other = Playbook(Session(setup.rules, StillIdentity("alice"), build_plans(), StillFace()))
    other >> Ready() << NOTHING
    other >> FromClient(produce(4_000, 1) + produce(4_000, 2)) << ToBroker() << NOTHING
    assert charged.peek(("alice", ""), play.now_ms) == 0.0
    play >> FromBroker(produced(1)) << ToClient(produced(1, 8_500)) << Mute(8_500)
    other >> FromBroker(produced(1) + produced(2)) << ToClient(produced(1) + produced(2)) << NOTHING


def test_what_went_early_is_charged_before_the_part_of_a_request_whose_client_has_gone(
    gateway: Make,
) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    play, charged = setup.play, setup.rules.managers.produce
    play >> Ready() << NOTHING
    play >> FromClient(produce(20_000, 1)[:9_004]) << ToBroker() << NOTHING
    other = Playbook(Session(setup.rules, StillIdentity("alice"), build_plans(), StillFace()))
    other >> Ready() << NOTHING
    other >> FromClient(produce(4_000, 1) + produce(4_000, 2)) << ToBroker() << NOTHING
    assert charged.peek(("alice", ""), play.now_ms) == 0.0
    play.session.close("client-gone", "", play.now_ms)
    assert charged.peek(("alice", ""), play.now_ms) == 1_700.0
    other >> FromBroker(produced(1) + produced(2)) << ToClient(produced(1) + produced(2)) << NOTHING


def test_what_comes_from_a_client_that_takes_no_answers_is_charged_at_once(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 1_000.0}})
    play = setup.play
    play >> Ready() << NOTHING
    play.session.set_stalled(True, play.now_ms)
    play >> FromClient(produce(4_000, 1)) << ToBroker() << NOTHING
    assert setup.rules.managers.produce.peek(("alice", ""), play.now_ms) == 400.0
    play >> FromClient(produce(7_000, 2)[:-1]) << NOTHING  # comes after the first is answered
    headroom = setup.rules.context("alice", "app").headroom
    assert headroom is not None
    assert not any(one.claimed for one in headroom.all)


def test_a_fetch_is_charged_though_its_client_has_gone(gateway: Make) -> None:
    setup = gateway({ALICE: {CONSUMER: 1_000.0}})
    play, session = setup.play, setup.session
    play >> Ready() << NOTHING
    play >> FromClient(fetch(1) + produce(500, 2)) << ToBroker() << NOTHING
    assert session.client_gone(play.now_ms)
    assert session.held_bytes == 0  # what it said behind goes nowhere
    told = fetched(50_000)
    wait_ms = round(((len(told) - 4) / 10 - 1_000) / 1_000 * 10_000)
    play >> FromBroker(told[:1_000]) << ToClient() << Mute(wait_ms) << Closed("client-gone")
    assert setup.rules.managers.fetch.peek(("alice", ""), play.now_ms) == (len(told) - 4) / 10
    assert setup.rules.managers.produce.peek(("alice", ""), play.now_ms) == 0.0


def test_nobody_stays_for_what_isnt_limited(gateway: Make) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0}}).play
    play >> Ready() << NOTHING
    play >> FromClient(fetch(1) + produce(500, 2)) << ToBroker() << NOTHING
    assert not play.session.client_gone(play.now_ms)


def test_one_session_with_two_client_ids_claims_from_one_at_a_time(gateway: Make) -> None:
    quotas = {
        QuotaEntity.of(client_id="app"): {PRODUCER: 1_000.0},
        QuotaEntity.of(client_id="too"): {PRODUCER: 1_000.0},
    }
    setup = gateway(quotas)
    play, charged = setup.play, setup.rules.managers.produce
    play >> Ready() << NOTHING
    play >> FromClient(produce(4_000, 1) + produce(4_000, 2, client="too")) << ToBroker() << NOTHING
    assert charged.peek(("", "app"), play.now_ms) == 400.0  # it was sure to fit
    assert charged.peek(("", "too"), play.now_ms) == 0.0
    for client in ("app", "too"):
        other = Playbook(Session(setup.rules, StillIdentity("bob"), build_plans(), StillFace()))
        other >> Ready() << NOTHING
        other >> FromClient(produce(6_000, 1, client=client)) << ToBroker() << NOTHING
        assert charged.peek(("", client), play.now_ms) == 400.0
    play >> FromBroker(produced(1) + produced(2)) << ToClient(produced(1) + produced(2)) << NOTHING
