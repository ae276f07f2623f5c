"""
Kafka's client settings for TLS and SASL, read into what a connection needs.

Names and defaults are Kafka's (``security.protocol``, ``sasl.jaas.config``, ``ssl.*``), so that
the file given to ``--command-config`` serves Kafka's own tools too.
"""

from __future__ import annotations

import re
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.client.tls_limits import limit
from headgate.errors import ConfigError
from headgate.wire.sasl_client import HASHES, Exchange, oauthbearer, plain, scram, unsecured_token

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CLIENT_ID: Final = "headgate.admin"
MECHANISMS: Final = ("PLAIN", *HASHES, "OAUTHBEARER")


@dataclass(frozen=True, slots=True)
class Security:
    """
    How to connect.

    Args:
        tls: the context, or None for no TLS.
        check_hostname: whether the certificate must be the host's.
        mechanism: the SASL mechanism, or "".
        login: begins a SASL exchange.
        client_id: what requests call their sender; a gateway's history shows it as the tool.
        protocol: Kafka's name of all this, for messages.
    """

    tls: ssl.SSLContext | None = None
    check_hostname: bool = True
    mechanism: str = ""
    login: Callable[[], Exchange] | None = None
    client_id: str = CLIENT_ID
    protocol: str = "PLAINTEXT"

    @classmethod
    def of(cls, config: Mapping[str, str], client_id: str = CLIENT_ID) -> Security:
        """
        Read client settings.

        Args:
            config: by Kafka's names; those that need nothing here are left alone.
            client_id: used unless ``client.id`` is set.

        Raises:
            ConfigError: every mistake at once.
        """
        problems: list[str] = []
        protocol = config.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            problems.append(f"security.protocol: {protocol} isn't one of {', '.join(PROTOCOLS)}")
        tls: ssl.SSLContext | None = None
        check = config.get("ssl.endpoint.identification.algorithm", "https").strip() != ""
        if protocol.endswith("SSL"):
            try:
                tls = _tls(config, check)
            except (OSError, ValueError) as exc:
                problems.append(f"ssl.*: {exc}")
        mechanism = ""
        login: Callable[[], Exchange] | None = None
        if protocol.startswith("SASL"):
            mechanism = config.get("sasl.mechanism", "GSSAPI").strip()
            try:
                login = _login(mechanism, config)
            except ValueError as exc:
                problems.append(str(exc))
        if problems:
            raise ConfigError(problems)
        return cls(tls, check, mechanism, login, config.get("client.id", client_id), protocol)


# --- SASL

_JAAS_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')


def jaas_options(text: str) -> dict[str, str]:
    """Return the options of a ``sasl.jaas.config``: ``… required username="a" password="b";``."""
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted or not bare else bare
        for name, quoted, bare in _JAAS_OPTION.findall(text)
    }


def _login(mechanism: str, config: Mapping[str, str]) -> Callable[[], Exchange]:
    if mechanism not in MECHANISMS:
        raise ValueError(
            f"sasl.mechanism: {mechanism} can't be spoken here; use {', '.join(MECHANISMS)}"
        )
    options = jaas_options(config.get("sasl.jaas.config", ""))
    if mechanism == "OAUTHBEARER":
        return _bearer(config, options)
    username = options.get("username", config.get("sasl.username", ""))
    password = options.get("password", config.get("sasl.password", ""))
    if not username:
        raise ValueError(f'sasl.jaas.config: {mechanism} needs username="…" password="…"')
    if mechanism == "PLAIN":
        return lambda: plain(username, password)
    return lambda: scram(mechanism, username, password)


def _bearer(config: Mapping[str, str], options: Mapping[str, str]) -> Callable[[], Exchange]:
    token = options.get("token") or config.get("sasl.oauthbearer.token")
    if token:
        return lambda: oauthbearer(token)
    url = config.get("sasl.oauthbearer.token.endpoint.url", "")
    if url.startswith("file://"):
        path = Path(url.removeprefix("file://"))
        return lambda: oauthbearer(path.read_text(encoding="utf-8").strip())
    subject = options.get("unsecuredLoginStringClaim_sub")
    if subject:
        return lambda: oauthbearer(unsecured_token(subject, int(time.time())))
    raise ValueError(
        'sasl.jaas.config: OAUTHBEARER needs token="…", or the token in a file named by '
        "sasl.oauthbearer.token.endpoint.url=file:///path"
    )


# --- TLS


def _tls(config: Mapping[str, str], check_hostname: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = check_hostname
    _trust(context, config)
    _identify(context, config)
    limit(context, _words(config, "ssl.enabled.protocols"), _words(config, "ssl.cipher.suites"))
    return context


def _words(config: Mapping[str, str], name: str) -> list[str]:
    return [word.strip() for word in config.get(name, "").split(",") if word.strip()]


def _trust(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    inline = config.get("ssl.truststore.certificates", "")
    location = config.get("ssl.truststore.location", "")
    kind = _kind(config, "ssl.truststore.type", location)
    if inline:
        context.load_verify_locations(cadata=inline)
    elif location and kind == "PEM":
        context.load_verify_locations(cafile=location)
    elif location:
        _, certificates = _pkcs12(location, config.get("ssl.truststore.password"))
        context.load_verify_locations(cadata=certificates)


def _identify(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    chain = config.get("ssl.keystore.certificate.chain", "")
    key = config.get("ssl.keystore.key", "")
    location = config.get("ssl.keystore.location", "")
    key_password = config.get("ssl.key.password")
    if chain:
        _load_pem(context, f"{key}\n{chain}", key_password)
    elif location and _kind(config, "ssl.keystore.type", location) == "PEM":
        context.load_cert_chain(location, password=key_password)
    elif location:
        key, certificates = _pkcs12(location, config.get("ssl.keystore.password"))
        _load_pem(context, f"{key}\n{certificates}", None)


def _load_pem(context: ssl.SSLContext, text: str, password: str | None) -> None:
    # OpenSSL takes a client's key from a file only; this one is ours alone and gone at once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _kind(config: Mapping[str, str], name: str, location: str) -> str:
    kind = config.get(name, "").strip().upper()
    if not kind:
        # Kafka's default is JKS; a .pem or .p12 says what it is.
        suffix = Path(location).suffix.lower()
        kind = {".pem": "PEM", ".crt": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}.get(
            suffix, "JKS" if location else "PEM"
        )
    if kind == "JKS":
        raise ValueError(
            f"{location} is a JKS store, which only Java reads; convert it with "
            "`keytool -importkeystore -deststoretype PKCS12` and say "
            f"{name}=PKCS12, or use PEM"
        )
    return kind


def _pkcs12(location: str, password: str | None) -> tuple[str, str]:
    """Return (private key or "", certificates) of a PKCS12 store as PEM."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ValueError(
            f"reading the PKCS12 store {location} needs the package `cryptography`; or use PEM"
        ) from None
    store = pkcs12.load_pkcs12(Path(location).read_bytes(), password.encode() if password else None)
    pem = serialization.Encoding.PEM
    key = ""
    if store.key is not None:
        key = store.key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
    found = [store.cert, *store.additional_certs]
    certificates = "".join(
        entry.certificate.public_bytes(pem).decode() for entry in found if entry is not None
    )
    return key, certificates
