"""
The admin client and both tools against a real Kafka 4.3.1.

Every captured command is replayed against the broker itself, SCRAM credentials included.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as Topics

from headgate.admin import (
    DEFAULT,
    AdminClient,
    AlterQuotasEntry,
    AlterQuotasOptions,
    AsyncAdminClient,
    Entry,
    FilterComponent,
    MatchType,
    Op,
    QuotaEntity,
    QuotaFilter,
    QuotaKey,
)
from headgate.cli.kafka_configs.kafka_configs import main
from headgate.cli.main import load
from headgate.cli.quotas import kafka_quotas
from headgate.embedded import EmbeddedKafka
from headgate.embedded.tools import run_tool
from headgate.errors import ApiError, KafkaError
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, REQUEST
from headgate.store import open_store
from headgate.store.kafka.codec import wants_two
from headgate.store.kafka.store import TOPIC

main_apply = load("apply")
main_export = load("export")
main_plan = load("plan")

pytestmark = pytest.mark.kafka4

CAPTURE = Path(__file__).parents[1] / "data/captures/kafka-configs-4.3.1.json"
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'PlainLoginModule required username="admin" password="admin-secret";',
}


@pytest.fixture
def client(kafka4: EmbeddedKafka) -> Iterator[AdminClient]:
    with AdminClient(kafka4.bootstrap("PLAINTEXT")) as client:
        yield client


def remove_all(client: AdminClient) -> None:
    found = client.describe_quotas().entities().result(120)
    entries = [AlterQuotasEntry(e, [Op(key, None) for key in v]) for e, v in found.items()]
    client.alter_quotas(entries).all().result(120)
    until(lambda: not client.describe_quotas().entities().result(120))


def until(done: Callable[[], object]) -> None:
    """Wait for a broker's metadata to catch up with its controller."""
    for _ in range(600):
        if done():
            return
        time.sleep(0.05)
    raise AssertionError("the broker never caught up")


@pytest.fixture
def empty(client: AdminClient) -> Iterator[AdminClient]:
    remove_all(client)
    yield client
    remove_all(client)


def first_line(text: str) -> str:
    """The first line but for our note, on stderr, about a user who is called <default>."""
    lines = text.splitlines()
    noted = [line for line in lines if line.startswith("kafka-configs: note: {user=%3Cdefault%3E}")]
    return ([line for line in lines if line not in noted] or [""])[0]


def put(client: AdminClient, entity: QuotaEntity, **values: float) -> None:
    ops = [Op(QuotaKey.parse(key), value) for key, value in values.items()]
    client.alter_quotas([AlterQuotasEntry(entity, ops)]).all().result(120)
    wanted = {QuotaKey.parse(key): float(value) for key, value in values.items()}
    until(
        lambda: (
            wanted.items()
            <= client.describe_quotas().entities().result(120).get(entity, {}).items()
        )
    )


# --- kafka-configs


@pytest.mark.short
def test_every_captured_command_is_answered_as_kafkas_own_tool_did(
    kafka4: EmbeddedKafka, empty: AdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN too: it is Kafka's to take it."""
    servers = kafka4.bootstrap("PLAINTEXT")
    before = empty.describe_user_scram_credentials()
    wrong = []
    commands: list[dict[str, Any]] = json.loads(CAPTURE.read_text())
    for command in commands:
        wanted = (
            command["exit"],
            sorted(line for line in command["stdout"].splitlines() if "SCRAM" not in line),
            first_line(command["stderr"]).replace(command["args"][1], servers),
        )
        got = replay(command["args"], servers, capsys, wanted)
        if got != wanted:
            wrong.append((command["name"], *got))
    assert wrong == []
    assert len(commands) > 60
    # What the captures could not know of the users this cluster was made with.
    scram = empty.describe_user_scram_credentials()
    assert scram.keys() == before.keys() | {"alice"}
    assert ("SCRAM-SHA-256", 8192) in dict(scram)["alice"]  # type: ignore[operator]
    # Give alice back the password that other tests know.
    restore = "SCRAM-SHA-256=[iterations=4096,password=alice-secret]"
    argv = ["--bootstrap-server", servers, "--alter", "--user", "alice", "--add-config", restore]
    assert main(argv) == 0


Answer = tuple[int, list[str], str]
"""Exit status, lines printed, first line of the error."""


def replay(
    args: list[str], servers: str, capsys: pytest.CaptureFixture[str], wanted: Answer
) -> Answer:
    """Say it until it's answered as wanted: a broker may be a moment behind its controller."""
    for _ in range(200):
        status = main([args[0], servers, *args[2:]])
        printed = capsys.readouterr()
        lines = sorted(line for line in printed.out.splitlines() if "SCRAM" not in line)
        got = status, lines, first_line(printed.err)
        if got == wanted:
            break
        time.sleep(0.1)
    return got


def test_broker_settings_read_as_kafkas_own_tool_prints_them(
    kafka4: EmbeddedKafka, client: AdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = ["--bootstrap-server", kafka4.bootstrap("PLAINTEXT")]
    rate = "max.connection.creation.rate"
    listener = f"listener.name.plaintext.{rate}"
    broker, default = ["--broker", "1"], ["--broker-defaults"]
    try:
        add = f"{rate}=1000,{listener}=900"
        assert main([*servers, "--alter", *broker, "--add-config", add]) == 0
        assert main([*servers, "--alter", *default, "--add-config", f"{rate}=2000"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "Completed updating config for broker 1.",
            "Completed updating default config for brokers in the cluster.",
        ]
        until(lambda: len(client.describe_configs("")) >= 1)
        until(lambda: any(e.name == listener for e in client.describe_configs("1")))
        for which in (broker, default, ["--entity-type", "brokers"]):
            real = run_tool("kafka.admin.ConfigCommand", [*servers, "--describe", *which])
            assert main([*servers, "--describe", *which]) == real.returncode == 0
            ours = capsys.readouterr().out
            assert sorted(ours.splitlines()) == sorted(real.stdout.splitlines())
            assert f"  {rate}=" in ours
    finally:
        main([*servers, "--alter", *broker, "--delete-config", f"{rate},{listener}"])
        main([*servers, "--alter", *default, "--delete-config", rate])


def test_sasl_and_command_config(
    kafka4: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = kafka4.bootstrap("SASL_PLAINTEXT")
    file = tmp_path / "client.properties"
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        config = {**PLAIN, "sasl.mechanism": mechanism}
        file.write_text("".join(f"{k}={v}\n" for k, v in config.items()))
        argv = ["--bootstrap-server", servers, "--command-config", str(file)]
        assert main([*argv, "--describe", "--entity-type", "ips"]) == 0
        assert kafka_quotas.main([*argv, "--list"]) == 0
    wrong = {**PLAIN, "sasl.jaas.config": 'X required username="admin" password="no";'}
    with AdminClient(servers, config=wrong) as client, pytest.raises(ApiError) as caught:
        client.describe_quotas().entities().result(120)
    assert caught.value.code == KafkaError.SASL_AUTHENTICATION_FAILED
    capsys.readouterr()


# --- the admin client


@pytest.mark.short
def test_all_kinds_of_filters_and_effective(empty: AdminClient) -> None:
    pair = QuotaEntity.of(user="filter-a", client_id=DEFAULT)
    user, default = QuotaEntity.of(user="filter-a"), QuotaEntity.of(user=DEFAULT)
    put(empty, pair, producer_byte_rate=1000)
    put(empty, user, consumer_byte_rate=2000, request_percentage=12.75)
    put(empty, default, producer_byte_rate=3000)

    def found(*components: FilterComponent, strict: bool = False) -> set[QuotaEntity]:
        result = empty.describe_client_quotas(components, strict=strict)
        return set(result.entities().result(120))

    any_user = FilterComponent("user", MatchType.ANY)
    assert found(any_user) == {pair, user, default}
    assert found(any_user, strict=True) == {user, default}
    assert found(FilterComponent("user", MatchType.DEFAULT)) == {default}
    prefix = empty.describe_quotas([QuotaFilter("user", QuotaFilter.Rule.PREFIX, "filter-")])
    assert set(prefix.entities().result(120)) == {pair, user}
    asked = QuotaEntity.of(user="filter-a", client_id="c")
    values = empty.describe_effective_quotas([asked]).config()[asked].result(120)
    assert values[PRODUCER].entry == Entry(pair, 1000.0)
    assert values[PRODUCER].overridden_entries == (Entry(default, 3000.0),)
    assert values[CONSUMER].entry == Entry(user, 2000.0)
    assert values[REQUEST].entry.value == 12.75


def test_kafka_judges_per_entity_and_validate_only(empty: AdminClient) -> None:
    good, bad = QuotaEntity.of(user="judge-good"), QuotaEntity.of(user="judge-bad")
    entries = [AlterQuotasEntry(good, [Op(PRODUCER, 5)]), AlterQuotasEntry(bad, [Op(PRODUCER, 0)])]
    dry = empty.alter_quotas(entries, AlterQuotasOptions(validate_only=True))
    assert dry.values()[good].result(120) is None
    with pytest.raises(ApiError, match="Quota producer_byte_rate must be greater than 0"):
        dry.values()[bad].result(120)
    assert empty.describe_quotas().entities().result(120) == {}


async def test_the_async_twin(kafka4: EmbeddedKafka) -> None:
    async with AsyncAdminClient(kafka4.bootstrap("PLAINTEXT")) as client:
        strict = client.describe_client_quotas([], strict=True)
        assert await strict.entities() == {}


@pytest.mark.short
def test_kafkas_own_tool_sees_what_the_client_set(
    kafka4: EmbeddedKafka, empty: AdminClient
) -> None:
    name = "CN=a b,O=*"
    put(empty, QuotaEntity.of(user=name), producer_byte_rate=77777)
    argv = ["--bootstrap-server", kafka4.bootstrap("PLAINTEXT"), "--describe", "--user", name]
    real = run_tool("kafka.admin.ConfigCommand", argv)
    assert f"user-principal '{name}' are producer_byte_rate=77777.0" in real.stdout


# --- kafka-quotas and quotas as code


def test_a_plain_kafka_refuses_bps_and_shares_and_the_tool_tells_the_way_out(
    kafka4: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--bootstrap-server", kafka4.bootstrap("PLAINTEXT"), "--alter", "--names=user=u"]
    for key in ("producer_byte_rate:bps", "consumer_byte_rate:shares", "producer_ids_rate"):
        assert kafka_quotas.main([*argv, f"--add={key}=5"]) == 1
        told = capsys.readouterr().err
        assert told.startswith(f"kafka-quotas: INVALID_REQUEST: Invalid configuration key {key}: ")
        assert "--store" in told
    configs = [*argv[:2], "--alter", "--user", "u", "--add-config", "producer_ids_rate=5"]
    assert main(configs) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("Only quota and SCRAM credential configs can be added for 'users'")
    assert "keep producer_ids_rate" in second


def test_kafka_quotas_lists_and_describes_with_the_unit_kafka_enforces(
    kafka4: EmbeddedKafka, empty: AdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--bootstrap-server", kafka4.bootstrap("PLAINTEXT")]
    alter = [*argv, "--alter", "--names=user=lister"]
    assert kafka_quotas.main([*alter, "--add=producer_byte_rate=1048576"]) == 0
    lister = QuotaEntity.of(user="lister")
    until(lambda: lister in empty.describe_quotas().entities().result(120))
    assert kafka_quotas.main([*argv, "--list"]) == 0
    assert kafka_quotas.main([*argv, "--describe", "--names=user=lister,client-id=c"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "{user=lister}",
        "producer_byte_rate:broker_bps=1048576",
        "producer_byte_rate:broker_bps=1048576 {user=lister}",
    ]


def test_quotas_as_code_against_a_cluster(
    kafka4: EmbeddedKafka,
    empty: AdminClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = ["--bootstrap-server", kafka4.bootstrap("PLAINTEXT")]
    put(empty, QuotaEntity.of(user=DEFAULT, client_id="etl"), producer_byte_rate=1000)
    put(empty, QuotaEntity.of(ip=DEFAULT), connection_creation_rate=50)
    file = str(tmp_path / "quotas.yaml")
    assert main_export([*place, "--out", file]) == 0
    assert main_plan([*place, file, "--prune"]) == 0
    text = Path(file).read_text().replace("1000", "2000")
    Path(file).write_text(text)
    assert main_plan([*place, file]) == 3
    assert main_apply([*place, file]) == 0
    assert "Applied: 1 entity changed." in capsys.readouterr().out
    until(
        lambda: (
            empty.describe_quotas()
            .entities()
            .result(120)[QuotaEntity.of(user=DEFAULT, client_id="etl")]
            == {PRODUCER: 2000.0}
        )
    )
    Path(file).write_text(text + "- entity: {user: a}\n  producer_byte_rate:bps: 5\n")
    assert main_apply([*place, file]) == 1
    assert f"keep {PRODUCER_BPS} in a Headgate store" in capsys.readouterr().err


@pytest.fixture
def kafka_store(kafka4: EmbeddedKafka, empty: AdminClient) -> Iterator[str]:
    """The URL of the shared cluster's own store, without what other tests left in it."""
    servers = kafka4.bootstrap("PLAINTEXT")
    topics = Topics({"bootstrap.servers": servers})
    if TOPIC in topics.list_topics(timeout=60).topics:
        topics.delete_topics([TOPIC])[TOPIC].result(60)
        until(lambda: TOPIC not in topics.list_topics(timeout=60).topics)
    yield f"kafka://{servers}"
    topics.delete_topics([TOPIC])[TOPIC].result(60)


def test_apply_splits_entities_whose_keys_live_in_kafka_and_in_headgates_topic(
    kafka_store: str, empty: AdminClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--store", kafka_store]
    mixed, whole = QuotaEntity.of(user="mixed"), QuotaEntity.of(user="whole")
    file, plan = tmp_path / "quotas.yaml", str(tmp_path / "plan.json")

    def write(rate: int, cluster_rate: int) -> str:
        file.write_text(
            "quotas:\n"
            f"- entity: {{user: mixed}}\n  {PRODUCER.name}: {rate}\n"
            f"  {PRODUCER_BPS}: {cluster_rate}\n"
            f"- entity: {{user: whole}}\n  {CONSUMER.name}: {rate}\n"
        )
        return str(file)

    def kept() -> dict[QuotaEntity, dict[QuotaKey, float]]:
        with open_store(kafka_store, create=False) as store:
            return {entity: dict(values) for entity, values in store.snapshot().entities.items()}

    def expected(rate: int, cluster_rate: int) -> dict[QuotaEntity, dict[QuotaKey, float]]:
        return {mixed: {PRODUCER: rate, PRODUCER_BPS: cluster_rate}, whole: {CONSUMER: rate}}

    with open_store(kafka_store) as store:  # Kafka's home refuses both at once
        both = (Op(PRODUCER, 1.0), Op(PRODUCER_BPS, 1.0))
        [refused] = store.alter([AlterQuotasEntry(mixed, both)])
        assert wants_two(refused.error)
    assert main_apply([*place, write(1000, 5000), "--validate-only"]) == 0
    assert kept() == {}
    assert main_apply([*place, str(file), "--message", "why"]) == 0
    assert "Applied: 2 entities changed." in capsys.readouterr().out
    assert kept() == expected(1000, 5000)
    with open_store(kafka_store, create=False) as store:
        history = store.history.entries()
    assert {(h.entity, h.key, h.after, h.message) for h in history} == {
        (entity, key, value, "why")
        for entity, values in expected(1000, 5000).items()
        for key, value in values.items()
    }
    assert main_plan([*place, str(file)]) == 0
    # A reviewed plan needs the store's revision, which the plan's own first half changes.
    assert main_plan([*place, write(2000, 6000), "--out", plan]) == 3
    assert main_apply([*place, plan]) == 0
    assert kept() == expected(2000, 6000)
    file.write_text("quotas: []\n")
    prune = ["--prune", "--max-removals", "3"]
    assert main_apply([*place, str(file), *prune]) == 0
    assert kept() == {}
