from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

from headgate.admin.client_settings import kafka_names
from headgate.client.nodes import parse_bootstrap
from headgate.client.security import Security, jaas_options
from headgate.config.listeners import HostPort
from headgate.errors import ConfigError

PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    r'username="al\"ice" password="a,b;c=d";'
)


def test_jaas_options_are_read_with_quotes_and_escapes() -> None:
    assert jaas_options(PLAIN) == {"username": 'al"ice', "password": "a,b;c=d"}
    assert jaas_options("X required a=b c='d';")["a"] == "b"


def test_plaintext_needs_nothing() -> None:
    found = Security.of({})
    assert (found.tls, found.mechanism, found.login) == (None, "", None)


def test_sasl_plain_comes_from_jaas() -> None:
    found = Security.of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": PLAIN,
        }
    )
    assert found.login is not None
    assert next(found.login()) == b'\x00al"ice\x00a,b;c=d'


@pytest.mark.parametrize("by", ["jaas", "property", "file"])
def test_a_bearer_token_may_come_three_ways(by: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("tok\n", encoding="utf-8")
    ways = {
        "jaas": {"sasl.jaas.config": 'OAuthBearerLoginModule required token="tok";'},
        "property": {"sasl.oauthbearer.token": "tok"},
        "file": {"sasl.oauthbearer.token.endpoint.url": f"file://{file}"},
    }
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    found = Security.of(config | ways[by])
    assert found.login is not None
    assert b"Bearer tok\x01" in next(found.login())


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"security.protocol": "TLS"}, "isn't one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "GSSAPI can't be spoken here"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            'needs username="…" password="…"',
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"},
            "OAUTHBEARER needs token",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/t.jks"},
            "keytool -importkeystore",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere.pem"},
            "No such file",
        ),
    ],
)
def test_what_makes_no_sense_is_told_with_the_way_out(config: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=r".*") as caught:
        Security.of(config)
    assert told in str(caught.value)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Security.of(
            {
                "security.protocol": "SASL_SSL",
                "ssl.truststore.location": "/nowhere.pem",
                "sasl.mechanism": "PLAIN",
            }
        )
    assert len(caught.value.problems) == 2


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def test_pem_stores_and_inline_pem(authority: trustme.CA, tmp_path: Path) -> None:
    trust = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(trust)
    issued = authority.issue_cert("client@example.org")
    own = tmp_path / "own.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(own)
    by_file = Security.of(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trust),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(own),
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    inline = Security.of(
        {
            "security.protocol": "SSL",
            "ssl.truststore.certificates": trust.read_text(),
            "ssl.keystore.certificate.chain": issued.cert_chain_pems[0].bytes().decode(),
            "ssl.keystore.key": issued.private_key_pem.bytes().decode(),
        }
    )
    for found in (by_file, inline):
        assert isinstance(found.tls, ssl.SSLContext)
        # Ours in place of the system's authorities, as in Java.
        assert found.tls.cert_store_stats()["x509_ca"] == 1
    assert by_file.tls is not None
    assert inline.tls is not None
    assert not by_file.tls.check_hostname
    assert inline.tls.check_hostname


def test_pkcs12_stores(authority: trustme.CA, tmp_path: Path) -> None:
    issued = authority.issue_cert("client@example.org")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    certificate = load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    root = load_pem_x509_certificate(authority.cert_pem.bytes())
    lock = serialization.BestAvailableEncryption(b"changeit")
    own, trust = tmp_path / "own.p12", tmp_path / "trust.p12"
    own.write_bytes(
        pkcs12.serialize_key_and_certificates(b"me", key, certificate, [root], lock)  # type: ignore[arg-type]
    )
    trust.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [root], lock))
    found = Security.of(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(trust),
            "ssl.truststore.password": "changeit",
            "ssl.keystore.location": str(own),
            "ssl.keystore.password": "changeit",
        }
    )
    assert found.tls is not None
    with pytest.raises(ConfigError, match="ssl"):
        Security.of(
            {
                "security.protocol": "SSL",
                "ssl.truststore.location": str(trust),
                "ssl.truststore.password": "wrong",
            }
        )


def test_bootstrap_addresses() -> None:
    assert parse_bootstrap("a:1, [::1]:9092,PLAINTEXT://b.c:65535") == [
        HostPort("a", 1),
        HostPort("::1", 9092),
        HostPort("b.c", 65535),
    ]
    with pytest.raises(ConfigError) as caught:
        parse_bootstrap("a,b:0,c:99999,:1")
    assert caught.value.problems == tuple(
        f"Invalid url in bootstrap.servers: {part}" for part in ("a", "b:0", "c:99999", ":1")
    )
    with pytest.raises(ConfigError, match="No bootstrap urls"):
        parse_bootstrap(" ")


@pytest.mark.parametrize("text", [",", "a:1,", ",a:1", "a:1,,b:2", "a:1, ,b:2"])
def test_an_empty_address_is_refused_in_kafkas_words(text: str) -> None:
    with pytest.raises(ConfigError, match=r"'bootstrap\.servers' values must not be empty\."):
        parse_bootstrap(text)


def test_librdkafkas_names_mean_the_same(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"{name} as PEM")
    assert kafka_names(
        {
            "metadata.broker.list": "a:1",
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
            "ssl.ca.location": str(tmp_path / "ca"),
            "ssl.certificate.location": str(tmp_path / "cert"),
            "ssl.key.location": str(tmp_path / "key"),
        }
    ) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
        "ssl.truststore.location": str(tmp_path / "ca"),
        "ssl.truststore.type": "PEM",
        "ssl.keystore.certificate.chain": "cert as PEM",
        "ssl.keystore.key": "key as PEM",
    }


def test_one_setting_in_two_spellings_must_say_one_thing(tmp_path: Path) -> None:
    both = {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "PLAIN"}
    assert kafka_names(both) == {"sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError) as caught:
        kafka_names({**both, "sasl.mechanisms": "OAUTHBEARER", "ssl.key.location": "/nowhere"})
    assert caught.value.problems[0] == (
        "sasl.mechanisms and another spelling of sasl.mechanism say different things"
    )
    assert caught.value.problems[1].startswith("ssl.key.location: /nowhere can't be read")
