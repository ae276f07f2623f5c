"""
What each kind of request is charged, by which quotas, and as they are at which moment.

Requests go through a whole session. What they are charged is counted in the journal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pytest

from headgate.gateway.charging.journal import Journal
from headgate.gateway.charging.plans import RequestKind, build_plans
from headgate.gateway.session import commands
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import (
    CONSUMER,
    CONSUMER_BPS,
    CONSUMER_SHARES,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)
from headgate.quota.table import QuotaTable, table_delta
from headgate.wire import apis
from headgate.wire.header import build_request, is_flexible
from kit.playbook import START_MS

from .conftest import (
    Setup,
    answer,
    beaten,
    fetch,
    fetched,
    frame,
    gone_on,
    heartbeat,
    produced,
)
from .enforcement_kit import Client
from .enforcement_kit import made as made_rules

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")
CAPACITIES = {
    "headgate.capacity.producer_byte_rate": "1000000",
    "headgate.capacity.consumer_byte_rate": "1000000",
}
EVERY = (
    PRODUCER, PRODUCER_BPS, PRODUCER_SHARES, PRODUCER_IDS, CONSUMER, CONSUMER_BPS, CONSUMER_SHARES,
    MUTATION, REQUEST,
)  # fmt: skip
PRODUCING = {PRODUCER, PRODUCER_BPS, PRODUCER_SHARES}
FETCHING = {CONSUMER, CONSUMER_BPS, CONSUMER_SHARES}


class Charges(Journal):
    """The quota-ids that each quota type charged, and their bounds."""

    def __init__(self) -> None:
        self.by: dict[str, list[tuple[str, str, float]]] = {}

    def record(self, *row: Any) -> None:
        _, _, _, quota_type, _, amount, decision, *_ = row
        tags_and_bound = decision[1], decision[2], decision[3]
        if amount or quota_type == REQUEST.name:
            self.by.setdefault(quota_type, []).append(tags_and_bound)

    def note(self, kind: str, *row: Any, **more: Any) -> None:  # type: ignore[override]
        if kind in ("record", "strict"):
            self.record(*row)


def produce(acks: int = -1, producer_id: int = 7, client: str = "app") -> bytes:
    """A Produce v7 of one batch."""
    batch = struct.pack(">qiibihiqqqhii", 0, 49, 0, 2, 0, 0, 0, 0, 0, producer_id, 0, 0, 0)
    body = b"\xff\xff" + struct.pack(">hiih", acks, 1_000, 1, 1) + b"t"
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return build_request(0, 7, 1, client, body)


def share_fetch() -> bytes:
    """A ShareFetch v1 that acknowledges nothing."""
    body = b"\x02g\x07member" + struct.pack(">iiiiii", 1, 500, 1, 50_000, 500, 500) + b"\1\1\0"
    return build_request(apis.SHARE_FETCH, 1, 1, "app", body)


def share_fetched(size: int) -> bytes:
    return frame(struct.pack(">i", 1), bytes(size))


def made(gateway: Make, quotas: dict[QuotaEntity, dict[QuotaKey, float]]) -> tuple[Setup, Charges]:
    kept = Charges()
    shared = {PRODUCER_SHARES, CONSUMER_SHARES} & {key for keys in quotas.values() for key in keys}
    setup = gateway(quotas, CAPACITIES if shared else {}, journal=kept)
    setup.session.upstream_ready(START_MS)
    return setup, kept


def said(setup: Setup, data: bytes) -> bytes:
    """Have the client say something; answer what the gateway answers; return what was passed."""
    session = setup.session
    session.client_data(memoryview(bytearray(data)), START_MS)
    session.account_client(1_000_000)
    gone_on(session)
    for order in tuple(session.commands):
        if isinstance(order, commands.Ask):
            session.answer(order, answer(1, bytes(20)), START_MS)
    session.commands.clear()
    passed = b"".join(bytes(piece) for piece in session.to_broker)
    session.to_broker.clear()
    return passed


def told(setup: Setup, data: bytes) -> None:
    setup.session.broker_data(memoryview(bytearray(data)), START_MS)
    gone_on(setup.session)
    assert setup.session.closed is None, setup.session.closed


SPECIAL: dict[str, tuple[bytes, bytes | None, set[QuotaKey]]] = {
    "Produce": (produce(), produced(), PRODUCING | {PRODUCER_IDS, REQUEST}),
    "Produce acks=1": (produce(1), produced(), PRODUCING | {PRODUCER_IDS, REQUEST}),
    "Produce acks=0": (produce(0), None, PRODUCING | {PRODUCER_IDS}),
    "Produce without an id": (produce(-1, -1), produced(), PRODUCING | {REQUEST}),
    "Fetch": (fetch(), fetched(100), FETCHING | {REQUEST}),
    "ShareFetch": (share_fetch(), share_fetched(100), FETCHING | {REQUEST}),
    "DescribeClientQuotas": (build_request(48, 0, 1, "app", bytes(5)), None, {REQUEST}),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_each_kind_of_request_is_charged_by_each_quota_that_is_for_it_and_no_other(
    gateway: Make, name: str
) -> None:
    request, reply, by = SPECIAL[name]
    setup, kept = made(gateway, {ALICE: dict.fromkeys(EVERY, 1e6)})
    said(setup, request)
    if reply is not None:
        told(setup, reply)
    assert {key.name: 1 for key in by} == {key: len(rows) for key, rows in kept.by.items()}


@pytest.mark.parametrize("key", EVERY, ids=str)
@pytest.mark.parametrize("name", SPECIAL)
def test_a_quota_alone_charges_what_it_charges_beside_others(
    gateway: Make, name: str, key: QuotaKey
) -> None:
    """Among them those that are for a kind of request, and its byte rate, which has no limit."""
    request, reply, by = SPECIAL[name]
    setup, kept = made(gateway, {ALICE: {key: 1e6}})
    said(setup, request)
    if reply is not None:
        told(setup, reply)
    limited = {name for name, rows in kept.by.items() if rows[0][2] == 1e6 or "shares" in name}
    assert limited == ({key.name} if key in by else set())


RELAYED = sorted(
    {plan.key: plan for plan in build_plans().values()
     if plan.kind is RequestKind.RELAY and not plan.whole
     and plan.version <= apis.API[plan.key].max_version}.values(),
    key=lambda plan: plan.key,
)  # fmt: skip


@pytest.mark.parametrize("plan", RELAYED, ids=lambda plan: plan.name)
def test_any_other_request_is_charged_its_time_only(gateway: Make, plan: Any) -> None:
    setup, kept = made(gateway, {ALICE: dict.fromkeys(EVERY, 1e6)})
    tags = b"\0" if is_flexible(plan.key, plan.version) else b""
    request = build_request(plan.key, plan.version, 1, "app", bytes(30))
    assert said(setup, request) == request
    assert kept.by == {}  # charged when it is answered
    told(setup, frame(struct.pack(">i", 1), tags, bytes(30)))
    assert {key: len(rows) for key, rows in kept.by.items()} == {REQUEST.name: 1}


BOB = QuotaEntity.of(user="bob")
MOMENTS = ("before it", "half of it has come", "it was passed on", "it was answered")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("who", ["the quota", "the payer"])
@pytest.mark.parametrize("name", [name for name in SPECIAL if name != "DescribeClientQuotas"])
def test_what_is_in_force_at_the_moment_of_the_charge_decides(
    gateway: Make, name: str, who: str, moment: str
) -> None:
    """A change of a quota's value, or of the entity that pays, at each moment of a request."""
    request, reply, by = SPECIAL[name]
    by = by - {PRODUCER_IDS}  # users pay these, never a client-id
    before = QuotaTable.of({ALICE: dict.fromkeys(by, 1e6)}, version=1)
    pair = QuotaEntity.of(user="alice", client_id="app")
    entity = ALICE if who == "the quota" else pair
    after = QuotaTable.of({**before.entities, entity: dict.fromkeys(by, 2e6)}, version=2)
    setup, kept = made(gateway, dict(before.entities))
    half, at = len(request) - 20, MOMENTS.index(moment)

    def change(now: int) -> None:
        if at == now:
            setup.rules.update(table_delta(before, after), START_MS)

    change(0)
    said(setup, request[:half])
    change(1)
    said(setup, request[half:])
    change(2)
    if reply is not None:
        told(setup, reply)
    change(3)
    # A Produce that was sure to fit is charged when its quotas are about to change, by the old.
    charged_at = 2 if by & FETCHING else 1
    tags = ("alice", "app") if who == "the payer" else ("alice", "")
    new = (*tags, 2e6), ("alice", "", 1e6)
    for key in by:
        if key in (PRODUCER_SHARES, CONSUMER_SHARES):  # a weight is no bound
            want = {row[:2] for row in new[:1]} if at <= charged_at else {("alice", "")}
            assert {row[:2] for row in kept.by[key.name]} == want
        else:
            assert kept.by[key.name] == [new[0] if at <= charged_at else new[1]], key


def test_a_cut_request_is_charged_by_what_is_in_force_when_it_ends(gateway: Make) -> None:
    before = QuotaTable.of({ALICE: dict.fromkeys(PRODUCING, 1e6)}, version=1)
    after = QuotaTable.of({ALICE: dict.fromkeys(PRODUCING, 2e6)}, version=2)
    setup, kept = made(gateway, dict(before.entities))
    said(setup, produce()[:-20])
    setup.rules.update(table_delta(before, after), START_MS)
    setup.session.close("client-gone", "", START_MS)
    for key in (PRODUCER, PRODUCER_BPS):
        assert kept.by[key.name] == [("alice", "", 2e6)]
    assert len(kept.by[PRODUCER_SHARES.name]) == 1


@pytest.mark.parametrize("who", ["the quota", "the payer"])
@pytest.mark.parametrize("moment", MOMENTS[:2])
def test_a_connection_that_was_charged_before_is_charged_by_what_is_in_force_now(
    gateway: Make, who: str, moment: str
) -> None:
    before = QuotaTable.of({ALICE: {PRODUCER: 1e6}}, version=1)
    entity = ALICE if who == "the quota" else QuotaEntity.of(user="alice", client_id="app")
    after = QuotaTable.of({**before.entities, entity: {PRODUCER: 2e6}}, version=2)
    setup, kept = made(gateway, dict(before.entities))
    said(setup, produce())
    told(setup, produced())
    cut = 0 if moment == "before it" else len(produce()) - 20
    said(setup, produce()[:cut])
    setup.rules.update(table_delta(before, after), START_MS)
    said(setup, produce()[cut:])
    told(setup, produced())
    now = ("alice", "", 2e6) if who == "the quota" else ("alice", "app", 2e6)
    assert kept.by[PRODUCER.name] == [("alice", "", 1e6), now]


NO_IDS: dict[str, tuple[bytes, bytes | None, set[QuotaKey]]] = {
    **{name: SPECIAL[name] for name in SPECIAL if name != "DescribeClientQuotas"},
    "Heartbeat": (heartbeat(), beaten(), {REQUEST}),
}
TINY = 1e-3
"""A quota that no request fits: what fits may be charged before it is answered."""


class Told(Charges):
    """What each quota type charged and throttled, and what was told."""

    def __init__(self) -> None:
        super().__init__()
        self.amounts: dict[str, float] = {}
        self.throttles: dict[str, list[int]] = {}
        self.told: set[int] = set()

    def record(self, *row: Any) -> None:
        super().record(*row)
        _, _, _, quota_type, _, amount, decision, told_ms, *_ = row
        self.amounts[quota_type] = amount
        self.throttles.setdefault(quota_type, []).append(decision[0])
        self.told.add(told_ms)


LIMITING = tuple(key for key in EVERY if key not in (PRODUCER_SHARES, CONSUMER_SHARES, MUTATION))
"""Those that throttle a lone client; shares do so while their capacity is contested."""
HALF_A_SECOND = {PRODUCER: 10.5, CONSUMER: 10.5, PRODUCER_BPS: 1.5, CONSUMER_BPS: 1.5,
                 PRODUCER_IDS: 11.5}  # fmt: skip
"""A lone request that is charged this many times its quota waits half a second: a rate's windows
and the buckets' bursts are ten, one and eleven seconds."""


def judged(gateway: Make, name: str, quotas: dict[QuotaKey, float]) -> Told:
    """Have a request charged; where a throttle is due, it is told and waited for."""
    request, reply, _ = {**SPECIAL, **NO_IDS}[name]
    kept = Told()
    setup = gateway({ALICE: quotas}, journal=kept)
    setup.session.upstream_ready(START_MS)
    said(setup, request)
    if reply is not None:
        setup.session.broker_data(memoryview(bytearray(reply)), START_MS)
    assert {key: len(rows) for key, rows in kept.by.items()} == dict.fromkeys(
        {key.name for key in quotas} | kept.by.keys(), 1
    )
    most = max(each[0] for each in kept.throttles.values())
    assert kept.told == {most}
    assert setup.session.throttled_until_ms == (START_MS + most if most else 0)
    answers = b"".join(bytes(piece) for piece in setup.session.to_client)
    assert reply is None or struct.pack(">i", most) in answers
    return kept


def cases() -> Iterator[Any]:
    for name, (_, _, by) in NO_IDS.items():
        for key in sorted(by, key=str):
            for who in ("the quota", "the payer"):
                if who == "the quota" or key != PRODUCER_IDS:  # users pay these, never a client-id
                    yield pytest.param(name, key, who, id=f"{name}-{key}-{who}")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("name", "key", "who"), list(cases()))
def test_one_quota_alone_decides_as_it_is_at_the_moment_of_the_charge(
    gateway: Make, name: str, key: QuotaKey, who: str, moment: str
) -> None:
    """Alone, a quota is charged in other ways than beside others. It was charged to before."""
    request, reply, _ = NO_IDS[name]
    value = TINY
    if key in HALF_A_SECOND:  # one request fits, a second one doesn't
        amount = judged(gateway, name, {key: 1e9}).amounts[key.name]
        value = 1.5 * amount / (HALF_A_SECOND[key] - 0.5)
    entity = ALICE if who == "the quota" else QuotaEntity.of(user="alice", client_id="app")
    first = QuotaTable.of({ALICE: {key: value}}, version=2)
    before = first if key in HALF_A_SECOND else QuotaTable.of({BOB: {key: TINY}}, version=1)
    after = QuotaTable.of({**first.entities, entity: {key: value * 1.1}}, version=3)
    setup, kept = made(gateway, dict(before.entities))
    said(setup, request.replace(struct.pack(">q", 7), struct.pack(">q", 8)))  # its producer id
    if reply is not None:
        told(setup, reply)
    if before is not first:  # else what was charged is at hand
        setup.rules.update(table_delta(before, first), START_MS)
    kept.by.clear()
    half, at = len(request) - 20, MOMENTS.index(moment)

    def change(now: int) -> None:
        if at == now:
            setup.rules.update(table_delta(first, after), START_MS)

    change(0)
    said(setup, request[:half])
    change(1)
    said(setup, request[half:])
    change(2)
    if reply is not None:
        told(setup, reply)
    change(3)
    # A weight limits nothing as long as its capacity isn't contested: the request fits.
    is_new = at <= (1 if reply is None or key == PRODUCER_SHARES else 2)
    tags = ("alice", "app") if who == "the payer" and is_new else ("alice", "")
    ((*charged, bound),) = kept.by[key.name]
    assert tuple(charged) == tags
    if key not in (PRODUCER_SHARES, CONSUMER_SHARES):  # a weight is no bound
        assert bound == (value * 1.1 if is_new else value)


def pairs() -> Iterator[Any]:
    for name, (_, _, by) in {**SPECIAL, **NO_IDS}.items():
        for longer, shorter in permutations([key for key in LIMITING if key in by], 2):
            yield pytest.param(name, longer, shorter, id=f"{name}-{longer}-{shorter}")


@pytest.mark.parametrize(("name", "longer", "shorter"), list(pairs()))
def test_of_two_quotas_both_are_charged_once_and_the_longer_throttle_is_told(
    gateway: Make, name: str, longer: QuotaKey, shorter: QuotaKey
) -> None:
    """The request quota's throttle is a second where it is exceeded, by its window."""
    amounts = judged(gateway, name, {longer: 1e9, shorter: 1e9}).amounts
    quotas = {longer: 1e-3, shorter: 1e-3}
    if shorter != REQUEST:
        quotas[shorter] = amounts[shorter.name] / HALF_A_SECOND[shorter]
    throttles = judged(gateway, name, quotas).throttles
    (long_ms,), (short_ms,) = throttles[longer.name], throttles[shorter.name]
    assert long_ms > short_ms > 0


@pytest.mark.parametrize(("partitions", "told_ms"), [(20, 9_000), (11.5, 1_000)])
@pytest.mark.parametrize("api", [apis.CREATE_TOPICS, apis.DELETE_TOPICS, apis.CREATE_PARTITIONS])
def test_of_mutations_and_time_the_longer_throttle_is_told(
    api: int, partitions: float, told_ms: int
) -> None:
    """By 20 partitions, a bucket of 11 at 1 a second is 9 s below zero."""
    rules, kept = made_rules({ALICE: {MUTATION: 1.0, REQUEST: 1e-3}})
    client: Any = Client()
    client.spent_ns = 900_000_000
    context, plan = rules.context("alice", "app"), build_plans()[api << 16 | 1]
    quota = rules.mutations.quota(context, plan, START_MS)
    quota.record(partitions, START_MS)
    kept.rows.clear()
    assert rules.mutation(client, context, plan, 100, 0, quota, START_MS) == told_ms
    rows = {row[1]: row for row in kept.rows}
    assert len(kept.rows) == len(rows) == 2
    assert rows[REQUEST.name][4].throttle_time_ms == 1_000
    assert rows[MUTATION.name][4].throttle_time_ms == (9_000 if partitions == 20 else 500)
