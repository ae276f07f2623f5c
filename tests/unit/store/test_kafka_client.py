"""The small Kafka client against a broker that says what it is told to say."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from headgate.client.security import librdkafka_config
from headgate.config.security import ClientSecurity
from headgate.config.settings import Settings
from headgate.errors import KafkaError, StoreError
from headgate.quota.filter import FilterComponent
from headgate.store.kafka import client as kafka_client
from headgate.store.kafka.client import KafkaClient
from headgate.wire.apis import DESCRIBE_CLIENT_QUOTAS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from headgate.wire.header import parse_request_header
from headgate.wire.messages import decode_request, encode_response
from headgate.wire.messages.quotas import (
    DescribeClientQuotasResponse,
    DescribedEntry,
    EntityPart,
    QuotaValue,
)
from headgate.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

ENTRY = DescribedEntry((EntityPart("user", "alice"),), (QuotaValue("producer_byte_rate", 5.0),))
FOUND = DescribeClientQuotasResponse((ENTRY,))

Answer = Callable[[int, Any], Any]


class Broker:
    """Answers each request with what ``answer`` returns; None closes the connection."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.context = context
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                if self.context is not None:
                    connection = self.context.wrap_socket(connection, server_side=True)
                self.serve(connection)
            except OSError:
                pass
            finally:
                connection.close()

    def serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        with stream:
            while head := stream.read(4):
                frame = head + stream.read(int.from_bytes(head, "big"))
                key, version, correlation, _client, body = parse_request_header(frame)
                answer = self.answer(key, decode_request(key, version, frame, body))
                if answer is None:
                    return
                if not isinstance(answer, bytes):
                    answer = encode_response(key, version, correlation, answer)
                connection.sendall(answer)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


@pytest.fixture
def broker() -> Iterator[Callable[..., Broker]]:
    made: list[Broker] = []

    def make(answer: Answer, context: ssl.SSLContext | None = None) -> Broker:
        made.append(Broker(answer, context))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def client() -> Iterator[Callable[..., KafkaClient]]:
    made: list[KafkaClient] = []

    def make(bootstrap: str, security: ClientSecurity | None = None) -> KafkaClient:
        made.append(KafkaClient(bootstrap, security))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_broken_connection_is_made_again(
    broker: Callable[..., Broker], client: Callable[..., KafkaClient]
) -> None:
    answers = iter([FOUND, None, b"\0\0\0\0\0\0\0\0", b"\0\0\0\x08\0\0\0\x63\0\0\0\0", FOUND])
    one = broker(lambda _key, _request: next(answers))
    used = client(one.address)
    assert used.describe() == (ENTRY,)
    # A closed connection, an impossible length and a foreign correlation id, all behind one call.
    assert used.describe() == (ENTRY,)
    assert one.connections == 4


def test_another_bootstrap_server_is_asked_when_one_is_down(
    broker: Callable[..., Broker], client: Callable[..., KafkaClient]
) -> None:
    one = broker(lambda _key, _request: FOUND)
    assert client(f"127.0.0.1:1,{one.address},localhost:1").describe() == (ENTRY,)


def test_nobody_there_is_retriable_and_names_who_was_asked(
    client: Callable[..., KafkaClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "CALL_TIMEOUT_S", 0.0)
    with pytest.raises(StoreError, match=r"Kafka 127\.0\.0\.1:1 can't be reached: 127") as raised:
        client("127.0.0.1:1").describe()
    assert raised.value.retriable


@pytest.mark.parametrize("text", ["nowhere", "host:", ":9092", "host:port"])
def test_a_bootstrap_that_is_none_is_named(text: str) -> None:
    with pytest.raises(StoreError, match="isn't of the form host:port"):
        KafkaClient(text, None)


def test_errors_that_pass_are_tried_again_and_others_are_told(
    broker: Callable[..., Broker], client: Callable[..., KafkaClient]
) -> None:
    answers = iter(
        [
            DescribeClientQuotasResponse(None, KafkaError.NOT_CONTROLLER, None),
            FOUND,
            DescribeClientQuotasResponse(None, KafkaError.CLUSTER_AUTHORIZATION_FAILED, None),
        ]
    )
    used = client(broker(lambda _key, _request: next(answers)).address)
    assert used.describe() == (ENTRY,)
    with pytest.raises(StoreError, match=r"CLUSTER_AUTHORIZATION_FAILED; headgate\.store\.kafka"):
        used.describe()


def test_a_call_that_is_repeated_keeps_no_other_waiting(
    broker: Callable[..., Broker], client: Callable[..., KafkaClient]
) -> None:
    """Between two tries of one call others are made."""
    refused = DescribeClientQuotasResponse(None, error_code=int(KafkaError.NOT_CONTROLLER))
    tried, other = threading.Event(), threading.Event()

    def answer(_key: int, request: Any) -> Any:
        if not request.components:  # the call that is repeated
            tried.set()
            return FOUND if other.is_set() else refused
        other.set()
        return FOUND

    used = client(broker(answer).address)
    first = threading.Thread(target=used.describe)
    first.start()
    assert tried.wait(60)
    assert used.describe([FilterComponent.of_name("user", "alice")]) == (ENTRY,)
    first.join(60)
    assert not first.is_alive()


def test_an_error_that_never_passes_is_told_in_the_end(
    broker: Callable[..., Broker],
    client: Callable[..., KafkaClient],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_client, "CALL_TIMEOUT_S", 0.1)
    busy = DescribeClientQuotasResponse(None, KafkaError.NOT_CONTROLLER, None)
    used = client(broker(lambda _key, _request: busy).address)
    with pytest.raises(StoreError, match="refuses to describe client quotas: NOT_CONT") as raised:
        used.describe()
    assert raised.value.retriable


def test_the_same_answer_is_not_read_twice(
    broker: Callable[..., Broker], client: Callable[..., KafkaClient]
) -> None:
    other = DescribeClientQuotasResponse((), throttle_time_ms=3)
    answers = iter([FOUND, FOUND, other, FOUND])
    used = client(broker(lambda _key, _request: next(answers)).address)
    first, second, third, fourth = (used.describe() for _ in range(4))
    assert first is second
    assert third == ()
    assert fourth == first


def security(tmp_path: Path, **lines: str) -> ClientSecurity:
    named = {f"headgate.store.kafka.{k.replace('__', '.')}": v for k, v in lines.items()}
    return Settings.from_properties(named).store_kafka


def test_credentials_refused_say_so_and_are_not_tried_again(
    broker: Callable[..., Broker], client: Callable[..., KafkaClient], tmp_path: Path
) -> None:
    def answer(key: int, request: Any) -> Any:
        if key == SASL_HANDSHAKE:
            return SaslHandshakeResponse(0, ("PLAIN",))
        assert key == SASL_AUTHENTICATE
        assert request.auth_bytes == b"\0admin\0wrong"
        return SaslAuthenticateResponse(58, "Authentication failed: Invalid username", b"")

    one = broker(answer)
    user = security(
        tmp_path,
        security__protocol="SASL_PLAINTEXT",
        sasl__username="admin",
        sasl__password="wrong",
    )
    with pytest.raises(StoreError, match="refuses 'admin': Authentication failed"):
        client(one.address, user).describe()
    assert one.connections == 1


def test_a_mechanism_the_broker_lacks_is_told_with_those_it_has(
    broker: Callable[..., Broker], client: Callable[..., KafkaClient], tmp_path: Path
) -> None:
    one = broker(lambda _key, _request: SaslHandshakeResponse(33, ("GSSAPI", "PLAIN")))
    user = security(
        tmp_path,
        security__protocol="SASL_PLAINTEXT",
        sasl__mechanism="SCRAM-SHA-256",
        sasl__username="admin",
        sasl__password="x",
    )
    with pytest.raises(
        StoreError, match="doesn't take SASL SCRAM-SHA-256; it offers GSSAPI, PLAIN"
    ):
        client(one.address, user).describe()


@pytest.mark.parametrize("form", ["PEM", "PKCS12"])
def test_tls_with_a_client_certificate(
    broker: Callable[..., Broker], client: Callable[..., KafkaClient], tmp_path: Path, form: str
) -> None:
    authority = trustme.CA()
    server, mine = authority.issue_cert("127.0.0.1"), authority.issue_cert("gateway")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    server.configure_cert(context)
    authority.configure_trust(context)
    key_file, trust_file = tmp_path / "key", tmp_path / "trust"
    if form == "PEM":
        key_file.write_bytes(mine.private_key_and_cert_chain_pem.bytes())
        trust_file.write_bytes(authority.cert_pem.bytes())
    else:
        key = load_pem_private_key(mine.private_key_pem.bytes(), None)
        own = load_pem_x509_certificate(mine.cert_chain_pems[0].bytes())
        trusted = load_pem_x509_certificate(authority.cert_pem.bytes())
        secret = BestAvailableEncryption(b"changeit")
        key_file.write_bytes(pkcs12.serialize_key_and_certificates(b"k", key, own, None, secret))  # type: ignore[arg-type]
        trust_file.write_bytes(
            pkcs12.serialize_key_and_certificates(None, None, None, [trusted], secret)
        )
    lines = {
        "security__protocol": "SSL",
        "ssl__keystore__location": str(key_file),
        "ssl__keystore__type": form,
        "ssl__truststore__location": str(trust_file),
        "ssl__truststore__type": form,
    }
    if form == "PKCS12":
        lines |= {"ssl__keystore__password": "changeit", "ssl__truststore__password": "changeit"}
    tls = security(tmp_path, **lines)
    one = broker(lambda key, _request: FOUND if key == DESCRIBE_CLIENT_QUOTAS else None, context)
    assert client(one.address, tls).describe() == (ENTRY,)
    config = librdkafka_config(one.address, tls)
    assert config["security.protocol"] == "SSL"
    assert authority.cert_pem.bytes().decode().strip() in config["ssl.ca.pem"]
    assert "PRIVATE KEY" in config["ssl.key.pem"]
    assert config["ssl.endpoint.identification.algorithm"] == "https"


def test_a_store_of_keys_that_is_not_there_is_named(tmp_path: Path) -> None:
    tls = security(
        tmp_path, security__protocol="SSL", ssl__truststore__location=str(tmp_path / "none.pem")
    )
    setting = r"headgate\.store\.kafka\.ssl\.truststore\.location"
    with pytest.raises(StoreError, match=rf"{setting}: .*none\.pem can't be read: No such file"):
        KafkaClient("127.0.0.1:1", tls)
