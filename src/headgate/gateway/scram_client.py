"""
SCRAM for the gateway's own upstream connections (RFC 5802, as Kafka speaks it).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final

from headgate.errors import HeadgateError

_HASH: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramClient:
    """
    One login.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        name: user.
        password: never kept longer than the login.
        nonce: for tests.
    """

    def __init__(self, mechanism: str, name: str, password: str, nonce: str | None = None) -> None:
        if mechanism not in _HASH:
            raise HeadgateError(f"SASL mechanism {mechanism} isn't known for upstream connections")
        self._hash = _HASH[mechanism]
        self._password = password.encode()
        user = name.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={user},r={nonce or secrets.token_urlsafe(24)}"
        self._signature = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Return the client's proof for the server's first message."""
        text = challenge.decode()
        fields = dict(part.split("=", 1) for part in text.split(","))
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password, base64.b64decode(fields["s"]), int(fields["i"])
        )
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self._bare},{text},{without_proof}".encode()
        proof = bytes(
            a ^ b
            for a, b in zip(client_key, hmac.digest(stored_key, message, self._hash), strict=True)
        )
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._signature = hmac.digest(server_key, message, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, verdict: bytes) -> None:
        """
        Check that the server knows the password too.

        Raises:
            HeadgateError: it doesn't.
        """
        fields = dict(part.split("=", 1) for part in verdict.decode().split(","))
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._signature):
            raise HeadgateError("the upstream's SCRAM signature is wrong")
