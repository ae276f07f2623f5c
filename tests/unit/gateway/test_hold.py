"""Held fetches: what the broker is asked, what the client is told, and when."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from headgate.gateway.charging.hold import SHARE_HOLD_MS
from headgate.gateway.charging.journal import Journal
from headgate.gateway.session import fetch as session_fetch
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER
from headgate.wire.header import build_request
from kit.simulated_clients import FETCH, NO_RECORDS, Client, World, string

ALICE = QuotaEntity.of(user="alice")
QUOTA = 10_000.0


class Talk:
    """A world, and what its clients were answered: (time since the start, name, records, told)."""

    def __init__(self, quota: float = QUOTA, journal: Journal | None = None, **more: str) -> None:
        properties = {name.replace("__", "."): value for name, value in more.items()}
        self.world = World({ALICE: {CONSUMER: quota}}, properties, journal or Journal())
        self.start = self.world.now_ms
        self.answers: list[tuple[int, str, int, int]] = []

    def client(self, name: str) -> Client:
        return Client(self.world, self._answered, name=name)

    def _answered(self, client: Client, _key: int, records: int, told: int) -> None:
        self.answers.append((self.world.now_ms - self.start, client.name, records, told))


def closed(talk: Talk, batch: int = 200_000) -> int:
    """Take the quota-id over its quota by a batch; return for how long its gate is closed, ms."""
    talk.world.batch = batch
    first = talk.client("first")
    while not talk.answers or talk.answers[-1][3] == 0:
        first.fetch()
        talk.world.run(2)
    return talk.answers[-1][3] - (talk.world.now_ms - talk.start - talk.answers[-1][0])


def test_a_request_is_held_until_the_gate_opens_and_waits_less_at_the_broker() -> None:
    talk = Talk(1_000_000.0)  # an answer at most is a second's worth of it
    left = closed(talk, 1_000)
    assert 0 < left < 3_000
    told = len(talk.answers)
    talk.client("second").fetch(wait_ms=5_000)
    talk.world.run(left - 1)
    assert len(talk.answers) == told
    talk.world.run(10)
    assert talk.answers[-1][1] == "second"
    assert talk.answers[-1][2] > 0
    _, wait_ms, most = talk.world.asked[-1]
    assert wait_ms == 5_000 - left
    assert most > 1
    assert talk.world.rules.meters.fetches_held == 1
    assert talk.world.rules.meters.fetch_held_ms == left


def test_after_its_hold_a_fetch_is_answered_empty_told_the_rest_and_not_charged() -> None:
    talk = Talk(headgate__fetch__hold__max__ms="2000")
    left = closed(talk)
    assert left > 5_000
    fetch = talk.world.rules.managers.fetch
    second = talk.client("second")
    second.fetch()
    talk.world.run(2_001)
    before = fetch.peek(("alice", ""), talk.world.now_ms)
    told = talk.answers[-1]
    assert told[1:3] == ("second", 0)
    assert left - 2_010 <= told[3] <= left - 2_000
    assert talk.world.asked[-1][1:] == (0, 1)  # MaxWait, MaxBytes
    assert second.session.throttled_until_ms == talk.start + told[0] + told[3]
    assert fetch.peek(("alice", ""), talk.world.now_ms) == before


def test_a_fetch_that_will_be_answered_empty_opens_no_session_at_the_broker() -> None:
    talk = Talk(headgate__fetch__hold__max__ms="0")
    closed(talk)
    asked: list[bytes] = []
    second = talk.client("second")
    passed = second._broker

    def listen(sent: bytes) -> None:
        asked.append(sent)
        passed(sent)

    second._broker = listen  # type: ignore[method-assign]
    second.fetch()
    talk.world.run(2)
    sent = b"".join(asked)
    session, epoch = struct.unpack_from(">ii", sent, 14 + len("app") + 17)
    assert (session, epoch) == (0, -1)


def test_an_answer_that_comes_while_the_gate_is_closed_is_left_unread_until_its_turn() -> None:
    talk = Talk()
    talk.world.available = lambda name: 0 if name == "poll" else None
    poll = talk.client("poll")
    poll.fetch(wait_ms=1_000)  # passed on while the gate is open, and answered in a second
    left = closed(talk, 90_000)
    assert 5_000 < left < 10_000
    talk.world.run(left - 20)
    assert poll.session.in_flight == 1
    assert talk.world.rules.gates.kept_bytes == NO_RECORDS
    assert not [a for a in talk.answers if a[1] == "poll"]
    talk.world.run(40)
    assert [a[2] for a in talk.answers if a[1] == "poll"] == [0]
    assert talk.world.rules.gates.kept_bytes == 0


def test_an_answer_for_which_there_is_no_room_goes_empty_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_fetch, "KEPT_BYTES", 100_000)
    talk = Talk()
    talk.world.available = lambda _name: 90_000
    clients = [talk.client(f"c{n}") for n in range(5)]
    for client in clients:
        client.fetch()  # all are passed on before the first is answered
    talk.world.run(5)
    assert sum(a[2] > 0 for a in talk.answers) == 2  # as much as the window holds, and one more
    assert sum(a[2] == 0 and a[3] > 0 for a in talk.answers) == 2
    assert 90_000 < talk.world.rules.gates.kept_bytes <= 100_000
    for client in clients:
        client.hang_up()
    assert talk.world.rules.gates.kept_bytes == 0


def test_a_fetch_that_ends_its_session_is_never_held() -> None:
    talk = Talk()
    closed(talk)
    body = struct.pack(">iiiibii", -1, 0, 0, 100, 0, 77, -1)
    body += struct.pack(">ii", 0, 0) + string("")
    client = talk.client("closing")
    client.asked[9] = (FETCH, talk.world.now_ms)
    client.say(build_request(FETCH, 11, 9, "app", body))
    talk.world.available = lambda _name: 0
    talk.world.run(5)
    assert client.session.hold is not None
    assert not client.session.hold.waiting
    assert talk.world.asked[-1][0] >= talk.world.now_ms - 5


def test_an_answer_that_was_asked_for_before_the_quota_is_held_whatever_was_asked_since() -> None:
    """Found by the simulator: seed 200240, where a later request knew of the quota."""
    talk = Talk()
    talk.world.change({})
    talk.world.available = lambda name: 0 if name == "poll" else None
    poll = talk.client("poll")
    poll.fetch(wait_ms=1_000)
    talk.world.change({ALICE: {CONSUMER: QUOTA}})
    unanswered = build_request(3, 1, 4, "app", struct.pack(">i", 0))
    poll._broker = lambda sent: None  # type: ignore[method-assign]
    poll.say(unanswered)
    left = closed(talk, 90_000)
    assert left > 5_000
    talk.world.run(left - 20)
    assert poll.session.in_flight > 0
    assert not [a for a in talk.answers if a[1:3] == ("poll", 0)]
    talk.world.run(40)
    assert [a for a in talk.answers if a[1:3] == ("poll", 0)]


def share_request() -> bytes:
    """A ShareFetch v1 that acknowledges nothing; of so long a group that it may come in parts."""
    body = b"\x47" + b"g" * 70 + b"\x07member"
    body += struct.pack(">iiiiii", 1, 500, 1, 50_000, 500, 500) + b"\x01\x01\x00"
    return build_request(78, 1, 3, "app", body)


def test_a_share_fetch_is_held_if_the_gate_closes_while_it_comes() -> None:
    """Found by the simulator: seed 213485."""
    talk = Talk(1_000_000.0)
    client = talk.client("sharer")
    passed: list[bytes] = []
    client._broker = passed.append  # type: ignore[assignment, method-assign]
    request = share_request()
    behind = build_request(3, 1, 4, "app", struct.pack(">i", 0))
    client.say(request[:-1])
    left = closed(talk, 1_000)
    assert 0 < left < SHARE_HOLD_MS
    client.say(request[-1:] + behind)
    talk.world.run(left - 10)
    assert b"".join(passed) == b""
    assert client.session.made_to_wait
    talk.world.run(20)
    assert b"".join(passed) == request  # what comes behind waits for its answer
    assert client.session.requests_taken == 1


def test_a_share_fetch_is_held_for_less_than_a_third_of_a_lock() -> None:
    talk = Talk()
    left = closed(talk)
    assert left > SHARE_HOLD_MS
    client = talk.client("sharer")
    passed: list[bytes] = []
    client._broker = passed.append  # type: ignore[assignment, method-assign]
    client.say(share_request())
    talk.world.run(SHARE_HOLD_MS - 10)
    assert b"".join(passed) == b""
    talk.world.run(20)
    sent = b"".join(passed)
    at = sent.index(b"\x07member") + 7 + 4
    assert struct.unpack_from(">iii", sent, at) == (0, 0, 1)  # MaxWait, MinBytes, MaxBytes


def test_fetches_that_are_emptied_as_in_kafka_arent_held() -> None:
    talk = Talk(headgate__fetch="kafka")
    closed(talk)
    talk.client("second").fetch()
    talk.world.run(5)
    assert talk.answers[-1][1:3] == ("second", 0)
    assert talk.answers[-1][3] > 0


@pytest.mark.parametrize("after", [None, 1_000_000_000.0])
def test_a_quota_that_goes_or_is_raised_lets_everybody_go(after: float | None) -> None:
    talk = Talk()
    closed(talk)
    for number in range(20):
        talk.client(f"c{number}").fetch()
    talk.world.run(100)
    told = len(talk.answers)
    talk.world.change({} if after is None else {ALICE: {CONSUMER: after}})
    talk.world.run(200)
    assert len(talk.answers) == told + 20


def test_a_held_client_is_at_rest_so_that_a_drain_needs_not_wait_for_it() -> None:
    talk = Talk()
    closed(talk)
    held = talk.client("held")
    held.fetch()
    talk.world.run(100)
    assert held.session.held_bytes > 0
    assert held.session.at_rest


def test_a_hold_is_written_down_and_told_to_nobody() -> None:
    class Written(Journal):
        held_ms = 0

        def note(self, kind: str, *event: Any, **_: Any) -> None:
            if kind == "held":
                self.held_ms += event[5]

    written = Written()
    talk = Talk(1_000_000.0, written)
    left = closed(talk, 1_000)
    talk.client("second").fetch()
    talk.world.run(left + 10)
    assert written.held_ms == left
    fetched = [a for a in talk.answers if a[1] == "second"]
    assert fetched[0][3] < 2_000  # the throttle of its own answer
