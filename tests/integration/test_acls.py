"""The permissions in docs/reference/acls.md suffice for each role, on a broker that guards all."""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headgate import admin
from headgate.clock import now_ms
from headgate.config import Settings
from headgate.embedded import EmbeddedKafka
from headgate.errors import HeadgateError
from headgate.gateway.splits.streamed import StreamedSplits
from headgate.pipeline.sources.topic import TopicReader
from headgate.pipeline.splits.split_topic import SplitWriter
from headgate.quota import Op, QuotaAlteration, QuotaEntity, QuotaKey
from headgate.store import open_store
from headgate.usage.format import Event, Origin
from headgate.usage.splits import Heartbeat
from headgate.usage.topic import TopicWriter

from .gateway_kit import wait_for

pytestmark = [pytest.mark.kafka4, pytest.mark.slow]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "acls.md"
USERS = {"headgate": "gate", "ops": "o", "splitter": "s", "accounting": "a"}
RATE = QuotaKey.parse("producer_byte_rate")
BPS = QuotaKey.parse("producer_byte_rate:bps")
RESOURCES = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.BROKER,
}


def bindings(heading: str) -> list[AclBinding]:
    """The permissions of a section's command lines, one for each operation."""
    section = (
        PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    )
    found = []
    for line in re.findall(r"^kafka-acls\.sh (.*)$", section, re.M):
        words = shlex.split(line)
        pattern = ResourcePatternType.LITERAL
        if words[-2:] == ["--resource-pattern-type", "prefixed"]:
            pattern = ResourcePatternType.PREFIXED
        [flag] = [word for word in words if word in RESOURCES]
        name = "kafka-cluster" if flag == "--cluster" else words[words.index(flag) + 1]
        principal = words[words.index("--allow-principal") + 1]
        for at, word in enumerate(words):
            if word == "--operation":
                spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words[at + 1]).upper()
                allowed = (AclOperation[spelled], AclPermissionType.ALLOW)
                found.append(AclBinding(RESOURCES[flag], name, pattern, principal, "*", *allowed))
    assert found, heading
    return found


class Guarded:
    """A broker on which nobody but admin may do anything, and what it allows now."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self.admin = AdminClient(kafka.sasl_config("admin"))

    def allow(self, wanted: list[AclBinding]) -> None:
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        for done in self.admin.delete_acls([everything]).values():
            done.result(30)
        for done in self.admin.create_acls(wanted).values():
            done.result(30)
        # The controller has them now; the broker enforces what it can describe.
        wait_for(
            lambda: set(self.admin.describe_acls(everything).result(30)) == set(wanted),
            "the broker to know the permissions",
        )

    def config(self, user: str) -> dict[str, Any]:
        return self.kafka.sasl_config(user)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }
    with EmbeddedKafka(users=USERS, extra_properties=properties) as kafka:
        broker = Guarded(kafka)
        new = [NewTopic("headgate_usage", 1, 1)]
        for done in broker.admin.create_topics(new).values():
            done.result(30)
        # Whichever role comes first, there is something to read.
        journal(broker.config("admin"))
        split(broker.config("admin"))
        yield broker


def journal(config: dict[str, Any]) -> None:
    """Write an event twice, as a gateway does that is started again."""
    origin = Origin("record", "producer_byte_rate", 1, quota_user="alice")
    for _ in range(2):
        writer = TopicWriter("headgate_usage", "acls", config)
        writer.append(Event(origin, 1.0, 1.0))
        assert writer.flush()
        writer.close()


def follow(config: dict[str, Any]) -> None:
    """Read a heartbeat of the stream."""
    came = threading.Event()
    splits = StreamedSplits("__headgate_splits", config, lambda _: None, now_ms, 5_000)
    splits.start()
    deadline = time.monotonic() + 20
    while splits.epoch == 0 and time.monotonic() < deadline:
        came.wait(0.1)
    splits.close()
    assert splits.epoch > 0


def split(config: dict[str, Any]) -> None:
    writer = SplitWriter("__headgate_splits", config)
    writer.write([], Heartbeat(writer.epoch, now_ms(), 60_000))
    read(config)


def read(config: dict[str, Any]) -> None:
    import json

    reader = TopicReader({"topic": "headgate_usage", "config": json.dumps(config)})
    assert sum(
        1 for part in reader.partitions({}, reader.latestOffset()) for _ in reader.read(part)
    )


def keep(config: dict[str, Any]) -> None:
    """Change a quota of Kafka's and one of ours, read both, hold a lease."""
    prefix = "headgate.store.kafka."
    lines = {prefix + name: str(value) for name, value in config.items() if "bootstrap" not in name}
    lines["headgate.upstream"] = "embedded"
    settings = Settings.from_properties(lines)
    with open_store(f"kafka://{config['bootstrap.servers']}", settings) as store:
        alice, bob = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob")
        new = float(now_ms())
        changes = [QuotaAlteration(alice, (Op(RATE, new),)), QuotaAlteration(bob, (Op(BPS, new),))]
        assert [result.error for result in store.alter(changes)] == [None, None]
        table = store.snapshot()
        assert (table.get(alice, RATE), table.get(bob, BPS)) == (new, new)


def change(config: dict[str, Any]) -> None:
    servers = config.pop("bootstrap.servers")
    with admin.AdminClient(servers, config=config) as client:
        entity = QuotaEntity.of(user="carol")
        entry = admin.AlterQuotasEntry(entity, [Op(RATE, 3e6)])
        client.alter_quotas([entry]).all().result(30)
        # The controller has it; a broker hears of it a moment later.
        wait_for(lambda: entity in client.describe_quotas().entities().result(30), "carol's quota")


# Without one of these a role fails at once; of the others some are needed the first time only.
NEEDED = {
    "A store in Kafka": ["BROKER ALTER_CONFIGS", "TOPIC WRITE", "TRANSACTIONAL_ID WRITE"],
    "People and tools that change quotas at brokers": ["BROKER ALTER_CONFIGS"],
    "The gateway, usage journal in a topic": ["TOPIC READ", "TOPIC WRITE", "GROUP DESCRIBE"],
    "The stream of splits": ["TOPIC CREATE", "TOPIC READ", "TOPIC WRITE", "TRANSACTIONAL_ID WRITE"],
    "The pipeline, reading a topic": ["TOPIC READ", "GROUP DESCRIBE"],
}
ROLES: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "A store in Kafka": ("headgate", keep),
    "People and tools that change quotas at brokers": ("ops", change),
    "The gateway, usage journal in a topic": ("headgate", journal),
    "The stream of splits": ("splitter", split),
    "The gateway, following splits": ("headgate", follow),
    "The pipeline, reading a topic": ("accounting", read),
}


@pytest.mark.parametrize("heading", ROLES)
def test_the_permissions_of_a_role_suffice(guarded: Guarded, heading: str) -> None:
    user, use = ROLES[heading]
    guarded.allow(bindings(heading))
    use(guarded.config(user))


@pytest.mark.parametrize(
    ("heading", "needed"), [(role, one) for role, many in NEEDED.items() for one in many]
)
def test_without_one_of_them_a_role_fails(guarded: Guarded, heading: str, needed: str) -> None:
    user, use = ROLES[heading]
    every = bindings(heading)
    guarded.allow(every)
    use(guarded.config(user))
    [away, *_] = [b for b in every if f"{b.restype.name} {b.operation.name}" == needed]
    guarded.allow([b for b in every if b is not away] or bindings("The pipeline, reading a topic"))

    def fails() -> bool:
        try:
            use(guarded.config(user))
        except (HeadgateError, RuntimeError, AssertionError):
            return True
        return False

    # What is said about a group may come when all was read already.
    wait_for(fails, "the role to fail")
