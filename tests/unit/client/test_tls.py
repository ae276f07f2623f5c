"""Key and trust stores of every kind, and the errors for those that can't be used."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Producer
from cryptography import x509
from cryptography.hazmat.primitives import serialization as made
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from headgate.client import tls as tls_module
from headgate.client.security import Security, librdkafka_config
from headgate.client.tls import client_context, server_context, tls_of
from headgate.client.tls_limits import librdkafka_limits, limit
from headgate.config import SecurityProtocol, Settings
from headgate.config.security import Tls
from headgate.errors import ConfigError
from headgate.gateway import Gateway
from headgate.gateway.identity.lending import Lending
from headgate.store.kafka.client import KafkaClient

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
"""The two names as `openssl ciphers -stdname` prints them."""


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


def kept(context: ssl.SSLContext) -> list[str]:
    return [c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]


SUITE, NAMED = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_versions_and_suites_hold_for_every_connection_that_the_gateway_opens(
    stores: Stores,
) -> None:
    read = settings(
        stores,
        ssl__keystore__type="PEM",
        ssl__keystore__location="plain.pem",
        headgate__upstream__security__protocol="SSL",
        headgate__upstream__ssl__truststore__type="PEM",
        headgate__upstream__ssl__truststore__location="ca.pem",
        headgate__upstream__ssl__enabled__protocols="TLSv1.2",
        headgate__upstream__ssl__cipher__suites=SUITE,
        headgate__upstream__admin__ssl__enabled__protocols="TLSv1.2,TLSv1.3",
        headgate__upstream__admin__ssl__cipher__suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        headgate__store__kafka__security__protocol="SSL",
        headgate__store__kafka__ssl__enabled__protocols="TLSv1.2",
        headgate__store__kafka__ssl__cipher__suites=SUITE,
    )
    gateway = Gateway(read)
    relayed = gateway.security.upstream_tls("TLS")
    assert relayed.maximum_version is ssl.TLSVersion.TLSv1_2
    assert kept(relayed) == [NAMED]
    # Without trust stores of their own, our own requests trust what the clients' connections trust.
    own = asyncio.run(gateway.security.own("TLS"))[1]
    assert own.maximum_version is ssl.TLSVersion.TLSv1_3
    assert kept(own) == ["ECDHE-RSA-AES256-GCM-SHA384"]
    assert own.get_ca_certs(binary_form=True) == relayed.get_ca_certs(binary_form=True)
    store = KafkaClient("kafka:9092", read.store_kafka)._security.tls
    assert store is not None
    assert store.maximum_version is ssl.TLSVersion.TLSv1_2
    assert kept(store) == [NAMED]
    lent = client_context(Lending(read, SecurityProtocol.SSL)._security({}).ssl)
    assert kept(lent) == [NAMED]
    tool = Security.of(
        {
            "security.protocol": "SSL",
            "ssl.enabled.protocols": "TLSv1.2",
            "ssl.cipher.suites": SUITE,
        }
    )
    assert tool.tls is not None
    assert tool.tls.maximum_version is ssl.TLSVersion.TLSv1_2
    assert kept(tool.tls) == [NAMED]


def test_suites_of_tls_1_3_alone_leave_nothing_older() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    limit(context, (), ("TLS_AES_128_GCM_SHA256",))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites.*ssl\.enabled\.protocols leaves"):
        limit(context, ("TLSv1.2",), ("TLS_AES_128_GCM_SHA256",))


@pytest.mark.parametrize("protocols", [("TLSv1",), ("SSLv3", "TLSv1.3"), ("TLS1.3",)])
def test_versions_that_nobody_speaks_are_refused(protocols: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.enabled\.protocols.*TLSv1\.2"):
        limit(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), protocols, ())


@pytest.mark.parametrize(
    ("protocols", "suites", "named"),
    [(("TLSv1.3",), (), "ssl.enabled.protocols"), ((), ("TLS_AES_128_GCM_SHA256",), "ssl.cipher")],
)
def test_what_librdkafka_cant_be_held_to_is_refused_and_not_forgotten(
    protocols: tuple[str, ...], suites: tuple[str, ...], named: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{named}.*allow both here"):
        librdkafka_limits(protocols, suites)


def offered_suites(hello: bytes) -> set[int]:
    """Return the ids of the older suites that a ClientHello offers (RFC 5246, 7.4.1.2)."""
    at = 5 + 4 + 2 + 32  # the record's head, the message's, version, random
    at += 1 + hello[at]  # the session's id
    end = at + 2 + int.from_bytes(hello[at : at + 2])
    ids = {int.from_bytes(hello[pos : pos + 2]) for pos in range(at + 2, end, 2)}
    return {one for one in ids if one >> 8 != 0x13 and one != 0x00FF}  # TLS 1.3's; a mere signal


def test_librdkafka_offers_the_suites_that_are_set(stores: Stores) -> None:
    """Read off its own ClientHello: older Pythons' ``shared_ciphers`` tells the server's list."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        read = settings(
            stores,
            ssl__keystore__type="PEM",
            ssl__keystore__location="plain.pem",
            headgate__upstream__admin__security__protocol="SSL",
            headgate__upstream__admin__ssl__truststore__type="PEM",
            headgate__upstream__admin__ssl__truststore__location="ca.pem",
            headgate__upstream__admin__ssl__cipher__suites=SUITE,
        )
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        config = librdkafka_config(where, read.upstream_admin)
        asking = Producer({**config, "logger": logging.getLogger("headgate.librdkafka.test")})
        asking.poll(0)
        taken, _ = listening.accept()
        with taken:
            taken.settimeout(30)
            hello = b""
            while len(hello) < 5 or len(hello) < 5 + int.from_bytes(hello[3:5]):
                came = taken.recv(1 << 14)
                assert came, "it hung up within its ClientHello"
                hello += came
    ids = {one["name"]: one["id"] & 0xFFFF for one in ssl.create_default_context().get_ciphers()}
    assert offered_suites(hello) == {ids[NAMED]}


def test_a_trust_store_with_comments_in_any_language_is_read(stores: Stores) -> None:
    path = stores.folder / "ca.pem"
    path.write_text("# Főtanúsítvány\n" + path.read_text(), encoding="utf-8")
    by_file = tls_of({"ssl.truststore.location": str(path)})
    inline = tls_of({"ssl.truststore.certificates": path.read_text(encoding="utf-8")})
    for tls in (by_file, inline):
        assert client_context(tls).cert_store_stats()["x509_ca"] == 1


def test_what_a_store_is_shows_in_its_content_where_nothing_says_so(stores: Stores) -> None:
    for name in ("ca.pem", "trust.p12"):
        copy = stores.folder / f"{name}-without-suffix"
        copy.write_bytes((stores.folder / name).read_bytes())
        named = {"ssl.truststore.location": str(copy), "ssl.truststore.password": PASSWORD}
        assert client_context(tls_of(named)).cert_store_stats()["x509_ca"] == 1
    jks = stores.folder / "kafka.client.truststore"
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(ConfigError, match="keytool -importkeystore"):
        client_context(tls_of({"ssl.truststore.location": str(jks)}))


def test_a_tools_trust_store_replaces_the_systems_authorities_as_in_java(stores: Stores) -> None:
    given = {"security.protocol": "SSL", "ssl.truststore.location": str(stores.folder / "ca.pem")}
    tool = Security.of(given).tls
    assert tool is not None
    assert tool.cert_store_stats()["x509_ca"] == 1


def test_the_gateways_own_questions_share_a_context_until_its_files_change(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ssl.SSLContext] = []

    def counted(tls: Tls) -> ssl.SSLContext:
        made.append(client_context(tls))
        return made[-1]

    monkeypatch.setattr(tls_module, "client_context", counted)
    read = settings(
        stores,
        ssl__keystore__type="PEM",
        ssl__keystore__location="plain.pem",
        headgate__upstream__security__protocol="SSL",
        headgate__upstream__ssl__truststore__type="PEM",
        headgate__upstream__ssl__truststore__location="ca.pem",
    )
    gateway = Gateway(read)
    used = [asyncio.run(gateway.security.own("TLS"))[1] for _ in range(5)]
    assert used == [made[0]] * 5
    assert len(made) == 1
    path = stores.folder / "ca.pem"
    path.write_bytes(path.read_bytes() + trustme.CA().cert_pem.bytes())
    again = asyncio.run(gateway.security.own("TLS"))[1]
    assert again is made[1]
    assert again.cert_store_stats()["x509_ca"] == 2
    path.write_bytes(b"half-writ")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        asyncio.run(gateway.security.own("TLS"))


def test_a_mistake_in_a_store_of_the_gateways_own_questions_names_its_setting(
    stores: Stores,
) -> None:
    read = settings(
        stores,
        ssl__keystore__type="PEM",
        ssl__keystore__location="plain.pem",
        headgate__upstream__security__protocol="SSL",
        headgate__upstream__admin__ssl__truststore__type="PEM",
        headgate__upstream__admin__ssl__truststore__location="ca.pem",
    )
    (stores.folder / "ca.pem").write_bytes(b"half-writ")
    name = r"listener TLS: headgate\.upstream\.admin\.ssl\.truststore\.location"
    with pytest.raises(ConfigError, match=name):
        asyncio.run(Gateway(read).security.own("TLS"))
