"""What a reload may change, and what it names as needing a restart."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from headgate.config import Settings, load_settings
from headgate.gateway import Gateway, server
from headgate.gateway.cluster import listener_security

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
        await gateway.reload(config)
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
        await gateway.reload(config)
    assert gateway.settings.super_users == frozenset()
    assert caplog.messages[-1].startswith("settings not reloaded")
    assert says in caplog.messages[-1]


async def test_info_says_what_is_enforced_now(tmp_path: Path) -> None:
    config = tmp_path / "headgate.properties"
    config.write_text(BASE)
    gateway = Gateway(load_settings(config))
    config.write_text(BASE + "headgate.enforce=observe\n")
    await gateway.reload(config)
    assert gateway.health.info()["enforce"] == "observe"


class Paused:
    """A reading of settings that waits, on its thread, until it is let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.going = threading.Event()
        self.begun = threading.Event()
        monkeypatch.setattr(server, "load_settings", self._load)

    def _load(self, config: Path) -> Settings:
        self.threads.append(threading.get_ident())
        found = load_settings(config)
        self.begun.set()
        assert self.going.wait(30)
        return found


async def test_files_are_read_beside_the_loop_and_nothing_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "headgate.properties"
    config.write_text(BASE)
    gateway = Gateway(load_settings(config))
    config.write_text(BASE + "super.users=User:root\n")
    paused = Paused(monkeypatch)
    reload = asyncio.ensure_future(gateway.reload(config))
    await asyncio.to_thread(paused.begun.wait, 30)
    assert not gateway.settings.super_users
    paused.going.set()
    await reload
    assert gateway.settings.super_users == {"root"}
    assert threading.get_ident() not in paused.threads


async def test_the_latest_file_is_in_force_after_many_reloads_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "headgate.properties"
    config.write_text(BASE)
    gateway = Gateway(load_settings(config))
    paused = Paused(monkeypatch)
    config.write_text(BASE + "super.users=User:first\n")
    asked = [asyncio.ensure_future(gateway.reload(config))]
    await asyncio.to_thread(paused.begun.wait, 30)
    config.write_text(BASE + "super.users=User:last\n")
    asked += [asyncio.ensure_future(gateway.reload(config)) for _ in range(20)]
    await asyncio.sleep(0)
    paused.going.set()
    await asyncio.gather(*asked)
    assert gateway.settings.super_users == {"last"}
    assert len(paused.threads) == 2  # one more reading serves all who asked meanwhile


async def test_credentials_are_read_once_for_all_listeners_and_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trustme

    certificate = tmp_path / "server.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    (tmp_path / "lent.yaml").write_text("credentials:\n- principal: alice\n")
    config = tmp_path / "headgate.properties"
    config.write_text(
        BASE + "listeners=A://127.0.0.1:0,B://127.0.0.1:0\n"
        "listener.security.protocol.map=A:SSL,B:SSL\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={certificate}\nssl.client.auth=requested\n"
        f"headgate.upstream.credentials.file={tmp_path}/lent.yaml\n"
    )
    read: list[Path] = []
    found = listener_security.rows_of
    monkeypatch.setattr(
        listener_security, "rows_of", lambda path: (read.append(path), found(path))[1]
    )
    gateway = Gateway(load_settings(config))
    gateway.check()
    before = gateway.security.parts("A").lending
    assert before is not None
    assert before is gateway.security.parts("A").lending
    assert before.lend("alice") is not None
    await gateway.reload(config)
    lending = gateway.security.parts("B").lending
    assert lending is not None
    assert lending.lend("alice") is not None
    assert before.lend("alice") is None  # what is lent no more is freed, in steps
    assert len(read) == 2
