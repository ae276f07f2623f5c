"""
Who a client is: from its address, its certificate, or the authentication it went through.

An ``Identity`` belongs to one connection. The session shows it the SASL requests and answers that
pass; ``principal`` is the name part of Kafka's ``User:name``, and it counts once ``authenticated``.
An operator's own class (``principal.builder.class=module:Class``) may make other principals from
the same facts, on PLAINTEXT as well (KIP-55).

Source: KIP-55, KIP-189; Apache Kafka's ``DefaultKafkaPrincipalBuilder``,
``SaslServerAuthenticator``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from headgate.errors import ConfigError, RemoteProtocolError
from headgate.gateway.identity.sasl import (
    MAX_NAME_BYTES,
    OwnerOf,
    SaslObserver,
    SaslRefusal,
    SaslState,
)
from headgate.gateway.identity.ssl_names import dn_text, subject_of
from headgate.quota.principal_rules import PrincipalMapper
from headgate.wire import apis
from headgate.wire.fields import Buffer
from headgate.wire.header import parse_request_header
from headgate.wire.messages import decode_request, decode_response, encode_response
from headgate.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from headgate.config.listeners import Listener
    from headgate.config.settings import Settings

ANONYMOUS: Final = "ANONYMOUS"


@dataclass(frozen=True, slots=True)
class AuthenticationContext:
    """
    What is known of a client when its principal is made.

    Attributes:
        listener: the listener's name, such as ``EXTERNAL``.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        peer_address: the client's address, without a port.
        tls_subject: the name in its certificate as Java prints it; None without one.
        sasl_identity: the name a broker confirmed; None without SASL. For a delegation token its
            owner.
        sasl_mechanism: the mechanism it was confirmed by; None without SASL.
    """

    listener: str
    security_protocol: str
    peer_address: str
    tls_subject: str | None = None
    sasl_identity: str | None = None
    sasl_mechanism: str | None = None


@runtime_checkable
class PrincipalBuilder(Protocol):
    """What a class named by ``principal.builder.class`` must have; made once, without arguments."""

    def build(self, context: AuthenticationContext) -> str:
        """Return the principal's name; raise any exception to refuse the client."""


class DefaultPrincipalBuilder:
    """
    Principals as a broker makes them.

    Args:
        mapper: rules for certificates' names.
    """

    def __init__(self, mapper: PrincipalMapper | None = None) -> None:
        self._mapper = mapper or PrincipalMapper()

    def build(self, context: AuthenticationContext) -> str:
        """Return the SASL name, else the certificate's name by the rules, else ANONYMOUS."""
        if context.sasl_identity is not None:
            return context.sasl_identity
        if context.security_protocol == "SSL" and context.tls_subject is not None:
            return self._mapper.principal(context.tls_subject)
        return ANONYMOUS


def load_builder(name: str) -> PrincipalBuilder:
    """
    Make a principal builder from ``module:Class``.

    Raises:
        ConfigError: it can't be imported or hasn't ``build``.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        builder = found()
    except Exception as exc:
        raise ConfigError(f"principal.builder.class={name}: {exc}") from exc
    if not isinstance(builder, PrincipalBuilder):
        raise ConfigError(
            f"principal.builder.class={name} has no method build(context: AuthenticationContext)"
        )
    return builder


class Identity:
    """
    One connection's identity.

    Args:
        builder: makes the principal.
        context: what is known before any authentication.
        observer: watches SASL; None on a listener without it.

    Attributes:
        principal: the principal's name; ANONYMOUS until there is one.
        authenticated: whether requests other than authentication may pass.
        close_reason: why the connection must be closed after the refusal was sent; None if it
            needn't be.
        close_text: the same in words; never holds anything secret.

    Raises:
        RemoteProtocolError: the builder or the rules refuse this client (PLAINTEXT, SSL).
    """

    __slots__ = (
        "_builder",
        "_context",
        "_observer",
        "authenticated",
        "close_reason",
        "close_text",
        "principal",
    )

    def __init__(
        self,
        builder: PrincipalBuilder,
        context: AuthenticationContext,
        observer: SaslObserver | None = None,
    ) -> None:
        self._builder = builder
        self._context = context
        self._observer = observer
        self.close_reason: str | None = None
        self.close_text = ""
        self.principal = ANONYMOUS
        self.authenticated = False
        if observer is None:
            self.principal = self._build(context)
            self.authenticated = True

    @property
    def raw(self) -> bool:
        """Whether the next frames of both sides are bare tokens (handshake version 0)."""
        observer = self._observer
        return (
            observer is not None
            and observer.raw
            and observer.state in (SaslState.CHOSEN, SaslState.ASKED)
        )

    @property
    def mechanism(self) -> str | None:
        """The SASL mechanism; None without SASL."""
        return None if self._observer is None else self._observer.mechanism

    def unknown_token(self, key: int, version: int, frame: Buffer, body: int) -> str | None:
        """
        Return the id of the delegation token that a client comes with, if its owner isn't known.

        Args:
            key: 36; anything but a SaslAuthenticate or a bare token has none.
            version: of the request.
            frame: the request, or bare token, with its length prefix.
            body: where its body, or the token, begins.

        Raises:
            RemoteProtocolError: it doesn't parse.
        """
        observer = self._observer
        if observer is None or not observer.expects_name:
            return None
        if observer.raw:
            return observer.unknown_token(bytes(frame[4:]))
        if key != apis.SASL_AUTHENTICATE:
            return None
        return observer.unknown_token(decode_request(key, version, frame, body).auth_bytes)

    def request(self, key: int, version: int, frame: Buffer, body: int) -> bytes | None:
        """
        See a SaslHandshake or SaslAuthenticate on its way to the broker.

        Args:
            key: 17 or 36.
            version: of the request.
            frame: the request with its length prefix.
            body: where its body begins.

        Returns:
            None if it may pass; else the answer to send in the broker's place, after which the
            connection is to be closed (``close_reason``).

        Raises:
            RemoteProtocolError: it is out of turn or doesn't parse.
        """
        observer = self._observer
        if observer is None:
            return None  # the broker's own answer says that this listener has no SASL
        try:
            if key == apis.SASL_HANDSHAKE:
                observer.handshake(decode_request(key, version, frame, body).mechanism, version)
            elif observer.raw:
                raise RemoteProtocolError("a framed token after raw ones", reason="sasl-state")
            else:
                observer.token(decode_request(key, version, frame, body).auth_bytes)
        except SaslRefusal as refusal:
            return self._refused(key, version, frame, refusal)
        return None

    def response(self, key: int, version: int, frame: Buffer) -> None:
        """
        See the broker's answer to what ``request`` let pass.

        Raises:
            RemoteProtocolError: it answers nothing, or the principal can't be made.
        """
        observer = self._observer
        if observer is None:
            return
        answer = decode_response(key, version, frame)
        if key == apis.SASL_HANDSHAKE:
            observer.handshake_answered(answer.error_code)
        else:
            self._answered(answer.error_code, answer.auth_bytes)

    def raw_request(self, frame: Buffer) -> None:
        """
        See a bare token on its way to the broker (``raw``).

        Raises:
            RemoteProtocolError: it is refused; a bare token has no answer to say why.
        """
        assert self._observer is not None
        try:
            self._observer.token(bytes(frame[4:]))
        except SaslRefusal as refusal:
            raise RemoteProtocolError(refusal.message, reason=refusal.reason) from None
        # If the broker now closes the connection, this is why.
        self.close_reason = "authentication-failed"
        self.close_text = "the broker closed the connection at a bare SASL token"

    def raw_response(self, frame: Buffer) -> None:
        """See the broker's bare answer; a broker refuses a bare token by closing."""
        self.close_reason, self.close_text = None, ""
        self._answered(0, bytes(frame[4:]))

    def _answered(self, error: int, token: bytes) -> None:
        observer = self._observer
        assert observer is not None
        observer.answered(error, token)
        if observer.state is SaslState.FAILED:
            self.authenticated = False
            self.close_reason = "authentication-failed"
            self.close_text = f"the broker refused it with error {error}"
        elif observer.state is SaslState.DONE:
            context = AuthenticationContext(
                self._context.listener,
                self._context.security_protocol,
                self._context.peer_address,
                self._context.tls_subject,
                observer.name,
                observer.mechanism,
            )
            principal = self._build(context)
            if self.authenticated and principal != self.principal:
                raise RemoteProtocolError(
                    "the principal can't change by re-authentication", reason="reauthentication"
                )
            self.principal = principal
            self.authenticated = True

    def _build(self, context: AuthenticationContext) -> str:
        try:
            principal = self._builder.build(context)
        except RemoteProtocolError:
            raise
        except (Exception, SystemExit) as exc:  # an operator's class must not end us
            raise RemoteProtocolError(
                f"the principal builder refuses {context.peer_address}: {exc}", reason="principal"
            ) from exc
        if not isinstance(principal, str) or not principal:
            raise RemoteProtocolError("the principal builder returned no name", reason="principal")
        # Made a plain str that UTF-8 can hold. Half a surrogate pair can't be encoded, and a
        # subclass of str may compare equal to another's name.
        encoded = str.__str__(principal).encode("utf-8", "replace")
        if len(encoded) > MAX_NAME_BYTES:
            raise RemoteProtocolError(
                f"a principal's name of {len(encoded)} bytes; at most {MAX_NAME_BYTES} are taken",
                reason="principal",
            )
        return encoded.decode()

    def _refused(self, key: int, version: int, frame: Buffer, refusal: SaslRefusal) -> bytes:
        self.authenticated = False
        self.close_reason = refusal.reason
        self.close_text = refusal.message
        correlation_id = parse_request_header(frame)[2]
        if key == apis.SASL_HANDSHAKE:
            offered = self._observer.offered if self._observer is not None else ()
            answer: Any = SaslHandshakeResponse(refusal.code, offered)
        else:
            answer = SaslAuthenticateResponse(refusal.code, refusal.message, b"")
        return encode_response(key, version, correlation_id, answer)


def subject_text(tls: Any) -> str | None:
    """
    Return the name in a TLS client's certificate.

    Args:
        tls: the connection's ``ssl.SSLObject``; None without TLS.

    Returns:
        The name as Java prints it; None if the client showed no certificate.
    """
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    return dn_text(subject_of(certificate)) if certificate else None


def make_identity(
    settings: Settings,
    listener: Listener,
    *,
    owner_of: OwnerOf | None = None,
) -> Callable[[str, Any], Identity]:
    """
    Return what makes the identity of each new connection of a listener.

    Args:
        settings: the listener's own settings (``settings.for_listener``).
        listener: its name and security protocol.
        owner_of: owners of delegation tokens by their id; None refuses such tokens.

    Returns:
        A function of the client's address and its ``ssl.SSLObject`` (None without TLS).

    Raises:
        ConfigError: the builder's class can't be made, or a mapping rule is wrong.
    """
    protocol = str(listener.protocol)
    builder: PrincipalBuilder
    if settings.principal_builder_class is not None:
        builder = load_builder(settings.principal_builder_class)
    else:
        builder = DefaultPrincipalBuilder(PrincipalMapper(settings.ssl_principal_mapping_rules))
    sasl = protocol.startswith("SASL_")
    if protocol == "PLAINTEXT" and isinstance(builder, DefaultPrincipalBuilder):
        # All are ANONYMOUS, and without SASL an identity never changes: all clients share one.
        anonymous = Identity(builder, AuthenticationContext(listener.name, protocol, ""))
        return lambda address, tls: anonymous

    def identity(address: str, tls: Any) -> Identity:
        context = AuthenticationContext(listener.name, protocol, address, subject_text(tls))
        observer = None
        if sasl:
            observer = SaslObserver(
                settings.sasl_enabled_mechanisms,
                settings.sasl_oauthbearer_sub_claim_name,
                owner_of,
            )
        return Identity(builder, context, observer)

    return identity
