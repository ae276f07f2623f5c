"""Key and trust stores of every kind, and what is said of those that can't be used."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization as made
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from headgate.config import Settings
from headgate.errors import ConfigError
from headgate.gateway.tls import client_context, server_context

PASSWORD = "changeit"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


class Stores:
    """A certificate in every form that Kafka has."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.folder = folder
        leaf = authority.issue_cert("localhost")
        chain = [x509.load_pem_x509_certificate(pem.bytes()) for pem in leaf.cert_chain_pems]
        trusted = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
        key = made.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        sealed = made.BestAvailableEncryption(PASSWORD.encode())
        certificates = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
        encrypted = key.private_bytes(made.Encoding.PEM, made.PrivateFormat.PKCS8, sealed)
        self.chain = certificates.decode()
        self.key, self.encrypted_key = leaf.private_key_pem.bytes().decode(), encrypted.decode()
        self.serial = chain[0].serial_number
        for name, content in {
            "plain.pem": leaf.private_key_and_cert_chain_pem.bytes(),
            "encrypted.pem": encrypted + certificates,
            "ca.pem": authority.cert_pem.bytes(),
            "key.p12": pkcs12.serialize_key_and_certificates(
                b"server", key, chain[0], chain[1:], sealed
            ),
            "trust.p12": pkcs12.serialize_key_and_certificates(
                b"ca", None, None, [trusted], sealed
            ),
            "garbled.pem": b"not a certificate",
            "cut.p12": b"\x30\x82\x01",
        }.items():
            (folder / name).write_bytes(content)


@pytest.fixture
def stores(tmp_path: Path, authority: trustme.CA) -> Stores:
    return Stores(tmp_path, authority)


def settings(stores: Stores, **named: str) -> Settings:
    properties = {name.replace("__", "."): value for name, value in named.items()}
    for name, value in properties.items():
        if name.endswith(".location"):
            properties[name] = str(stores.folder / value)
    return Settings.from_properties(
        {
            "listeners": "TLS://:0",
            "listener.security.protocol.map": "TLS:SSL",
            "headgate.upstream": "kafka:9092",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            **properties,
        }
    )


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Let the two talk over memory; return the certificate that the client saw."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    two = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [one, two]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    found = one.getpeercert()
    assert found is not None
    return dict(found)


@pytest.mark.parametrize(
    "named",
    [
        {"ssl__keystore__type": "PEM", "ssl__keystore__location": "plain.pem"},
        {
            "ssl__keystore__type": "PEM",
            "ssl__keystore__location": "encrypted.pem",
            "ssl__key__password": PASSWORD,
        },
        {"ssl__keystore__location": "key.p12", "ssl__keystore__password": PASSWORD},
    ],
    ids=["PEM", "encrypted PEM", "PKCS12"],
)
@pytest.mark.parametrize(
    "trust",
    [
        {"type": "PEM", "location": "ca.pem"},
        {"type": "PKCS12", "location": "trust.p12", "password": PASSWORD},
    ],
    ids=["PEM", "PKCS12"],
)
def test_both_sides_read_every_kind_of_store(
    stores: Stores, named: dict[str, str], trust: dict[str, str]
) -> None:
    upstream = {f"headgate__upstream__ssl__truststore__{k}": v for k, v in trust.items()}
    read = settings(stores, **named, **upstream)
    seen = shake_hands(server_context(read.ssl, "none"), client_context(read.upstream_ssl))
    assert int(seen["serialNumber"], 16) == stores.serial


@pytest.mark.parametrize("encrypted", [False, True])
def test_key_and_certificates_may_stand_in_the_settings(stores: Stores, encrypted: bool) -> None:
    more = {"ssl__key__password": PASSWORD} if encrypted else {}
    key = stores.encrypted_key if encrypted else stores.key
    read = settings(
        stores,
        ssl__keystore__key=key,
        ssl__keystore__certificate__chain=stores.chain,
        headgate__upstream__ssl__truststore__certificates=(stores.folder / "ca.pem").read_text(),
        **more,
    )
    seen = shake_hands(server_context(read.ssl, "none"), client_context(read.upstream_ssl))
    assert int(seen["serialNumber"], 16) == stores.serial


WRONG = "not-the-password"


@pytest.mark.parametrize(
    ("named", "says"),
    [
        (
            {"type": "PEM", "location": "encrypted.pem"},
            "its key is encrypted: set ssl.key.password",
        ),
        (
            {"type": "PEM", "location": "encrypted.pem", "password": WRONG},
            "or ssl.key.password is wrong",
        ),
        ({"type": "PEM", "location": "garbled.pem"}, "it isn't PEM with what is wanted"),
        ({"type": "PEM", "location": "ca.pem"}, "it isn't PEM with what is wanted"),
        ({"type": "PEM", "location": "gone.pem"}, "gone.pem can't be read: No such file"),
        ({"location": "gone.p12"}, "gone.p12 can't be read: No such file"),
        ({"location": "key.p12", "password": WRONG}, "Invalid password or PKCS12 data"),
        ({"location": "key.p12"}, "Invalid password or PKCS12 data"),
        ({"location": "cut.p12", "password": PASSWORD}, "cut.p12 can't be used"),
        ({"location": "trust.p12", "password": PASSWORD}, "it holds no key with a certificate"),
    ],
)
def test_a_store_that_cant_be_used_is_named_with_the_reason_and_nobody_is_asked(
    stores: Stores, named: dict[str, str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    read = settings(stores, **{f"ssl__keystore__{k}": v for k, v in named.items()})
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location") as raised:
        server_context(read.ssl, "none")
    assert says in str(raised.value)
    assert WRONG not in str(raised.value)
    assert capfd.readouterr() == ("", "")  # OpenSSL asks for a pass phrase, if it is let


def test_clients_without_a_certificate_are_refused_where_it_is_required(stores: Stores) -> None:
    read = settings(
        stores,
        ssl__keystore__type="PEM",
        ssl__keystore__location="plain.pem",
        ssl__truststore__type="PEM",
        ssl__truststore__location="ca.pem",
        headgate__upstream__ssl__truststore__type="PEM",
        headgate__upstream__ssl__truststore__location="ca.pem",
    )
    client = client_context(read.upstream_ssl)
    shake_hands(server_context(read.ssl, "requested"), client)
    with pytest.raises(ssl.SSLError):
        shake_hands(server_context(read.ssl, "required"), client)


OPENSSLS = {
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
}
"""What `openssl ciphers -stdname` says of the two names."""


@pytest.mark.parametrize("suite", OPENSSLS)
def test_suites_are_named_as_kafkas_settings_name_them(stores: Stores, suite: str) -> None:
    named = f"{suite},TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"
    read = settings(
        stores,
        ssl__keystore__type="PEM",
        ssl__keystore__location="plain.pem",
        headgate__upstream__ssl__cipher__suites=named,
    )
    context = client_context(read.upstream_ssl)
    older = [c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]
    assert older == [OPENSSLS[suite]]


def test_a_suite_that_isnt_there_is_named(stores: Stores) -> None:
    read = settings(
        stores,
        ssl__keystore__type="PEM",
        ssl__keystore__location="plain.pem",
        ssl__cipher__suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_ROT13",
    )
    with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites: TLS_RSA_WITH_ROT13 isn't known"):
        server_context(read.ssl, "none")
