"""Large requests of administrators: bounded where no client comes near, else read in steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.client.quota_messages import draft_entity_steps, entity_steps
from headgate.config import MOST_ADDRESSES, Settings
from headgate.errors import ApiError, ConfigError, KafkaError
from headgate.gateway.answered_here import broker_settings
from headgate.gateway.answered_here.admin_listener import MOST_FILTERS, describe
from headgate.gateway.answered_here.broker_alteration import Alteration, _some, is_ours
from headgate.gateway.answered_here.broker_settings import MOST_BROKERS
from headgate.gateway.background import BackgroundWork
from headgate.gateway.cluster.quotas import QuotasInForce
from headgate.gateway.session.commands import Ask
from headgate.gateway.store_link.in_force import InForceNow
from headgate.quota.alteration import entity_error
from headgate.quota.entity import KNOWN_TYPES, QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from headgate.steps import FEW, Work, finish, freeing
from headgate.store.broker_rules import (
    MOST_SETTINGS,
    as_applied,
    base_setting,
    validate_broker_configs,
)
from headgate.wire.apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from headgate.wire.messages import configs, decode_response, draft, encode_request, quotas

from .conftest import support_of

OVERRIDES = "max.connections.per.ip.overrides"
BASE = {"headgate.upstream": "kafka:9092", "headgate.broker.id.min": "1"}
MANY = 20 * FEW


def count_of(work: Work[Any]) -> int:
    """How many steps there are."""
    return sum(1 for _ in work)


# -- settings of brokers


class Asked:
    """An administrator's request about brokers, and what becomes of it."""

    def __init__(self) -> None:
        settings = Settings.from_properties(
            {**BASE, "headgate.broker.id.max": "1", "super.users": "User:alice"}
        )
        self.answers = support_of(None, settings)
        self.answered: bytes | None = None
        self.forwarded: bytes | None = None

    async def ask(self, key: int, version: int, request: Any) -> None:
        plan: Any = SimpleNamespace(key=key, version=version, name="asked")
        frame = encode_request(key, version, 7, "tool", request)
        link: Any = SimpleNamespace(
            answer=lambda ask, frame: setattr(self, "answered", frame),
            forward=lambda ask, frame, merge=None: setattr(self, "forwarded", frame),
        )
        ask = Ask(plan, 7, "tool", 14 + len("tool"), frame, "alice")
        await broker_settings.split(self.answers, link, ask)


def brokers(count: int) -> tuple[configs.AlterResource, ...]:
    return tuple(configs.AlterResource(configs.BROKER, str(n), ()) for n in range(count))


@pytest.mark.parametrize(
    ("key", "version"), [(ALTER_CONFIGS, 1), (INCREMENTAL_ALTER_CONFIGS, 0), (DESCRIBE_CONFIGS, 1)]
)
async def test_too_many_brokers_in_one_request_are_refused_every_one(
    key: int, version: int
) -> None:
    asked, resources = Asked(), brokers(MOST_BROKERS + 1)
    request: Any = configs.AlterConfigsRequest(resources, False)
    if key == DESCRIBE_CONFIGS:
        named = (configs.DescribeResource(configs.BROKER, r.resource_name, None) for r in resources)
        request = configs.DescribeConfigsRequest(tuple(named))
    await asked.ask(key, version, request)
    assert asked.forwarded is None
    assert asked.answered is not None
    response = decode_response(key, version, asked.answered)
    told = response.results if key == DESCRIBE_CONFIGS else response.responses
    assert [r.resource_name for r in told] == [r.resource_name for r in resources]
    assert {r.error_code for r in told} == {KafkaError.INVALID_REQUEST}
    assert told[0].error_message == "1001 brokers in one request; 1000 are possible at most"


async def test_as_many_as_are_possible_are_passed_on() -> None:
    asked = Asked()
    request = configs.AlterConfigsRequest(brokers(MOST_BROKERS), False)
    await asked.ask(INCREMENTAL_ALTER_CONFIGS, 0, request)
    assert asked.answered is None
    assert asked.forwarded is not None


async def test_settings_of_a_broker_are_looked_at_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked()
    at_once, most = 0, 0

    def counted(name: str) -> bool:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        return is_ours(name)

    async def run(work: Work[Any]) -> Any:
        nonlocal at_once
        while True:
            at_once = 0
            try:
                next(work)
            except StopIteration as end:
                return end.value
            await asyncio.sleep(0)

    monkeypatch.setattr("headgate.gateway.answered_here.broker_alteration.is_ours", counted)
    monkeypatch.setattr(asked.answers.slices, "run", run)
    changes = tuple(configs.AlterConfig(f"x{n}", "1") for n in range(MANY))
    resource = configs.AlterResource(configs.BROKER, "1", changes)
    await asked.ask(INCREMENTAL_ALTER_CONFIGS, 0, configs.AlterConfigsRequest((resource,), False))
    assert asked.forwarded is not None
    assert 0 < most <= FEW


def test_the_brokers_answer_is_joined_in_steps() -> None:
    plan: Any = SimpleNamespace(key=INCREMENTAL_ALTER_CONFIGS, version=0, name="asked")
    made = Alteration(Asked().answers, None, Ask(plan, 7, "tool", 0, b"", "alice"), None, ())  # type: ignore[arg-type]
    results = tuple(configs.ResourceResult(configs.TOPIC, f"t{n}") for n in range(MANY))
    response = configs.AlterConfigsResponse(results)
    assert finish(made._results(response)) == results
    assert count_of(made._results(response)) == MANY // FEW


def test_an_error_names_a_few_settings() -> None:
    assert _some(f"s{n}" for n in range(3)) == "s0, s1, s2"
    assert _some(f"s{n}" for n in range(1_000)).endswith("s8, s9 and 990 others")


# -- what a store keeps for brokers


def addresses(count: int) -> str:
    return ",".join(f"10.0.{n >> 8}.{n & 255}:5" for n in range(count))


def test_addresses_with_limits_of_their_own_are_bounded() -> None:
    most = addresses(MOST_ADDRESSES)
    assert validate_broker_configs("1", {OVERRIDES: most}, {}) == {OVERRIDES: most}
    with pytest.raises(ApiError, match="1001 addresses; 1000 are possible at most"):
        validate_broker_configs("1", {OVERRIDES: addresses(MOST_ADDRESSES + 1)}, {})
    stored = {OVERRIDES: addresses(MOST_ADDRESSES + 1)}  # by another Headgate, or not by one
    assert as_applied(stored) == stored
    file = {**BASE, "headgate.broker.id.max": "1"}
    assert (
        len(Settings.from_properties({**file, OVERRIDES: most}).max_connections_per_ip_overrides)
        == MOST_ADDRESSES
    )
    with pytest.raises(ConfigError, match="1001 addresses; 1000 are possible at most"):
        Settings.from_properties({**file, OVERRIDES: addresses(MOST_ADDRESSES + 1)})


def test_no_message_quotes_a_value_as_long_as_a_request() -> None:
    for name in (OVERRIDES, "max.connections"):
        with pytest.raises(ApiError) as caught:
            validate_broker_configs("1", {name: "x" * 100_000 + ":1"}, {})
        assert len(caught.value.message) < 1_000


def test_settings_kept_of_one_broker_are_bounded_however_they_come() -> None:
    def names(first: int, count: int) -> dict[str, str | None]:
        return {f"listener.name.l{first + n}.max.connections": "7" for n in range(count)}

    full: dict[str, Any] = names(0, MOST_SETTINGS)
    assert base_setting(next(iter(full))) == "max.connections"
    assert len(validate_broker_configs("1", full, {})) == MOST_SETTINGS
    for ops, stored in ((names(0, MOST_SETTINGS + 1), {}), (names(MOST_SETTINGS, 1), {"1": full})):
        with pytest.raises(ApiError, match="1001 settings kept here of one broker"):
            validate_broker_configs("1", ops, stored)
    # One goes and one comes; and what others have written can be put in order.
    validate_broker_configs("1", {**names(MOST_SETTINGS, 1), next(iter(full)): None}, {"1": full})
    beyond: dict[str, Any] = names(0, 2 * MOST_SETTINGS)
    validate_broker_configs("1", {next(iter(full)): None}, {"1": beyond})


async def test_limits_of_many_brokers_change_one_after_the_other() -> None:
    limited: list[int] = []

    def broker(number: int) -> Any:
        return SimpleNamespace(limits_changed=lambda limits: limited.append(number))

    settings = Settings.from_properties({**BASE, "headgate.broker.id.max": "40"})
    now, work = InForceNow(settings, QuotaTable(), None), BackgroundWork()
    fronted: Any = {n: broker(n) for n in range(40)}
    made = QuotasInForce(now, fronted, work, lambda: None)
    made.limit_connections()
    assert len(limited) < 5
    await asyncio.gather(*work.tasks._tasks)
    assert limited == list(range(40))


# -- entities and filters


def parts(count: int) -> Iterator[quotas.EntityPart]:
    return (quotas.EntityPart(f"t{n}", "x") for n in range(count))


def test_of_an_entity_no_more_is_read_than_makes_it_wrong() -> None:
    rest = parts(MANY)
    entity = finish(entity_steps(rest))
    assert len(entity) == len(KNOWN_TYPES) + 1
    assert entity_error(entity) is not None
    assert next(rest).entity_type == f"t{len(KNOWN_TYPES) + 1}"
    drafted = finish(draft_entity_steps(draft.DraftEntityPart(f"t{n}", "x") for n in range(MANY)))
    assert len(drafted) == len(KNOWN_TYPES) + 1


def test_one_that_repeats_its_types_is_read_in_steps_and_the_last_counts() -> None:
    repeated = [quotas.EntityPart("user", f"u{n}") for n in range(MANY)]
    assert finish(entity_steps(repeated)) == QuotaEntity.of(user=f"u{MANY - 1}")
    assert count_of(entity_steps(repeated)) == MANY // FEW


def test_filters_of_one_draft_request_are_bounded() -> None:
    table = QuotaTable.of({QuotaEntity.of(user="u1"): {PRODUCER: 1.0}})

    def told(count: int) -> Any:
        rule = draft.Filter("user", "PREFIX", "u")
        return finish(describe(table, draft.DescribeQuotasRequest((rule,) * count)))[0]

    assert told(MOST_FILTERS).error_code == 0
    beyond = told(MOST_FILTERS + 1)
    assert beyond.error_code == KafkaError.INVALID_REQUEST
    assert beyond.error_message == "101 filters in one request; 100 are possible at most"


# -- many entities


async def test_entities_that_cant_be_altered_without_a_store_are_told_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked()
    ran = asked.answers.slices.run
    counts: list[int] = []

    async def counted(work: Work[Any]) -> Any:
        def steps() -> Work[Any]:
            counts.append(0)
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    return end.value
                counts[-1] += 1
                yield

        return await ran(steps())

    monkeypatch.setattr(asked.answers.slices, "run", counted)
    monkeypatch.setattr(asked.answers, "_trouble", lambda: None)
    alterations: Any = [
        SimpleNamespace(entity=QuotaEntity.of(user=f"u{n}"), ops=()) for n in range(MANY)
    ]
    results = await asked.answers.alter(alterations, validate_only=True, who="w", tool="t")
    assert len(results) == MANY
    assert counts == [MANY]


def test_a_list_is_freed_a_few_at_a_time() -> None:
    lists = [list(range(MANY)), list(range(FEW))]
    left = [sum(map(len, lists)) for _ in freeing(*lists)]
    assert left == list(range(MANY, -1, -FEW))
