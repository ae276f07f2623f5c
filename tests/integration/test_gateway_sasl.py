"""Ways to authenticate that few clients use: bare tokens, delegation tokens."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.config import Settings
from headgate.embedded import EmbeddedKafka
from headgate.gateway import Gateway, GatewayThread
from headgate.store import open_store
from headgate.wire import apis
from headgate.wire.header import build_request
from headgate.wire.messages import sasl
from headgate.wire.sasl_client import plain, scram

from .gateway_kit import make_gateway, properties, wait_for

__all__ = ["make_gateway"]
Make = Callable[..., GatewayThread]
Exchange = Generator[bytes, bytes, None]


class Connection:
    """A client that speaks bytes."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._stream = self._socket.makefile("rb")

    def say(self, token: bytes) -> bytes:
        """Send a bare token; return the bare answer. EOFError if there is none."""
        self._socket.sendall(len(token).to_bytes(4, "big") + token)
        head = self._stream.read(4)
        if len(head) < 4:
            raise EOFError
        return self._stream.read(int.from_bytes(head, "big"))

    def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request; return its answer with the length prefix."""
        answer = self.say(build_request(key, version, 7, "raw", body)[4:])
        return len(answer).to_bytes(4, "big") + answer

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@contextmanager
def connected(bootstrap: str) -> Iterator[Connection]:
    connection = Connection(bootstrap)
    try:
        yield connection
    finally:
        connection.close()


def bare_login(connection: Connection, mechanism: str, exchange: Exchange) -> None:
    """Log in as clients before Kafka 1.0 do; EOFError if the broker closes."""
    answer = connection.ask(apis.SASL_HANDSHAKE, 0, sasl.build_handshake(mechanism))
    assert sasl.handshake_response(answer)[0] == 0
    token = next(exchange)
    while True:
        said = connection.say(token)
        try:
            token = exchange.send(said)
        except StopIteration:
            return


def principals(gateway: GatewayThread) -> list[str]:
    """Whom the open connections belong to, as far as that is known."""
    return gateway.call(
        lambda: [
            link.session.identity.principal
            for front in gateway.gateway.fronts.values()
            for link in front.links
            if link.session.identity.authenticated
        ]
    )


def closes(gateway: GatewayThread, reason: str) -> int:
    return gateway.call(
        lambda: sum(
            meters.closed[reason]
            for front in gateway.gateway.fronts.values()
            for meters in front.meters.listeners.values()
        )
    )


def check_bare_tokens(gateway: GatewayThread) -> None:
    bootstrap = gateway.bootstrap("SASL")
    for mechanism, exchange in (
        ("PLAIN", plain("alice", "alice-secret")),
        ("SCRAM-SHA-256", scram("SCRAM-SHA-256", "bob", "bob-secret")),
        ("SCRAM-SHA-512", scram("SCRAM-SHA-512", "carol", "carol-secret")),
    ):
        with connected(bootstrap) as connection:
            bare_login(connection, mechanism, exchange)
            answer = connection.ask(apis.API_VERSIONS, 0, b"")
            assert answer[8:10] == b"\0\0"
            expected = {"PLAIN": "alice", "SCRAM-SHA-256": "bob"}.get(mechanism, "carol")
            assert principals(gateway) == [expected]
        wait_for(lambda: principals(gateway) == [], "the connection to go")
    before = closes(gateway, "authentication-failed")
    for mechanism, exchange in (
        ("PLAIN", plain("alice", "wrong")),
        ("SCRAM-SHA-256", scram("SCRAM-SHA-256", "bob", "wrong")),
    ):
        with connected(bootstrap) as connection:
            with pytest.raises((EOFError, ConnectionError)):
                bare_login(connection, mechanism, exchange)
            assert principals(gateway) == []
    assert closes(gateway, "authentication-failed") == before + 2


@pytest.mark.kafka4
def test_bare_tokens_after_a_handshake_of_version_0(make_gateway: Make) -> None:
    check_bare_tokens(make_gateway())


@pytest.mark.kafka3
def test_bare_tokens_before_a_3_9_broker(kafka3: EmbeddedKafka, tmp_path: Path) -> None:
    settings = Settings.from_properties(properties(tmp_path, kafka3))
    store = open_store(settings.store)
    with GatewayThread(lambda: Gateway(settings, store)) as gateway:
        check_bare_tokens(gateway)
    store.close()
