"""Alterations of broker settings that are partly ours: on both sides, or on none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import KafkaError, StoreError
from headgate.gateway.answered_here.broker_settings import split
from headgate.gateway.session.commands import Ask
from headgate.gateway.session.waits import Waits
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import REQUEST
from headgate.store import open_store
from headgate.wire.apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from headgate.wire.messages import (
    configs,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kit.playbook import START_MS

from .conftest import Setup, beaten, heartbeat, support_of

SET, DELETE = configs.OP_SET, configs.OP_DELETE
VERSIONS = {ALTER_CONFIGS: 1, INCREMENTAL_ALTER_CONFIGS: 0}


class Talk:
    """A client that alters broker settings, a session, and a broker that is played."""

    def __init__(self, setup: Setup, folder: Path, principal: str = "alice") -> None:
        self.session = setup.session
        self.store = open_store(f"sqlite:{folder}/quotas.db")
        self.answers = support_of(self.store, setup.settings)
        self.closed: list[tuple[str, str]] = []
        self.link: Any = SimpleNamespace(
            answer=lambda ask, frame: self.session.answer(ask, frame, START_MS),
            forward=self.forward,
            close=lambda reason, detail: self.closed.append((reason, detail)),
        )
        self.session.upstream_ready(START_MS)

    def forward(self, ask: Any, frame: bytes, merge: Any = None) -> None:
        self.session.forward(ask, frame, merge, START_MS)

    async def ask(
        self, key: int, *resources: tuple[str, list[tuple[str, str | None, int]]], validate=False
    ) -> Any:
        """Send an alteration; return what goes to the broker, decoded, or None."""
        request = configs.AlterConfigsRequest(
            tuple(
                configs.AlterResource(
                    configs.BROKER, name, tuple(configs.AlterConfig(*c) for c in changes)
                )
                for name, changes in resources
            ),
            validate,
        )
        self.key = key
        frame = bytearray(encode_request(key, VERSIONS[key], 7, "tool", request))
        self.session.client_data(memoryview(frame), START_MS)
        [asked] = [c for c in self.session.commands if isinstance(c, Ask)]
        self.session.commands.clear()
        await split(self.answers, self.link, asked)
        sent = b"".join(self.session.to_broker)
        self.session.to_broker.clear()
        if not sent:
            return None
        body = decode_request(key, VERSIONS[key], sent, 14 + len("tool"))
        return {r.resource_name: {c.name: c.value for c in r.configs} for r in body.resources}

    async def reply(self, **refused: int) -> None:
        """Let the broker answer; ``b1=42`` refuses broker 1."""
        results = tuple(
            configs.ResourceResult(configs.BROKER, name, refused.get(f"b{name}", 0))
            for name in self.asked
        )
        response = configs.AlterConfigsResponse(results, 5)
        frame = bytearray(encode_response(self.key, VERSIONS[self.key], 7, response))
        self.session.broker_data(memoryview(frame), START_MS)
        await asyncio.gather(*self.answers._finishing)

    asked: tuple[str, ...] = ("1",)

    def told(self) -> dict[str, tuple[int, str | None]]:
        """What the client was answered."""
        frame = b"".join(self.session.to_client)
        self.session.to_client.clear()
        response = decode_response(self.key, VERSIONS[self.key], frame)
        return {r.resource_name: (r.error_code, r.error_message) for r in response.responses}


@pytest.fixture
def talk(gateway: Callable[..., Setup], tmp_path: Path) -> Iterator[Talk]:
    made = Talk(gateway({}, {"super.users": "User:alice"}), tmp_path)
    yield made
    made.store.close()


MIXED = [("max.connections", "77", SET), ("log.cleaner.threads", "2", SET)]


async def test_our_part_is_done_when_the_broker_has_taken_its_own(talk: Talk) -> None:
    assert await talk.ask(INCREMENTAL_ALTER_CONFIGS, ("1", MIXED)) == {
        "1": {"log.cleaner.threads": "2"}
    }
    assert talk.store.broker_settings.now() == {}
    await talk.reply()
    assert talk.told() == {"1": (0, None)}
    assert talk.store.broker_settings.now() == {"1": {"max.connections": "77"}}
    assert talk.store.history.audit_log()[-1].who == "User:alice"
    # And the conversation goes on, when the broker's throttle is over.
    talk.session.wake(talk.session.throttled_until_ms)
    talk.session.client_data(memoryview(bytearray(heartbeat(8))), START_MS)
    assert b"".join(talk.session.to_broker) == heartbeat(8)
    talk.session.broker_data(memoryview(bytearray(beaten(8))), START_MS)
    assert b"".join(talk.session.to_client) == beaten(8)


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
async def test_a_broker_that_refuses_its_part_leaves_ours_as_it_was(talk: Talk, key: int) -> None:
    await talk.ask(key, ("1", MIXED))
    await talk.reply(b1=40)
    assert talk.told()["1"][0] == 40
    assert talk.store.broker_settings.now() == {}


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
@pytest.mark.parametrize(
    ("value", "says"), [("many", "Not a number of type INT"), (None, "Null value not supported")]
)
async def test_a_part_of_ours_that_cant_be_asks_the_broker_nothing(
    talk: Talk, key: int, value: str | None, says: str
) -> None:
    assert await talk.ask(key, ("1", [("max.connections", value, SET), MIXED[1]])) is None
    code, text = talk.told()["1"]
    assert code == KafkaError.INVALID_REQUEST
    assert says in str(text)


async def test_each_broker_is_for_itself(talk: Talk) -> None:
    talk.asked = ("1", "3")
    sent = await talk.ask(
        INCREMENTAL_ALTER_CONFIGS,
        ("1", MIXED),
        ("2", [("max.connections", "0", SET), MIXED[1]]),
        ("3", MIXED),
        ("4", MIXED[:1]),
    )
    assert sorted(sent) == ["1", "3"]
    await talk.reply(b3=40)
    told = talk.told()
    assert {name: code for name, (code, _) in told.items()} == {"1": 0, "2": 42, "3": 40, "4": 0}
    assert sorted(talk.store.broker_settings.now()) == ["1", "4"]


async def test_a_store_that_fails_after_the_broker_has_taken_its_part_is_told(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await talk.ask(INCREMENTAL_ALTER_CONFIGS, ("1", MIXED))

    def away(*_: object, **__: object) -> None:
        raise StoreError("the disk is full", retriable=True)

    monkeypatch.setattr(talk.store.broker_settings, "alter", away)
    await talk.reply()
    assert talk.told()["1"] == (
        KafkaError.UNKNOWN_SERVER_ERROR,
        "the broker has taken log.cleaner.threads, but max.connections can't be changed: "
        "the disk is full",
    )
    assert "half an alteration of broker settings is in force" in caplog.text


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
async def test_what_is_only_validated_changes_neither_side(talk: Talk, key: int) -> None:
    assert await talk.ask(key, ("1", MIXED), validate=True) == {"1": {"log.cleaner.threads": "2"}}
    await talk.reply()
    assert talk.told() == {"1": (0, None)}
    assert talk.store.broker_settings.now() == {}


async def test_the_older_call_replaces_all_settings_of_both_sides(talk: Talk) -> None:
    talk.store.broker_settings.alter("1", {"max.connections": "5", "max.connections.per.ip": "3"})
    # None of the broker's own is named: all of them go back to their defaults.
    sent = await talk.ask(ALTER_CONFIGS, ("1", [("max.connections", "6", SET)]))
    assert sent == {"1": {}}
    await talk.reply(b1=42)
    assert talk.store.broker_settings.now()["1"]["max.connections.per.ip"] == "3"
    talk.told()
    talk.session.wake(talk.session.throttled_until_ms)
    await talk.ask(ALTER_CONFIGS, ("1", [("max.connections", "6", SET)]))
    await talk.reply()
    assert talk.store.broker_settings.now() == {"1": {"max.connections": "6"}}
    talk.told()
    talk.session.wake(talk.session.throttled_until_ms)
    assert await talk.ask(ALTER_CONFIGS, ("1", MIXED[1:])) == {"1": {"log.cleaner.threads": "2"}}
    await talk.reply()
    assert talk.store.broker_settings.now().get("1", {}) == {}


async def test_the_incremental_call_leaves_what_it_doesnt_name(talk: Talk) -> None:
    talk.store.broker_settings.alter("1", {"max.connections": "5", "max.connections.per.ip": "3"})
    assert (
        await talk.ask(INCREMENTAL_ALTER_CONFIGS, ("1", [("max.connections", None, DELETE)]))
        is None
    )
    assert talk.told() == {"1": (0, None)}
    assert talk.store.broker_settings.now() == {"1": {"max.connections.per.ip": "3"}}


async def test_what_is_named_twice_is_refused_as_kafka_does(talk: Talk) -> None:
    assert await talk.ask(INCREMENTAL_ALTER_CONFIGS, ("1", MIXED), ("1", MIXED)) is None
    assert talk.told() == {"1": (42, "Each resource must appear at most once.")}
    assert await talk.ask(INCREMENTAL_ALTER_CONFIGS, ("1", [*MIXED, MIXED[0]])) is None
    assert talk.told() == {"1": (42, "Error due to duplicate config keys")}
    assert talk.store.broker_settings.now() == {}


async def test_who_may_not_changes_neither_side_of_a_mixed_alteration(
    gateway: Callable[..., Setup], tmp_path: Path
) -> None:
    talk = Talk(gateway({}, {"super.users": "User:root"}), tmp_path)
    talk.store.broker_settings.alter("1", {"max.connections": "5"})
    assert await talk.ask(INCREMENTAL_ALTER_CONFIGS, ("1", MIXED)) is None
    assert talk.told()["1"][0] == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert talk.store.history.audit_log()[-1].outcome == "refused"
    # The broker refuses its own part; the gateway's setting isn't changed.
    assert await talk.ask(ALTER_CONFIGS, ("1", MIXED[1:])) == {"1": {"log.cleaner.threads": "2"}}
    await talk.reply()
    assert talk.told() == {"1": (0, None)}
    assert talk.store.broker_settings.now() == {"1": {"max.connections": "5"}}
    talk.store.close()


async def test_ours_is_done_too_if_the_client_left_while_the_broker_did_its_part(
    talk: Talk,
) -> None:
    await talk.ask(INCREMENTAL_ALTER_CONFIGS, ("1", MIXED))
    response = configs.AlterConfigsResponse((configs.ResourceResult(configs.BROKER, "1"),), 5)
    frame = encode_response(INCREMENTAL_ALTER_CONFIGS, 0, 7, response)
    talk.session.broker_data(memoryview(bytearray(frame)), START_MS)
    assert talk.session.in_flight == 1  # a drain waits for it
    talk.session.close("client-gone", "", START_MS)
    await asyncio.gather(*talk.answers._finishing)
    assert not b"".join(talk.session.to_client)
    assert talk.store.broker_settings.now() == {"1": {"max.connections": "77"}}
    assert talk.closed == []


async def test_an_alteration_is_charged_once_and_mutes_when_it_is_passed_on(
    gateway: Callable[..., Setup], tmp_path: Path
) -> None:
    quotas = {QuotaEntity.of(user="alice"): {REQUEST: 0.01}}
    talk = Talk(gateway(quotas, {"super.users": "User:alice"}), tmp_path)
    talk.session.account_client(1_000_000_000)
    await talk.ask(INCREMENTAL_ALTER_CONFIGS, ("1", MIXED))
    assert talk.session.waits == Waits.ANSWER | Waits.THROTTLE
    assert talk.session.throttled_until_ms == START_MS + 1_000
    await talk.reply()
    assert talk.told() == {"1": (0, None)}
    assert talk.session.throttled_until_ms == START_MS + 1_000
    talk.session.wake(START_MS + 1_000)
    assert talk.session.waits == Waits(0)
    talk.store.close()


@pytest.mark.parametrize("principal", ["alice", "bob"])
@pytest.mark.parametrize("version", range(5))
async def test_nobody_is_shown_where_brokers_and_controllers_listen(
    gateway: Callable[..., Setup], tmp_path: Path, version: int, principal: str
) -> None:
    setup = gateway({}, {"super.users": f"User:{principal}" if principal == "alice" else ""})
    talk = Talk(setup, tmp_path)
    asked = configs.DescribeConfigsRequest(
        (
            configs.DescribeResource(configs.BROKER, "1", None),
            configs.DescribeResource(configs.TOPIC, "listeners", None),
        ),
        include_synonyms=True,
    )
    request = encode_request(DESCRIBE_CONFIGS, version, 7, "tool", asked)
    talk.session.client_data(memoryview(bytearray(request)), START_MS)
    [ask] = [c for c in talk.session.commands if isinstance(c, Ask)]
    await split(talk.answers, talk.link, ask)
    where = "CONTROLLER://secret:9093"
    static = configs.ConfigSource.STATIC_BROKER_CONFIG
    values = tuple(
        configs.ConfigValue(name, where, True, static,
                            synonyms=(configs.ResourceSynonym(name, where, static),))
        for name in ("listeners", "controller.quorum.voters", "zookeeper.connect")
    )  # fmt: skip
    plain = configs.ConfigValue("log.cleaner.threads", "2", False, static)
    response = configs.DescribeConfigsResponse(
        (
            configs.DescribeResult(configs.BROKER, "1", (*values, plain)),
            configs.DescribeResult(configs.TOPIC, "listeners", (plain,)),
        )
    )
    frame = encode_response(DESCRIBE_CONFIGS, version, 7, response)
    talk.session.broker_data(memoryview(bytearray(frame)), START_MS)
    told = b"".join(talk.session.to_client)
    assert b"secret" not in told
    broker, topic = decode_response(DESCRIBE_CONFIGS, version, told).results
    shown = {c.name: (c.value, c.is_sensitive) for c in broker.configs}
    assert shown["log.cleaner.threads"] == ("2", False)
    assert {shown[v.name] for v in values} == {(None, True)}
    assert [c.value for c in topic.configs] == ["2"]
    talk.store.close()


@pytest.mark.parametrize("name", ["retention.ms", "listeners"])
@pytest.mark.parametrize(("count", "later"), [(100, False), (5_000, True)])
async def test_a_long_description_is_searched_and_changed_in_slices(
    gateway: Callable[..., Setup], tmp_path: Path, name: str, count: int, later: bool
) -> None:
    talk = Talk(gateway({}, {"super.users": ""}), tmp_path)
    asked = configs.DescribeConfigsRequest(
        (configs.DescribeResource(configs.TOPIC, "t", None),), include_synonyms=True
    )
    request = encode_request(DESCRIBE_CONFIGS, 1, 7, "tool", asked)
    talk.session.client_data(memoryview(bytearray(request)), START_MS)
    [ask] = [c for c in talk.session.commands if isinstance(c, Ask)]
    await split(talk.answers, talk.link, ask)
    value = configs.ConfigValue(name, "123")
    results = tuple(configs.DescribeResult(configs.TOPIC, "t", (value,)) for _ in range(count))
    frame = encode_response(DESCRIBE_CONFIGS, 1, 7, configs.DescribeConfigsResponse(results))
    talk.session.broker_data(memoryview(bytearray(frame)), START_MS)
    later = later or name == "listeners"
    assert (b"".join(talk.session.to_client) == frame) is not later
    await asyncio.gather(*talk.answers._finishing)
    assert b"".join(talk.session.to_client) == frame
    assert talk.answers.slices.count >= later
    talk.store.close()
