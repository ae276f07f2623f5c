"""What many connections take under a quota whose throttles are capped (`bps`, `shares`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.gates import LOOK_AGAIN_MS, SLOT_MS, GateKey
from headgate.gateway.charging.hold import UNTOLD_MS
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.session import Session
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER_BPS, PRODUCER_SHARES, QuotaKey
from headgate.quota.table import QuotaTable
from kit.playbook import START_MS

from .conftest import Setup, StillFace, StillIdentity, heartbeat, produce, produced

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")
QUOTA = 100_000
SIZE = 90_000
CONNECTIONS = 50
SECONDS = 100
LOOKS = 2
"""By a connection and second, at most."""
NEVER_MS = 1 << 60
CAP_MS = {PRODUCER_BPS: 10_000, PRODUCER_SHARES: 2_000}


class Client:
    """Asks again as soon as it may, by the connection it has or by a new one each time."""

    time_ms = START_MS

    def __init__(
        self, rules: Enforcement, *, stays: bool, acks: int, principal: str = "alice"
    ) -> None:
        self.rules, self.stays, self.acks, self.principal = rules, stays, acks, principal
        self.now_ms = START_MS
        self.armed = 0  # of clients whose time has come, who waits for longest is the first
        self.passed = 0
        self.held = self.called = False
        self._connect()

    def _connect(self) -> None:
        self.session = Session(
            self.rules, StillIdentity(self.principal), build_plans(), StillFace()
        )
        self.session.nudge = self.nudge
        self.session.upstream_ready(self.now_ms)

    def nudge(self) -> None:
        """Look again now: what it waited for is over."""
        self.called = True
        self.now_ms = min(self.now_ms, Client.time_ms + 1)

    def turn(self) -> None:
        session, now = self.session, self.now_ms
        Client.time_ms = now
        session.wake(now)
        if self.called:
            self.called = False
            session.nudged(now)
        if not self.held:
            session.client_data(memoryview(bytearray(produce(SIZE, acks=self.acks))), now)
        self.held = not session.to_broker
        if not self.held:
            self.passed += sum(map(len, session.to_broker))
            if self.acks:
                session.broker_data(memoryview(bytearray(produced())), now)
        session.to_broker.clear()
        session.to_client.clear()
        session.commands.clear()
        until_ms = session.throttled_until_ms
        if not self.held and not self.stays:
            session.close("client-gone", "", now)
            self._connect()
            until_ms = 0
        debts = session.debts
        if self.held and debts is not None and debts.waits_at is not None:
            until_ms = debts.wake_ms
        hold = session.produce_hold
        if self.held and hold is not None and hold.waiting:
            until_ms = hold.wake_ms or NEVER_MS
        self.now_ms = max(now + 1, until_ms)


def waiting(rules: Enforcement) -> int:
    """How many wait at the gate."""
    gate = rules.gates.get(GateKey(PRODUCER_BPS.name, "alice", ""))
    return 0 if gate is None else gate._waiting


def setup_of(gateway: Make, key: QuotaKey) -> Enforcement:
    """Rules under a cluster-wide quota, or under a share of a contested capacity."""
    value = float(QUOTA) if key is PRODUCER_BPS else 1.0
    capacity = {"headgate.capacity.producer_byte_rate": str(QUOTA)}
    rules: Enforcement = gateway({ALICE: {key: value}}, capacity).rules
    if key is PRODUCER_SHARES:
        until_ms = START_MS + SECONDS * 1000
        bounds = {("alice", ""): float(QUOTA)}
        rules.managers.produce_shares.assign(bounds, START_MS, until_ms)
    return rules


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("key", [PRODUCER_BPS, PRODUCER_SHARES])
def test_connections_that_obey_a_capped_throttle_get_the_quota(
    gateway: Make, key: QuotaKey, stays: bool, acks: int
) -> None:
    rules = setup_of(gateway, key)
    clients = [Client(rules, stays=stays, acks=acks) for _ in range(CONNECTIONS)]
    end_ms = START_MS + SECONDS * 1000
    for turn in range(1_000_000):
        client = min(clients, key=lambda c: (c.now_ms, c.armed))
        if client.now_ms >= end_ms:
            break
        client.turn()
        client.armed = turn
    passed = sum(client.passed for client in clients)
    most_s = SECONDS + 1 + CAP_MS[key] / 1000  # the burst, and what a throttle may tell
    assert passed <= QUOTA * most_s + CONNECTIONS * (SIZE + 4)
    assert passed >= QUOTA * (SECONDS - 1)
    assert turn < LOOKS * SECONDS * CONNECTIONS  # who waits doesn't look all the time
    turns = [client.passed // SIZE for client in clients]
    assert max(turns) - min(turns) <= 2


def owing(rules: Enforcement) -> Client:
    """A client that has sent 45 s worth of its quota, and whose next request waits."""
    client = Client(rules, stays=True, acks=-1)
    session: Any = client.session
    session.client_data(memoryview(bytearray(produce(50 * SIZE))), START_MS)
    session.broker_data(memoryview(bytearray(produced())), START_MS)
    session.to_broker.clear()
    client.now_ms = session.throttled_until_ms
    assert client.now_ms == START_MS + CAP_MS[PRODUCER_BPS]
    client.turn()
    assert client.held
    assert waiting(rules) == 1
    return client


def joining(rules: Enforcement, count: int) -> list[Client]:
    """Clients whose first request waits."""
    clients = [Client(rules, stays=True, acks=-1) for _ in range(count)]
    for client in clients:
        client.now_ms = START_MS + 10_000
        client.turn()
        assert client.held
    return clients


def test_the_first_looks_again_each_second_and_the_others_when_they_are_called(
    gateway: Make,
) -> None:
    rules = setup_of(gateway, PRODUCER_BPS)
    client = owing(rules)
    assert client.now_ms == START_MS + 10_000 + LOOK_AGAIN_MS
    assert {other.now_ms for other in joining(rules, 3)} == {NEVER_MS}


def test_a_bound_that_rises_ends_the_wait(gateway: Make) -> None:
    rules = setup_of(gateway, PRODUCER_BPS)
    client = owing(rules)
    Client.time_ms = START_MS + 10_001
    rules.managers.produce_bps.assign({("alice", ""): 9e6}, START_MS + 10_001, START_MS + 30_000)
    assert client.now_ms == START_MS + 10_002
    client.turn()
    assert not client.held


def test_a_bound_that_rises_calls_the_first_and_who_passes_the_next(gateway: Make) -> None:
    rules = setup_of(gateway, PRODUCER_BPS)
    clients = [owing(rules), *joining(rules, 5)]
    Client.time_ms = START_MS + 10_001
    rules.managers.produce_bps.assign({("alice", ""): 9e6}, START_MS + 10_001, START_MS + 30_000)
    for at, client in enumerate(clients):
        assert clients[at].called
        # The one behind it is called, too: it looks again for itself from now on.
        assert not any(other.called for other in clients[at + 2 :])
        client.turn()
        assert not client.held


def test_principals_take_turns(gateway: Make) -> None:
    """As many requests as one of them has at the gate, the other waits for one."""
    rules = gateway({QuotaEntity.of(client_id="app"): {PRODUCER_BPS: float(QUOTA)}}).rules
    first = Client(rules, stays=True, acks=-1)
    first.session.client_data(memoryview(bytearray(produce(50 * SIZE))), START_MS)
    first.now_ms = START_MS + 10_000
    many = joining(rules, 10)
    other = Client(rules, stays=True, acks=-1, principal="bob")
    other.now_ms = START_MS + 10_001
    other.turn()
    passed: list[Client] = []
    while other not in passed:
        client = min((c for c in (*many, other) if c not in passed), key=lambda c: c.now_ms)
        client.turn()
        passed += [] if client.held else [client]
    assert len(passed) <= 2


def test_who_leaves_keeps_no_place(gateway: Make) -> None:
    rules = setup_of(gateway, PRODUCER_BPS)
    client = owing(rules)
    others = joining(rules, 20)
    assert waiting(rules) == 21
    for other in others:
        other.session.close("client-gone", "", other.now_ms)
    assert waiting(rules) == 1
    client.now_ms = START_MS + 35_000  # all but the last ten seconds' worth is repaid
    client.turn()
    assert not client.held
    assert waiting(rules) == 0


def test_who_has_a_request_in_flight_passes_in_its_turn_all_the_same(gateway: Make) -> None:
    """Its answer may come from a broker that hangs, or wait for a client that reads nothing."""
    rules = setup_of(gateway, PRODUCER_BPS)
    client = owing(rules)
    stuck = Client(rules, stays=True, acks=-1)
    data = heartbeat(0) + produce(SIZE)
    stuck.session.client_data(memoryview(bytearray(data)), START_MS + 10_000)
    assert stuck.session.unanswered
    assert waiting(rules) == 2
    client.now_ms = START_MS + 35_000
    client.turn()
    assert not client.held
    assert stuck.session.produce_hold is not None
    stuck.session.wake(START_MS + 36_000)
    assert not stuck.session.held_bytes
    assert waiting(rules) == 0


def test_who_waited_for_a_quota_that_is_gone_keeps_no_place(gateway: Make) -> None:
    rules = setup_of(gateway, PRODUCER_BPS)
    client = owing(rules)
    lifted = QuotaAlteration(ALICE, (Op(PRODUCER_BPS, None),))
    _, delta = QuotaTable({ALICE: {PRODUCER_BPS: float(QUOTA)}}).apply([lifted])
    rules.update(delta, client.now_ms)
    client.turn()
    assert not client.held
    assert waiting(rules) == 0


def test_a_half_sent_request_keeps_nobody_waiting_for_long(gateway: Make) -> None:
    """It has its turn, and its rest doesn't come: after a slot, the next may pass."""
    rules = setup_of(gateway, PRODUCER_BPS)
    client = owing(rules)
    half = Client(rules, stays=True, acks=-1)
    half.session.client_data(memoryview(bytearray(produce(SIZE)[:200])), START_MS + 10_001)
    other = joining(rules, 1)[0]
    client.session.close("client-gone", "", START_MS + 10_002)
    half.session.wake(START_MS + 36_000)
    assert half.session.begun is not None
    other.now_ms = START_MS + 36_001
    other.turn()
    assert other.held
    assert other.now_ms <= START_MS + 36_001 + SLOT_MS
    other.turn()
    assert not other.held


def test_a_split_that_lapsed_keeps_nobody_waiting(gateway: Make) -> None:
    rules = setup_of(gateway, PRODUCER_BPS)
    bps = rules.managers.produce_bps
    bps.assign({("alice", ""): 100.0}, START_MS, START_MS + 15_000)
    client = Client(rules, stays=True, acks=-1)
    for _ in range(2):  # owes a quarter of an hour by the split, and a second by the quota
        client.turn()
    assert client.held
    looked_ms = 0
    while client.held:
        looked_ms = client.now_ms
        client.turn()
    assert START_MS + 15_000 < looked_ms <= START_MS + 15_000 + LOOK_AGAIN_MS
    assert bps.split(("alice", ""), looked_ms) == QUOTA


def silences(rules: Enforcement, seconds: int) -> tuple[list[int], list[Client]]:
    """How long each request waited for, ms, of clients that wait as long as they are told."""
    clients = [Client(rules, stays=True, acks=-1) for _ in range(CONNECTIONS)]
    came: dict[Client, int] = {}
    waited = []
    end_ms = START_MS + seconds * 1000
    for turn in range(1_000_000):
        client = min(clients, key=lambda c: (c.now_ms, c.armed))
        if client.now_ms >= end_ms:
            break
        now_ms = client.now_ms
        came.setdefault(client, now_ms)
        client.turn()
        client.armed = turn
        if not client.held:
            waited.append((now_ms, now_ms - came.pop(client)))
    return [ms for at_ms, ms in waited if at_ms > end_ms - 200_000], clients


def test_who_waits_for_longer_than_clients_do_is_told_so(gateway: Make) -> None:
    """50 producers of 90 kB at 100 kB/s: each passes once in 45 s, and gives up after 30."""
    rules = setup_of(gateway, PRODUCER_BPS)
    waited, clients = silences(rules, 600)
    assert 15_000 < max(waited) <= UNTOLD_MS + 1_000
    passed = sum(client.passed for client in clients)
    assert passed >= QUOTA * 599


def test_who_waits_for_no_longer_is_told_its_own_throttle_again(gateway: Make) -> None:
    rules = setup_of(gateway, PRODUCER_BPS)
    _, clients = silences(rules, 200)
    (first, *others) = clients
    for other in others:
        other.session.close("client-gone", "", Client.time_ms)
    for _ in range(6):
        first.turn()
        while first.held:
            first.turn()
        told_ms = first.session.throttled_until_ms - Client.time_ms
    assert told_ms <= CAP_MS[PRODUCER_BPS]
