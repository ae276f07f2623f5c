"""Who a client is, before real brokers: bare tokens, OAuth, delegation tokens, a second login."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headgate.config import Settings
from headgate.embedded import EmbeddedKafka, run_tool
from headgate.embedded.properties import client_properties
from headgate.embedded.tools import tool_command
from headgate.errors import KafkaError
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store
from headgate.wire import apis
from headgate.wire.header import build_request
from headgate.wire.messages import decode_response
from headgate.wire.sasl_client import plain, scram
from kit.logins import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    build_authenticate,
    build_handshake,
    token_request,
    token_response,
)

from .gateway_kit import make_gateway, properties, send, set_quota, topic, wait_for

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
    answer = connection.ask(apis.SASL_HANDSHAKE, 0, build_handshake(mechanism))
    assert decode_response(apis.SASL_HANDSHAKE, 1, answer).error_code == 0
    token = next(exchange)
    while True:
        said = connection.say(token)
        try:
            token = exchange.send(said)
        except StopIteration:
            return


def principals(gateway: GatewayThread) -> list[str]:
    """The principals of the open connections, as far as they are known."""
    return gateway.call(
        lambda: [
            link.session.identity.principal
            for front in gateway.gateway.brokers.values()
            for link in front.links
            if link.session.identity.authenticated
        ]
    )


def closes(gateway: GatewayThread, reason: str) -> int:
    return gateway.call(
        lambda: sum(
            meters.closed[reason]
            for front in gateway.gateway.brokers.values()
            for meters in front.meters.listeners.values()
        )
    )


def jwt(subject: str, lifetime_s: int = 300) -> str:
    """Return an unsigned token, as brokers without a key of their issuer's take them."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now - 600, "exp": now + lifetime_s}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts), ""])


def bearer(token: str) -> Exchange:
    """Say an OAUTHBEARER client's part (RFC 7628)."""
    said = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if said:
        yield b"\x01"  # the server's error, which must be acknowledged before it fails


def check_bare_tokens(gateway: GatewayThread) -> None:
    bootstrap = gateway.bootstrap("SASL")
    for mechanism, exchange in (
        ("PLAIN", plain("alice", "alice-secret")),
        ("SCRAM-SHA-256", scram("SCRAM-SHA-256", "bob", "bob-secret")),
        ("SCRAM-SHA-512", scram("SCRAM-SHA-512", "carol", "carol-secret")),
        ("OAUTHBEARER", bearer(jwt("dave"))),
    ):
        with connected(bootstrap) as connection:
            bare_login(connection, mechanism, exchange)
            answer = connection.ask(apis.API_VERSIONS, 0, b"")
            assert answer[8:10] == b"\0\0"
            expected = {"PLAIN": "alice", "SCRAM-SHA-256": "bob", "OAUTHBEARER": "dave"}
            assert principals(gateway) == [expected.get(mechanism, "carol")]
        wait_for(lambda: principals(gateway) == [], "the connection to go")
    before = closes(gateway, "authentication-failed")
    for mechanism, exchange in (
        ("PLAIN", plain("alice", "wrong")),
        ("SCRAM-SHA-256", scram("SCRAM-SHA-256", "bob", "wrong")),
        ("OAUTHBEARER", bearer(jwt("dave", lifetime_s=-100))),
    ):
        with connected(bootstrap) as connection:
            with pytest.raises((EOFError, ConnectionError)):
                bare_login(connection, mechanism, exchange)
            assert principals(gateway) == []
    wait_for(
        lambda: closes(gateway, "authentication-failed") == before + 3, "the close to be counted"
    )


def login(connection: Connection, mechanism: str, exchange: Exchange) -> tuple[int, str | None]:
    """Log in as clients do; return the error and its text."""
    answer = connection.ask(apis.SASL_HANDSHAKE, 1, build_handshake(mechanism))
    assert decode_response(apis.SASL_HANDSHAKE, 1, answer).error_code == 0
    token = next(exchange)
    while True:
        answer = connection.ask(apis.SASL_AUTHENTICATE, 1, build_authenticate(token, 1))
        said = decode_response(apis.SASL_AUTHENTICATE, 1, answer)
        if said.error_code:
            return said.error_code, said.error_message
        try:
            token = exchange.send(said.auth_bytes)
        except StopIteration:
            return 0, None


def create_token(connection: Connection) -> CreateDelegationTokenResponse:
    said = connection.say(token_request(1, CreateDelegationTokenRequest())[4:])
    return token_response(1, len(said).to_bytes(4, "big") + said)


def by_token(token_id: str, secret: bytes) -> Exchange:
    return scram("SCRAM-SHA-256", token_id, base64.b64encode(secret).decode(), token=True)


def token_works(address: str, token: CreateDelegationTokenResponse) -> bool:
    """Whether a broker lets a token in; it hears of a new one a little later than its maker."""
    with connected(address) as connection:
        return not login(connection, "SCRAM-SHA-256", by_token(token.token_id, token.hmac))[0]


@pytest.mark.kafka4
def test_a_delegation_token_is_its_owners_and_an_unknown_one_is_refused(
    make_gateway: Make, kafka4: EmbeddedKafka, unique: Unique, tmp_path: Path
) -> None:
    # A window that is as long as a Java tool may take to end, after what it sent was counted.
    gateway = make_gateway(quota__window__num="400")
    bootstrap = gateway.bootstrap("SASL").split(",")[0]
    with connected(bootstrap) as connection:
        assert login(connection, "PLAIN", plain("alice", "alice-secret"))[0] == 0
        token = create_token(connection)
    assert (token.error_code, token.owner_name) == (0, "alice")

    with connected(bootstrap) as connection:
        error, text = login(connection, "SCRAM-SHA-256", by_token("made-up", b"secret"))
    assert error == KafkaError.SASL_AUTHENTICATION_FAILED
    assert text == "a delegation token whose owner this gateway can't look up"
    wait_for(lambda: closes(gateway, "delegation-token") == 1, "the close to be counted")

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
    wait_for(lambda: closes(gateway, "authentication-failed") == 1, "the close to be counted")

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
            for front in gateway.gateway.brokers.values()
        ]
    )
    assert max(rates) > 0


def check_oauth(gateway: GatewayThread, unique: Unique) -> None:
    bootstrap, user = gateway.bootstrap("SASL"), unique("erin")
    with connected(bootstrap) as connection:
        assert login(connection, "OAUTHBEARER", bearer(jwt(user))) == (0, None)
        assert principals(gateway) == [user]
    wait_for(lambda: principals(gateway) == [], "the connection to go")

    # librdkafka, charged as who its token says.
    name = topic(gateway.bootstrap("PLAINTEXT"), unique("oauth"), 1)
    set_quota(gateway, QuotaEntity.of(user=user), {PRODUCER: 50_000.0})
    oauth = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",  # codespell:ignore unsecure
    }
    told = [
        max(
            send(bootstrap, name, 400, **oauth, **{"sasl.oauthbearer.config": f"principal={who}"}),
            default=0,
        )
        for who in (user, unique("other"))
    ]
    assert told[0] > 0
    assert told[1] == 0

    # What nobody here can read is refused, and the broker isn't asked.
    with connected(bootstrap) as connection:
        error, text = login(connection, "OAUTHBEARER", bearer("b3BhcXVl"))
    assert error == KafkaError.SASL_AUTHENTICATION_FAILED
    assert text == (
        "an opaque OAuth token: the gateway can only tell whose a JWT is, by its claim 'sub'"
    )
    wait_for(lambda: closes(gateway, "opaque-token") == 1, "the close to be counted")
    with connected(bootstrap) as connection:
        answer = connection.ask(apis.SASL_HANDSHAKE, 1, build_handshake("GSSAPI"))
        refusal = decode_response(apis.SASL_HANDSHAKE, 1, answer)
        assert refusal.error_code == KafkaError.UNSUPPORTED_SASL_MECHANISM
        assert "GSSAPI" not in refusal.mechanisms
        with pytest.raises((EOFError, ConnectionError)):
            connection.ask(apis.SASL_HANDSHAKE, 1, build_handshake("PLAIN"))
    wait_for(lambda: closes(gateway, "gssapi") == 1, "the close to be counted")


def check_second_logins(gateway: GatewayThread, broker: str) -> None:
    """Log in twice on one connection, here and at the broker: the same goes, the same doesn't."""
    here = gateway.bootstrap("SASL").split(",")[0]
    for again, expected in (
        (lambda: plain("alice", "alice-secret"), 0),
        (lambda: plain("bob", "bob-secret"), KafkaError.SASL_AUTHENTICATION_FAILED),
    ):
        found = []
        for address in (here, broker):
            with connected(address) as connection:
                assert login(connection, "PLAIN", plain("alice", "alice-secret")) == (0, None)
                found.append(login(connection, "PLAIN", again()))
                if address == here and not expected:
                    assert principals(gateway) == ["alice"]
                    assert connection.ask(apis.METADATA, 0, b"\0\0\0\0")[8:]
        assert found[0] == found[1]
        assert found[0][0] == expected
    # Another mechanism isn't taken either: a broker closes, we say why.
    scrammed = ("SCRAM-SHA-256", "alice", "alice-secret")
    with connected(here) as connection:
        assert login(connection, "PLAIN", plain("alice", "alice-secret")) == (0, None)
        assert login(connection, scrammed[0], scram(*scrammed)) == (
            KafkaError.SASL_AUTHENTICATION_FAILED,
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for "
            "reauthentication of mechanism 'PLAIN'",
        )
    with connected(broker) as connection:
        assert login(connection, "PLAIN", plain("alice", "alice-secret")) == (0, None)
        with pytest.raises((EOFError, ConnectionError)):
            login(connection, scrammed[0], scram(*scrammed))
    wait_for(lambda: closes(gateway, "reauthentication") == 2, "the close to be counted")
    wait_for(lambda: principals(gateway) == [], "the connections to go")


@pytest.mark.kafka4
def test_an_oauth_token_is_its_subjects_and_what_cant_be_read_is_refused(
    make_gateway: Make, unique: Unique
) -> None:
    check_oauth(make_gateway(quota__window__num="3"), unique)


@pytest.mark.kafka4
def test_a_second_login_cannot_change_the_principal(
    make_gateway: Make, kafka4: EmbeddedKafka
) -> None:
    check_second_logins(make_gateway(), kafka4.bootstrap("SASL_PLAINTEXT").split(",")[0])


@pytest.mark.kafka4
def test_bare_tokens_after_a_handshake_of_version_0(make_gateway: Make) -> None:
    check_bare_tokens(make_gateway())


@pytest.mark.kafka4
@pytest.mark.slow
def test_clients_that_must_log_in_again_and_again_keep_their_connections(
    make_gateway: Make, make_kafka: Callable[..., EmbeddedKafka], unique: Unique, tmp_path: Path
) -> None:
    # A broker takes a second login after a second at the earliest.
    kafka = make_kafka(brokers=1, extra_properties={"connections.max.reauth.ms": "2000"})
    gateway = make_gateway(kafka)
    bootstrap, name = gateway.bootstrap("SASL"), unique("again")
    topic(kafka.bootstrap(), name, 1)
    login_as = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "error_cb": errors.append, **login_as})
    config = tmp_path / "alice.properties"
    config.write_text(client_properties("alice", "alice-secret"))
    tool = subprocess.Popen(
        tool_command(
            "org.apache.kafka.tools.ProducerPerformance",
            ["--topic", name, "--num-records", "60", "--record-size", "10", "--throughput", "10",
             "--command-property", f"bootstrap.servers={bootstrap}",
             "--command-config", str(config)],
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    while tool.poll() is None:
        producer.produce(name, b"x")
        assert producer.flush(60) == 0
        time.sleep(0.1)
    assert "60 records sent" in tool.communicate(timeout=60)[0]
    assert not errors
    # Who doesn't is thrown out by the broker.
    assert closes(gateway, "upstream-gone") == 0
    with connected(bootstrap) as connection:
        assert login(connection, "PLAIN", plain("alice", "alice-secret")) == (0, None)
        time.sleep(3)
        with pytest.raises((EOFError, ConnectionError)):
            connection.ask(apis.METADATA, 0, b"\0\0\0\0")
    wait_for(lambda: closes(gateway, "upstream-gone") == 1, "the close to be counted")


@pytest.mark.kafka3
def test_all_of_them_before_a_3_9_broker(
    kafka3: EmbeddedKafka, tmp_path: Path, unique: Unique
) -> None:
    named = properties(tmp_path, kafka3, **{"quota.window.num": "3"})
    settings = Settings.from_properties(named)
    store = open_store(settings.store)
    with GatewayThread(lambda: Gateway(settings, store)) as gateway:
        check_bare_tokens(gateway)
        check_oauth(gateway, unique)
        check_second_logins(gateway, kafka3.bootstrap("SASL_PLAINTEXT"))
    store.close()
