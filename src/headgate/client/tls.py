"""
TLS contexts from Kafka's ``ssl.*`` settings: PEM files, PEM text, PKCS12 stores.

Python's ssl reads certificates from files only, so what comes as text or PKCS12 goes through a
private temporary file that is gone when the context is made.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.client.tls_limits import limit
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.config.security import Tls

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(tls: Tls, client_auth: str) -> ssl.SSLContext:
    """
    Return the context of a listener.

    Args:
        tls: the listener's ``ssl.*``.
        client_auth: ``ssl.client.auth``: none, requested or required.

    Raises:
        ConfigError: there is no key store, or it can't be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _common(context, tls)
    if not _load_key(context, tls):
        raise ConfigError(
            "a TLS listener needs a certificate: set ssl.keystore.location, or "
            "ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, tls)
    return context


def client_context(tls: Tls) -> ssl.SSLContext:
    """
    Return the context for connections to the upstream.

    Raises:
        ConfigError: a store can't be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.endpoint_identification_algorithm.lower() == "https"
    _common(context, tls)
    _load_key(context, tls)
    if not _load_trust(context, tls):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _common(context: ssl.SSLContext, tls: Tls) -> None:
    try:
        limit(context, tls.enabled_protocols, tls.cipher_suites)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _load_key(context: ssl.SSLContext, tls: Tls) -> bool:
    password = tls.key_password or tls.keystore_password
    secret = None if password is None else password.value
    if tls.keystore_certificate_chain and tls.keystore_key:
        pem = tls.keystore_key.value + "\n" + tls.keystore_certificate_chain
        with _file(pem.encode()) as path, _explained("ssl.keystore.key", "its value"):
            context.load_cert_chain(path, password=secret or _unset)
        return True
    where = tls.keystore_location
    if where is None:
        return False
    with _explained("ssl.keystore.location", where):
        if _is_pkcs12(tls.keystore_type, where):
            with _file(_pkcs12(where, tls.keystore_password, key=True)) as path:
                context.load_cert_chain(path)
        else:
            context.load_cert_chain(where, password=secret or _unset)
    return True


def _unset() -> str:
    """Stand for a password that isn't given: OpenSSL would ask for it at the terminal."""
    raise ValueError("its key is encrypted: set ssl.key.password")


def _load_trust(context: ssl.SSLContext, tls: Tls) -> bool:
    if tls.truststore_certificates:
        with _explained("ssl.truststore.certificates", "its value"):
            context.load_verify_locations(cadata=tls.truststore_certificates)
        return True
    where = tls.truststore_location
    if where is None:
        return False
    with _explained("ssl.truststore.location", where):
        if _is_pkcs12(tls.truststore_type, where):
            pem = _pkcs12(where, tls.truststore_password, key=False)
            context.load_verify_locations(cadata=pem.decode())
        else:
            context.load_verify_locations(where)
    return True


def _is_pkcs12(kind: str, where: str) -> bool:
    if kind.upper() == "JKS" and where.endswith(".jks"):
        raise ConfigError(
            f"{where}: JKS can't be read; convert it: keytool -importkeystore -deststoretype pkcs12"
        )
    return kind.upper() == "PKCS12" or where.endswith((".p12", ".pfx"))


def _pkcs12(where: str, password: object, *, key: bool) -> bytes:
    """Return a PKCS12 store's key and chain, or all its certificates, as PEM."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    value = getattr(password, "value", None)
    store = pkcs12.load_pkcs12(
        Path(where).read_bytes(), value.encode() if isinstance(value, str) else None
    )
    parts: list[bytes] = []
    if key:
        if store.key is None or store.cert is None:
            raise ValueError("it holds no key with a certificate")
        parts.append(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        parts.append(store.cert.certificate.public_bytes(Encoding.PEM))
    elif store.cert is not None:
        parts.append(store.cert.certificate.public_bytes(Encoding.PEM))
    parts.extend(c.certificate.public_bytes(Encoding.PEM) for c in store.additional_certs)
    return b"".join(parts)


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    fd, name = tempfile.mkstemp(prefix="headgate-", suffix=".pem")  # mode 0600
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        yield name
    finally:
        Path(name).unlink()


@contextlib.contextmanager
def _explained(setting: str, where: str) -> Iterator[None]:
    try:
        yield
    except ConfigError:
        raise
    except ssl.SSLError as error:
        # OpenSSL says "PEM lib" of all of these.
        raise ConfigError(
            f"{setting}: {where} can't be used: it isn't PEM with what is wanted (a private key "
            f"and its certificate; trusted certificates), or ssl.key.password is wrong ({error})"
        ) from error
    except OSError as error:
        raise ConfigError(f"{setting}: {where} can't be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{setting}: {where} can't be used: {error}") from error
