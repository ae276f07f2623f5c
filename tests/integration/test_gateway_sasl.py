"""Ways to authenticate that few clients use: bare tokens, delegation tokens."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.config import Settings
from headgate.embedded import EmbeddedKafka, run_tool
from headgate.errors import KafkaError
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store
from headgate.wire import apis
from headgate.wire.header import build_request
from headgate.wire.messages import decode_response, delegation, encode_request, sasl
from headgate.wire.sasl_client import plain, scram

from .gateway_kit import make_gateway, properties, set_quota, topic, wait_for

__all__ = ["make_gateway"]
Make = Callable[..., GatewayThread]
Unique = Callable[[str], str]
Exchange = Generator[bytes, bytes, None]


class Connection:
    """A client that speaks bytes."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
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


def login(connection: Connection, mechanism: str, exchange: Exchange) -> tuple[int, str | None]:
    """Log in as clients do; return the error and its text."""
    answer = connection.ask(apis.SASL_HANDSHAKE, 1, sasl.build_handshake(mechanism))
    assert sasl.handshake_response(answer)[0] == 0
    token = next(exchange)
    while True:
        answer = connection.ask(apis.SASL_AUTHENTICATE, 1, sasl.build_authenticate(token, 1))
        error, text, said, _ = sasl.authenticate_response(answer, 1)
        if error:
            return error, text
        try:
            token = exchange.send(said)
        except StopIteration:
            return 0, None


def create_token(connection: Connection) -> delegation.CreateDelegationTokenResponse:
    key = apis.CREATE_DELEGATION_TOKEN
    frame = encode_request(key, 1, 7, "raw", delegation.CreateDelegationTokenRequest())
    said = connection.say(frame[4:])
    return decode_response(key, 1, len(said).to_bytes(4, "big") + said)


def by_token(token_id: str, secret: bytes) -> Exchange:
    return scram("SCRAM-SHA-256", token_id, base64.b64encode(secret).decode(), token=True)


def token_works(address: str, token: delegation.CreateDelegationTokenResponse) -> bool:
    """Whether a broker lets a token in; it hears of a new one a little later than its maker."""
    with connected(address) as connection:
        return not login(connection, "SCRAM-SHA-256", by_token(token.token_id, token.hmac))[0]


@pytest.mark.kafka4
def test_a_delegation_token_is_its_owners_and_an_unknown_one_is_refused(
    make_gateway: Make, kafka4: EmbeddedKafka, unique: Unique, tmp_path: Path
) -> None:
    gateway = make_gateway()
    bootstrap = gateway.bootstrap("SASL").split(",")[0]
    with connected(bootstrap) as connection:
        assert login(connection, "PLAIN", plain("alice", "alice-secret"))[0] == 0
        token = create_token(connection)
    assert (token.error_code, token.owner_name) == (0, "alice")

    with connected(bootstrap) as connection:
        error, text = login(connection, "SCRAM-SHA-256", by_token("made-up", b"secret"))
    assert error == KafkaError.SASL_AUTHENTICATION_FAILED
    assert text == "a delegation token whose owner this gateway can't look up"
    assert closes(gateway, "delegation-token") == 1

    for broker in (1, 2):
        host, port = kafka4.broker_addresses[broker]["SASL_PLAINTEXT"]
        wait_for(lambda at=f"{host}:{port}": token_works(at, token), "the broker to know the token")
    with connected(bootstrap) as connection:
        assert login(connection, "SCRAM-SHA-256", by_token(token.token_id, token.hmac)) == (0, None)
        assert principals(gateway) == ["alice"]
    with connected(bootstrap) as connection:
        bare_login(connection, "SCRAM-SHA-256", by_token(token.token_id, token.hmac))
        assert "alice" in principals(gateway)
    with connected(bootstrap) as connection:
        error, _ = login(connection, "SCRAM-SHA-256", by_token(token.token_id, b"guessed"))
        assert error == KafkaError.SASL_AUTHENTICATION_FAILED
    assert closes(gateway, "authentication-failed") == 1

    # A client that people use: Kafka's own console producer, charged as its token's owner.
    name = topic(gateway.bootstrap("PLAINTEXT"), unique("token"), 1)
    set_quota(gateway, QuotaEntity.of(user="alice"), {PRODUCER: 1e9})
    config = tmp_path / "token.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token.token_id}" password="{base64.b64encode(token.hmac).decode()}" '
        'tokenauth="true";\n'
    )
    produced = run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        ["--bootstrap-server", bootstrap, "--topic", name, "--command-config", str(config)],
        input="one\n",
    )
    assert produced.returncode == 0, produced.stderr
    rates = gateway.call(
        lambda: [
            front.rules.managers.produce.peek(("alice", ""), time.time_ns() // 1_000_000)
            for front in gateway.gateway.fronts.values()
        ]
    )
    assert max(rates) > 0


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
