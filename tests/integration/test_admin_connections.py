"""The admin client's connections: answers cut short, silence, TLS, SASL."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from headgate.admin import (
    AdminClient,
    AlterQuotasEntry,
    DescribeQuotasOptions,
    Op,
    QuotaEntity,
)
from headgate.errors import ApiError, KafkaError, RemoteProtocolError, StoreError
from headgate.quota.key import PRODUCER
from headgate.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from kit.fake_broker import RELEASED, FakeBroker, Hangup

from .test_admin_wire import altered, described


def test_an_answer_cut_short_is_an_error_and_the_next_call_connects_anew() -> None:
    answers = [described(), Hangup(), described()]

    def answer(request: Any) -> Any:
        found = answers.pop(0)
        if isinstance(found, Hangup):
            raise found
        return found

    with FakeBroker(RELEASED, {48: answer}) as broker, AdminClient(broker.address) as client:
        # At the first question of all it would be taken for a port that wants SASL.
        assert client.describe_quotas().entities().result(60) == {}
        with pytest.raises(StoreError, match="it closed the connection") as caught:
            client.describe_quotas().entities().result(60)
        assert caught.value.retriable
        assert client.describe_quotas().entities().result(60) == {}
    assert broker.connections == 2


def test_calls_made_side_by_side_share_one_connection() -> None:
    with (
        FakeBroker(RELEASED, {48: lambda _: described(), 49: altered}) as broker,
        AdminClient(broker.address) as client,
    ):
        futures: list[Any] = []
        for number in range(50):
            entry = AlterQuotasEntry(QuotaEntity.of(user=str(number)), [Op(PRODUCER, 1)])
            futures += [client.describe_quotas().entities(), client.alter_quotas([entry]).all()]
        assert [future.exception(60) for future in futures] == [None] * 100
    assert broker.connections == 1


def test_of_calls_side_by_side_only_the_broken_one_fails() -> None:
    answers: list[Any] = [described(), Hangup(), *[described() for _ in range(20)]]

    def answer(request: Any) -> Any:
        found = answers.pop(0)
        if isinstance(found, Hangup):
            raise found
        return found

    with FakeBroker(RELEASED, {48: answer}) as broker, AdminClient(broker.address) as client:
        assert client.describe_quotas().entities().result(60) == {}
        futures = [client.describe_quotas().entities() for _ in range(10)]
        errors = [future.exception(60) for future in futures]
        # Those that were waiting for the broken connection are told so too, and may try again.
        assert errors[0] is not None
        assert all(isinstance(e, StoreError) and e.retriable for e in errors if e is not None)
        assert client.describe_quotas().entities().result(60) == {}


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00", "answered request 99"),
        (b"\x7f\xff\xff\xff\x00\x00\x00\x00", "sent a frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xff\x00\x00\x00\x00", "sent a frame of -1 bytes"),
    ],
)
def test_what_is_no_answer_is_said_so(frame: bytes, told: str) -> None:
    with (
        FakeBroker(RELEASED, {48: lambda _: frame}) as broker,
        AdminClient(broker.address) as client,
        pytest.raises(RemoteProtocolError, match=told),
    ):
        client.describe_quotas().entities().result(60)


def test_silence_times_out_and_leaves_no_stale_answer_behind() -> None:
    answers = [described(), None, described()]
    with (
        FakeBroker(RELEASED, {48: lambda _: answers.pop(0)}) as broker,
        AdminClient(broker.address) as client,
    ):
        # The first call connects; it must not be the connecting that times out.
        assert client.describe_quotas().entities().result(60) == {}
        with pytest.raises(ApiError) as caught:
            options = DescribeQuotasOptions(timeout_ms=1_000)
            client.describe_quotas((), options).entities().result(60)
        assert caught.value.code == KafkaError.REQUEST_TIMED_OUT
        assert client.describe_quotas().entities().result(60) == {}


def test_the_next_bootstrap_address_is_tried(free_port: int) -> None:
    with FakeBroker(RELEASED, {48: lambda _: described()}) as broker:
        with AdminClient(f"127.0.0.1:{free_port},{broker.address}") as client:
            assert client.describe_quotas().entities().result(60) == {}
        with (
            AdminClient(f"127.0.0.1:{free_port}") as client,
            pytest.raises(StoreError, match="can't reach 127") as caught,
        ):
            client.describe_quotas().entities().result(60)
    assert caught.value.retriable


def test_tls_trusts_the_given_authority_and_the_right_host_only(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(server)
    trust = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(trust)
    config = {"security.protocol": "SSL", "ssl.truststore.location": str(trust)}
    with FakeBroker(RELEASED, {48: lambda _: described()}, tls=server) as broker:
        with AdminClient(broker.address, config=config) as client:
            assert client.describe_quotas().entities().result(60) == {}
        stranger = tmp_path / "stranger.pem"
        trustme.CA().cert_pem.write_to_path(stranger)
        wrong = {**config, "ssl.truststore.location": str(stranger)}
        with (
            AdminClient(broker.address, config=wrong) as client,
            pytest.raises(StoreError, match="TLS with"),
        ):
            client.describe_quotas().entities().result(60)


# --- SASL

PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'PlainLoginModule required username="alice" password="pw";',
}


def login(mechanisms: tuple[str, ...], answers: list[SaslAuthenticateResponse]) -> dict[int, Any]:
    def handshake(request: Any) -> SaslHandshakeResponse:
        known = request.mechanism in mechanisms
        return SaslHandshakeResponse(0 if known else 33, mechanisms)

    return {17: handshake, 36: lambda _: answers.pop(0), 48: lambda _: described()}


def test_sasl_plain_logs_in() -> None:
    handlers = login(("PLAIN",), [SaslAuthenticateResponse(0, None, b"")])
    with (
        FakeBroker(RELEASED, handlers) as broker,
        AdminClient(broker.address, config=PLAIN) as client,
    ):
        assert client.describe_quotas().entities().result(60) == {}
    assert broker.asked(36)[0].auth_bytes == b"\x00alice\x00pw"


def test_a_refused_login_and_a_missing_mechanism_are_told() -> None:
    handlers = login(("PLAIN",), [SaslAuthenticateResponse(58, "Invalid username", b"")])
    with FakeBroker(RELEASED, handlers) as broker:
        with (
            AdminClient(broker.address, config=PLAIN) as client,
            pytest.raises(ApiError, match="Invalid username") as caught,
        ):
            client.describe_quotas().entities().result(60)
        assert caught.value.code == KafkaError.SASL_AUTHENTICATION_FAILED
        scram = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512"}
        with (
            AdminClient(broker.address, config=scram) as client,
            pytest.raises(ApiError, match="it offers PLAIN"),
        ):
            client.describe_quotas().entities().result(60)


def test_scram_logs_in_and_checks_the_server() -> None:
    salt, password = b"0123456789abcdef", b"pw"
    sent: list[str] = []

    def authenticate(request: Any) -> SaslAuthenticateResponse:
        text = request.auth_bytes.decode()
        sent.append(text)
        if len(sent) == 1:
            nonce = text.split("r=")[1] + "server"
            first = f"r={nonce},s={base64.b64encode(salt).decode()},i=4096"
            sent.append(first)
            return SaslAuthenticateResponse(0, None, first.encode())
        bare = sent[0].removeprefix("n,,")
        without_proof, _, _ = text.rpartition(",p=")
        message = f"{bare},{sent[1]},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac("sha512", password, salt, 4096)
        server_key = hmac.digest(salted, b"Server Key", "sha512")
        proof = base64.b64encode(hmac.digest(server_key, message, "sha512")).decode()
        return SaslAuthenticateResponse(0, None, f"v={proof}".encode())

    handlers = {**login(("SCRAM-SHA-512",), []), 36: authenticate}
    config = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512"}
    with (
        FakeBroker(RELEASED, handlers) as broker,
        AdminClient(broker.address, config=config) as client,
    ):
        assert client.describe_quotas().entities().result(60) == {}
    assert sent[0].startswith("n,,n=alice,r=")
