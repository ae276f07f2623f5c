"""
SCRAM credentials as Kafka keeps them in ZooKeeper, computed here: no tool call per user.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

_ITERATIONS = 4096  # Kafka's own minimum and default
_MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def scram_entity_config(password: str) -> dict[str, str]:
    """
    Return the entries of a user's config that let it come in with either SCRAM mechanism.

    Args:
        password: its password.

    Source: RFC 5802 section 3; ScramCredentialUtils.credentialToString in Apache Kafka.
    """
    return {name: _credential(password, digest) for name, digest in _MECHANISMS.items()}


def _credential(password: str, digest: str) -> str:
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, _ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", digest)
    parts = {
        "salt": salt,
        "stored_key": hashlib.new(digest, client_key).digest(),
        "server_key": hmac.digest(salted, b"Server Key", digest),
    }
    encoded = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items()]
    return ",".join([*encoded, f"iterations={_ITERATIONS}"])
