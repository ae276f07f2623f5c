"""
The admin client and the tools through a gateway: its data listener and its admin listener.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from headgate.admin import (
    DEFAULT,
    AdminClient,
    AlterQuotasEntry,
    AlterQuotasOptions,
    Entry,
    Op,
    QuotaEntity,
    QuotaFilter,
)
from headgate.cli.kafka_configs.kafka_configs import main
from headgate.cli.main import load
from headgate.cli.quotas import kafka_quotas
from headgate.client.connection import Connection
from headgate.client.security import Security
from headgate.config.listeners import HostPort
from headgate.errors import ApiError, KafkaError
from headgate.gateway import GatewayThread
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, PRODUCER_SHARES, REQUEST, QuotaKey
from headgate.wire.messages import draft

from .gateway_kit import make_gateway, wait_for

main_apply = load("apply")
main_history = load("history")
main_plan = load("plan")

__all__ = ["make_gateway"]
pytestmark = [pytest.mark.kafka4, pytest.mark.short]
CAPTURE = Path(__file__).parents[1] / "data/captures/kafka-configs-4.3.1.json"


class Places:
    """Where a running gateway is spoken to."""

    def __init__(self, gateway: GatewayThread) -> None:
        assert gateway.gateway.shared.admin_address is not None
        self.gateway = gateway
        host, port = gateway.gateway.shared.admin_address
        self.admin = f"{host}:{port}"
        self.data = gateway.bootstrap("PLAINTEXT")
        self.sasl = gateway.bootstrap("SASL")
        self.store = gateway.gateway.settings.store


@pytest.fixture
def places(make_gateway: Callable[..., GatewayThread]) -> Iterator[Places]:
    protocols = "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,ADMIN:PLAINTEXT"
    yield Places(
        make_gateway(
            headgate__admin__listener="ADMIN://127.0.0.1:0",
            **{"listener.security.protocol.map": protocols},
        )
    )


def first_line(text: str) -> str:
    """The first line but for our note, on stderr, about a user who is called <default>."""
    lines = text.splitlines()
    noted = [line for line in lines if line.startswith("kafka-configs: note: {user=%3Cdefault%3E}")]
    return ([line for line in lines if line not in noted] or [""])[0]


def test_every_captured_command_is_answered_through_a_gateway(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quotas are the gateway's; SCRAM credentials pass to the broker behind it."""
    wrong = []
    commands: list[dict[str, Any]] = json.loads(CAPTURE.read_text())
    for command in commands:
        args = command["args"]
        status = main([args[0], places.data, *args[2:]])
        printed = capsys.readouterr()
        if command["name"] == "err: NaN":
            assert status == 1  # Kafka stores it; refused here
            continue
        wanted = [
            line
            for line in command["stdout"].splitlines()
            if "SCRAM" not in line and "'erin'" not in line
        ]
        got = [line for line in printed.out.splitlines() if "SCRAM" not in line]
        error = first_line(command["stderr"]).replace(args[1], places.data)
        if (status, sorted(got), first_line(printed.err)) != (
            command["exit"],
            sorted(wanted),
            error,
        ):
            wrong.append((command["name"], status, got, printed.err))
    assert wrong == []
    restore = "SCRAM-SHA-256=[iterations=4096,password=alice-secret]"
    argv = ["--bootstrap-server", places.data, "--alter", "--user", "alice"]
    assert main([*argv, "--add-config", restore]) == 0


def test_936_10_producer_ids_rate_through_a_gateway(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--bootstrap-server", places.data]
    assert main([*argv, "--alter", "--user", "user1", "--add-config", "producer_ids_rate=50"]) == 0
    alter_default = [*argv, "--alter", "--user-defaults", "--add-config", "producer_ids_rate=200"]
    assert main(alter_default) == 0
    assert main([*argv, "--describe", "--user", "user1"]) == 0
    assert "user-principal 'user1' are producer_ids_rate=50.0" in capsys.readouterr().out


@pytest.mark.parametrize("door", ["data", "admin"])
def test_546_28_29_30_the_client_through_either_door(places: Places, door: str) -> None:
    alice = QuotaEntity.of(user="alice", client_id=DEFAULT)
    default = QuotaEntity.of(user=DEFAULT)
    literal = QuotaEntity.of(user="<default>")
    with AdminClient(getattr(places, door), tool="gateway-test") as client:
        entries = [
            AlterQuotasEntry(alice, [Op(PRODUCER_BPS, 10), Op(PRODUCER_SHARES, 100)]),
            AlterQuotasEntry(default, [Op(PRODUCER_BPS, 5)]),
            AlterQuotasEntry(literal, [Op(PRODUCER, 7)]),
        ]
        dry = AlterQuotasOptions(validate_only=True)
        client.alter_quotas(entries, dry).all().result(120)
        assert client.describe_quotas().entities().result(120) == {}
        client.alter_quotas(entries).all().result(120)
        assert client.describe_quotas().entities().result(120) == {
            alice: {PRODUCER_BPS: 10.0, PRODUCER_SHARES: 100.0},
            default: {PRODUCER_BPS: 5.0},
            literal: {PRODUCER: 7.0},
        }
        prefix = [QuotaFilter("user", QuotaFilter.Rule.PREFIX, "al")]
        assert set(client.describe_quotas(prefix).entities().result(120)) == {alice}
        chosen = [QuotaFilter("user", QuotaFilter.Rule.EXACT, "")]
        assert set(client.describe_quotas(chosen).entities().result(120)) == {default}
        asked = QuotaEntity.of(user="alice", client_id="etl")
        values = client.describe_effective_quotas([asked]).config()[asked].result(120)
        assert values[PRODUCER_BPS].entry == Entry(alice, 10.0)
        assert values[PRODUCER_BPS].overridden_entries == (Entry(default, 5.0),)
        bad = [AlterQuotasEntry(QuotaEntity({"GROUP": "g"}), [Op(PRODUCER, 1)])]
        with pytest.raises(ApiError, match="Unhandled client quota entity type: GROUP"):
            client.alter_quotas(bad).all().result(120)
        unknown = [AlterQuotasEntry(default, [Op(QuotaKey("nope", "bps"), 1)])]
        with pytest.raises(ApiError) as caught:
            client.alter_quotas(unknown).all().result(120)
        assert caught.value.code == KafkaError.INVALID_REQUEST


def test_546_32_a_fraction_needs_the_data_listener(places: Places) -> None:
    carol = QuotaEntity.of(user="carol")
    with AdminClient(places.data) as client:
        client.alter_quotas([AlterQuotasEntry(carol, [Op(REQUEST, 12.75)])]).all().result(120)
    with (
        AdminClient(places.admin) as client,
        pytest.raises(ApiError, match=r"request_percentage") as caught,
    ):
        client.describe_quotas().entities().result(120)
    assert "12.75" in str(caught.value)
    with AdminClient(f"{places.admin},{places.data}") as client:
        assert client.describe_quotas().entities().result(120) == {carol: {REQUEST: 12.75}}


@pytest.mark.parametrize("door", ["data", "admin"])
def test_kafka_quotas_in_full_through_either_door(
    places: Places, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--bootstrap-server", getattr(places, door)]
    pair = "--names=user=user-two,client-id=my-client"
    add = "--add=consumer_byte_rate:shares=200,producer_byte_rate:bps=10000000"
    assert kafka_quotas.main([*argv, "--alter", pair, add]) == 0
    assert kafka_quotas.main([*argv, "--list", "--prefix=user=user-"]) == 0
    assert capsys.readouterr() == (
        "{user=user-two, client-id=my-client}\n"
        "consumer_byte_rate:shares=200\n"
        "producer_byte_rate:bps=10000000\n",
        "",
    )
    assert kafka_quotas.main([*argv, "--describe", pair]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "consumer_byte_rate:shares=200 {user=user-two, client-id=my-client}"
    )
    assert main_history(["--store", places.store]) == 0
    told = capsys.readouterr().out
    assert "User:ANONYMOUS  kafka-quotas  users/user-two/clients/my-client" in told


def test_546_36_both_dialects_change_one_store_and_neither_is_called_old(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    erin, rate = QuotaEntity.of(user="erin"), "consumer_byte_rate"
    released = ["--bootstrap-server", places.data, "--user", "erin"]
    with AdminClient(places.admin) as draft_client, AdminClient(places.data) as client:
        assert main([*released, "--alter", "--add-config", f"{rate}=1024"]) == 0
        assert draft_client.describe_quotas().entities().result(120) == {erin: {CONSUMER: 1_024.0}}
        draft_client.alter_quotas([AlterQuotasEntry(erin, [Op(CONSUMER, 7)])]).all().result(120)
        assert client.describe_quotas().entities().result(120) == {erin: {CONSUMER: 7.0}}
        assert main([*released, "--describe"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1] == f"Quota configs for user-principal 'erin' are {rate}=7.0"
    assert "deprecat" not in (printed.out + printed.err).lower()


async def test_546_34_answers_of_the_admin_listener_carry_the_throttle(places: Places) -> None:
    asked = QuotaEntity.of(user="ANONYMOUS")
    with AdminClient(places.data) as client:
        client.alter_quotas([AlterQuotasEntry(asked, [Op(REQUEST, 0.000001)])]).all().result(120)
    gateway = places.gateway
    # Answered once it is stored; in force once the gateway has heard of it from its store.
    wait_for(
        lambda: gateway.call(lambda: gateway.gateway.table.get(asked, REQUEST)),
        "the quota",
    )
    host, _, port = places.admin.partition(":")
    connection = await Connection.open(HostPort(host, int(port)), Security(), greet=True)
    told = []
    for _ in range(5):
        frame = await connection.swap(
            lambda cid: draft.encode_request(48, cid, "t", draft.DescribeQuotasRequest(()))
        )
        told.append(draft.decode_response(48, frame).throttle_time_ms)
    await connection.close()
    assert max(told) > 0


def test_broker_settings_through_a_gateway(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--bootstrap-server", places.data]
    rate = "max.connection.creation.rate"
    assert main([*argv, "--alter", "--broker", "1", "--add-config", f"{rate}=77"]) == 0
    wait_for(lambda: places.gateway.gateway.broker_configs.get("1"), "the gateway to hear of it")
    assert main([*argv, "--describe", "--broker", "1"]) == 0
    done, head, line = capsys.readouterr().out.splitlines()
    assert done == "Completed updating config for broker 1."
    assert head == "Dynamic configs for broker 1 are:"
    assert line.startswith(
        f"  {rate}=77 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{rate}=77"
    )
    assert main([*argv, "--alter", "--broker", "1", "--delete-config", rate]) == 0


def test_quotas_as_code_through_a_gateway(places: Places, tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas:\n- entity: {user: null}\n  producer_byte_rate:bps: 5000000\n")
    argv = ["--bootstrap-server", places.data, str(file)]
    assert main_plan(argv) == 3
    assert main_apply(argv) == 0
    assert main_plan(argv) == 0


def test_tls_and_sasl_to_the_admin_listener(
    make_gateway: Callable[..., GatewayThread],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authority = trustme.CA()
    trust, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    authority.cert_pem.write_to_path(trust)
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(own)
    gateway = make_gateway(
        headgate__admin__listener="ADMIN://127.0.0.1:0",
        **{
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,ADMIN:SASL_SSL"
            ),
            "listener.name.admin.ssl.keystore.type": "PEM",
            "listener.name.admin.ssl.keystore.location": str(own),
        },
    )
    assert gateway.gateway.shared.admin_address is not None
    place = f"localhost:{gateway.gateway.shared.admin_address[1]}"

    def config(user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(trust),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'X required username="{user}" password="{user}-secret";',
        }

    entry = AlterQuotasEntry(QuotaEntity.of(user="carol"), [Op(PRODUCER_BPS, 5)])
    with AdminClient(place, config=config("admin")) as client:
        client.alter_quotas([entry]).all().result(120)
        assert client.describe_quotas().entities().result(120) == {
            QuotaEntity.of(user="carol"): {PRODUCER_BPS: 5.0}
        }
    with AdminClient(place, config=config("bob")) as client:
        for refused in (client.alter_quotas([entry]).all(), client.describe_quotas().entities()):
            with pytest.raises(ApiError) as caught:
                refused.result(120)
            assert caught.value.code == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert main_history(["--store", gateway.gateway.settings.store]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  User:admin  headgate.admin  users/carol" in lines[0]
    assert all("User:bob" in line and "refused" in line for line in lines[1:])
    assert len(lines) >= 2


def test_a_stranger_is_refused_and_the_attempt_is_in_the_history(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'X required username="bob" password="bob-secret";',
    }
    with AdminClient(places.sasl, config=config, tool="break-in") as client:
        entry = AlterQuotasEntry(QuotaEntity.of(user="bob"), [Op(PRODUCER, 2**40)])
        with pytest.raises(ApiError) as caught:
            client.alter_quotas([entry]).all().result(120)
        assert caught.value.code == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert main_history(["--store", places.store]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert "User:bob" in line
    assert "refused" in line
