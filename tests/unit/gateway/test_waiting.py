"""Who waits looks again when what it waits for is gone; nobody else does."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.charging.waiting import Payers, Waiting
from headgate.gateway.cluster.quotas import in_steps
from headgate.gateway.session.session import Session
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, QuotaKey
from headgate.quota.table import QuotaTable, table_delta
from headgate.steps import finish
from headgate.throttle.java import UNLIMITED
from kit.playbook import START_MS

from .conftest import Setup, StillFace, StillIdentity, fetched, produce, request, string

Make = Callable[..., Setup]
Table = dict[QuotaEntity, dict[QuotaKey, float | None]]
ALICE, BOB = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob")
APP = QuotaEntity.of(user="alice", client_id="app")
USERS, IDS = QuotaEntity.of(user=DEFAULT), QuotaEntity.of(client_id="app")
NOW = START_MS + 1_000


def fetch() -> bytes:
    """A Fetch v11 of one partition."""
    body = struct.pack(">iiiibii", -1, 500, 1, 50_000, 0, 0, -1)
    body += struct.pack(">i", 1) + string("t") + struct.pack(">iiiqqi", 1, 0, 0, 0, 0, 50_000)
    return request(1, 11, 1, body + struct.pack(">i", 0) + string(""), "app")


class Client:
    """A connection; it looks again when it is called."""

    def __init__(self, rules: Enforcement, principal: str = "alice") -> None:
        self.calls = 0
        self.session = Session(rules, StillIdentity(principal), build_plans(), StillFace())
        self.session.nudge = self._call
        self.session.upstream_ready(START_MS)

    def _call(self) -> None:
        self.calls += 1

    def says(self, data: bytes, now_ms: int) -> Client:
        self.session.client_data(memoryview(bytearray(data)), now_ms)
        return self.settled()

    def hears(self, data: bytes, now_ms: int) -> Client:
        self.session.broker_data(memoryview(bytearray(data)), now_ms)
        return self.settled()

    def settled(self) -> Client:
        self.session.commands.clear()
        return self

    def looks_again(self, now_ms: int) -> bool:
        """Look again if it was called; return whether it waits."""
        if self.calls:
            self.calls = 0
            self.session.nudged(now_ms)
            self.settled()
        return self.session.held_bytes > 0


class Here:
    """Rules under quotas of which alice has used up hers."""

    def __init__(self, make: Make, key: QuotaKey, quota: float = 1_000.0, **more: str) -> None:
        properties = {name.replace("__", "."): value for name, value in more.items()}
        setup = make({ALICE: {key: quota}}, properties)
        self.rules, self.settings = setup.rules, setup.settings
        self.table = QuotaTable.of({ALICE: {key: quota}})

    def become(self, table: Any) -> None:
        after = QuotaTable.of(table, version=self.table.version + 1)
        self.rules.update(table_delta(self.table, after), NOW)
        self.table = after

    def reload(self, **changed: Any) -> None:
        self.rules.reload(replace(self.settings, **changed))
        finish(self.rules.waiting.calling())


def left_end(here: Here) -> Client:
    """A newcomer that waits for what a closed connection left: 20 s."""
    first = Client(here.rules).says(produce(30_000), START_MS)
    assert first.session.throttled_until_ms == START_MS + 20_000
    first.session.close("client-gone", "", START_MS)
    return waits(Client(here.rules).says(produce(500), START_MS))


def behind(here: Here) -> Client:
    """A newcomer that waits for another that repays."""
    if not len(here.rules.waiting):
        left_end(here)
    found = waits(Client(here.rules).says(produce(500), START_MS))
    assert found.session.debts is not None and found.session.debts.waits_at is not None
    return found


def held(here: Here) -> Client:
    """A fetch that waits at a gate."""
    first = Client(here.rules).says(fetch(), START_MS)
    first.hears(fetched(30_000), START_MS)
    return waits(Client(here.rules).says(fetch(), START_MS))


def at_gate(here: Here) -> Client:
    """A Produce that waits for what is owed beyond one throttle."""
    first = Client(here.rules).says(produce(30_000), START_MS)
    first.session.close("client-gone", "", START_MS)
    found = Client(here.rules).says(produce(500), START_MS)
    until_ms = found.session.throttled_until_ms
    found.session.wake(until_ms)
    return waits(found.settled())


def waits(client: Client) -> Client:
    assert client.session.held_bytes
    assert client.session.waits_for_quota
    assert not client.calls
    return client


WAYS = [(left_end, PRODUCER), (behind, PRODUCER), (held, CONSUMER), (at_gate, PRODUCER_BPS)]
each_way = pytest.mark.parametrize(("way", "key"), WAYS, ids=[way.__name__ for way, _ in WAYS])


def at_end(client: Client) -> None:
    """What waited for nothing any more left no trace."""
    session = client.session
    assert not session.waits_for_quota and not session.waits
    debts = session.debts
    assert debts is None or debts.waits_at is None
    assert session.hold is None or not session.hold.waiting
    assert session.produce_hold is None or session.produce_hold.idle


@each_way
def test_a_quota_that_is_removed_keeps_nobody_waiting(
    gateway: Make, way: Callable[[Here], Client], key: QuotaKey
) -> None:
    here = Here(gateway, key)
    client = way(here)
    here.become({})
    assert client.calls
    assert not client.looks_again(NOW)
    at_end(client)


@each_way
@pytest.mark.parametrize("entity", [APP, ALICE, IDS, USERS])
def test_another_quota_that_comes_to_apply_keeps_nobody_waiting(
    gateway: Make, way: Callable[[Here], Client], key: QuotaKey, entity: QuotaEntity
) -> None:
    """Or an unlimited value; but what never applies makes no call that ends a wait."""
    here = Here(gateway, key)
    client = way(here)
    here.become({ALICE: {key: 1_000.0}, entity: {key: UNLIMITED}})
    assert client.calls
    assert client.looks_again(NOW) is (entity in (IDS, USERS))
    if entity in (APP, ALICE):
        at_end(client)


@each_way
@pytest.mark.parametrize("changed", [{"exempt_principals": frozenset({"alice"})},
                                     {"enforce": "observe"}])  # fmt: skip
def test_a_reload_that_exempts_or_only_observes_keeps_nobody_waiting(
    gateway: Make, way: Callable[[Here], Client], key: QuotaKey, changed: dict[str, Any]
) -> None:
    here = Here(gateway, key)
    client = way(here)
    here.reload(**changed)
    assert client.calls
    assert not client.looks_again(NOW)
    at_end(client)


@each_way
def test_another_look_for_no_reason_changes_nothing(
    gateway: Make, way: Callable[[Here], Client], key: QuotaKey
) -> None:
    here = Here(gateway, key)
    client = way(here)
    until_ms = client.session.throttled_until_ms
    here.reload()
    assert client.looks_again(NOW)
    for _ in range(3):
        client.session.nudged(NOW)
    waits(client.settled())
    assert client.session.throttled_until_ms == until_ms


@each_way
@pytest.mark.parametrize("value", [500.0, 2_000.0])
def test_anothers_value_calls_nobody(
    gateway: Make, way: Callable[[Here], Client], key: QuotaKey, value: float
) -> None:
    here = Here(gateway, key)
    here.become({ALICE: {key: 1_000.0}, BOB: {key: 1_000.0}})
    client = way(here)
    here.become({ALICE: {key: 1_000.0}, BOB: {key: value}})
    assert not client.calls
    here.become({ALICE: {key: 1_000.0}})  # whose quota applies to bob has changed
    assert not client.calls


@pytest.mark.parametrize("value", [500.0, 2_000.0])
def test_what_is_left_lasts_whatever_value_the_quota_gets(gateway: Make, value: float) -> None:
    here = Here(gateway, PRODUCER)
    client = left_end(here)
    here.become({ALICE: {PRODUCER: value}})
    assert not client.calls
    assert client.session.throttled_until_ms == START_MS + 20_000


def test_an_end_that_was_withdrawn_is_left_for_the_next(gateway: Make) -> None:
    here = Here(gateway, PRODUCER)
    first = left_end(here)
    here.become({ALICE: {PRODUCER: 1_000.0}, APP: {PRODUCER: 1e9}})
    assert not first.looks_again(NOW)
    here.become({ALICE: {PRODUCER: 1_000.0}})
    second = waits(Client(here.rules).says(produce(500), NOW))
    assert second.session.throttled_until_ms == START_MS + 20_000


def test_its_own_throttle_stays_though_another_quota_applies(gateway: Make) -> None:
    here = Here(gateway, PRODUCER)
    client = Client(here.rules).says(produce(30_000) + produce(500), START_MS)
    here.become({})
    assert not client.calls
    client.session.nudged(NOW)
    assert client.session.throttled_until_ms == START_MS + 20_000
    assert client.looks_again(NOW)


def test_a_throttle_that_the_broker_told_outlasts_the_wait(gateway: Make) -> None:
    here = Here(gateway, PRODUCER)
    client = left_end(here)
    client.session.start_throttle(5_000, None, START_MS)
    assert client.session.throttled_until_ms == START_MS + 20_000
    here.become({})
    assert client.looks_again(NOW)
    assert client.session.throttled_until_ms == START_MS + 5_000
    client.session.wake(START_MS + 5_000, START_MS + 5_000)
    assert not client.session.held_bytes


def test_who_stands_aside_lets_the_next_one_go(gateway: Make) -> None:
    """It waited behind one that repays, and pays nothing any more."""
    here = Here(gateway, PRODUCER)
    repays = left_end(here)
    first, second = (Client(here.rules).says(produce(500), START_MS) for _ in range(2))
    here.become({ALICE: {PRODUCER: 1_000.0}, APP: {PRODUCER: 1e9}})
    for client in (first, repays, second):
        assert not client.looks_again(NOW)
        at_end(client)
    assert not here.rules.lanes.queues
    assert not here.rules.lanes.waiting


def test_who_has_closed_is_forgotten_and_who_has_passed_isnt_called(gateway: Make) -> None:
    here = Here(gateway, PRODUCER)
    gone, stays = left_end(here), behind(here)
    assert len(here.rules.waiting) == 2
    gone.session.close("client-gone", "", NOW)
    assert len(here.rules.waiting) == 1
    here.become({})
    assert not stays.looks_again(NOW)
    finish(here.rules.waiting.calling())
    assert not stays.calls


def test_they_are_called_in_steps(gateway: Make) -> None:
    here = Here(gateway, PRODUCER)
    waiting = [
        left_end(here),
        *(Client(here.rules).says(produce(500), START_MS) for _ in range(20)),
    ]
    called = [sum(client.calls for client in waiting) for _ in here.rules.waiting.calling()]
    assert called == list(range(1, 22))


def test_a_large_change_walks_once_through_those_that_wait(
    gateway: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole tables are put in force a few changes at a time: 4,000 waiters, 10,000 entities."""
    here = Here(gateway, PRODUCER)
    client, walks = left_end(here), []
    whole = Waiting.calling

    def calling(*who: Any) -> Any:
        walks.append(who)
        return whole(*who)

    monkeypatch.setattr(Waiting, "calling", calling)
    others = {QuotaEntity.of(user=f"u{n}"): {PRODUCER: 1e6} for n in range(100)}
    after = QuotaTable.of(others, version=here.table.version + 1)
    finish(in_steps(table_delta(here.table, after), [here.rules]))
    assert len(walks) == 1
    assert client.calls == 1
    finish(in_steps(table_delta(after, after), [here.rules]))
    assert len(walks) == 1


def test_a_fetch_answer_that_is_kept_goes_on(gateway: Make) -> None:
    here = Here(gateway, CONSUMER)
    first, second = (Client(here.rules).says(fetch(), START_MS) for _ in range(2))
    first.hears(fetched(30_000), START_MS)
    second.hears(fetched(500), START_MS)
    assert second.session.waits_turn
    here.become({})
    assert second.calls
    second.looks_again(NOW)
    assert not second.session.waits_turn


def test_who_has_waited_for_an_end_isnt_asked_for_another_at_the_gate(gateway: Make) -> None:
    here = Here(gateway, PRODUCER_BPS)
    client = at_gate(here)
    other = Client(here.rules).says(produce(500), START_MS)
    other.session.close("client-gone", "", START_MS)  # it leaves nothing
    assert client.session.debts is not None
    assert not client.session.debts._taken
    client.session.nudged(START_MS + 19_000)
    assert client.session.throttled_until_ms < START_MS + 30_000


def test_an_answer_that_is_kept_is_looked_at_though_a_request_waits_too(gateway: Make) -> None:
    here = Here(gateway, CONSUMER)
    first, second = (Client(here.rules).says(fetch(), START_MS) for _ in range(2))
    first.hears(fetched(30_000), START_MS)
    second.hears(fetched(500), START_MS)
    second.session.wait_for(60_000, None, START_MS)
    here.become({})
    second.looks_again(NOW)
    assert not second.session.waits_for_quota


def test_a_call_for_nothing_leaves_what_is_waited_for_and_asks_for_no_timer(gateway: Make) -> None:
    """Else each of thousands gave its end back and took one again, as often as it was called."""
    here = Here(gateway, PRODUCER)
    client, second = left_end(here), behind(here)
    until_ms = client.session.throttled_until_ms
    here.become({ALICE: {PRODUCER: 1_000.0}, IDS: {PRODUCER: 5.0}})
    assert client.calls == 1
    client.session.nudged(NOW)
    assert client.session.commands == []
    assert client.session.throttled_until_ms == until_ms
    assert not second.calls or second.looks_again(NOW)


def test_who_is_called_again_before_it_has_looked_looks_once(gateway: Make) -> None:
    here = Here(gateway, PRODUCER)
    client = behind(here)
    for _ in range(3):
        client.session.call()
    assert client.calls == 1
    assert client.looks_again(NOW)
    client.session.call()
    assert client.calls == 1


def test_an_end_that_was_waited_out_isnt_given_back(gateway: Make) -> None:
    """Else a call that comes just before the timer has it wait for another's."""
    session = left_end(Here(gateway, PRODUCER)).session
    over_ms, debts = session.throttled_until_ms, session.debts
    assert debts is not None
    lanes = tuple(session.rules.lanes_of(session.context, build_plans()[0].owes))
    debts.withdraw(over_ms)
    assert debts.is_in(lanes)
    debts.withdraw(over_ms - 1)
    assert not debts.is_in(lanes)


def test_what_others_are_charged_as_is_called_for_its_quota(gateway: Make) -> None:
    here = Here(gateway, PRODUCER, headgate__quota__client__ids="1")
    for name in ("one", "two"):
        session = Session(here.rules, StillIdentity("alice"), build_plans(), StillFace())
        session.upstream_ready(START_MS)
        session.client_data(memoryview(bytearray(produce(500, client=name))), START_MS)
    charged = here.rules.context("alice", "two").charged_id
    assert charged != "two"
    others = QuotaEntity.of(user="alice", client_id=charged)
    also = {ALICE: {PRODUCER: 1_000.0}, others: {PRODUCER: 1.0}}
    change = table_delta(here.table, QuotaTable.of(also, version=9))
    assert here.rules.context("alice", "two") in Payers(change.changes)
