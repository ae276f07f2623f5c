"""`headgate why` before a real Kafka: a held producer's answer, nothing to others, no gateway."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main
from headgate.embedded import EmbeddedKafka
from headgate.gateway import GatewayThread
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER

from .gateway_kit import make_gateway, send, set_quota, topic, wait_for

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4


class Asking:
    """Runs the command as somebody."""

    def __init__(self, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.where = where
        self._tmp_path = tmp_path
        self._capsys = capsys

    def __call__(self, who: str, *words: str, at: str = "") -> tuple[int, str, str]:
        config = self._tmp_path / f"{who}.properties"
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={login} username="{who}" password="{who}-secret";\n'
        )
        self._capsys.readouterr()
        place = ["--bootstrap-server", at or self.where, "--command-config", str(config)]
        status = main(["why", *place, *words])
        return (status, *self._capsys.readouterr())


def held(ask: Asking, who: str) -> dict[str, Any]:
    """Alice's answer, once one of her requests waits."""
    found: list[dict[str, Any]] = []

    def waits() -> bool:
        status, out, err = ask(who, "--user", "alice", "--client-id", "etl", "--json")
        assert status == 0, err
        found.append(json.loads(out))
        return bool(found[-1]["why"]["state"] == "held")

    wait_for(waits, "a producer to be held", 60)
    return found[-1]


def test_why_says_who_is_held_by_what_and_tells_a_tenant_of_nobody_else(
    make_gateway: Callable[..., GatewayThread],
    kafka4: EmbeddedKafka,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gateway = make_gateway(super__users="User:admin")
    set_quota(gateway, QuotaEntity.of(user="alice"), {PRODUCER: 30_000})
    set_quota(gateway, QuotaEntity.of(user=DEFAULT), {PRODUCER: 50_000_000})
    bootstrap = gateway.bootstrap("SASL")
    name = topic(kafka4.bootstrap("PLAINTEXT"), "why", 1)
    ask = Asking(bootstrap, tmp_path, capsys)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        "client.id": "etl",
        "batch.num.messages": 20,
    }
    told: list[int] = []
    producer = threading.Thread(
        target=lambda: told.extend(send(bootstrap, name, 600, 1_000, **login))
    )
    producer.start()
    try:
        for who in ("admin", "alice"):
            found = held(ask, who)
            why = found["why"]
            first = why["quotas"][0]
            assert (first["key"], first["user"], first["held"]) == (
                "producer_byte_rate", "alice", 1
            )  # fmt: skip
            # A question as alice shares her quota-id, once the gateway has looked again.
            doer = "(it|the quota-id)"
            assert re.search(
                f"because users/alice allows 30 kB/s and {doer} produced [0-9.]+ [kM]?B/s when the "
                "wait was told",
                why["sentence"],
            )
            assert why["because"].endswith("it overrides users/<default> (50 MB/s).")
            assert [rung[1] for rung in found["levels"] if rung[3]] == ["users/alice"]
            assert "what it sent needs a quota of" in why["free"]
        status, out, _ = ask("alice", "--user", "alice", "--client-id", "etl")
        assert status == 0 and "3 users/alice 30 kB/s applies" in " ".join(out.split())

        # Others learn nothing: not that she is there, nor what she does.
        foreign = ask("carol", "--user", "alice", "--client-id", "etl")
        assert foreign[:2] == (1, "") and "CLUSTER_AUTHORIZATION_FAILED" in foreign[2]
        assert ask("carol", "--user", "nobody", "--client-id", "etl") == foreign
        status, out, _ = ask("carol", "--user", "carol", "--json")
        assert status == 0 and "alice" not in out  # carol's own address may stand there

        def unused(client: str) -> str:
            said = ask("carol", "--user", "carol", "--client-id", client)[1].replace(client, "X")
            assert "isn't in use by this principal" in said
            return said

        # The connection of a question before is hers too, and named as long as it is open.
        wait_for(lambda: unused("etl") == unused("abc"), "the same answer for both client-ids")
    finally:
        producer.join(120)
    assert max(told) > 0

    plain = kafka4.bootstrap("SASL_PLAINTEXT")
    status, out, err = ask("admin", "--user", "alice", at=plain)
    assert (status, out) == (1, "") and "isn't a Headgate gateway" in err
