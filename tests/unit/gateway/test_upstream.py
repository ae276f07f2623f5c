"""The gateway's own questions, put to what is no Kafka broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import Settings
from headgate.config.listeners import HostPort
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
            wait_closed=lambda: done(0),
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
