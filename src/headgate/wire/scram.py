"""
SCRAM's arithmetic, and a credential as Kafka keeps it in ZooKeeper. Pure: salts are given.

Source: RFC 5802 section 3; ScramFormatter and ScramCredentialUtils in Apache Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final, NamedTuple

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096
"""Kafka's minimum, and what its tools take unless told."""


class ScramKeys(NamedTuple):
    """The three keys of SCRAM; client and server prove to each other that they know them."""

    client_key: bytes
    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return a password salted and hashed ``iterations`` times; Java's admin client sends this."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def keys_of(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramKeys:
    """Return the keys of a password, taken as UTF-8 without SASLprep."""
    algorithm = HASHES[mechanism]
    salted = salted_password(mechanism, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    return ScramKeys(client_key, stored_key, hmac.digest(salted, b"Server Key", algorithm))


def credential_text(mechanism: str, password: str, salt: bytes, iterations: int) -> str:
    """
    Return a credential as a znode holds it; the password isn't in it.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        password: any text.
        salt: random bytes.
        iterations: ``LEAST_ITERATIONS`` or more.
    """
    _, stored_key, server_key = keys_of(mechanism, password, salt, iterations)
    parts = {"salt": salt, "stored_key": stored_key, "server_key": server_key}
    encoded = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items()]
    return ",".join([*encoded, f"iterations={iterations}"])
