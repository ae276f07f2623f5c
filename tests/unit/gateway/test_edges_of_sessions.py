"""Sessions at their edges: questions to the shell, headers and answers that come in part."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.session import questions
from headgate.gateway.session.answers import MAX_ANSWER_BYTES
from headgate.gateway.session.commands import Ask
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import MUTATION, PRODUCER, REQUEST
from kit.playbook import (
    NOTHING,
    After,
    Answer,
    Asked,
    Closed,
    Forward,
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
    heartbeat,
    produce,
    produced,
    request,
    string,
)

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")
DESCRIBE_CONFIGS, METADATA, CREATE_TOPICS = 32, 3, 19


def question(correlation: int = 1, filler: int = 0) -> bytes:
    """A DescribeConfigs v1 about no resource, with bytes behind it."""
    return request(DESCRIBE_CONFIGS, 1, correlation, struct.pack(">ib", 0, 0) + bytes(filler))


def described(correlation: int = 1, throttle_ms: int = 0) -> bytes:
    return answer(correlation, struct.pack(">ii", throttle_ms, 0))


# -- questions


def test_a_question_names_all_that_the_shell_needs(gateway: Make) -> None:
    play = gateway(client_ip="10.0.0.9").play
    play >> Ready() << NOTHING
    play >> FromClient(question(7)) << Asked(DESCRIBE_CONFIGS) << NOTHING
    ask: Any = play.asked
    assert (ask.plan.key, ask.plan.version, ask.plan.kind) == (DESCRIBE_CONFIGS, 1, RequestKind.ASK)
    assert (ask.correlation_id, ask.client_id, ask.body_offset) == (7, "app", 17)
    assert (ask.frame, ask.principal) == (question(7), "alice")
    assert (ask.client_ip, ask.token_id) == ("10.0.0.9", None)
    state = play.session
    assert (state.in_flight, state.made_to_wait, play.session.at_rest) == (1, True, False)
    assert play.session.retained() == len(question(7))


def test_what_follows_a_question_waits_for_its_answer_and_other_answers_end_nothing(
    gateway: Make,
) -> None:
    play = gateway().play
    session = play.session
    play >> Ready() << NOTHING
    play >> FromClient(question(1) + heartbeat(2)) << Asked(DESCRIBE_CONFIGS) << NOTHING
    first: Any = play.asked
    other = Ask(*(getattr(first, name) for name in Ask.__slots__))
    session.answer(other, described(), play.now_ms)
    session.forward(other, b"x")
    session.resume(other, play.now_ms)
    assert (session.to_client, session.to_broker) == ([], [])
    play >> Answer(described()) << ToBroker(heartbeat(2)) << ToClient(described()) << NOTHING
    session.answer(first, described(), play.now_ms)  # answered twice
    assert session.to_client == []
    assert not session.made_to_wait


def test_a_question_waits_for_those_before_it(gateway: Make) -> None:
    play = gateway().play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1) + question(2)) << ToBroker(heartbeat(1)) << NOTHING
    play >> FromBroker(beaten(1)) << ToClient(beaten(1)) << Asked(DESCRIBE_CONFIGS) << NOTHING


@pytest.mark.parametrize(("upstream_ms", "told_ms"), [(0, 1_000), (999, 1_000), (1_001, 1_001)])
@pytest.mark.parametrize("way", ["answered", "passed on", "passed on and answered"])
def test_a_question_is_charged_once_and_told_the_larger_throttle(
    gateway: Make, way: str, upstream_ms: int, told_ms: int
) -> None:
    setup = gateway({ALICE: {REQUEST: 0.0001}})
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(question()) << Asked(DESCRIBE_CONFIGS) << NOTHING
    play.session.account_client(50_000_000)  # 5 % of a second, over ten seconds: 0.5 %
    ask: Any = play.asked
    if way == "answered":
        play >> Answer(described(1, upstream_ms))
    elif way == "passed on":
        play >> Forward(question(), None) << ToBroker(question()) << NOTHING
        play >> FromBroker(described(1, upstream_ms))
    else:
        play >> Forward(question(), lambda _: ask) << ToBroker(question()) << NOTHING
        play >> FromBroker(described(1)) << ToClient(b"") << NOTHING
        assert play.session.question is ask
        play >> Answer(described(1, upstream_ms))
    said = {type(one): one for one in play.said}
    assert said == {ToClient: ToClient(described(1, told_ms)), Mute: Mute(1_000)}
    play.said.clear()
    (sensor,) = setup.rules.managers.request.sensors()
    assert sensor.peek(play.now_ms)[0] == pytest.approx(0.5)
    play >> FromClient(heartbeat(2)) << NOTHING
    play >> After(1_000) << ToBroker(heartbeat(2)) << NOTHING


@pytest.mark.parametrize("way", ["asked", "passed on", "passed on and answered"])
def test_a_question_whose_client_hangs_up_is_charged_once_and_its_throttle_is_owed(
    gateway: Make, way: str
) -> None:
    setup = gateway({ALICE: {REQUEST: 0.0001}})
    play, session = setup.play, setup.session
    play >> Ready() << NOTHING
    play >> FromClient(question()) << Asked(DESCRIBE_CONFIGS) << NOTHING
    session.account_client(50_000_000)
    ask: Any = play.asked
    if way != "asked":
        play >> Forward(question(), lambda _: ask) << ToBroker(question()) << NOTHING
    if way == "passed on and answered":
        play >> FromBroker(described(1)) << ToClient(b"") << NOTHING
    session.close("client-gone", "", play.now_ms)
    (sensor,) = setup.rules.managers.request.sensors()
    assert sensor.peek(play.now_ms)[0] == pytest.approx(0.5)
    assert len(setup.rules.lanes) == 1
    assert session.throttled_until_ms == play.now_ms + 1_000
    session.answer(ask, described(1), play.now_ms)  # it comes too late
    assert not session.to_client
    assert sensor.peek(play.now_ms)[0] == pytest.approx(0.5)


def test_a_merge_makes_the_answer_of_the_brokers(gateway: Make) -> None:
    play = gateway().play
    play >> Ready() << NOTHING
    play >> FromClient(question()) << Asked(DESCRIBE_CONFIGS)
    play >> Forward(question(3)[:4] + question(1)[4:], lambda got: got + b"more")
    play << ToBroker(question()) << NOTHING
    play >> FromBroker(described(), 3) << ToClient(described() + b"more") << NOTHING


def test_a_long_question_closes_and_the_longest_that_is_read_does_not(
    gateway: Make,
) -> None:
    for more, closes in ((0, False), (1, True)):
        play = gateway().play
        said = question(1, questions.MAX_ASKED_BYTES + more - (len(question()) - 4))
        play >> Ready() << NOTHING
        play >> FromClient(said) << (Closed("oversized") if closes else Asked(DESCRIBE_CONFIGS))
        play << NOTHING


@pytest.mark.parametrize("limited", [False, True])
def test_a_topic_change_is_asked_about_where_mutations_are_charged(
    gateway: Make, limited: bool
) -> None:
    setup = gateway({ALICE: {MUTATION: 1.0}} if limited else {})
    play = setup.play
    said = request(CREATE_TOPICS, 2, 1, struct.pack(">iib", 0, 1_000, 0))
    created = answer(1, struct.pack(">ii", 0, 0))
    play >> Ready() << NOTHING
    play >> FromClient(said) << (Asked(CREATE_TOPICS) if limited else ToBroker(said)) << NOTHING
    if limited:
        state = play.session
        assert play.asked is not None
        quota = setup.rules.mutations.quota(state.context, play.asked.plan, play.now_ms)
        quota.record(20, play.now_ms)
        state.mutation_quota = quota
        play >> Forward(said) << ToBroker(said) << NOTHING
    play >> FromBroker(created)
    if limited:
        told = answer(1, struct.pack(">ii", 9_000, 0))
        play << ToClient(told) << Mute(9_000)
        assert play.session.mutation_quota is None
        assert play.session.muted_by.key == MUTATION.name
    else:
        play << ToClient(created)
    play << NOTHING


# -- headers that come in part


@pytest.mark.parametrize(
    ("size", "reason"),
    [(104_857_601, "oversized"), (2**31 - 1, "oversized"), (9, "malformed"), (0, "malformed")],
)
def test_a_size_that_no_request_has_closes_at_its_fourth_byte(
    gateway: Make, size: int, reason: str
) -> None:
    play = gateway().play
    said = struct.pack(">i", size)
    play >> Ready() << NOTHING
    play >> FromClient(said[:3]) << NOTHING
    play >> FromClient(said[3:]) << Closed(reason) << NOTHING


@pytest.mark.parametrize("size", [104_857_600, 10])
def test_the_largest_and_the_smallest_request_are_waited_for(gateway: Make, size: int) -> None:
    play = gateway().play
    play >> Ready() << NOTHING
    play >> FromClient(struct.pack(">i", size)) << NOTHING


def test_a_long_client_id_is_known_whole_however_its_header_is_cut(gateway: Make) -> None:
    name = "c" * 100
    quotas = {QuotaEntity.of(client_id=name): {PRODUCER: 1e6}}
    for said in (heartbeat(1, name), produce(300, 1, client=name)):
        for cut in range(1, len(said), 7):
            setup = gateway(quotas)
            play = setup.play
            play >> Ready() << NOTHING
            play.session.client_data(memoryview(bytearray(said[:cut])), play.now_ms)
            play.session.client_data(memoryview(bytearray(said[cut:])), play.now_ms)
            assert play.session.client_id == name, cut
            assert b"".join(play.session.to_broker) == said
            (asked,) = play.session.unanswered
            assert (asked[2], asked[3].client_id) == (len(said) - 4, name)


def test_who_is_charged_is_asked_again_when_the_client_id_or_a_quota_changes(
    gateway: Make,
) -> None:
    setup = gateway({ALICE: {PRODUCER: 1e6}})
    play, state = setup.play, setup.session
    play >> Ready() << NOTHING
    seen = []
    for number, name in enumerate(["a", "a", "b", "b"], 1):
        if number == 4:
            setup.rules.managers.changed()
            setup.rules.contexts.expire()
        play >> FromClient(heartbeat(number, name)) << ToBroker() << NOTHING
        seen.append(state.context)
    assert [context.client_id for context in seen] == ["a", "a", "b", "b"]
    assert [one is other for one, other in pairwise(seen)] == [
        True, False, False,
    ]  # fmt: skip


def test_the_principal_counts_whole_bytes_that_are_not_text_as_kafka_reads_them(
    gateway: Make,
) -> None:
    play = gateway().play
    raw = b"\xffx"
    said = struct.pack(">hhih", 12, 3, 1, len(raw)) + raw + string("g") + bytes(20)
    said = struct.pack(">i", len(said)) + said
    play >> Ready() << NOTHING
    play >> FromClient(said) << ToBroker(said) << NOTHING
    assert play.session.client_id == "\ufffdx"


# -- answers


@pytest.mark.parametrize(
    ("size", "closes"), [(MAX_ANSWER_BYTES - 4, False), (MAX_ANSWER_BYTES, True)]
)
def test_an_answer_that_is_too_long_to_be_rewritten_closes(
    gateway: Make, size: int, closes: bool
) -> None:
    play = gateway().play
    said = request(METADATA, 1, 1, struct.pack(">i", 0))
    play >> Ready() << NOTHING
    play >> FromClient(said) << ToBroker(said) << NOTHING
    play >> FromBroker(struct.pack(">ii", size, 1) + bytes(40))
    if closes:
        play << Closed("upstream-oversized")
    play << NOTHING
    assert play.session.collects_answer is not closes


def test_charges_of_what_is_answered_in_pieces_are_those_of_whole_answers(gateway: Make) -> None:
    for pieces in (0, 1, 5, 23):
        setup = gateway({ALICE: {PRODUCER: 1_000.0}})
        play = setup.play
        play >> Ready() << NOTHING
        play >> FromClient(produce(11_000)) << ToBroker(produce(11_000)) << NOTHING
        play >> FromBroker(produced(), pieces) << ToClient(produced(1, 1_000)) << Mute(1_000)
        play << NOTHING
        assert setup.rules.managers.produce.peek(("alice", ""), play.now_ms) == 1_100.0
