"""
TLS contexts from Kafka's ``ssl.*`` settings: PEM files, PEM text, PKCS12 stores.

Python's ssl reads a private key from a file only. So keys and certificates go through a private
temporary file, which is gone when the context is made.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from headgate.client.handshakes import ServerContext
from headgate.client.tls_limits import librdkafka_limits, limit
from headgate.config.kinds import PASSWORD, WORDS, Password, items
from headgate.config.security import Tls
from headgate.config.setting import rows_of
from headgate.errors import ConfigError

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_TYPES: Final = frozenset({"keystore_type", "truststore_type"})
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_PKCS12_BEGINS: Final = b"\x30"
"""PKCS12 is DER, and its outermost value a sequence."""
_MOST_CONTEXTS: Final = 256
"""Contexts kept; one with the system's authorities takes about a megabyte."""

Look = tuple[int, int, int] | None
"""A file's time, size and inode; None where there is no such file."""


class _Pem(NamedTuple):
    """Key or certificates as PEM text, and where they came from, for messages."""

    text: str
    setting: str
    where: str
    password: str | None = None


def tls_of(config: Mapping[str, str]) -> Tls:
    """
    Read ``ssl.*`` from settings by Kafka's names; other names are ignored.

    Args:
        config: such as a tool's ``--command-config``.
    """
    found: dict[str, Any] = {}
    for setting in rows_of(Tls):
        [name] = setting.path
        text = config.get(setting.name, "")
        if setting.kind is WORDS:
            found[name] = tuple(items(text))
        elif name in _TYPES:
            found[name] = text.strip().upper()
        elif setting.kind is PASSWORD:
            found[name] = Password(text) if text else None
        else:
            found[name] = text or None
    algorithm = config.get("ssl.endpoint.identification.algorithm", "https").strip()
    return Tls(**{**found, "endpoint_identification_algorithm": algorithm})


def server_context(tls: Tls, client_auth: str) -> ssl.SSLContext:
    """
    Return the context of a listener.

    Args:
        tls: the listener's ``ssl.*``.
        client_auth: ``ssl.client.auth``: none, requested or required.

    Raises:
        ConfigError: there is no key store, or it can't be read.
    """
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    limit(context, tls.enabled_protocols, tls.cipher_suites)
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
    Return the context for connections to brokers.

    As in Java, a trust store that is given replaces the system's authorities.

    Raises:
        ConfigError: a store can't be read; names the setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.endpoint_identification_algorithm != ""
    limit(context, tls.enabled_protocols, tls.cipher_suites)
    _load_key(context, tls)
    if not _load_trust(context, tls):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


class ClientContexts:
    """
    Client contexts, one for each set of ``ssl.*``, made when it is first needed.

    A context takes up to 20 ms to make, most of it for the system's authorities. It is made again
    when the files it was made from have changed.

    Args:
        still_valid: called with the reason if changed files can't be used, because they are half
            written for example; once for each change. The earlier context then stays in use. None:
            such files are an error.
    """

    def __init__(self, still_valid: Callable[[ConfigError], None] | None = None) -> None:
        self._still_valid = still_valid
        self._made: dict[Tls, tuple[ssl.SSLContext, tuple[Look, ...]]] = {}
        self._making = threading.Lock()

    def ready(self, tls: Tls) -> ssl.SSLContext | None:
        """Return the context made before for these ``ssl.*``; None if its files have changed."""
        made = self._made.get(tls)
        return made[0] if made is not None and made[1] == _looks(tls) else None

    def get(self, tls: Tls) -> ssl.SSLContext:
        """
        Return the context of these ``ssl.*``. To make one takes too long for an event loop.

        Raises:
            ConfigError: a store can't be read, and no earlier context stays in use.
        """
        with self._making:
            context = self.ready(tls)
            if context is not None:
                return context
            looks = _looks(tls)
            before = self._made.get(tls)
            try:
                context = client_context(tls)
            except ConfigError as error:
                if before is None or self._still_valid is None:
                    raise
                self._still_valid(error)
                context = before[0]
            if before is None and len(self._made) >= _MOST_CONTEXTS:
                del self._made[next(iter(self._made))]
            self._made[tls] = context, looks
            return context


def librdkafka_tls(tls: Tls) -> dict[str, str]:
    """
    Return these ``ssl.*`` as settings of librdkafka.

    Raises:
        ConfigError: a store can't be read, or librdkafka has no setting for a limit.
    """
    key, trusted = _key(tls), _trusted(tls)
    found = librdkafka_limits(tls.enabled_protocols, tls.cipher_suites)
    if trusted is not None:
        found["ssl.ca.pem"] = trusted.text
    if key is not None:
        found |= {"ssl.certificate.pem": key.text, "ssl.key.pem": key.text}
        if key.password:
            found["ssl.key.password"] = key.password
    algorithm = tls.endpoint_identification_algorithm or "none"
    return {**found, "ssl.endpoint.identification.algorithm": algorithm}


def _load_key(context: ssl.SSLContext, tls: Tls) -> bool:
    pem = _key(tls)
    if pem is not None:
        with _explained(pem.setting, pem.where), _file(pem.text) as path:
            context.load_cert_chain(path, password=pem.password or _unset)
    return pem is not None


def _unset() -> str:
    """Refuse an encrypted key without a password; OpenSSL would ask for one at the terminal."""
    raise ValueError("its key is encrypted: set ssl.key.password")


def _load_trust(context: ssl.SSLContext, tls: Tls) -> bool:
    pem = _trusted(tls)
    if pem is not None:
        # Not from memory: there Python takes no comment that isn't ASCII.
        with _explained(pem.setting, pem.where), _file(pem.text) as path:
            context.load_verify_locations(path)
    return pem is not None


def _key(tls: Tls) -> _Pem | None:
    """Return the private key with its certificates."""
    password = _value(tls.key_password or tls.keystore_password)
    if tls.keystore_certificate_chain and tls.keystore_key:
        text = f"{tls.keystore_key.value}\n{tls.keystore_certificate_chain}"
        return _Pem(text, "ssl.keystore.key", "its value", password)
    setting, where = "ssl.keystore.location", tls.keystore_location
    if where is None:
        return None
    with _explained(setting, where):
        data = _content(where, tls.keystore_type)
        if not _is_pkcs12(data, where, tls.keystore_type):
            return _Pem(data.decode("utf-8", "replace"), setting, where, password)
        key, certificates = _pkcs12(data, tls.keystore_password)
        if not (key and certificates):
            raise ValueError("it holds no key with a certificate")
        return _Pem(key + certificates, setting, where)


def _trusted(tls: Tls) -> _Pem | None:
    """Return the certificates of the authorities that are trusted; None: the system's."""
    if tls.truststore_certificates:
        return _Pem(tls.truststore_certificates, "ssl.truststore.certificates", "its value")
    setting, where = "ssl.truststore.location", tls.truststore_location
    if where is None:
        return None
    with _explained(setting, where):
        data = _content(where, tls.truststore_type)
        if _is_pkcs12(data, where, tls.truststore_type):
            return _Pem(_pkcs12(data, tls.truststore_password)[1], setting, where)
        return _Pem(data.decode("utf-8", "replace"), setting, where)


def _content(where: str, kind: str) -> bytes:
    named_jks = kind == "JKS" or where.lower().endswith(".jks")
    data = b"" if named_jks else Path(where).read_bytes()
    if named_jks or data.startswith(_JKS_MAGIC):
        raise ValueError(
            "it is a JKS store, which only Java reads; convert it with "
            "`keytool -importkeystore -deststoretype PKCS12`, or use PEM"
        )
    return data


def _is_pkcs12(data: bytes, where: str, kind: str) -> bool:
    """Whether a store is PKCS12: by its content, else by its name or type."""
    if b"-----BEGIN" in data:
        return False
    named = kind == "PKCS12" or where.lower().endswith((".p12", ".pfx"))
    return named or data.startswith(_PKCS12_BEGINS)


def _pkcs12(data: bytes, password: Password | None) -> tuple[str, str]:
    """Return a PKCS12 store's key, or "", and its certificates, as PEM."""
    try:
        from cryptography.hazmat.primitives import serialization as forms
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ValueError("reading PKCS12 needs the package `cryptography`; or use PEM") from None
    secret = _value(password)
    store = pkcs12.load_pkcs12(data, None if secret is None else secret.encode())
    pem, key = forms.Encoding.PEM, b""
    if store.key is not None:
        key = store.key.private_bytes(pem, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    held = [c.certificate for c in (store.cert, *store.additional_certs) if c is not None]
    certificates = b"".join(certificate.public_bytes(pem) for certificate in held)
    return key.decode(), certificates.decode()


def _value(password: Password | None) -> str | None:
    return None if password is None else password.value


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    fd, name = tempfile.mkstemp(prefix="headgate-", suffix=".pem")  # mode 0600
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        yield name
    finally:
        Path(name).unlink()


@contextlib.contextmanager
def _explained(setting: str, where: str) -> Iterator[None]:
    """Add the setting to an error, and what to do about it."""
    try:
        yield
    except ssl.SSLError as error:
        # OpenSSL's own text is "PEM lib" for all of these.
        raise ConfigError(
            f"{setting}: {where} can't be used: it isn't PEM with what is wanted (a private key "
            f"and its certificate; trusted certificates), or ssl.key.password is wrong ({error})"
        ) from error
    except OSError as error:
        raise ConfigError(f"{setting}: {where} can't be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{setting}: {where} can't be used: {error}") from error


def _looks(tls: Tls) -> tuple[Look, ...]:
    """Return times, sizes and inodes of the files that ``ssl.*`` name; new content changes them."""
    return tuple(
        _look(path) for path in (tls.keystore_location, tls.truststore_location) if path is not None
    )


def _look(path: str) -> Look:
    try:
        found = os.stat(path)  # noqa: PTH116 - asked at every connection
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
