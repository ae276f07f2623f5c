"""
Watch a client authenticate through the gateway, and learn its name.

The gateway has no passwords: tokens pass to the broker and only the broker's success makes a name
count. What a token claims is read here without being believed::

    START --handshake--> CHOSEN --token--> ASKED --challenge--> CHOSEN ... --success--> DONE
      ^                                      `--refused--> FAILED (the connection is closed)
      `------------ re-authentication (KIP-368): the same name, the same mechanism ------'

Refused here, before the broker sees it: GSSAPI (its tokens are sealed), OAUTHBEARER tokens that
aren't JWTs (nobody could tell whose they are), delegation tokens whose owner isn't known, and a
second name on one connection.

Source: Apache Kafka's ``SaslServerAuthenticator``, ``ScramMessages``, ``PlainSaslServer``,
``OAuthBearerClientInitialResponse``; RFC 4616, 5802, 7628; KIP-48, KIP-368.
"""

from __future__ import annotations

import base64
import binascii
import enum
import json
import re
from collections.abc import Callable, Sequence
from typing import Final

from headgate.errors import KafkaError, RemoteProtocolError
from headgate.wire.fields import java_text

# sasl.server.max.receive.size, Kafka's default (KIP-684): one token, before a name is known.
MAX_TOKEN_BYTES: Final = 512 * 1024
# Of these mechanisms: what is read of a token is read in one piece, in some milliseconds.
MOST_READ: Final = 16 * 1024
MOST_BEARER_READ: Final = 64 * 1024
# A name becomes a quota id and a metric label. Kafka's own clients send far less.
MAX_NAME_BYTES: Final = 8 * 1024
# SCRAM takes two rounds; OAUTHBEARER a second after an error. Nothing takes more.
MAX_ROUNDS: Final = 4

PLAIN: Final = "PLAIN"
SCRAM: Final = frozenset(("SCRAM-SHA-256", "SCRAM-SHA-512"))
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
OBSERVABLE: Final = frozenset((PLAIN, OAUTHBEARER, *SCRAM))

OwnerOf = Callable[[str], str | None]

# ScramMessages.ClientFirstMessage; characters beyond ASCII pass, to brokers that take them.
_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?:m=[^\x00,]+,)?n=(?P<name>{_NAME}),r=[\x21-\x2b\x2d-\x7e]+"
    r"(?P<extensions>(?:,[A-Za-z]+=[^\x00,]+)*)",
    re.DOTALL,
)
_CLIENT_INITIAL: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_JAVA_BLANK: Final = "".join(map(chr, range(0x21)))
"""What Java's ``String.trim`` takes away at both ends."""
_BEARER: Final = re.compile(r"bearer +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)


class SaslState(enum.Enum):
    """Where an exchange stands."""

    START = "waits for a handshake"
    CHOSEN = "waits for a client's token"
    ASKED = "waits for the broker's answer"
    DONE = "authenticated"
    FAILED = "refused"


class SaslRefusal(Exception):
    """
    A client's request that is refused: the gateway answers it, and closes the connection.

    Args:
        code: Kafka's error code for the answer.
        message: what the client is told.
        reason: a short word for metrics.
    """

    def __init__(self, code: KafkaError, message: str, reason: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason


class SaslObserver:
    """
    Follow the SASL exchanges of one connection.

    Args:
        mechanisms: those this listener lets through (``sasl.enabled.mechanisms``).
        sub_claim: the claim of a JWT that is the name (``sasl.oauthbearer.sub.claim.name``).
        owner_of: the owner of a delegation token by its id; None where it isn't known. Without
            it, delegation tokens are refused.

    Attributes:
        name: the name the broker has confirmed; None before. Once set it never changes.
        mechanism: of the exchange; None before the handshake.
        raw: the client sends bare tokens, not SaslAuthenticate (handshake version 0).
        state: where the exchange stands.
    """

    def __init__(
        self,
        mechanisms: Sequence[str] = tuple(OBSERVABLE),
        sub_claim: str = "sub",
        owner_of: OwnerOf | None = None,
    ) -> None:
        self._mechanisms = tuple(mechanisms)
        self._sub_claim = sub_claim
        self._owner_of = owner_of
        self._claimed: str | None = None
        self._asked: str | None = None  # the mechanism of a handshake that isn't answered yet
        self._confirmed_mechanism: str | None = None
        self._raw_asked = False
        self._rounds = 0
        self.name: str | None = None
        self.mechanism: str | None = None
        self.raw = False
        self.state = SaslState.START

    @property
    def offered(self) -> tuple[str, ...]:
        """The mechanisms that a client is offered."""
        return tuple(name for name in self._mechanisms if name in OBSERVABLE)

    def handshake(self, mechanism: str, version: int) -> None:
        """
        A client chose a mechanism.

        Raises:
            Refusal: it can't be watched, or isn't enabled.
            RemoteProtocolError: it isn't a handshake's turn.
        """
        if self._asked is not None or self.state in (SaslState.ASKED, SaslState.FAILED):
            raise RemoteProtocolError("a SASL handshake out of turn", reason="sasl-state")
        if self.raw:
            raise RemoteProtocolError("a second handshake after raw tokens", reason="sasl-state")
        # Differs: GSSAPI is refused; its tokens are sealed, so no name can be read.
        if mechanism == GSSAPI:
            raise self._refuse(
                KafkaError.UNSUPPORTED_SASL_MECHANISM,
                "GSSAPI can't pass a gateway: its tokens are sealed, so no name could be read",
                "gssapi",
            )
        if mechanism not in self.offered:
            raise self._refuse(
                KafkaError.UNSUPPORTED_SASL_MECHANISM,
                f"mechanism {mechanism!r} isn't enabled on this listener",
                "mechanism",
            )
        self._asked = mechanism
        self._raw_asked = version == 0

    def handshake_answered(self, error: int) -> None:
        """A broker answered a handshake."""
        asked, self._asked = self._asked, None
        if asked is None:
            raise RemoteProtocolError("a handshake's answer to no handshake", reason="sasl-state")
        if error:
            self.state = SaslState.FAILED
            return
        self.mechanism = asked
        self.raw = self._raw_asked
        self._claimed = None
        self._rounds = 0
        self.state = SaslState.CHOSEN

    @property
    def expects_name(self) -> bool:
        """Whether the next token is a SCRAM client's first, the one with the name."""
        return self.state is SaslState.CHOSEN and self._rounds == 0 and self.mechanism in SCRAM

    def unknown_token(self, raw: bytes) -> str | None:
        """
        Return the id of the delegation token that a client names, if its owner isn't known yet.

        Args:
            raw: a SCRAM client's first message (``expects_name``).
        """
        if self._owner_of is None or len(raw) > MAX_NAME_BYTES:
            return None
        match = _CLIENT_FIRST.fullmatch(java_text(raw))
        if match is None or not _is_token(match):
            return None
        name = scram_name(match["name"])
        return name if name is not None and self._owner_of(name) is None else None

    def token(self, raw: bytes) -> None:
        """
        A client sent a token of its mechanism.

        Raises:
            Refusal: it doesn't parse, its user can't be known, or user or mechanism is another
                than before.
            RemoteProtocolError: it isn't a token's turn, or it is too big.
        """
        if self.state is not SaslState.CHOSEN or self._asked is not None:
            raise RemoteProtocolError("a SASL token out of turn", reason="sasl-state")
        if len(raw) > MAX_TOKEN_BYTES:
            raise RemoteProtocolError(f"a SASL token of {len(raw)} bytes", reason="oversized")
        before = self._confirmed_mechanism
        if before is not None and self.mechanism != before:
            # Differs: a second login by another mechanism is told why; a broker just closes.
            raise self._failed(
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for "
                f"reauthentication of mechanism '{before}'",
                "reauthentication",
            )
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise RemoteProtocolError("a SASL exchange without end", reason="sasl-state")
        # Differs: a SASL token of more than 16 KiB, with OAUTHBEARER 64 KiB, is refused; Kafka
        # reads 512 KiB (sasl.server.max.receive.size). None that a client sends is near that.
        most = MOST_BEARER_READ if self.mechanism == OAUTHBEARER else MOST_READ
        if len(raw) > most:
            raise self._failed(
                f"a SASL token of {len(raw)} bytes; of {self.mechanism} at most {most} are taken",
                "unreadable",
            )
        claimed = self._read(raw)
        if claimed is not None:
            if len(claimed.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
                raise self._failed("the name is too long", "name")
            if self.name is not None and claimed != self.name:
                raise self._failed(
                    f"Cannot change principals during re-authentication from User.{self.name}: "
                    f"User.{claimed}",
                    "reauthentication",
                )
            self._claimed = claimed
        self.state = SaslState.ASKED

    def answered(self, error: int, token: bytes) -> None:
        """
        A broker answered a token: a challenge, a refusal, or the success that makes a name count.

        Raises:
            RemoteProtocolError: the broker says yes to something that had no name.
        """
        if self.state is not SaslState.ASKED:
            raise RemoteProtocolError("a SASL answer to no token", reason="sasl-state")
        if error:
            self.state = SaslState.FAILED
            return
        if not self._is_success(token):
            self.state = SaslState.CHOSEN
            return
        if self._claimed is None:
            raise RemoteProtocolError("a SASL success without a name", reason="sasl-state")
        self.name = self._claimed
        self._confirmed_mechanism = self.mechanism
        self.state = SaslState.DONE

    def _is_success(self, token: bytes) -> bool:
        if self.mechanism in SCRAM:
            # The second answer, the server's signature; an error is e=, and Kafka sends a code.
            return self._rounds >= 2 and token.startswith(b"v=")
        # PLAIN ends with an empty answer. OAUTHBEARER also: a refused token is answered without
        # an error code, by a JSON text (RFC 7628).
        return not token

    def _read(self, raw: bytes) -> str | None:
        """Return the name a token claims; None if it has none (later rounds)."""
        if self.mechanism == PLAIN:
            return self._plain(raw)
        if self.mechanism == OAUTHBEARER:
            return None if raw == b"\x01" else self._bearer(raw)
        return self._scram(raw) if self._rounds == 1 else None

    def _plain(self, raw: bytes) -> str:
        parts = java_text(raw).split("\0")
        if len(parts) != 3 or not parts[1]:
            raise self._failed("Invalid SASL/PLAIN response", "unreadable")
        if parts[0] and parts[0] != parts[1]:
            raise self._failed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                "authzid",
            )
        return parts[1]

    def _scram(self, raw: bytes) -> str:
        match = _CLIENT_FIRST.fullmatch(java_text(raw))
        if match is None:
            raise self._failed("Invalid SCRAM client first message format", "unreadable")
        name = scram_name(match["name"])
        if name is None:
            raise self._failed("Invalid SCRAM client first message format", "unreadable")
        authzid = match["authzid"]
        if authzid and authzid != name:
            raise self._failed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                "authzid",
            )
        if not _is_token(match):
            return name
        owner = None if self._owner_of is None else self._owner_of(name)
        if owner is None:
            raise self._failed(
                "a delegation token whose owner this gateway can't look up", "delegation-token"
            )
        return owner

    def _bearer(self, raw: bytes) -> str:
        match = _CLIENT_INITIAL.fullmatch(java_text(raw))
        if match is None:
            raise self._failed("Invalid OAUTHBEARER client first message", "unreadable")
        pairs = dict(pair.partition("=")[::2] for pair in match["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise self._failed(
                "Invalid OAUTHBEARER client first message: invalid 'auth' format", "unreadable"
            )
        # Differs: an opaque OAuth token is refused, since only its issuer can tell whose it is.
        name = jwt_claim(bearer["token"], self._sub_claim)
        if name is None:
            raise self._failed(
                "an opaque OAuth token: the gateway can only tell whose a JWT is, by its claim "
                f"{self._sub_claim!r}",
                "opaque-token",
            )
        authzid = match["authzid"]
        if authzid and scram_name(authzid) != name:
            raise self._failed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name",
                "authzid",
            )
        return name

    def _refuse(self, code: KafkaError, message: str, reason: str) -> SaslRefusal:
        self.state = SaslState.FAILED
        return SaslRefusal(code, message, reason)

    def _failed(self, message: str, reason: str) -> SaslRefusal:
        return self._refuse(KafkaError.SASL_AUTHENTICATION_FAILED, message, reason)


def _is_token(first: re.Match[str]) -> bool:
    """Whether a SCRAM client's first message names a delegation token, not a user (KIP-48)."""
    pairs: list[str] = first["extensions"].split(",")
    extensions = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    return extensions.get("tokenauth", "").lower() == "true"


def scram_name(text: str) -> str | None:
    """Return the name a saslname stands for (``=2C`` is a comma, ``=3D`` an equals sign)."""
    name = text.replace("=2C", ",")
    if "=" in name.replace("=3D", ""):
        return None
    return name.replace("=3D", "=")


def jwt_claim(token: str, claim: str) -> str | None:
    """
    Return a claim of a JWT, unverified: the broker verifies it.

    Args:
        token: the compact form, ``header.payload.signature`` (signature may be empty).
        claim: the claim's name.

    Returns:
        The claim as the broker will have it; None if the token isn't a JWT, or the claim isn't
        there, isn't text or is blank.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    payload = parts[1].rstrip("=")
    try:
        raw = base64.b64decode(payload + "=" * (-len(payload) % 4), altchars=b"-_", validate=True)
        # A deep nest of brackets would exhaust the stack; claims are flat.
        claims = json.loads(raw) if raw.count(b"[") + raw.count(b"{") < 500 else None
    except (binascii.Error, ValueError):
        return None
    value = claims.get(claim) if isinstance(claims, dict) else None
    if not isinstance(value, str) or not value:
        return None
    # A broker trims what is signed (ClaimValidationUtils.validateString), as String.trim does; what
    # isn't (OAuthBearerUnsecuredJws) only mustn't be blank.
    trimmed = value.strip(_JAVA_BLANK)
    if not trimmed:
        return None
    # JSON may name half a surrogate pair, which UTF-8 can't hold, in the journal or in Java.
    return (trimmed if parts[2] else value).encode("utf-8", "replace").decode()
