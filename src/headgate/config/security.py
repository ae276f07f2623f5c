"""TLS and credentials: settings that several parts of the gateway have alike, as tables."""

# ruff: noqa: E501, RUF009 - a table's rows read best whole; each is made of a call

from __future__ import annotations

from dataclasses import dataclass

from headgate.config import kinds as k
from headgate.config.kinds import Password
from headgate.config.listeners import SecurityProtocol
from headgate.config.setting import part, row

_STORES = k.one_of("PKCS12", "PEM", fold=str.upper)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """One side's TLS: key store, trust store, versions. Names after Kafka's ``ssl.*``."""

    keystore_location: str | None = row("ssl.keystore.location", k.PATH, None, "Key store with {whose} certificate and key.")
    keystore_type: str = row("ssl.keystore.type", _STORES, "PKCS12",
        "Form of the key store. JKS can't be read: convert it with `keytool -importkeystore`.")
    keystore_password: Password | None = row("ssl.keystore.password", k.PASSWORD, None, "Password of the key store.")
    keystore_certificate_chain: str | None = row("ssl.keystore.certificate.chain", k.TEXT, None, "Certificate chain as PEM text, instead of a key store.")
    keystore_key: Password | None = row("ssl.keystore.key", k.PASSWORD, None, "Private key as PEM text, instead of a key store.")
    key_password: Password | None = row("ssl.key.password", k.PASSWORD, None, "Password of the private key.")
    truststore_location: str | None = row("ssl.truststore.location", k.PATH, None, "Certificates of the authorities trusted.")
    truststore_type: str = row("ssl.truststore.type", _STORES, "PKCS12", "Form of the trust store.")
    truststore_password: Password | None = row("ssl.truststore.password", k.PASSWORD, None, "Password of the trust store.")
    truststore_certificates: str | None = row("ssl.truststore.certificates", k.TEXT, None, "Trusted certificates as PEM text, instead of a trust store.")
    enabled_protocols: tuple[str, ...] = row("ssl.enabled.protocols", k.WORDS, ("TLSv1.2", "TLSv1.3"),
        "TLS versions offered: `TLSv1.2`, `TLSv1.3`. Older names are skipped.")
    cipher_suites: tuple[str, ...] = row("ssl.cipher.suites", k.WORDS, (),
        "TLS 1.2 cipher suites allowed; those of TLS 1.3 always are. Only ones of TLS 1.3: nothing older is spoken.", shown="the system's")
    endpoint_identification_algorithm: str = row("ssl.endpoint.identification.algorithm", k.one_of("https", "", fold=str.lower), "https",
        "`https` checks that the broker's certificate bears its host name; empty doesn't.", otherwise="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """Credentials with which the gateway itself calls a cluster."""

    security_protocol: SecurityProtocol = row("security.protocol", k.PROTOCOL, SecurityProtocol.PLAINTEXT, "Protocol of {whose}.")
    sasl_mechanism: str = row("sasl.mechanism", k.one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", fold=str.upper),
        "PLAIN", "SASL mechanism.")
    sasl_username: str | None = row("sasl.username", k.TEXT, None, "User name.")
    sasl_password: Password | None = row("sasl.password", k.PASSWORD, None, "Password.")
    ssl: Tls = part(Tls, whose="the client's")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurity:
    """How the ZooKeeper store connects; Kafka's ``zookeeper.*``."""

    sasl_username: str | None = row("headgate.store.zookeeper.sasl.username", k.TEXT, None,
        "ZooKeeper DIGEST-MD5 user.")
    sasl_password: Password | None = row("headgate.store.zookeeper.sasl.password", k.PASSWORD, None,
        "Its password.")
    session_timeout_ms: int = row("zookeeper.session.timeout.ms", k.integer(1), 18000,
        "ZooKeeper session timeout.", "Kafka 3.9")
    set_acl: bool = row("zookeeper.set.acl", k.BOOLEAN, False,
        "Give znodes ACLs that only the creator may change.", "Kafka 3.9")
    ssl_enable: bool = row("zookeeper.ssl.client.enable", k.BOOLEAN, False,
        "Speak TLS to ZooKeeper.", "Kafka 3.9")
    keystore_location: str | None = row("zookeeper.ssl.keystore.location", k.PATH, None,
        "Key store (PEM) for ZooKeeper.", "Kafka 3.9")
    keystore_password: Password | None = row("zookeeper.ssl.keystore.password", k.PASSWORD, None,
        "Its password.", "Kafka 3.9")
    truststore_location: str | None = row("zookeeper.ssl.truststore.location", k.PATH, None,
        "Trusted certificates (PEM) for ZooKeeper.", "Kafka 3.9")
# fmt: on
