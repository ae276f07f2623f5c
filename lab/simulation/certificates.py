"""
Certificates of simulated servers, always the same: authorities, who trusts which, TLS contexts.

Their keys are Ed25519 and made of fixed numbers. Such signatures have no chance in them and one
size, and OpenSSL agrees on keys of one size (x25519). So every handshake takes the same bytes in
the same order, whatever OpenSSL draws inside, and a seed stays one life. Only tickets that resume
sessions would vary; nobody here resumes one, so servers give none.
"""

from __future__ import annotations

import datetime
import functools
import ipaddress
import ssl
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from headgate.client.tls import server_context as whole_server_context
from headgate.client.tls import tls_of
from headgate.config.security import Tls

GATE: Final = "10.0.2.1"
"""Where clients find the gateway, which is what they want its certificate to bear."""
AUTHORITIES: Final = ("a", "b")
ISSUED: Final = {"a1": "a", "a2": "a", "b1": "b"}
"""The gateway's certificates, and which authority issued each."""
BROKERS: Final = "brokers"
"""The certificate that all brokers have; issued by "a"."""
BROKEN: Final = ("foreign key", "half a key", "no certificate", "no such file")
"""Ways in which key stores are found half written."""
_FIRST: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_LAST: Final = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)
_NUMBERS: Final = {name: at for at, name in enumerate((*AUTHORITIES, *ISSUED, BROKERS), 1)}


def serial_of(name: str) -> int:
    """Return the serial number of a certificate."""
    return 1_000 + _NUMBERS[name]


def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([_NUMBERS[name]]) * 32)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(name: str, issuer: str, extension: Any) -> str:
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(_key(name).public_key())
        .serial_number(serial_of(name))
        .not_valid_before(_FIRST)
        .not_valid_after(_LAST)
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .sign(_key(issuer), None)
    )
    return made.public_bytes(forms.Encoding.PEM).decode()


@functools.cache
def authority(name: str) -> str:
    """Return an authority's certificate, as PEM."""
    return _certificate(name, name, x509.BasicConstraints(ca=True, path_length=0))


@functools.cache
def key_of(name: str) -> str:
    """Return a private key, as PEM."""
    form = (forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return _key(name).private_bytes(*form).decode()


@functools.cache
def chain_of(name: str) -> str:
    """Return a server's certificate, as PEM."""
    if name == BROKERS:
        bears: list[x509.GeneralName] = [x509.DNSName(f"broker{number}") for number in range(1, 10)]
    else:
        bears = [x509.IPAddress(ipaddress.ip_address(GATE))]
    return _certificate(name, ISSUED.get(name, "a"), x509.SubjectAlternativeName(bears))


def keystore(name: str) -> dict[str, str]:
    """Return the settings of a key store: one that can be used, or one of ``BROKEN``."""
    if name == "no such file":
        return {"ssl.keystore.location": "/there/is/no/such/file.pem"}
    chain, key = chain_of("a2"), key_of("a2")
    if name == "foreign key":
        key = key_of("b1")
    elif name == "half a key":
        key = key[: len(key) // 2]
    elif name == "no certificate":
        chain = chain[: len(chain) // 2]
    else:
        chain, key = chain_of(name), key_of(name)
    return {"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}


@functools.cache
def server_context(tls: Tls, client_auth: str) -> ssl.SSLContext:
    """Make a context as the product makes it, once for each text, and without tickets."""
    made = whole_server_context(tls, client_auth)
    made.num_tickets = 0
    made.options |= ssl.OP_NO_TICKET
    return made


@functools.cache
def broker_context() -> ssl.SSLContext:
    """Return the context of a broker's listener."""
    return server_context(tls_of(keystore(BROKERS)), "none")


@functools.cache
def client_context(trusted: str, *, old: bool) -> ssl.SSLContext:
    """
    Return the context of a client.

    Args:
        trusted: letters of the authorities that it trusts.
        old: it speaks TLS 1.2.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(cadata="".join(map(authority, trusted)))
    if old:
        made.maximum_version = ssl.TLSVersion.TLSv1_2
    return made
