"""
Laws of charging: all bytes passed on are charged once, and no client waits for another.

Clients connect, send requests in arbitrary pieces, disconnect, change client ids, and leave answers
unread. Brokers answer at any time. Quotas and splits change. The upstream's end checks the result:
it counts the bytes sent to it with code of its own.
"""

from __future__ import annotations

import struct
from collections import Counter
from contextlib import nullcontext
from math import inf
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headgate.config import Settings
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.gates import GateTurn
from headgate.gateway.charging.journal import Journal
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.commands import Continue
from headgate.gateway.session.session import Session
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONSUMER,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
)
from headgate.quota.table import QuotaTable, table_delta
from simulation import plants_passing
from simulation.oracle import resolve

START_MS = 1_700_000_000_000
PLANS = build_plans()
ALICE, APP = QuotaEntity.of(user="alice"), QuotaEntity.of(client_id="app")
ALL, BOTH = QuotaEntity.of(user=DEFAULT), QuotaEntity.of(user="alice", client_id="app")
TABLES: list[dict[QuotaEntity, dict[Any, float]]] = [
    {ALICE: {PRODUCER: 500.0}},
    {APP: {PRODUCER: 700.0}},
    {ALICE: {PRODUCER: 600.0}, ALL: {PRODUCER_BPS: 5_000.0}},
    {ALL: {PRODUCER_SHARES: 2.0, PRODUCER: 900.0}, APP: {PRODUCER_BPS: 4_000.0}},
    {ALL: {PRODUCER_IDS: 0.4}, BOTH: {PRODUCER: 1_000.0}},
    {ALICE: {REQUEST: 0.04, CONSUMER: 4_000.0}, APP: {PRODUCER: 800.0}},
    {},
]


def produce(
    correlation: int, acks: int, client: str, transaction: str, producer_id: int, filler: int
) -> bytes:
    """A Produce v7 with one batch of meaningless bytes."""
    batch = struct.pack(
        ">qiibihiqqqhii", 0, 49 + filler, 0, 2, 0, 0, 0, 0, 0, producer_id, 0, 0, 0
    ) + bytes(filler)
    name = (
        struct.pack(">h", len(transaction)) + transaction.encode() if transaction else b"\xff\xff"
    )
    body = name + struct.pack(">hiih", acks, 1_000, 1, 1) + b"t"
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    head = struct.pack(">hhih", 0, 7, correlation, len(client)) + client.encode()
    return struct.pack(">i", len(head + body)) + head + body


def heartbeat(correlation: int, client: str) -> bytes:
    head = struct.pack(">hhih", 12, 3, correlation, len(client)) + client.encode()
    body = b"\0\1g" + struct.pack(">i", 1) + b"\0\1m\xff\xff"
    return struct.pack(">i", len(head + body)) + head + body


def answer_to(key: int, correlation: int) -> bytes:
    body = struct.pack(">i", correlation)
    body += struct.pack(">ii", 0, 0) if key == 0 else struct.pack(">ih", 0, 0)
    return struct.pack(">i", len(body)) + body


PRODUCE_ANSWER = 12
"""Bytes of one without topics; a heartbeat's has fewer."""
SET_BACK_MS = 900


class Upstream:
    """The bytes that one connection's broker was sent, split into requests."""

    def __init__(self) -> None:
        self.bytes = b""
        self.requests: list[tuple[int, int, str, int, int]] = []
        self.due: list[tuple[int, int]] = []  # API key and correlation id, not answered yet

    def take(self, data: bytes) -> None:
        self.bytes += data
        while len(self.bytes) >= 4:
            (size,) = struct.unpack_from(">i", self.bytes)
            if len(self.bytes) < 4 + size:
                return
            key, correlation, client, acks = self.read(self.bytes)
            self.requests.append((key, correlation, client, acks, size))
            if acks:
                self.due.append((key, correlation))
            self.bytes = self.bytes[4 + size :]

    @staticmethod
    def read(data: bytes) -> tuple[int, int, str, int]:
        key, _, correlation, length = struct.unpack_from(">hhih", data, 4)
        client, at, acks = data[14 : 14 + length].decode(), 14 + length, 1
        if key == 0:
            (name,) = struct.unpack_from(">h", data, at)
            (acks,) = struct.unpack_from(">h", data, at + 2 + max(name, 0))
        return key, correlation, client, acks

    def charges(self, gone: bool) -> Counter[str]:
        """Bytes produced by client id, as Kafka counts them; of one cut short, if it's over."""
        found: Counter[str] = Counter()
        for key, _, client, acks, size in self.requests:
            if key == 0 and (gone or not acks or (key, _) not in self.due):
                found[client] += size
        if gone and len(self.bytes) > 4:
            key, _, client, _ = self.read(self.bytes)
            found[client] += (len(self.bytes) - 4) * (key == 0)
        return found


class Known:
    """An identity that was known from the start."""

    authenticated = True
    raw = False
    close_reason = None

    def __init__(self, principal: str) -> None:
        self.principal = principal


class Client:
    """One connection: its session, what it still has to say, what its broker was handed."""

    def __init__(self, rules: Enforcement, principal: str) -> None:
        self.principal = principal
        self.session = Session(rules, Known(principal), PLANS, None)  # type: ignore[arg-type]
        self.session.nudge = self._call
        self.called = False
        self.upstream = Upstream()
        self.outgoing = b""
        self.muted: list[tuple[int, int]] = []  # after which request, until when
        self.heard = b""  # an answer that isn't all there

    def _call(self) -> None:
        self.called = True

    def hear(self, data: bytes) -> list[tuple[int, int]]:
        """Take what it is sent; return correlation ids and the throttle times told, ms."""
        self.heard += data
        found = []
        while len(self.heard) >= 4:
            (size,) = struct.unpack_from(">i", self.heard)
            if len(self.heard) < 4 + size:
                break
            correlation, none, ms = struct.unpack_from(">iii", self.heard + bytes(2), 4)
            found.append((correlation, ms if size == PRODUCE_ANSWER else none))
            self.heard = self.heard[4 + size :]
        return found


class Book(Journal):
    """A journal that keeps sums, decides every charge again, and checks the throttled clients."""

    def __init__(self, machine: Gateway) -> None:
        self.machine = machine
        self.charged: Counter[tuple[str, str]] = Counter()
        self.requests: Counter[int] = Counter()
        """How often each Produce was charged, by its correlation id."""
        self.told: dict[int, tuple[int, int]] = {}
        """Of each Produce that was charged: the throttle, ms, and when, epoch ms."""
        self.longest_ms = 0

    def bound(self, broker_id: int, key: Any, tags: Any, value: float, t_ms: int) -> None:
        again = self.machine.again.get(key.name)
        if again is not None and key == PRODUCER_BPS:
            again.owed_ms(tags, t_ms)  # what lapses, lapses for both in this moment

    def record(self, *event: Any) -> None:
        session, context, _, quota_type, now_ms, amount, decision, mute, size, *_ = event
        machine = self.machine
        who = context.principal, context.client_id
        if quota_type in ("producer_byte_rate", "producer_byte_rate:bps"):
            again = machine.again[quota_type].record(*who, amount, now_ms)
            assert again == decision, f"{quota_type} of {who}: {decision}, decided again {again}"
        if quota_type == "producer_byte_rate":
            self.charged[who] += int(amount)
            if size in machine.correlations and session.closed is None:
                self.requests[machine.correlations[size]] += 1
                self.told[machine.correlations[size]] = mute, now_ms
        self.longest_ms = max(self.longest_ms, mute, decision[0])
        client = next((c for c in machine.clients if c.session is session), None)
        if client is None or session.closed is not None or decision[0] <= 0 or not mute:
            return
        correlation = machine.correlations.get(size)
        if correlation is not None:
            behind = [asked[0] for asked in session.unanswered if asked[0] > correlation]
            assert not behind, f"{quota_type} throttles {who} with {behind} passed behind"
            client.muted.append((correlation, now_ms + mute))


class Gateway(RuleBasedStateMachine):
    """Connections of two users and two client ids to one broker."""

    properties: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        super().__init__()
        settings = Settings.from_properties(
            {
                "headgate.upstream": "127.0.0.1:9092",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.capacity.producer_byte_rate": "6000",
                **self.properties,
            }
        )
        self.now = self.latest = START_MS
        self.book = Book(self)
        self.rules = Enforcement(settings, 1, lambda: self.now, self.book)
        fresh = Enforcement(settings, 1, lambda: START_MS).managers
        self.again = {k.name: fresh.by_key[k] for k in (PRODUCER, PRODUCER_BPS)}
        self.table = QuotaTable.of({}, version=0)
        self.clients: list[Client] = []
        self.gone: list[Client] = []
        self.correlations: dict[int, int] = {}
        self.number = 0
        for principal in ("alice", "alice", "bob"):
            self.connect(principal)

    @initialize(table=st.sampled_from(TABLES))
    def begin(self, table: dict[QuotaEntity, dict[Any, float]]) -> None:
        self.change(table)

    def drain(self) -> None:
        """Hand on what sessions have said; those that are called look again."""
        self._hand_on()
        while called := [client for client in self.clients if client.called]:
            for client in called:
                client.called = False
                client.session.nudged(self.now)
            self._hand_on()

    def _hand_on(self) -> None:
        """Hand on what sessions have said, and see that no muted one said more."""
        for client in self.clients:
            session = client.session
            data = b"".join(bytes(piece) for piece in session.to_broker)
            session.to_broker.clear()
            while any(isinstance(command, Continue) for command in session.commands):
                session.commands.clear()
                session.go_on(self.now)
                data += b"".join(bytes(piece) for piece in session.to_broker)
                session.to_broker.clear()
            answers = b"".join(bytes(piece) for piece in session.to_client)
            session.to_client.clear()
            session.commands.clear()
            for correlation, ms in client.hear(answers):
                self.check_told(correlation, ms)
            before = len(client.upstream.requests)
            begun = bool(client.upstream.bytes)
            client.upstream.take(data)
            new = [asked[1] for asked in client.upstream.requests[before + begun :]]
            open_now = len(client.upstream.bytes) >= 12
            if open_now and (not begun or len(client.upstream.requests) > before):
                new.append(struct.unpack_from(">i", client.upstream.bytes, 8)[0])
            client.muted = [m for m in client.muted if m[1] > self.now]
            for correlation in new:
                for last, until in client.muted:
                    assert correlation <= last, f"{correlation} passed, muted until {until}"
            assert session.closed is None, session.closed

    def check_told(self, correlation: int, ms: int) -> None:
        """A client is told what is left of what was decided."""
        if correlation not in self.correlations.values():
            return  # no Produce
        assert correlation in self.book.told, f"{correlation} is answered and wasn't charged"
        throttle_ms, charged_ms = self.book.told[correlation]
        left_ms = max(min(throttle_ms, charged_ms + throttle_ms - self.now), 0)
        assert ms == left_ms, f"told {ms} for {correlation}, of which {left_ms} are left"

    @rule(principal=st.sampled_from(["alice", "bob"]))
    def connect(self, principal: str) -> None:
        if len(self.clients) < 6:
            client = Client(self.rules, principal)
            client.session.upstream_ready(self.now)
            self.clients.append(client)

    def chosen(self, which: int) -> Client | None:
        return self.clients[which % len(self.clients)] if self.clients else None

    @rule(
        which=st.integers(0, 5),
        acks=st.sampled_from([0, 1, -1, -1]),
        client_id=st.sampled_from(["app", "app", "other"]),
        transaction=st.sampled_from(["", "", "tx", "t" * 120]),
        producer_id=st.sampled_from([-1, 7, 8, 9]),
        filler=st.one_of(st.integers(0, 400), st.integers(1_000, 6_000)),
        keep=st.one_of(st.just(0), st.just(0), st.integers(0, 500), st.integers(60, 200)),
        beats=st.booleans(),
        count=st.sampled_from([1, 1, 2, 4]),
    )
    def say(
        self,
        which: int,
        acks: int,
        client_id: str,
        transaction: str,
        producer_id: int,
        filler: int,
        keep: int,
        beats: bool,
        count: int,
    ) -> None:
        """Send requests but for their last bytes, or only the first ones."""
        client = self.chosen(which)
        if client is None:
            return
        if beats:
            self.number += 1
            client.outgoing += heartbeat(self.number, client_id)
        for _ in range(count):
            self.number += 1
            while True:  # a size of its own, to be known by
                said = produce(self.number, acks, client_id, transaction, producer_id, filler)
                if len(said) - 4 not in self.correlations:
                    break
                filler += 1
            self.correlations[len(said) - 4] = self.number
            client.outgoing += said
        whole = len(client.outgoing)
        self.deliver(which, keep if 60 <= keep < 200 else max(whole - keep, 1))

    @rule(
        which=st.integers(0, 5),
        size=st.one_of(st.just(100_000), st.integers(1, 300), st.integers(1, 8_000)),
    )
    def deliver(self, which: int, size: int) -> None:
        client = self.chosen(which)
        if client is not None and client.outgoing:
            piece, client.outgoing = client.outgoing[:size], client.outgoing[size:]
            client.session.client_data(memoryview(bytearray(piece)), self.now)
            client.session.account_client(1_000)
            self.drain()

    @rule(which=st.integers(0, 5), cut=st.integers(1, 40), count=st.sampled_from([1, 2, 9]))
    def tell(self, which: int, cut: int, count: int) -> None:
        client = self.chosen(which)
        for _ in range(count):
            if client is None or not client.upstream.due:
                break
            key, correlation = client.upstream.due.pop(0)
            said = answer_to(key, correlation)
            for piece in (said[:cut], said[cut:]):
                if piece:
                    client.session.broker_data(memoryview(bytearray(piece)), self.now)
            client.session.account_broker(1_000, self.now)
            self.drain()

    @rule(which=st.integers(0, 5))
    def hang_up(self, which: int) -> None:
        client = self.chosen(which)
        if client is not None:
            client.session.close("client-gone", "", self.now)
            self.clients.remove(client)
            self.gone.append(client)
            self.drain()

    @rule(step=st.one_of(st.integers(0, 1_500), st.integers(-900, 0), st.integers(0, 30_000)))
    def go_on(self, step: int) -> None:
        self.now = max(self.now + step, self.latest - 900)
        self.latest = max(self.latest, self.now)
        for client in self.clients:
            client.session.wake(self.now)
        self.drain()

    @rule(table=st.sampled_from(TABLES))
    def change(self, table: dict[QuotaEntity, dict[Any, float]]) -> None:
        after = QuotaTable.of(table, version=self.table.version + 1)
        delta = table_delta(self.table, after)
        self.rules.update(delta, self.now)
        for change in delta.changes:
            if change.key.name in self.again:
                self.again[change.key.name].update_quota(change.entity, change.new, self.now)
        self.table = after
        self.drain()

    @rule(bound=st.floats(300.0, 20_000.0), valid_ms=st.integers(1, 9_000))
    def split(self, bound: float, valid_ms: int) -> None:
        # First where it is decided again: what the gateway renews now would lapse there.
        for manager in (self.again[PRODUCER_BPS.name], self.rules.managers.produce_bps):
            tags = {("alice", ""): bound, ("", "app"): bound}
            manager.assign(tags, self.now, self.now + valid_ms)
        self.drain()

    @rule()
    def share(self) -> None:
        if self.rules.managers.produce_shares.enabled:
            self.rules.managers.produce_shares.rebalance(self.now)
            self.drain()

    @invariant()
    def nobody_waits_but_for_its_own(self) -> None:
        for client in self.clients:
            session = client.session
            if session.held_bytes and not (session.throttled_until_ms or session.waits_turn):
                assert client.upstream.due, "held, and neither muted nor anything unanswered"

    @invariant()
    def who_waits_for_a_quota_waits_for_one_in_force(self) -> None:
        """At a gate, more is owed than one throttle may tell, or another's turn comes first."""
        for client in self.clients:
            session = client.session
            if not session.waits_for_quota:
                continue
            assert not client.called, "called, and hasn't looked again"
            user, client_id = client.principal, session.client_id
            quotas = {
                ((entity.user and str(entity.user), entity.client_id), str(key)): value
                for entity, values in self.table.entities.items()
                for key, value in values.items()
            }
            keys = {key for _, key in quotas}
            assert any(resolve(quotas, user, client_id, key)[1] < inf for key in keys), "none is"
            hold = session.produce_hold
            if hold is not None and hold.waiting:
                turns = [turn for turn in hold._turns.values() if turn.waiting]
                asks_at_ms = hold.wake_ms or self.now
                assert any(self.keeps(turn, asks_at_ms) for turn in turns), "nothing is overdue"

    def keeps(self, turn: GateTurn, asks_at_ms: int) -> bool:
        """Whether a gate keeps a turn waiting, or the first one's timer isn't due."""
        gate, now_ms = turn.gate, self.rules.gates.time(self.now)
        if gate.opens_ms(now_ms) > now_ms or gate._passing > 0:
            return True
        return turn.appointed and asks_at_ms > self.now

    @invariant()
    def nobody_waits_longer_than_the_longest_throttle(self) -> None:
        for client in self.clients:
            left_ms = client.session.throttled_until_ms - self.now
            assert left_ms <= self.book.longest_ms + SET_BACK_MS

    @invariant()
    def each_request_is_charged_once_when_it_has_passed(self) -> None:
        """Then its last byte has passed."""
        assert all(count == 1 for count in self.book.requests.values())
        for client in self.clients:
            for key, correlation, *_ in client.upstream.requests:
                if key == 0:
                    assert correlation in self.book.requests, f"{correlation} passed uncharged"

    @invariant()
    def what_was_passed_is_charged_once(self) -> None:
        """What is owed a charge is at least what is answered, at most what was passed."""
        least: Counter[tuple[str, str]] = Counter()
        most: Counter[tuple[str, str]] = Counter()
        for client, gone in [(c, False) for c in self.clients] + [(c, True) for c in self.gone]:
            for name, size in client.upstream.charges(gone).items():
                least[client.principal, name] += size
            for name, size in client.upstream.charges(True).items():
                most[client.principal, name] += size
        for who in most:
            assert least[who] <= self.book.charged[who] <= most[who], who

    def teardown(self) -> None:
        while self.clients:
            self.hang_up(0)
        passed: Counter[tuple[str, str]] = Counter()
        for client in self.gone:
            for name, size in client.upstream.charges(True).items():
                passed[client.principal, name] += size
        assert +passed == +self.book.charged


class PacedGateway(Gateway):
    """The same under smooth pacing."""

    properties: ClassVar[dict[str, str]] = {
        "headgate.pacing": "smooth",
        "headgate.pacing.burst.seconds": "4",
    }


MANY = hypothesis_settings(stateful_step_count=50, phases=[Phase.explicit, Phase.generate])
TestGateway = Gateway.TestCase
TestGateway.settings = MANY
TestPacedGateway = PacedGateway.TestCase
TestPacedGateway.settings = MANY


FEW = hypothesis_settings(
    MANY, max_examples=60, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_charge_that_waits_for_the_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plants_passing.charged_when_answered(monkeypatch)
    with pytest.raises(AssertionError, match="passed uncharged"):
        run_state_machine_as_test(Gateway, settings=FEW)


def test_a_quota_that_goes_and_calls_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plants_passing.nobody_is_called_when_a_quota_goes(monkeypatch)
    machine = Gateway()
    machine.begin(TABLES[0])
    machine.say(0, -1, "app", "", -1, 30_000, 0, beats=False, count=1)
    machine.hang_up(0)
    machine.say(0, -1, "app", "", -1, 100, 0, beats=False, count=1)
    machine.who_waits_for_a_quota_waits_for_one_in_force()
    machine.change({})
    with pytest.raises(AssertionError, match="none is"):
        machine.who_waits_for_a_quota_waits_for_one_in_force()


@pytest.mark.parametrize("planted", [False, True])
def test_a_throttle_told_in_full_is_found(planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what was waited for before the answer is told once more."""
    if planted:
        plants_passing.told_in_full(monkeypatch)
    machine = Gateway()
    machine.begin(TABLES[0])
    machine.say(0, -1, "app", "", -1, 6_000, 0, beats=False, count=1)
    machine.go_on(300)
    with pytest.raises(AssertionError, match="are left") if planted else nullcontext():
        machine.tell(0, 40, 1)
    machine.teardown()
