"""The gateway's own questions, put to what is no Kafka broker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import Settings
from headgate.config.listeners import HostPort
from headgate.gateway import Gateway
from headgate.gateway import upstream as up

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
GARBAGE = (40).to_bytes(4, "big") + bytes(range(200, 240))
EMPTY = bytes(4)


def security(**more: str) -> Any:
    properties = {
        "headgate.upstream": "kafka:9092",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        **{f"headgate.upstream.admin.{name.replace('__', '.')}": v for name, v in more.items()},
    }
    return Settings.from_properties(properties).upstream_admin


@pytest.fixture
async def says(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, bytes]]:
    """What each host answers to anything; others can't be reached."""
    answers: dict[str, bytes] = {}

    async def connect(host: str, port: int, **_: Any) -> tuple[Any, Any]:
        if host not in answers:
            raise ConnectionRefusedError(f"nobody at {host}")
        reader = asyncio.StreamReader()
        reader.feed_data(answers[host])
        reader.feed_eof()
        done = asyncio.sleep
        writer = SimpleNamespace(
            write=lambda _: None, drain=lambda: done(0), close=lambda: None,
            wait_closed=lambda: done(0), is_closing=lambda: False,
        )  # fmt: skip
        return reader, writer

    monkeypatch.setattr(asyncio, "open_connection", connect)
    yield answers


@pytest.mark.parametrize("answer", [HTTP, GARBAGE, EMPTY, b"", bytes(range(60))])
async def test_what_is_no_broker_is_named_and_the_next_one_asked(
    says: dict[str, bytes], answer: bytes
) -> None:
    says["odd"] = answer
    asked = [HostPort("odd", 80), HostPort("gone", 9092)]
    with pytest.raises(up.UpstreamError, match=r"odd:80.*; gone:9092 can't be reached: nobody"):
        await up.discover(asked, security(), None, 5_000)


@pytest.mark.parametrize("answer", [HTTP, GARBAGE, EMPTY, b""])
async def test_a_login_at_what_is_no_broker_is_refused_with_its_address(
    says: dict[str, bytes], answer: bytes
) -> None:
    says["odd"] = answer
    credentials = security(
        security__protocol="SASL_PLAINTEXT", sasl__username="headgate", sasl__password="hunter2"
    )
    with pytest.raises(up.UpstreamError, match=r"^odd:80") as raised:
        await up.connect(HostPort("odd", 80), credentials, None, 5_000)
    assert "hunter2" not in str(raised.value)


ALERT = bytes.fromhex("1503030002020a")


async def test_tls_where_plaintext_was_spoken_names_the_setting(says: dict[str, bytes]) -> None:
    says["secured"] = ALERT
    with pytest.raises(up.UpstreamError) as caught:
        await up.discover([HostPort("secured", 9093)], security(), None, 5_000)
    assert str(caught.value) == (
        "secured:9093: it speaks TLS and was spoken to without: set "
        "headgate.upstream.security.protocol=SSL or SASL_SSL (it is PLAINTEXT)"
    )


async def test_who_hangs_up_on_the_first_question_may_want_sasl(says: dict[str, bytes]) -> None:
    says["secured"] = b""
    setting = "headgate.upstream.admin.security.protocol"
    with pytest.raises(up.UpstreamError) as caught:
        await up.discover([HostPort("secured", 9093)], security(), None, 5_000, setting)
    assert str(caught.value) == (
        "secured:9093: it hung up on the first question, as a port does that wants SASL, and as "
        "one that has all the connections from this address that it takes (max.connections.per.ip "
        f"and its overrides). If it wants SASL, set {setting}=SASL_PLAINTEXT (it is PLAINTEXT)"
    )


async def test_plaintext_where_tls_was_spoken_names_the_setting() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    where = HostPort("127.0.0.1", server.sockets[0].getsockname()[1])
    own = security(security__protocol="SSL")
    try:
        with pytest.raises(up.UpstreamError) as caught:
            await up.discover([where], own, ssl.create_default_context(), 60_000)
    finally:
        server.close()
        await server.wait_closed()
    assert str(caught.value) == (
        f"{where} can't be reached: it cut the TLS handshake off, as a port does that speaks no "
        "TLS: set headgate.upstream.security.protocol=PLAINTEXT or SASL_PLAINTEXT (it is SSL)"
    )


OWN = "headgate.upstream.admin.security.protocol"


@pytest.mark.parametrize(
    ("properties", "protocol", "setting"),
    [
        ({}, "PLAINTEXT", "headgate.upstream.security.protocol"),
        ({OWN: "SASL_SSL"}, "SASL_SSL", OWN),
        (
            {OWN: "SASL_SSL", "listener.name.plaintext.headgate.upstream": "other:1"},
            "PLAINTEXT",
            "headgate.upstream.security.protocol",
        ),
        (
            {"listener.name.plaintext.headgate.upstream.security.protocol": "SSL"},
            "SSL",
            "listener.name.plaintext.headgate.upstream.security.protocol",
        ),
    ],
)
def test_own_questions_are_asked_in_the_protocol_that_is_set_for_them(
    properties: dict[str, str], protocol: str, setting: str
) -> None:
    settings = Settings.from_properties(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "headgate.upstream": "kafka:9092",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.upstream.admin.sasl.username": "u",
            "headgate.upstream.admin.sasl.password": "p",
            **properties,
        }
    )
    gateway = Gateway(settings)
    security, _ = asyncio.run(gateway.security.own("PLAINTEXT"))
    assert security.security_protocol == protocol
    assert gateway.security.own_setting("PLAINTEXT") == setting
    told = [w for w in settings.warnings if w.startswith(OWN)]
    assert bool(told) == (properties == {OWN: "SASL_SSL"})
