"""Who a client is, by listener, certificate, SASL or a class of the operator's."""

import sys
import types
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import ConfigError, RemoteProtocolError
from headgate.gateway.identity.identity import (
    AuthenticationContext,
    DefaultPrincipalBuilder,
    Identity,
    load_builder,
    make_identity,
)
from headgate.gateway.identity.sasl import SaslObserver
from headgate.wire.header import build_request, parse_request_header
from headgate.wire.messages import decode_response, encode_response, sasl
from kit.logins import build_authenticate, build_handshake


def settings(**over: Any) -> Any:
    values = {
        "principal_builder_class": None,
        "ssl_principal_mapping_rules": ("DEFAULT",),
        "sasl_enabled_mechanisms": ("PLAIN", "SCRAM-SHA-256"),
        "sasl_oauthbearer_sub_claim_name": "sub",
    }
    return SimpleNamespace(**(values | over))


def listener(protocol: str) -> Any:
    return SimpleNamespace(name="EXTERNAL", protocol=protocol)


class Tls:
    """An ``ssl.SSLObject`` of a client with a name, or without a certificate."""

    def __init__(self, certificate: bytes | None) -> None:
        self._certificate = certificate

    def getpeercert(self, *, binary_form: bool) -> bytes | None:
        assert binary_form
        return self._certificate


def certificate() -> bytes:
    def tlv(tag: int, body: bytes) -> bytes:
        return bytes([tag, len(body)]) + body

    name = tlv(0x30, tlv(0x31, tlv(0x30, bytes.fromhex("0603550403") + tlv(0x0C, b"Duke"))))
    fields = tlv(2, b"\1") + tlv(0x30, b"") + tlv(0x30, b"") + tlv(0x30, b"") + name
    return tlv(0x30, tlv(0x30, fields))


def handshake(version: int = 1, mechanism: str = "PLAIN") -> tuple[int, int, bytes, int]:
    frame = build_request(17, version, 3, "app", build_handshake(mechanism))
    return 17, version, frame, parse_request_header(frame)[4]


def token(raw: bytes, version: int = 2) -> tuple[int, int, bytes, int]:
    frame = build_request(36, version, 4, "app", build_authenticate(raw, version))
    return 36, version, frame, parse_request_header(frame)[4]


def handshake_ok(identity: Identity) -> None:
    identity.response(17, 1, encode_response(17, 1, 3, sasl.SaslHandshakeResponse(0, ("PLAIN",))))


def token_answer(identity: Identity, error: int = 0, version: int = 2) -> None:
    answer = sasl.SaslAuthenticateResponse(error, None, b"")
    identity.response(36, version, encode_response(36, version, 4, answer))


def login(identity: Identity, name: str = "alice", version: int = 2) -> None:
    assert identity.request(*handshake()) is None
    handshake_ok(identity)
    assert identity.request(*token(b"\0" + name.encode() + b"\0pw", version)) is None
    token_answer(identity, version=version)


def test_plaintext_is_anonymous_at_once() -> None:
    identity = make_identity(settings(), listener("PLAINTEXT"))("10.0.0.1", None)
    assert (identity.principal, identity.authenticated) == ("ANONYMOUS", True)
    assert identity.request(*handshake()) is None
    handshake_ok(identity)
    assert identity.principal == "ANONYMOUS"


def test_a_certificates_name_goes_through_the_rules() -> None:
    rules = ("RULE:^CN=(.*)$/$1/L", "DEFAULT")
    make = make_identity(settings(ssl_principal_mapping_rules=rules), listener("SSL"))
    identity = make("10.0.0.1", Tls(certificate()))
    assert (identity.principal, identity.authenticated) == ("duke", True)
    assert make("10.0.0.1", Tls(None)).principal == "ANONYMOUS"


def test_a_certificate_no_rule_applies_to_is_refused() -> None:
    make = make_identity(
        settings(ssl_principal_mapping_rules=("RULE:^OU=(.*)$/$1/",)), listener("SSL")
    )
    with pytest.raises(RemoteProtocolError) as caught:
        make("10.0.0.1", Tls(certificate()))
    assert caught.value.reason == "principal"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_only_the_brokers_success_makes_a_principal(version: int) -> None:
    identity = make_identity(settings(), listener("SASL_PLAINTEXT"))("10.0.0.1", None)
    assert not identity.authenticated
    assert identity.request(*handshake()) is None
    handshake_ok(identity)
    assert identity.request(*token(b"\0alice\0pw", version)) is None
    assert (identity.principal, identity.authenticated) == ("ANONYMOUS", False)
    token_answer(identity, version=version)
    assert (identity.principal, identity.authenticated) == ("alice", True)
    assert identity.mechanism == "PLAIN"


def test_sasl_over_tls_is_the_sasl_name() -> None:
    make = make_identity(settings(), listener("SASL_SSL"))
    identity = make("10.0.0.1", Tls(certificate()))
    login(identity)
    assert identity.principal == "alice"


def test_a_login_the_broker_refuses_closes() -> None:
    identity = make_identity(settings(), listener("SASL_PLAINTEXT"))("10.0.0.1", None)
    identity.request(*handshake())
    handshake_ok(identity)
    identity.request(*token(b"\0alice\0hunter2"))
    token_answer(identity, error=58)
    assert not identity.authenticated
    assert identity.close_reason == "authentication-failed"
    assert "hunter2" not in identity.close_text


def test_a_refusal_is_answered_in_the_brokers_place() -> None:
    identity = make_identity(settings(), listener("SASL_PLAINTEXT"))("10.0.0.1", None)
    answer = identity.request(*handshake(mechanism="GSSAPI"))
    assert answer is not None
    assert answer[4:8] == b"\0\0\0\3"
    assert decode_response(17, 1, answer) == sasl.SaslHandshakeResponse(
        33, ("PLAIN", "SCRAM-SHA-256")
    )
    assert identity.close_reason == "gssapi"

    identity = make_identity(settings(), listener("SASL_PLAINTEXT"))("10.0.0.1", None)
    login(identity)
    identity.request(*handshake())
    handshake_ok(identity)
    answer = identity.request(*token(b"\0bob\0pw"))
    assert answer is not None
    refusal = decode_response(36, 2, answer)
    assert (refusal.error_code, identity.close_reason) == (58, "reauthentication")
    assert refusal.error_message.startswith("Cannot change principals")
    assert not identity.authenticated


def test_re_authentication_as_oneself_goes_on() -> None:
    identity = make_identity(settings(), listener("SASL_PLAINTEXT"))("10.0.0.1", None)
    login(identity)
    login(identity)
    assert (identity.principal, identity.authenticated) == ("alice", True)


def test_bare_tokens_follow_a_handshake_of_version_0() -> None:
    make = make_identity(settings(), listener("SASL_PLAINTEXT"))
    identity = make("10.0.0.1", None)
    assert identity.request(*handshake(version=0)) is None
    handshake_ok(identity)
    assert identity.raw
    identity.raw_request(b"\0\0\0\x09\0alice\0pw")
    assert identity.close_reason == "authentication-failed"  # should the broker close now
    identity.raw_response(b"\0\0\0\0")
    assert (identity.principal, identity.raw) == ("alice", False)
    assert identity.close_reason is None

    identity = make("10.0.0.1", None)
    identity.request(*handshake(version=0))
    handshake_ok(identity)
    with pytest.raises(RemoteProtocolError):
        identity.request(*token(b"\0alice\0pw"))
    with pytest.raises(RemoteProtocolError):
        identity.raw_request(b"\0\0\0\x03abc")


class ByAddress:
    """Accounts by network: what KIP-55 proposes for clients without authentication."""

    def build(self, context: AuthenticationContext) -> str:
        if context.peer_address.startswith("10.1."):
            return "warehouse"
        return context.sasl_identity or context.tls_subject or "ANONYMOUS"


class Refusing:
    def build(self, context: AuthenticationContext) -> str:
        raise PermissionError("not from there")


@pytest.fixture
def builders(monkeypatch: pytest.MonkeyPatch) -> str:
    module = types.ModuleType("operators_builders")
    vars(module).update(ByAddress=ByAddress, Refusing=Refusing, NotOne=object)
    monkeypatch.setitem(sys.modules, "operators_builders", module)
    return "operators_builders"


def test_55_13_a_builder_by_address_names_plaintext_clients(builders: str) -> None:
    own = settings(principal_builder_class=f"{builders}:ByAddress")
    make = make_identity(own, listener("PLAINTEXT"))
    assert make("10.1.0.7", None).principal == "warehouse"
    assert make("10.2.0.7", None).principal == "ANONYMOUS"


def test_55_13_a_builder_is_given_all_there_is(builders: str) -> None:
    own = settings(principal_builder_class=f"{builders}:ByAddress")
    assert make_identity(own, listener("SSL"))("9.9.9.9", Tls(certificate())).principal == "CN=Duke"
    identity = make_identity(own, listener("SASL_SSL"))("9.9.9.9", Tls(certificate()))
    login(identity)
    assert identity.principal == "alice"


def test_a_builder_may_refuse(builders: str) -> None:
    make = make_identity(
        settings(principal_builder_class=f"{builders}:Refusing"), listener("PLAINTEXT")
    )
    with pytest.raises(RemoteProtocolError, match="not from there") as caught:
        make("10.1.0.7", None)
    assert caught.value.reason == "principal"


@pytest.mark.parametrize(
    "name", ["nowhere:X", "operators_builders:Gone", "operators_builders:NotOne"]
)
def test_a_builder_that_cannot_be_made_is_a_mistake_in_the_settings(
    builders: str, name: str
) -> None:
    with pytest.raises(ConfigError, match=name):
        load_builder(name)


def test_a_builder_that_changes_its_mind_cannot_change_the_principal() -> None:
    class Fickle:
        count = 0

        def build(self, context: AuthenticationContext) -> str:
            self.count += 1
            return f"alice-{self.count}"

    context = AuthenticationContext("EXTERNAL", "SASL_PLAINTEXT", "10.0.0.1")
    identity = Identity(Fickle(), context, SaslObserver(("PLAIN",)))
    login(identity)
    with pytest.raises(RemoteProtocolError, match="re-authentication"):
        login(identity)
    assert identity.principal == "alice-1"


def test_55_12_the_default_principals() -> None:
    builder = DefaultPrincipalBuilder()
    assert builder.build(AuthenticationContext("L", "PLAINTEXT", "a")) == "ANONYMOUS"
    assert builder.build(AuthenticationContext("L", "SSL", "a", "CN=x")) == "CN=x"
    assert builder.build(AuthenticationContext("L", "SASL_SSL", "a", "CN=x", "bob")) == "bob"


class Sly(str):
    """A name that says it is another's."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("admin")


def hostile(answer: Any) -> type:
    class Builder:
        def build(self, context: AuthenticationContext) -> Any:
            if isinstance(answer, type) and issubclass(answer, BaseException):
                raise answer("stop")
            return answer

    return Builder


@pytest.mark.parametrize(
    "answer",
    [SystemExit, MemoryError, RecursionError, None, b"alice", 7, "", "x" * 9_000, "ä" * 5_000],
)
def test_a_hostile_builder_refuses_its_client_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    module = types.ModuleType("hostile_builders")
    vars(module).update(One=hostile(answer))
    monkeypatch.setitem(sys.modules, "hostile_builders", module)
    own = settings(principal_builder_class="hostile_builders:One")
    with pytest.raises(RemoteProtocolError) as caught:
        make_identity(own, listener("PLAINTEXT"))("10.1.0.7", None)
    assert caught.value.reason == "principal"
    sasl_identity = make_identity(own, listener("SASL_PLAINTEXT"))("10.1.0.7", None)
    with pytest.raises(RemoteProtocolError):
        login(sasl_identity)
    assert not sasl_identity.authenticated


@pytest.mark.parametrize(
    ("answer", "name"), [(Sly("mallory"), "mallory"), ("a\ud800b", "a?b"), ("x\0\n", "x\0\n")]
)
def test_what_a_builder_names_is_a_plain_text_that_can_be_written(
    monkeypatch: pytest.MonkeyPatch, answer: str, name: str
) -> None:
    module = types.ModuleType("hostile_builders")
    vars(module).update(One=hostile(answer))
    monkeypatch.setitem(sys.modules, "hostile_builders", module)
    own = settings(principal_builder_class="hostile_builders:One")
    principal = make_identity(own, listener("PLAINTEXT"))("10.1.0.7", None).principal
    assert type(principal) is str
    assert principal.encode() == name.encode()
    assert principal != "admin"
