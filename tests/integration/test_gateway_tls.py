"""TLS on the gateway's sockets: clients' certificates, and the way to a broker that speaks it."""

from __future__ import annotations

import contextlib
import datetime
import logging
import ssl
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headgate.config import Settings
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER

from .gateway_kit import wait_for
from .scripted_upstream import (
    VERSIONS,
    Start,
    Upstream,
    connect,
    fetch,
    links,
    produce,
    read_answer,
    start,
    upstream,
)

__all__ = ["start", "upstream"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def pem(folder: Path, name: str, certificate: trustme.LeafCert) -> str:
    path = folder / f"{name}.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


def test_tls_clients_get_their_principal_from_their_certificate(
    start: Start, tmp_path: Path, authority: trustme.CA, upstream: Upstream
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = authority.issue_cert("127.0.0.1", "localhost")
    alice = authority.issue_cert("alice@example", common_name="alice")
    gateway = start(
        {QuotaEntity.of(user="alice"): {PRODUCER: 1_000.0}},
        listeners="TLS://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "TLS:SSL",
            "headgate.upstream.security.protocol": "PLAINTEXT",
            "headgate.upstream.shared.enable": "true",
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem(tmp_path, "server", server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/",
        },
    )
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(pem(tmp_path, "alice", alice))
    raw = connect(gateway, "TLS")
    with context.wrap_socket(raw, server_hostname="localhost") as client:
        client.sendall(produce(50_000))
        told = int.from_bytes(read_answer(client)[-4:], "big")
        assert 10_000 < told <= 40_000  # what is left of it at the answer
    stranger = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with (
        pytest.raises((ssl.SSLError, EOFError, OSError)),
        stranger.wrap_socket(connect(gateway, "TLS"), server_hostname="localhost") as client,
    ):
        client.sendall(VERSIONS)
        read_answer(client)


def test_an_mtls_client_without_upstream_credentials_is_refused_with_the_reason(
    start: Start, tmp_path: Path, authority: trustme.CA
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "lent.yaml").write_text("credentials:\n  - principal: alice\n")
    gateway = start(
        listeners="TLS://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "TLS:SSL",
            "headgate.upstream.security.protocol": "PLAINTEXT",
            "headgate.upstream.credentials.file": str(tmp_path / "lent.yaml"),
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem(tmp_path, "server", authority.issue_cert("localhost")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/",
        },
    )

    def say_versions(name: str) -> bytes:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        context.load_cert_chain(
            pem(tmp_path, name, authority.issue_cert(f"{name}@example", common_name=name))
        )
        with context.wrap_socket(connect(gateway, "TLS"), server_hostname="localhost") as client:
            client.sendall(VERSIONS)
            try:
                return read_answer(client)[4:8]
            except (EOFError, OSError):
                return b""

    assert say_versions("alice") == struct.pack(">i", 9)
    assert say_versions("mallory") == b""
    closed = gateway.gateway.brokers[1].meters.listeners["TLS"].closed
    assert gateway.call(lambda: closed["no-upstream-credentials"]) == 1


def for_certified(folder: Path, authority: trustme.CA) -> dict[str, str]:
    """Settings of a listener TLS whose clients need a certificate; the authority is ca.pem."""
    return {
        "listeners": "TLS://127.0.0.1:0",
        "listener.security.protocol.map": "TLS:SSL",
        "headgate.upstream.security.protocol": "PLAINTEXT",
        "headgate.upstream.shared.enable": "true",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": pem(folder, "server", authority.issue_cert("localhost")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


def over(gateway: GatewayThread, folder: Path, certificate: str) -> ssl.SSLSocket:
    """Connect with a certificate; in TLS 1.3 its refusal is seen by the first read."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(certificate)
    return context.wrap_socket(connect(gateway, "TLS"), server_hostname="localhost")


def is_served(client: ssl.SSLSocket) -> bool:
    try:
        client.sendall(VERSIONS)
        return read_answer(client)[4:8] == struct.pack(">i", 9)
    except (EOFError, OSError):
        return False


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records]
    return [line for line in told if "reason=tls-failed" in line]


def test_a_connection_outlives_its_certificate_and_a_new_one_is_refused_with_the_reason(
    start: Start, tmp_path: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    """Certificates are looked at in the handshake alone, as in Kafka."""
    caplog.set_level(logging.INFO)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    gateway = start(**for_certified(tmp_path, authority))
    with contextlib.ExitStack() as stack:
        for seconds in (2, 4, 8, 16, 32):  # a busy machine may take longer to begin
            soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
            short = pem(tmp_path, "short", authority.issue_cert("a@example", not_after=soon))
            first = stack.enter_context(over(gateway, tmp_path, short))
            if is_served(first):
                break

        def is_over() -> bool:
            with over(gateway, tmp_path, short) as later:
                return not is_served(later)

        # On a thread of its own: from OpenSSL 3.5 on, what fails on a connection can be told to
        # the next call of its thread, whichever connection that is about.
        with ThreadPoolExecutor(1) as apart:
            wait_for(lambda: apart.submit(is_over).result(), "the certificate to expire")
        assert is_served(first)
    assert any("certificate has expired" in line for line in refused(caplog))


def chain_of(folder: Path, count: int) -> tuple[bytes, str]:
    """Return a root's certificate, and the file of a client's with this many between both."""
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(1)
    made: list[bytes] = []
    issuer, signer = "root", None
    for number, name in enumerate(["root", *map(str, range(count)), "client"]):
        key = ec.generate_private_key(ec.SECP256R1())
        subject, by = (
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)])
            for each in (name, issuer)
        )
        certificate = (
            x509.CertificateBuilder(by, subject, key.public_key(), number + 1, now - day, now + day)
            .add_extension(x509.BasicConstraints(name != "client", None), critical=True)
            .sign(signer or key, hashes.SHA256())
        )
        made.append(certificate.public_bytes(serialization.Encoding.PEM))
        issuer, signer = name, key
    assert signer is not None
    plain = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    path = folder / f"chain-{count}.pem"
    path.write_bytes(
        b"".join([signer.private_bytes(serialization.Encoding.PEM, *plain), *made[:0:-1]])
    )
    return made[0], str(path)


@pytest.mark.parametrize(("between", "served"), [(10, True), (100, False)])
def test_a_chain_of_a_hundred_certificates_is_refused_with_the_reason(
    start: Start,
    tmp_path: Path,
    authority: trustme.CA,
    caplog: pytest.LogCaptureFixture,
    between: int,
    served: bool,
) -> None:
    caplog.set_level(logging.INFO)
    root, chain = chain_of(tmp_path, between)
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes() + root)
    gateway = start(**for_certified(tmp_path, authority))
    with over(gateway, tmp_path, chain) as client:
        assert is_served(client) is served
    assert [("too many certificates" in line) for line in refused(caplog)] == [True] * (not served)
    other = pem(tmp_path, "other", authority.issue_cert("a@example"))
    with over(gateway, tmp_path, other) as client:
        assert is_served(client)


def over_tls(upstream: Upstream, folder: Path, **truststore: str) -> Settings:
    """Settings of a gateway that speaks TLS to an upstream, which it knows by a truststore."""
    return Settings.from_properties(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "headgate.upstream": f"127.0.0.1:{upstream.port}",
            "headgate.upstream.security.protocol": "SSL",
            **{f"headgate.upstream.ssl.truststore.{name}": v for name, v in truststore.items()},
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.data.dir": str(folder),
            "headgate.usage": "none",
        }
    )


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_the_upstream_may_speak_tls_both_kinds_of_stores_are_read(
    tmp_path: Path, authority: trustme.CA, kind: str
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(broker)
    where = str(tmp_path / "ca.pem")
    if kind == "PKCS12":
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

        certificate = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
        where = str(tmp_path / "trust.p12")
        Path(where).write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"ca", None, None, [certificate], BestAvailableEncryption(b"changeit")
            )
        )
    with Upstream(broker) as upstream:
        password = {"password": "changeit"} if kind == "PKCS12" else {}
        settings = over_tls(upstream, tmp_path, type=kind, location=where, **password)
        with (
            GatewayThread(lambda: Gateway(settings)) as gateway,
            connect(gateway) as client,
        ):
            client.sendall(produce(400_000))
            assert read_answer(client)[4:8] == struct.pack(">i", 1)
            assert upstream.produced == 1


def test_a_broker_that_answers_no_goodbye_over_tls_does_not_hold_up_the_end(
    tmp_path: Path, authority: trustme.CA
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(broker)
    hangs = threading.Event()
    with Upstream(broker) as upstream:
        settings = over_tls(upstream, tmp_path, type="PEM", location=str(tmp_path / "ca.pem"))
        try:
            # An error of the gateway's thread fails the test.
            with GatewayThread(lambda: Gateway(settings)) as gateway:
                with connect(gateway) as client:
                    client.sendall(produce(400))
                    read_answer(client)
                    upstream._loop.call_soon_threadsafe(hangs.wait)
                wait_for(lambda: gateway.call(lambda: links(gateway)) == 0, "the link's end")
        finally:
            hangs.set()


def test_what_a_tls_client_does_not_read_waits_where_it_is_counted_and_comes_whole(
    start: Start, tmp_path: Path, authority: trustme.CA, upstream: Upstream
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    upstream.records = 5_000_000
    gateway = start(
        listeners="TLS://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "TLS:SSL",
            "headgate.upstream.security.protocol": "PLAINTEXT",
            "headgate.upstream.shared.enable": "true",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem(tmp_path, "server", authority.issue_cert("localhost")),
        },
    )
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with context.wrap_socket(connect(gateway, "TLS"), server_hostname="localhost") as client:
        client.sendall(b"".join(fetch(n) for n in range(10)))
        wait_for(lambda: gateway.call(lambda: side(gateway).full), "a full side")
        inside, owed = gateway.call(
            lambda: (side(gateway).transport.get_write_buffer_size(), side(gateway).owed)
        )
        assert inside < 2 * 65_536  # half a megabyte, unless it is given little
        assert owed >= inside + 131_072
        with client.makefile("rb") as answers:
            for n in range(10):
                answer = answers.read(int.from_bytes(answers.read(4), "big"))
                assert (int.from_bytes(answer[:4], "big"), len(answer) > 5_000_000) == (n, True)
        wait_for(lambda: gateway.call(lambda: side(gateway).owed) == 0, "nothing owed")


def side(gateway: GatewayThread) -> Any:
    """The only client's side of its link."""
    (link,) = gateway.gateway.brokers[1].links
    return link.client
