"""A batch of changed quotas: in slices, each entity by its old quota or its new one, in order."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import Settings
from headgate.gateway import Gateway
from headgate.gateway.background import TimeSlices
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.gates import Gate, GateKey
from headgate.gateway.charging.journal import Journal
from headgate.gateway.cluster.quotas import AT_ONCE, QuotaChanges
from headgate.gateway.connection.link import HangupWatch
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS
from headgate.quota.table import QuotaTable, table_delta
from headgate.steps import FEW
from headgate.throttle.bps import BpsQuotaManager
from headgate.throttle.java import UNLIMITED
from headgate.throttle.overrides import Overrides
from headgate.throttle.registry import SENSORS_AT_ONCE

NOW = 1_795_262_069_485
CLIENTS = 2_000
OLD, NEW = 1_000.0, 2_000.0


class Written(Journal):
    """What was written of quotas and charges, in its order."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, float | None]] = []

    def quota(self, broker_id: int, key: Any, entity: Any, value: Any, t_ms: int) -> None:
        self.lines.append(("quota", str(entity.user), value))


class Here:
    """A broker's rules with live sensors, and quotas that change."""

    def __init__(self, quotas: float | None = OLD) -> None:
        settings = Settings.from_properties(
            {
                "headgate.upstream": "127.0.0.1:1",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
            }
        )
        self.journal = Written()
        self.rules = Enforcement(settings, 1, lambda: NOW, self.journal)
        self.table = QuotaTable({QuotaEntity.of(user=DEFAULT): {PRODUCER: 500.0}})
        if quotas is not None:
            self.table, _ = self.table.apply(self.altered(quotas))
        self.rules.load(self.table, NOW)
        for n in range(CLIENTS):
            self.rules.managers.produce.record(f"u{n}", "c", 1, NOW)
        self.journal.lines.clear()
        self.in_force: list[QuotaTable] = []
        ticks = itertools.count()
        self.brokers: list[Any] = [SimpleNamespace(rules=self.rules)]
        self.slices = TimeSlices(2, lambda: next(ticks))  # a step or two to each slice
        self.quota_changes = QuotaChanges(
            self.slices,
            lambda: self.brokers,
            lambda table, _: self.in_force.append(table),
            lambda _: False,
            lambda: NOW,
        )

    def altered(self, value: float | None, first: int = 0, last: int = CLIENTS) -> Any:
        users = (QuotaEntity.of(user=f"u{n}") for n in range(first, last))
        return [QuotaAlteration.of(user, (Op(PRODUCER, value),)) for user in users]

    def bounds(self) -> list[float]:
        """What each client is judged by now."""
        produce = self.rules.managers.produce
        return [produce.record(f"u{n}", "c", 1, NOW).bound for n in range(CLIENTS)]


async def test_between_slices_each_client_goes_by_its_old_quota_or_its_new_one() -> None:
    here = Here()
    table, delta = here.table.apply(here.altered(NEW))
    assert here.quota_changes.take(table, delta)
    work = asyncio.ensure_future(here.quota_changes.work())
    changed: list[int] = []
    while not work.done():
        await asyncio.sleep(0)
        seen = here.bounds()
        count = seen.count(NEW)
        assert seen == [NEW] * count + [OLD] * (CLIENTS - count)
        # The journal knows of just those, in the order in which they took effect.
        assert here.journal.lines == [("quota", f"u{n}", NEW) for n in range(count)]
        assert here.rules.context(f"u{count - 1}", "c").limited
        changed.append(count)
        assert count == CLIENTS or not here.in_force
    assert here.in_force == [table]
    between = [b - a for a, b in itertools.pairwise([0, *changed])]
    assert max(between) <= 2 * AT_ONCE
    assert len([step for step in between if step]) >= CLIENTS / (2 * AT_ONCE)


def test_contexts_beyond_the_most_that_are_kept_are_freed_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.gateway.charging.contexts.MOST_CONTEXTS", 2_000)
    contexts = Here().rules.contexts
    kept = []
    for n in range(5_000):
        contexts.of(f"u{n}", "c")
        kept.append(len(contexts) + len(contexts._old_contexts))
    assert max(kept) <= 2_001
    assert max(a - b for a, b in itertools.pairwise(kept)) <= 256


def test_who_is_charged_where_is_forgotten_a_few_names_at_a_time() -> None:
    produce = Here().rules.managers.produce
    forgotten = []
    produce.update_quota(QuotaEntity.of(client_id="new"), 1.0, NOW)  # all are looked up again
    for n in range(CLIENTS):
        forgotten.append(len(produce._forgotten))
        produce.record(f"u{n}", "c", 1, NOW)
    assert forgotten[0] == CLIENTS
    assert not forgotten[-1]
    assert max(a - b for a, b in itertools.pairwise(forgotten)) <= 64


@pytest.mark.parametrize("default", [False, True])
def test_a_quota_that_changes_is_told_to_the_gates_it_concerns(
    default: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Here(None)
    who = QuotaEntity.of(user=DEFAULT) if default else QuotaEntity.of(user="u7")
    here.rules.load(QuotaTable({who: {CONSUMER: OLD}}), NOW)
    for n in range(300):
        key = GateKey(CONSUMER.name, f"u{n}", "")
        here.rules.gates.charged(key, 1_000, OLD, NOW)
    told = []
    requoted = Gate.requoted

    def counted(self: Gate, bound: float, now_ms: int) -> None:
        told.append(bound)
        requoted(self, bound, now_ms)

    monkeypatch.setattr(Gate, "requoted", counted)
    _, delta = QuotaTable({who: {CONSUMER: OLD}}).apply(
        [QuotaAlteration.of(who, (Op(CONSUMER, NEW),))]
    )
    by_step = [len(told) for _ in here.rules.updating(delta)]
    assert told == [NEW] * (300 if default else 1)
    assert max(b - a for a, b in itertools.pairwise([0, *by_step, len(told)])) <= 128
    gate = here.rules.gates.get(GateKey(CONSUMER.name, "u7", ""))
    assert gate is not None
    assert gate.opens_ms(NOW) == NOW + 500


async def test_a_new_limit_is_known_to_sessions_as_soon_as_it_judges() -> None:
    here = Here(None)
    here.rules.load(QuotaTable({QuotaEntity.of(user="nobody"): {PRODUCER: 1.0}}), NOW)
    table, delta = here.table.apply(here.altered(NEW))
    epoch = here.rules.contexts.epoch
    assert here.quota_changes.take(table, delta)
    work = asyncio.ensure_future(here.quota_changes.work())
    for _ in range(3):
        await asyncio.sleep(0)
    assert here.rules.contexts.epoch > epoch  # every session asks again for its context
    assert here.rules.context("u0", "c").limited
    work.cancel()


async def test_tables_that_come_meanwhile_wait_their_turn_small_ones_too() -> None:
    here = Here()
    first, one = here.table.apply(here.altered(NEW))
    second, two = first.apply(here.altered(3_000.0, 5, 6))
    third, three = second.apply(here.altered(None, 5, 7))
    assert here.quota_changes.take(first, one)
    assert not here.quota_changes.take(second, two)
    assert not here.quota_changes.take(third, three)
    assert not here.in_force
    await here.quota_changes.work()
    assert here.in_force == [first, second, third]
    assert here.bounds() == [500.0 if n in (5, 6) else NEW for n in range(CLIENTS)]
    about = [value for _, user, value in here.journal.lines if user == "u5"]
    assert about == [NEW, 3_000.0, None]
    assert not here.quota_changes.take(*third.apply(here.altered(9.0, 0, AT_ONCE)))
    assert here.bounds()[AT_ONCE - 1] == 9.0


async def test_a_broker_that_is_fronted_meanwhile_begins_with_the_table() -> None:
    here = Here()
    table, delta = here.table.apply(here.altered(NEW))
    assert here.quota_changes.take(table, delta)
    late = Here()
    late.rules.load(table, NOW)
    late.journal.lines.clear()
    here.brokers.extend(late.brokers)
    await here.quota_changes.work()
    assert here.bounds() == late.bounds() == [NEW] * CLIENTS
    assert late.journal.lines == []


async def test_a_new_broker_takes_the_table_in_steps_and_what_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written()
    settings = Settings.from_properties(
        {
            "headgate.upstream": "127.0.0.1:1",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.data.dir": str(tmp_path),
        }
    )
    users = {QuotaEntity.of(user=f"u{n}"): {PRODUCER: OLD} for n in range(CLIENTS)}
    gateway = Gateway(settings, table=QuotaTable(users), journal=written)
    ticks = itertools.count()
    monkeypatch.setattr(gateway, "_hangup", HangupWatch(asyncio.get_running_loop()))
    monkeypatch.setattr(gateway.work.slices, "_clock", lambda: 200_000 * next(ticks))
    front = asyncio.ensure_future(gateway._front(1))
    at_once = 0
    while not front.done():
        before = len(written.lines)
        await asyncio.sleep(0)
        at_once = max(at_once, len(written.lines) - before)
        if before and gateway.table.version == gateway.in_force.coming.version == 0:
            changed = QuotaAlteration.of(QuotaEntity.of(user="u3"), (Op(PRODUCER, NEW),))
            gateway.quotas.changed(*gateway.table.apply([changed]))
    broker = front.result()
    assert 0 < at_once <= 2 * 16
    assert broker.rules.managers.produce.bound(("u3", "")) == NEW
    assert broker.rules.managers.produce.bound((f"u{CLIENTS - 1}", "")) == OLD
    await gateway.stop(0)


async def test_a_store_that_comes_back_is_compared_in_steps_and_its_index_made_so() -> None:
    here = Here()
    many = [QuotaEntity.of(user=f"v{n}") for n in range(CLIENTS)]
    before = QuotaTable({entity: {PRODUCER: OLD} for entity in many[: CLIENTS - 5]})
    table = QuotaTable({entity: {PRODUCER: OLD} for entity in reversed(many[3:])})
    seen: list[tuple[QuotaTable, Any]] = []
    changes = QuotaChanges(
        here.slices, list, lambda *what: seen.append(what), lambda _: True, lambda: NOW
    )
    assert changes.take(table, before)
    work = asyncio.ensure_future(changes.work())
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    # Each entity of both is looked at, then each of the new one for the index; two steps a turn.
    assert turns >= 3 * CLIENTS / FEW / 2
    assert table.indexed
    ((_, delta),) = seen
    names = [f"v{n}" for n in (0, 1, 2, *range(CLIENTS - 5, CLIENTS))]
    assert [change.entity.user for change in delta.changes] == sorted(names)
    assert delta == table_delta(before, table)
    # So does one quota whose table has no index yet; where it has one, it is in force at once.
    for indexed in (False, True):
        table, delta = table.apply([QuotaAlteration.of(many[9], (Op(PRODUCER, 7.0 + indexed),))])
        if indexed:
            table.for_key(PRODUCER)
        assert changes.take(table, delta) is not indexed
        await changes.work()
    assert len(seen) == 3


@pytest.mark.parametrize("known", [0, 400])
def test_a_cluster_wide_quota_of_one_name_looks_at_one_bucket(
    known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = BpsQuotaManager(PRODUCER_BPS.type, 2, start_ms=NOW)  # type: ignore[arg-type]
    for n in range(known):
        manager.update_quota(QuotaEntity.of(user=f"u{n}"), 1_000, NOW)
        manager.record(f"u{n}", "c", 1, NOW)
    looked = 0
    bound = Overrides.bound

    def counted(self: Overrides, tags: tuple[str, str]) -> float:
        nonlocal looked
        looked += 1
        return bound(self, tags)

    monkeypatch.setattr(Overrides, "bound", counted)
    manager.update_quota(QuotaEntity.of(user="u3"), 4_000, NOW)
    assert looked <= 4
    monkeypatch.undo()
    if known:
        assert manager.record("u3", "c", 1, NOW).bound == 2_000
        assert manager.record("u4", "c", 1, NOW).bound == 500


def default_changes(here: Here, value: float | None, key: Any = PRODUCER) -> Any:
    return here.table.apply([QuotaAlteration.of(QuotaEntity.of(user=DEFAULT), (Op(key, value),))])


@pytest.mark.parametrize("value", [NEW, None])
async def test_a_default_quota_of_many_live_clients_changes_a_few_at_a_time(
    value: float | None,
) -> None:
    here = Here(None)
    table, delta = default_changes(here, value)
    new = UNLIMITED if value is None else value
    live = list(here.rules.managers.produce.sensors())
    assert here.quota_changes.take(table, delta)
    work = asyncio.ensure_future(here.quota_changes.work())
    changed = [0]
    while not work.done():
        await asyncio.sleep(0)
        bounds = [sensor.bound for sensor in live]
        count = bounds.count(new)
        assert bounds == [new] * count + [500.0] * (CLIENTS - count)
        if count:
            assert here.journal.lines == [("quota", "<default>", value)]
            assert here.rules.context("u0", "c").limited is (value is not None)
        changed.append(count)
        assert count == CLIENTS or not here.in_force
    assert here.in_force == [table]
    between = [b - a for a, b in itertools.pairwise(changed)]
    assert max(between) <= 2 * SENSORS_AT_ONCE
    assert len([step for step in between if step]) >= CLIENTS / (2 * SENSORS_AT_ONCE)


def test_a_split_quota_of_many_live_clients_changes_in_steps_and_scales_what_was_assigned() -> None:
    manager = BpsQuotaManager(PRODUCER_BPS.type, 2, start_ms=NOW)  # type: ignore[arg-type]
    manager.update_quota(QuotaEntity.of(user=DEFAULT), 1_000, NOW)
    for n in range(CLIENTS):
        manager.record(f"u{n}", "c", 1, NOW)
    manager.assign({("u0", ""): 800.0}, NOW, NOW + 9_000)
    steps = list(manager.updating(QuotaEntity.of(user=DEFAULT), 500, lambda: NOW))
    assert len(steps) == CLIENTS // SENSORS_AT_ONCE
    assert {sensor.user_tag: sensor.bound for sensor in manager.sensors()} == {
        f"u{n}": 250.0 if n else 400.0 for n in range(CLIENTS)
    }


def test_a_new_client_id_frees_few_of_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may bring hundreds: with 256 freed for each, 50 of them took 17 ms."""
    here = Here()
    monkeypatch.setattr("headgate.gateway.charging.contexts.MOST_CONTEXTS", 2_000)
    seen = [here.rules.context(f"u{n}", "c") for n in range(2_000)]
    alone = sys.getrefcount(object()) + 2  # held by the list and by the loop only
    gone = 0
    for n in range(500):
        here.rules.context(f"v{n}", "c")
        now_gone = sum(sys.getrefcount(one) == alone for one in seen)
        assert now_gone - gone <= 32
        gone = now_gone
    assert gone == 2_000  # and all are gone soon


def test_new_client_ids_in_place_of_others_are_looked_at_by_the_collector() -> None:
    """Python counts an object that is freed as one that was never made: it looked for 80 ms."""
    here = Here()
    looks = []
    before = gc.get_threshold()
    gc.set_threshold(0)
    gc.callbacks.append(lambda phase, info: looks.append(info["generation"]))
    try:
        for n in range(640):
            here.rules.context(f"u{n}", "c")
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*before)
    assert looks.count(1) == 2 * 10  # each tells its start and its stop


async def test_a_table_that_fails_on_its_way_keeps_none_behind_it_from_being_in_force() -> None:
    here = Here()
    seen: list[QuotaTable] = []

    def in_force(table: QuotaTable, _: Any) -> None:
        seen.append(table)
        if len(seen) == 1:
            raise RuntimeError("made up")

    changes = QuotaChanges(
        here.slices, lambda: here.brokers, in_force, lambda _: False, lambda: NOW
    )
    first, delta = here.table.apply(here.altered(NEW))
    assert changes.take(first, delta)
    second, delta = first.apply(here.altered(OLD))
    assert not changes.take(second, delta)  # waits behind the first
    await changes.work()
    assert seen == [first, second]
    assert set(here.bounds()) == {OLD}
    third, delta = second.apply(here.altered(NEW, 0, 2))
    assert not changes.take(third, delta)
    assert seen[-1] is third
