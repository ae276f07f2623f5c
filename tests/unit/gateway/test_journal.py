"""Every decision of the gateway can be made again from its journal, to the millisecond."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from headgate.gateway.charging.managers import Managers
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.usage_journal import UsageJournal
from headgate.quota.entity import QuotaEntity, entity_from_path
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST, QuotaKey
from headgate.quota.table import QuotaTable, table_delta
from headgate.throttle.registry import UNCHARGED, Throttle
from headgate.usage.format import Event
from headgate.usage.rows import batch_of
from kit.playbook import After, FromBroker, FromClient, Mute, Ready, ToBroker, ToClient

from .conftest import Setup, beaten, fetch, fetched, heartbeat, produce, produced

Make = Callable[..., Setup]


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.written = self.dropped = 0

    def start(self) -> None:
        return None

    def append(self, event: tuple[Any, ...]) -> None:
        self.events.append(event)

    def close(self) -> None:
        return None


def test_a_flood_of_client_ids_frees_a_few_clients_at_a_time() -> None:
    """All that is kept of thousands of clients takes milliseconds to be freed."""
    freed = 0

    class Context:
        principal = "alice"

        def __init__(self, client_id: str) -> None:
            self.client_id = client_id

        def __del__(self) -> None:
            nonlocal freed
            freed += 1

    journal = UsageJournal(Kept(), 11, 1_000)  # type: ignore[arg-type]
    journal.start(1, 0, {PRODUCER.name: lambda _tags: {}})
    plan: Any = next(iter(build_plans(pass_unknown=False).values()))
    most = 0
    for number in range(20_000):
        client: Any = SimpleNamespace(
            broker_id=1, listener="A", client_ip="10.0.0.1", connection="c", origins={},
            origin_seen={},
        )  # fmt: skip
        context: Any = Context(f"app-{number}")
        before = freed
        decision = Throttle(0, "", context.client_id, 1e6)
        journal.record(client, context, plan, PRODUCER.name, 0, 1.0, decision, 0, 1, 1, None)
        del client, context
        most = max(most, freed - before)
    assert 0 < most <= 20
    assert freed >= 20_000 - 2 * 4_096


def test_what_connections_share_is_worked_out_once_and_each_keeps_its_own_name() -> None:
    asked = 0

    def sensor(tags: tuple[str, str]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"rule": "sampled", "num_samples": 11, "window_ms": 1_000}

    writer = Kept()
    journal = UsageJournal(writer, 11, 1_000)  # type: ignore[arg-type]
    journal.start(1, 0, {PRODUCER.name: sensor})
    context: Any = Mock(principal="alice", client_id="app")  # hashed by identity, as contexts are
    plan: Any = next(iter(build_plans(pass_unknown=False).values()))
    names = [("A", "10.0.0.1", 1), ("A", "10.0.0.2", 1), ("B", "10.0.0.1", 1), ("A", "10.0.0.1", 2)]
    for number, (listener, address, broker_id) in enumerate(names * 2):
        client: Any = SimpleNamespace(
            origin_seen={}, origins={}, broker_id=broker_id, listener=listener,
            client_ip=address, connection=f"c{number}",
        )  # fmt: skip
        for charged in (Throttle(0, "alice", "", 5.0), UNCHARGED):
            journal.record(
                client, context, plan, PRODUCER.name, 7, 1.0, charged, 0, 1, 0, None
            )  # fmt: skip
        journal.connection(broker_id, listener, address, 7, 0)
    told = [event[0] for event in writer.events[1:]]
    assert [
        (o.kind, o.broker_id, o.listener, o.client_ip, o.connection, o.principal, o.quota_user)
        for o in told
    ] == [
        row
        for number, (listener, address, broker_id) in enumerate(names * 2)
        for row in (
            ("record", broker_id, listener, address, f"c{number}", "alice", "alice"),
            ("norecord", broker_id, listener, address, f"c{number}", "alice", ""),
            ("connection", broker_id, listener, address, None, None, None),
        )
    ]
    assert {o.num_samples for o in told if o.kind != "connection"} == {11}
    assert asked == 2 * 3  # by decision, and by broker and listener; never by connection
    assert len({id(o) for o in told if o.kind == "connection"}) == len(names)


TABLES = [
    {QuotaEntity.of(user="alice"): {PRODUCER: 5_000.0, CONSUMER: 8_000.0, REQUEST: 0.5}},
    {QuotaEntity.of(client_id="app"): {PRODUCER: 2_000.0, CONSUMER: 3_000.0}},
    {
        QuotaEntity.of(user="alice", client_id="app"): {PRODUCER: 9_000.0},
        QuotaEntity.of(user="alice"): {CONSUMER: 4_000.0},
    },
    {},
]


def converse(setup: Setup, seed: int, turns: int) -> None:
    """Talk at random, with quotas that change now and then."""
    chance = random.Random(seed)
    play = setup.play
    play >> Ready()
    table = QuotaTable.of(TABLES[0])
    for number in range(1, turns + 1):
        play.said.clear()
        if chance.random() < 0.03:
            after = QuotaTable.of(chance.choice(TABLES), version=table.version + 1)
            setup.rules.update(table_delta(table, after), play.now_ms)
            table = after
        asked, told = chance.choice(
            [
                (produce(chance.randint(60, 8_000), number), produced(number)),
                (produce(chance.randint(60, 8_000), number, acks=0), b""),
                (fetch(number, max_bytes=100_000), fetched(chance.randint(0, 9_000), number)),
                (heartbeat(number), beaten(number)),
            ]
        )
        play >> FromClient(asked)
        play.said.clear()
        play.session.account_client(chance.randint(0, 4_000_000))
        if told:
            play >> FromBroker(told)
            play.session.account_broker(chance.randint(0, 4_000_000), play.now_ms)
        play.said.clear()
        pause = chance.choice([0, 1, 7, 130, 999, 1_000, 2_500])
        play >> After(max(pause, play.session.throttled_until_ms - play.now_ms))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("pacing", ["kafka", "smooth"])
def test_replayed_throttles_are_the_same_every_one(gateway: Make, seed: int, pacing: str) -> None:
    writer = Kept()
    journal = UsageJournal(writer, 11, 1_000)  # type: ignore[arg-type]
    setup = gateway(TABLES[0], {"headgate.pacing": pacing}, journal=journal)
    converse(setup, seed, 400)

    replayed: Managers | None = None
    decided = throttled = 0
    for raw in writer.events:
        event = Event(*raw)
        origin, now = event.origin, int(event.t_ms)
        if origin.kind == "start":
            replayed = Managers(setup.settings, now)
            continue
        assert replayed is not None
        if origin.kind == "quota":
            value = None if origin.value != origin.value else origin.value
            key = QuotaKey.parse(origin.quota_type)
            replayed.by_key[key].update_quota(entity_from_path(origin.entity), value, now)
            continue
        if origin.kind == "bound":  # the quota's own event moved it here
            assert (origin.rule, pacing) == ("paced", "smooth")
            continue
        if origin.kind == "told":  # no charge
            assert event.told_throttle_time_ms is not None
            continue
        manager = replayed.by_key[QuotaKey.parse(origin.quota_type)]
        if event.throttle_time_ms is None:
            manager.record_no_throttle(origin.principal, origin.client_id, event.amount, now)
            continue
        decision = manager.record(origin.principal, origin.client_id, event.amount, now)
        assert decision.throttle_time_ms == event.throttle_time_ms
        if origin.kind == "record":
            assert (decision.user_tag, decision.client_tag) == (
                origin.quota_user,
                origin.quota_client_id,
            )
        decided += 1
        throttled += event.throttle_time_ms > 0
    assert decided > 200
    assert throttled > 5


def test_events_make_a_batch_of_the_journals_schema(gateway: Make) -> None:
    writer = Kept()
    setup = gateway(TABLES[0], journal=UsageJournal(writer, 11, 1_000))  # type: ignore[arg-type]
    converse(setup, 1, 50)
    batch = batch_of(writer.events, "worker", 1)
    kinds = batch["kind"].to_pylist()
    assert kinds[0] == "start"
    assert kinds[1:4] == ["quota"] * 3
    told = batch["told_throttle_time_ms"].to_pylist()
    ours = batch["throttle_time_ms"].to_pylist()
    records = [i for i, kind in enumerate(kinds) if kind == "record" and ours[i] is not None]
    assert records
    assert all(told[i] >= 0 for i in records)
    assert {batch["principal"].to_pylist()[i] for i in records} == {"alice"}


@pytest.mark.parametrize("kind", ["produce", "fetch", "heartbeat"])
@pytest.mark.parametrize("upstream_ms", [0, 400, 70_000])
def test_the_larger_of_two_throttles_is_told_and_journaled_beside_both(
    gateway: Make, kind: str, upstream_ms: int
) -> None:
    writer = Kept()
    quotas = {QuotaEntity.of(user="alice"): {PRODUCER: 1_000.0, CONSUMER: 1_000.0, REQUEST: 0.001}}
    setup = gateway(quotas, journal=UsageJournal(writer, 11, 1_000))  # type: ignore[arg-type]
    play = setup.play
    asked, answered = {
        "produce": (produce(11_000, 1), lambda ms: produced(1, ms)),
        "fetch": (fetch(1, max_bytes=10_000), lambda ms: fetched(11_000, 1, ms)),
        "heartbeat": (heartbeat(1), lambda ms: beaten(1, ms)),
    }[kind]
    setup.session.account_client(5_000_000)
    play >> Ready() >> FromClient(asked)
    play.said.clear()
    play.now_ms += 300
    play >> FromBroker(answered(upstream_ms))
    batch = batch_of(writer.events, "worker", 1).to_pylist()
    rows = [row for row in batch if row["kind"] == "record" and row["throttle_time_ms"] is not None]
    ours = max(row["throttle_time_ms"] for row in rows)
    assert ours > 0
    assert {row["told_throttle_time_ms"] for row in rows} == {ours}  # for so long it is muted
    assert {row["upstream_throttle_time_ms"] for row in rows} == {None}
    (answer,) = (row for row in batch if row["kind"] == "told")
    left = ours if kind == "fetch" else ours - 300  # a fetch is charged when it is answered
    told = max(left, upstream_ms)
    names = ("t_ms", "throttle_time_ms", "told_throttle_time_ms", "upstream_throttle_time_ms")
    assert [answer[name] for name in names] == [play.now_ms, left, told, upstream_ms]
    (why,) = (row for row in rows if row["quota_type"] == answer["quota_type"])
    assert why["throttle_time_ms"] == ours
    assert answer["t_ms"] - answer["amount"] == why["t_ms"]
    assert [answer[name] for name in ("quota_user", "api_key", "connection")] == [
        why[name] for name in ("quota_user", "api_key", "connection")
    ]
    play << ToClient(answered(told))
    if kind == "fetch":
        play << Mute(ours)
    if upstream_ms > left:
        play << Mute(upstream_ms)


def test_an_answer_says_which_charge_it_is_about_though_it_comes_after_a_later_ones(
    gateway: Make,
) -> None:
    """acks=0 is answered by nobody: what it is told is written down as it passes."""
    writer = Kept()
    quotas = {QuotaEntity.of(user="alice"): {PRODUCER: 1_000.0}}
    setup = gateway(quotas, journal=UsageJournal(writer, 11, 1_000))  # type: ignore[arg-type]
    play = setup.play
    play >> Ready() >> FromClient(produce(11_000, 1))
    play.said.clear()
    first_ms = play.now_ms
    play >> After(setup.session.throttled_until_ms - play.now_ms)
    play.said.clear()
    play >> FromClient(produce(9_000, 2, acks=0))
    play.said.clear()
    second_ms = play.now_ms
    play.now_ms += 40
    play >> FromBroker(produced(1))
    rows = batch_of(writer.events, "w", 1).to_pylist()
    charged = [(r["t_ms"], r["throttle_time_ms"] > 0) for r in rows if r["kind"] == "record"]
    assert charged == [(first_ms, True), (second_ms, True)]
    told = [(row["t_ms"], row["amount"]) for row in rows if row["kind"] == "told"]
    assert told == [(second_ms, 0), (second_ms + 40, second_ms + 40 - first_ms)]


def test_a_brokers_throttle_alone_is_written_down_under_no_quota(gateway: Make) -> None:
    writer = Kept()
    setup = gateway(journal=UsageJournal(writer, 11, 1_000))  # type: ignore[arg-type]
    play = setup.play
    play >> Ready() >> FromClient(produce(100, 1) + heartbeat(2)) << ToBroker()
    play >> FromBroker(produced(1, 70)) << ToClient(produced(1, 70)) << Mute(70)
    play >> FromBroker(beaten(2, 90)) << ToClient(beaten(2, 90)) << Mute(90)
    rows = [row for row in batch_of(writer.events, "w", 1).to_pylist() if row["kind"] == "told"]
    assert [(r["quota_type"], r["api_key"], r["told_throttle_time_ms"]) for r in rows] == [
        ("", 0, 70), ("", 12, 90),
    ]  # fmt: skip
    assert {(r["throttle_time_ms"], r["amount"], r["rule"]) for r in rows} == {(None, None, None)}
