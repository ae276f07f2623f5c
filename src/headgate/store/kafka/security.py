"""
TLS and SASL towards a Kafka cluster, for our own client and for librdkafka alike.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headgate.client.tls_limits import librdkafka_limits, limit
from headgate.config.security import ClientSecurity, Tls
from headgate.errors import StoreError
from headgate.wire.sasl_client import HASHES, Exchange, plain, scram


class Pems(NamedTuple):
    """What a side of TLS holds, as PEM text; "" where it has none."""

    trusted: str
    chain: str
    key: str
    key_password: str | None


def pems(tls: Tls) -> Pems:
    """
    Return certificates and key as PEM, whatever form the settings give them in.

    Raises:
        StoreError: a file can't be read; names it.
    """
    password = tls.key_password or tls.keystore_password
    secret = None if password is None else password.value
    chain, key = tls.keystore_certificate_chain or "", ""
    if tls.keystore_key is not None:
        key = tls.keystore_key.value
    elif tls.keystore_location is not None:
        data = _read(tls.keystore_location)
        if b"-----BEGIN" in data:
            chain = key = data.decode()
        else:
            store_password = tls.keystore_password
            chain, key = _pkcs12(
                data, store_password.value if store_password else None, tls.keystore_location
            )
            secret = None
    trusted = tls.truststore_certificates or ""
    if not trusted and tls.truststore_location is not None:
        data = _read(tls.truststore_location)
        if b"-----BEGIN" in data:
            trusted = data.decode()
        else:
            trust_password = tls.truststore_password
            trusted, _ = _pkcs12(
                data, trust_password.value if trust_password else None, tls.truststore_location
            )
    return Pems(trusted, chain, key, secret)


def _read(location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as exc:
        raise StoreError(f"headgate.store.kafka.ssl: {location}: {exc.strerror}") from exc


def _pkcs12(data: bytes, password: str | None, location: str) -> tuple[str, str]:
    """Return a PKCS12 store's certificates and key as PEM."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as exc:
        raise StoreError(f"headgate.store.kafka.ssl: {location}: {exc}") from exc
    certificates = [c.certificate for c in (store.cert, *store.additional_certs) if c is not None]
    chain = b"".join(c.public_bytes(Encoding.PEM) for c in certificates)
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return chain.decode(), key.decode()


def tls_context(security: ClientSecurity | None) -> ssl.SSLContext | None:
    """
    Return the TLS of a connection; None for a plain one.

    Raises:
        StoreError: a store can't be read or holds no usable key; names the setting.
    """
    if security is None or not security.security_protocol.tls:
        return None
    tls = security.ssl
    held = pems(tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.endpoint_identification_algorithm.lower() == "https"
    try:
        limit(context, tls.enabled_protocols, tls.cipher_suites)
        if held.trusted:
            context.load_verify_locations(cadata=held.trusted)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if held.chain and held.key:
            # Python takes a chain from a file only; it is there for as long as reading it takes.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(held.key if held.key == held.chain else held.key + held.chain)
                file.flush()
                context.load_cert_chain(file.name, password=held.key_password)
    except (ssl.SSLError, ValueError) as exc:
        raise StoreError(f"headgate.store.kafka.ssl: {exc}") from exc
    return context


def librdkafka_config(bootstrap: str, security: ClientSecurity | None) -> dict[str, str]:
    """
    Return a confluent-kafka client's settings for the same connection.

    Raises:
        StoreError: a file can't be read, or librdkafka lacks what is set.
    """
    config = {"bootstrap.servers": bootstrap}
    if security is None:
        return config
    config["security.protocol"] = security.security_protocol.name
    if security.security_protocol.sasl:
        password = security.sasl_password
        config["sasl.mechanism"] = security.sasl_mechanism
        config["sasl.username"] = security.sasl_username or ""
        config["sasl.password"] = "" if password is None else password.value
    if security.security_protocol.tls:
        held = pems(security.ssl)
        found: Mapping[str, str | None] = {
            "ssl.ca.pem": held.trusted,
            "ssl.certificate.pem": held.chain,
            "ssl.key.pem": held.key,
            "ssl.key.password": held.key_password,
        }
        config |= {name: value for name, value in found.items() if value}
        config["ssl.endpoint.identification.algorithm"] = (
            security.ssl.endpoint_identification_algorithm or "none"
        )
        try:
            config |= librdkafka_limits(security.ssl.enabled_protocols, security.ssl.cipher_suites)
        except ValueError as error:
            raise StoreError(str(error)) from None
    return config


def sasl_exchange(security: ClientSecurity) -> Exchange:
    """
    Return the client's side of a mechanism: yields what to send, is sent what came back.

    Raises:
        StoreError: a mechanism this store doesn't speak.
    """
    username = security.sasl_username or ""
    password = "" if security.sasl_password is None else security.sasl_password.value
    if security.sasl_mechanism == "PLAIN":
        return plain(username, password)
    if security.sasl_mechanism in HASHES:
        return scram(security.sasl_mechanism, username, password)
    raise StoreError(
        f"headgate.store.kafka.sasl.mechanism: {security.sasl_mechanism} isn't spoken by the Kafka "
        f"store; use PLAIN, {' or '.join(HASHES)}"
    )
