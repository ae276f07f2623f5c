"""
SASL as a Kafka client speaks it: PLAIN, SCRAM, OAUTHBEARER with a token at hand.

Pure: a mechanism is a generator that yields what to send and is sent what came back.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from collections.abc import Callable, Generator
from typing import Final

from headgate.errors import RemoteProtocolError
from headgate.wire.scram import HASHES, keys_of

Exchange = Generator[bytes, bytes, None]
"""Yields the client's messages, is sent the server's; raises when the server can't be trusted."""

# Kafka allows 16,384; a peer that asks for far more wants our CPU.
MAX_ITERATIONS: Final = 1_000_000


def plain(username: str, password: str) -> Exchange:
    """Send name and password (RFC 4616)."""
    yield f"\x00{username}\x00{password}".encode()


def oauthbearer(token: str) -> Exchange:
    """
    Send a bearer token (RFC 7628).

    Raises:
        RemoteProtocolError: the server refused it, with the server's reason.
    """
    answer = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if answer:
        # The server says why, and waits for a byte before it fails the exchange.
        yield b"\x01"
        raise RemoteProtocolError(f"the token was refused: {answer.decode('utf-8', 'replace')}")


def unsecured_token(subject: str, now_s: int, lifetime_s: int = 3600) -> str:
    """
    Return an unsigned JWT, as OAuthBearerLoginModule makes for ``unsecuredLoginStringClaim_sub``.

    Args:
        subject: the principal.
        now_s: epoch seconds.
        lifetime_s: how long it is good for.
    """
    parts = ({"alg": "none"}, {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s})
    encoded = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts
    ]
    return ".".join(encoded) + "."


def scram(
    mechanism: str,
    username: str,
    password: str,
    *,
    token: bool = False,
    nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
) -> Exchange:
    """
    Prove the password without sending it, and have the server prove that it knows it too.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        username: the name, any text.
        password: the password, any text.
        token: whether it is a delegation token: the name is its id, the password its secret as
            base64.
        nonce: makes the client's nonce.

    Raises:
        RemoteProtocolError: the server's messages are malformed or its proof is wrong.

    Source: RFC 5802; ScramSaslClient in Apache Kafka; KIP-48.
    """
    algorithm = HASHES[mechanism]
    name = username.replace("=", "=3D").replace(",", "=2C")
    mine = nonce()
    bare = f"n={name},r={mine}" + (",tokenauth=true" if token else "")
    first = (yield f"n,,{bare}".encode()).decode("utf-8", "replace")
    fields = _fields(first)
    theirs = fields.get("r", "")
    try:
        salt = base64.b64decode(fields["s"], validate=True)
        iterations = int(fields["i"])
    except (KeyError, ValueError):
        raise RemoteProtocolError("the server's first SCRAM message is malformed") from None
    if not theirs.startswith(mine) or theirs == mine:
        raise RemoteProtocolError("the server's SCRAM nonce doesn't continue ours")
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise RemoteProtocolError(f"the server asks for {iterations} SCRAM iterations")
    client_key, stored_key, server_key = keys_of(mechanism, password, salt, iterations)
    without_proof = f"c=biws,r={theirs}"
    message = f"{bare},{first},{without_proof}".encode()
    signature = hmac.digest(stored_key, message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    expected = base64.b64encode(hmac.digest(server_key, message, algorithm)).decode()
    found = _fields(last.decode("utf-8", "replace"))
    if not hmac.compare_digest(found.get("v", "").encode(), expected.encode()):
        raise RemoteProtocolError(
            f"the server's SCRAM proof is wrong{': ' + found['e'] if 'e' in found else ''}"
        )


def _fields(text: str) -> dict[str, str]:
    return {key: value for key, eq, value in (p.partition("=") for p in text.split(",")) if eq}
