"""What a reload may change, and what it names as needing a restart."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headgate.config import load_settings
from headgate.gateway import Gateway

BASE = """\
headgate.upstream=127.0.0.1:9092
headgate.broker.id.min=1
headgate.broker.id.max=1
"""


@pytest.mark.parametrize(
    ("line", "field", "kept"),
    [
        ("headgate.log.format=json", "log_format", "text"),
        ("headgate.splits=stream", "splits", "local"),
        ("headgate.worker.id=other", "worker_id", None),
        ("headgate.lease.ttl.ms=1000", "lease_ttl_ms", 10_000),
        ("headgate.request.time=upstream", "request_time", "gateway"),
        # A port has its buffers from when it was opened, and in Kafka they are read-only too.
        ("socket.send.buffer.bytes=30000", "socket_send_buffer_bytes", -1),
        ("headgate.drain.timeout.ms=7", "drain_timeout_ms", 7),
    ],
)
async def test_what_cant_change_while_running_is_named_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, field: str, kept: object
) -> None:
    config = tmp_path / "headgate.properties"
    config.write_text(BASE)
    gateway = Gateway(load_settings(config))
    config.write_text(BASE + line + "\n")
    with caplog.at_level(logging.INFO, "headgate.gateway"):
        gateway.reload(config)
    assert getattr(gateway.settings, field) == kept
    name = line.partition("=")[0]
    fixed = kept != 7
    assert (f"changed; that needs a restart  setting={name}" in caplog.messages) == fixed
    assert caplog.messages[-1] == "settings reloaded"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("headgate.upstream.credentials.file=/no/such.yaml", "/no/such.yaml can't be read"),
        ("principal.builder.class=no.such:Builder", "no.such:Builder"),
        ("listener.name.tls.ssl.keystore.location=/no/such.p12", "listener TLS: ssl.keystore"),
    ],
)
async def test_what_cant_be_used_changes_nothing_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, says: str
) -> None:
    import trustme

    certificate = tmp_path / "server.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    base = BASE + (
        "listeners=TLS://127.0.0.1:0\nlistener.security.protocol.map=TLS:SSL\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={certificate}\nssl.client.auth=requested\n"
    )
    config = tmp_path / "headgate.properties"
    config.write_text(base)
    gateway = Gateway(load_settings(config))
    gateway.check()
    config.write_text(base + line + "\nsuper.users=User:root\n")
    with caplog.at_level(logging.INFO, "headgate.gateway"):
        gateway.reload(config)
    assert gateway.settings.super_users == frozenset()
    assert caplog.messages[-1].startswith("settings not reloaded")
    assert says in caplog.messages[-1]


async def test_info_says_what_is_enforced_now(tmp_path: Path) -> None:
    config = tmp_path / "headgate.properties"
    config.write_text(BASE)
    gateway = Gateway(load_settings(config))
    config.write_text(BASE + "headgate.enforce=observe\n")
    gateway.reload(config)
    assert gateway.shown.info()["enforce"] == "observe"
