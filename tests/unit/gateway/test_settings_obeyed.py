"""Settings that do what they say, and secrets that no message holds."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from headgate.cli.main import load
from headgate.config import Settings, load_settings
from headgate.config.listeners import SecurityProtocol
from headgate.errors import ConfigError
from headgate.gateway.charging.managers import Managers
from headgate.gateway.identity.lending import Lending
from headgate.gateway.identity.sasl import jwt_claim
from headgate.gateway.usage_journal import topic_config
from headgate.store import open_store
from headgate.store.base import AuditEvent

NEEDED = {
    "headgate.upstream": "broker:9093",
    "headgate.broker.id.min": "1",
    "headgate.broker.id.max": "1",
}
ADMIN = "headgate.upstream.admin."


def test_the_journals_topic_goes_by_all_of_the_gateways_own_tls(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_text("-----BEGIN CERTIFICATE-----\nown\n")
    config = topic_config(
        Settings.from_properties(
            {
                **NEEDED,
                f"{ADMIN}security.protocol": "SSL",
                f"{ADMIN}ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
                f"{ADMIN}ssl.keystore.type": "PEM",
                f"{ADMIN}ssl.keystore.location": str(tmp_path / "own.pem"),
                f"{ADMIN}ssl.key.password": "x",
                f"{ADMIN}ssl.endpoint.identification.algorithm": "",
            }
        )
    )
    assert config["ssl.ca.pem"] == "-----BEGIN CERTIFICATE-----"
    assert "own" in config["ssl.certificate.pem"]
    assert config["ssl.key.password"] == "x"
    assert config["ssl.endpoint.identification.algorithm"] == "none"


def test_a_password_with_a_comma_is_no_name_in_a_message(tmp_path: Path) -> None:
    file = tmp_path / "credentials.yaml"
    file.write_text(
        "credentials: [{principal: alice, sasl.username: alice, sasl.password: ab,hunter2}]"
    )
    settings = Settings.from_properties({**NEEDED, "headgate.upstream.credentials.file": str(file)})
    with pytest.raises(ConfigError) as raised:
        Lending(settings, SecurityProtocol.SASL_PLAINTEXT)
    assert "hunter2" not in str(raised.value)


def test_a_broken_escape_in_a_password_is_said_without_it(tmp_path: Path) -> None:
    file = tmp_path / "headgate.properties"
    file.write_text(rf"{ADMIN}sasl.password=abc\uter2")
    with pytest.raises(ConfigError) as raised:
        load_settings(file)
    assert "ter2" not in str(raised.value)


def test_a_name_of_half_a_surrogate_pair_can_be_written_down() -> None:
    claims = base64.urlsafe_b64encode(rb'{"sub":"a\ud800b"}').decode().rstrip("=")
    name = jwt_claim(f"e30.{claims}.", "sub")
    assert name is not None
    assert name.encode()


def test_refusals_dont_fill_the_disk(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path / 'quotas.db'}")
    try:
        store.home._writer.db.execute("PRAGMA synchronous=OFF")  # type: ignore[attr-defined]
        for _ in range(10_005):
            store.history.audit(AuditEvent("User:mallory", "x", "AlterClientQuotas", "refused"))
        assert len(store.history.audit_log()) == 10_000
    finally:
        store.close()


@pytest.mark.parametrize("interval_ms", [10, 250, 3_600_000])
def test_936_4_the_gateway_cleans_at_the_interval_that_is_set(interval_ms: int) -> None:
    setting = "producer.id.quota.cache.cleanup.scheduler.interval.ms"
    managers = Managers(Settings.from_properties({**NEEDED, setting: str(interval_ms)}), 0)
    managers.producer_ids.add("u", 1, 0)
    assert managers.producer_ids.idle_ms(11_000) == interval_ms


def test_a_sasl_upstream_without_a_user_is_a_mistake_that_the_check_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    field = (
        Path(__file__).parents[2] / "data" / "gateway" / "14-check-without-upstream-user.properties"
    )
    file = tmp_path / "headgate.properties"
    file.write_text(field.read_text())
    assert load("serve")(["--config", str(file), "--check"]) == 1
    assert "listener SASL: the upstream listener wants SASL and no user is given; set " in (
        capsys.readouterr().err
    )
    user = "headgate.upstream.admin.sasl.username=a\nheadgate.upstream.admin.sasl.password=b\n"
    file.write_text(f"{user}{field.read_text()}")
    assert load("serve")(["--config", str(file), "--check"]) == 0
