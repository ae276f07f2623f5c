"""Watching SASL: whose name it is, and when it counts."""

import base64
import json

import pytest

from headgate.errors import KafkaError, RemoteProtocolError
from headgate.gateway.identity import sasl
from headgate.gateway.identity.sasl import (
    MAX_NAME_BYTES,
    MAX_TOKEN_BYTES,
    MOST_BEARER_READ,
    MOST_READ,
    SaslObserver,
    SaslRefusal,
    SaslState,
    jwt_claim,
    scram_name,
)


def chosen(mechanism: str, version: int = 1, **kwargs: object) -> SaslObserver:
    observer = SaslObserver(**kwargs)  # type: ignore[arg-type]
    observer.handshake(mechanism, version)
    observer.handshake_answered(0)
    return observer


def jwt(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256'})}.{part(claims)}.c2lnbmF0dXJl"


def bearer(token: str, extra: str = "") -> bytes:
    return f"n,{extra},\x01auth=Bearer {token}\x01\x01".encode()


def scram_login(observer: SaslObserver, first: bytes) -> None:
    observer.token(first)
    observer.answered(0, b"r=abc,s=c2FsdA==,i=4096")
    assert observer.name is None
    observer.token(b"c=biws,r=abc,p=cHJvb2Y=")
    observer.answered(0, b"v=c2lnbmF0dXJl")


def test_plain_counts_only_when_the_broker_says_yes() -> None:
    observer = chosen("PLAIN")
    observer.token(b"\0alice\0secret")
    assert observer.name is None
    observer.answered(0, b"")
    assert observer.name == "alice"
    assert observer.state is SaslState.DONE


def test_a_refused_login_has_no_name() -> None:
    observer = chosen("PLAIN")
    observer.token(b"\0alice\0wrong")
    observer.answered(58, b"")
    assert observer.name is None
    assert observer.state is SaslState.FAILED
    with pytest.raises(RemoteProtocolError):
        observer.token(b"\0bob\0x")
    with pytest.raises(RemoteProtocolError):
        observer.handshake("PLAIN", 1)


@pytest.mark.parametrize(
    ("saslname", "name"),
    [
        ("alice", "alice"),
        ("a=2Cb", "a,b"),
        ("a=3Db", "a=b"),
        ("=3D2C", "=2C"),
        ("CN=3Dx=2CO=3Dy z", "CN=x,O=y z"),
        ("jürgen", "jürgen"),
        ("a=4Eb", None),
        ("a=2cb", None),
        ("a=", None),
    ],
)
def test_scram_names_are_unescaped(saslname: str, name: str | None) -> None:
    assert scram_name(saslname) == name


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_counts_at_the_servers_signature(mechanism: str) -> None:
    observer = chosen(mechanism)
    scram_login(observer, b"n,,n=a=2Cb,r=nonce")
    assert observer.name == "a,b"


def test_a_scram_error_message_is_no_success() -> None:
    observer = chosen("SCRAM-SHA-256")
    observer.token(b"n,,n=alice,r=nonce")
    observer.answered(0, b"r=abc,s=c2FsdA==,i=4096")
    observer.token(b"c=biws,r=abc,p=cHJvb2Y=")
    observer.answered(0, b"e=invalid-proof")
    assert observer.name is None


def test_a_name_in_a_later_round_changes_nothing() -> None:
    observer = chosen("SCRAM-SHA-256")
    observer.token(b"n,,n=alice,r=nonce")
    observer.answered(0, b"r=abc,s=c2FsdA==,i=4096")
    observer.token(b"n,,n=admin,r=nonce")
    observer.answered(0, b"v=c2lnbmF0dXJl")
    assert observer.name == "alice"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"alice",
        b"n,,n=,r=x",
        b"n,,n=alice",
        b"y,,n=alice,r=x",
        b"n,,n=al\0ice,r=x",
        b"n,,n=alice,n=bob,r=x",
        b"n,,n=alice,r=x,tokenauth",
        b"n,,n=a=4Eb,r=x",
    ],
)
def test_a_scram_message_nobody_can_read_is_refused(first: bytes) -> None:
    with pytest.raises(SaslRefusal) as caught:
        chosen("SCRAM-SHA-256").token(first)
    assert caught.value.code == KafkaError.SASL_AUTHENTICATION_FAILED


def test_another_authorization_id_is_refused() -> None:
    for mechanism, token in (
        ("PLAIN", b"admin\0alice\0secret"),
        ("SCRAM-SHA-256", b"n,a=admin,n=alice,r=x"),
        ("OAUTHBEARER", bearer(jwt(sub="alice"), "a=admin")),
    ):
        with pytest.raises(SaslRefusal) as caught:
            chosen(mechanism).token(token)
        assert caught.value.reason == "authzid"


def test_ones_own_authorization_id_is_fine() -> None:
    observer = chosen("PLAIN")
    observer.token(b"alice\0alice\0secret")
    observer.answered(0, b"")
    assert observer.name == "alice"
    observer = chosen("OAUTHBEARER")
    observer.token(bearer(jwt(sub="a,b"), "a=a=2Cb"))
    observer.answered(0, b"")
    assert observer.name == "a,b"


@pytest.mark.parametrize("token", [b"", b"alice", b"\0alice", b"\0\0secret", b"\0a\0b\0c"])
def test_a_plain_token_nobody_can_read_is_refused(token: bytes) -> None:
    with pytest.raises(SaslRefusal) as caught:
        chosen("PLAIN").token(token)
    assert "secret" not in str(caught.value)


def test_a_delegation_token_is_its_owners_or_refused() -> None:
    first = b"n,,n=token-id,r=nonce,tokenauth=true"
    with pytest.raises(SaslRefusal) as caught:
        chosen("SCRAM-SHA-256").token(first)
    assert caught.value.reason == "delegation-token"
    with pytest.raises(SaslRefusal):
        chosen("SCRAM-SHA-256", owner_of={}.get).token(first)
    observer = chosen("SCRAM-SHA-256", owner_of={"token-id": "alice"}.get)
    scram_login(observer, first)
    assert observer.name == "alice"
    observer = chosen("SCRAM-SHA-256", owner_of={"token-id": "alice"}.get)
    scram_login(observer, b"n,,n=token-id,r=nonce,tokenauth=false")
    assert observer.name == "token-id"


def test_only_a_tokens_first_message_makes_its_owner_be_looked_up() -> None:
    first = b"n,,n=token-id,r=nonce,tokenauth=true"
    observer = chosen("SCRAM-SHA-256", owner_of={"known": "alice"}.get)
    assert observer.expects_name
    assert observer.unknown_token(first) == "token-id"
    assert observer.unknown_token(first.replace(b"true", b"TRUE")) == "token-id"
    assert observer.unknown_token(first.replace(b"token-id", b"a=2Cb")) == "a,b"
    for other in (
        b"n,,n=known,r=nonce,tokenauth=true",
        b"n,,n=token-id,r=nonce",
        b"n,,n=token-id,r=nonce,tokenauth=false",
        b"n,,n=bad=name,r=nonce,tokenauth=true",
        b"no scram",
        first.replace(b"token-id", b"x" * MAX_NAME_BYTES),
    ):
        assert observer.unknown_token(other) is None
    # Without anybody to ask it is refused at once.
    assert chosen("SCRAM-SHA-256").unknown_token(first) is None
    assert not chosen("PLAIN").expects_name
    observer = chosen("SCRAM-SHA-256", owner_of={"token-id": "alice"}.get)
    observer.token(first)
    observer.answered(0, b"r=nonceyours,s=AAAA,i=4096")
    assert not observer.expects_name


def test_a_jwts_claim_is_the_name() -> None:
    observer = chosen("OAUTHBEARER")
    observer.token(bearer(jwt(sub="alice", azp="app")))
    observer.answered(0, b"")
    assert observer.name == "alice"
    observer = chosen("OAUTHBEARER", sub_claim="azp")
    observer.token(bearer(jwt(sub="alice", azp="app")))
    observer.answered(0, b"")
    assert observer.name == "app"


def test_an_oauth_error_without_a_code_is_no_success() -> None:
    observer = chosen("OAUTHBEARER")
    observer.token(bearer(jwt(sub="alice")))
    observer.answered(0, b'{"status":"invalid_token"}')
    assert observer.name is None
    observer.token(b"\x01")
    observer.answered(58, b"")
    assert observer.name is None
    assert observer.state is SaslState.FAILED


def test_the_last_token_of_an_oauth_exchange_is_the_one_that_counts() -> None:
    observer = chosen("OAUTHBEARER")
    observer.token(bearer(jwt(sub="admin")))
    observer.answered(0, b'{"status":"invalid_token"}')
    observer.token(bearer(jwt(sub="alice")))
    observer.answered(0, b"")
    assert observer.name == "alice"


@pytest.mark.parametrize(
    "token",
    [
        "opaque",
        "a.b",
        "a.b.c.d",
        "a.!!.c",
        "a.e30.c",
        jwt(sub=""),
        jwt(sub=7),
        jwt(sub=["alice"]),
        jwt(name="alice"),
    ],
)
def test_a_token_without_a_name_is_opaque(token: str) -> None:
    assert jwt_claim(token, "sub") is None
    if "!" not in token:
        with pytest.raises(SaslRefusal) as caught:
            chosen("OAUTHBEARER").token(bearer(token))
        assert caught.value.reason == "opaque-token"


@pytest.mark.parametrize(
    ("sub", "name"),
    [
        # What ClaimValidationUtils.validateSubject of kafka-clients 4.3.1 makes of them.
        (" \x01\t\x1falice x\u00a0\u3000 \n", "alice x\u00a0\u3000"),
        ("\u00a0", "\u00a0"),
        ("bob ", "bob"),
        ("  ", None),
    ],
)
def test_a_signed_tokens_name_is_trimmed_as_java_trims(sub: str, name: str | None) -> None:
    assert jwt_claim(jwt(sub=sub), "sub") == name
    unsigned = jwt(sub=sub).rpartition(".")[0] + "."
    assert jwt_claim(unsigned, "sub") == (None if name is None else sub)


def test_an_authzid_is_compared_with_the_trimmed_name() -> None:
    observer = chosen("OAUTHBEARER")
    observer.token(bearer(jwt(sub=" alice "), "a=alice"))
    observer.answered(0, b"")
    assert observer.name == "alice"


def test_a_deeply_nested_claim_does_not_exhaust_the_stack() -> None:
    payload = base64.urlsafe_b64encode(b"[" * 200_000 + b"]" * 200_000).decode()
    assert jwt_claim(f"a.{payload}.c", "sub") is None


@pytest.mark.parametrize(
    "token", [b"", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"\x01\x01"]
)
def test_an_oauth_message_nobody_can_read_is_refused(token: bytes) -> None:
    with pytest.raises(SaslRefusal) as caught:
        chosen("OAUTHBEARER").token(token)
    assert caught.value.reason == "unreadable"


def test_gssapi_is_refused_with_the_reason() -> None:
    observer = SaslObserver(("GSSAPI", "PLAIN"))
    assert observer.offered == ("PLAIN",)
    with pytest.raises(SaslRefusal) as caught:
        observer.handshake("GSSAPI", 1)
    assert caught.value.code == KafkaError.UNSUPPORTED_SASL_MECHANISM
    assert "sealed" in caught.value.message


def test_a_mechanism_that_is_not_enabled_is_refused() -> None:
    with pytest.raises(SaslRefusal) as caught:
        SaslObserver(("PLAIN",)).handshake("SCRAM-SHA-256", 1)
    assert caught.value.reason == "mechanism"


def logged_in() -> SaslObserver:
    observer = chosen("PLAIN")
    observer.token(b"\0alice\0secret")
    observer.answered(0, b"")
    return observer


def test_re_authentication_keeps_the_name() -> None:
    observer = logged_in()
    observer.handshake("PLAIN", 1)
    observer.handshake_answered(0)
    observer.token(b"\0alice\0new secret")
    observer.answered(0, b"")
    assert (observer.name, observer.state) == ("alice", SaslState.DONE)


def test_re_authentication_cannot_change_the_name() -> None:
    observer = logged_in()
    observer.handshake("PLAIN", 1)
    observer.handshake_answered(0)
    with pytest.raises(SaslRefusal, match="Cannot change principals during re-authentication"):
        observer.token(b"\0admin\0secret")
    assert observer.name == "alice"


def test_re_authentication_cannot_change_the_mechanism() -> None:
    observer = logged_in()
    observer.handshake("SCRAM-SHA-256", 1)
    observer.handshake_answered(0)
    with pytest.raises(SaslRefusal, match="not supported for reauthentication") as refused:
        observer.token(b"n,,n=alice,r=nonce")
    assert refused.value.code == KafkaError.SASL_AUTHENTICATION_FAILED
    assert (observer.name, observer.state) == ("alice", SaslState.FAILED)


def test_a_token_without_a_handshake_is_out_of_turn() -> None:
    with pytest.raises(RemoteProtocolError):
        SaslObserver().token(b"\0alice\0secret")


def test_two_tokens_at_once_are_out_of_turn() -> None:
    observer = chosen("PLAIN")
    observer.token(b"\0alice\0secret")
    with pytest.raises(RemoteProtocolError):
        observer.token(b"\0admin\0secret")
    with pytest.raises(RemoteProtocolError):
        observer.handshake("PLAIN", 1)


def test_two_handshakes_at_once_are_out_of_turn() -> None:
    observer = SaslObserver()
    observer.handshake("PLAIN", 1)
    with pytest.raises(RemoteProtocolError):
        observer.handshake("PLAIN", 1)
    with pytest.raises(RemoteProtocolError):
        observer.token(b"\0alice\0secret")


def test_answers_to_nothing_are_the_upstreams_fault() -> None:
    with pytest.raises(RemoteProtocolError):
        SaslObserver().handshake_answered(0)
    with pytest.raises(RemoteProtocolError):
        chosen("PLAIN").answered(0, b"")


def test_a_handshake_the_broker_refuses_ends_it() -> None:
    observer = SaslObserver()
    observer.handshake("PLAIN", 1)
    observer.handshake_answered(33)
    assert observer.state is SaslState.FAILED


def test_what_is_said_before_authentication_is_bounded() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        chosen("PLAIN").token(b"\0a\0" + b"x" * MAX_TOKEN_BYTES)
    assert caught.value.reason == "oversized"
    with pytest.raises(SaslRefusal, match="too long"):
        chosen("PLAIN").token(b"\0" + b"a" * (MAX_NAME_BYTES + 1) + b"\0x")
    observer = chosen("OAUTHBEARER")
    with pytest.raises(RemoteProtocolError, match="without end"):
        for _ in range(10):
            observer.token(bearer(jwt(sub="alice")))
            observer.answered(0, b'{"status":"invalid_token"}')


@pytest.mark.parametrize(
    ("mechanism", "most", "start", "end"),
    [
        ("PLAIN", MOST_READ, b"\0alice\0", b""),
        ("SCRAM-SHA-256", MOST_READ, b"n,,n=alice,r=", b""),
        ("SCRAM-SHA-512", MOST_READ, b"n,,n=alice,r=", b""),
        ("OAUTHBEARER", MOST_BEARER_READ, b"n,,\x01x=", bearer(jwt(sub="alice"))[3:]),
    ],
)
def test_a_token_is_read_only_if_it_is_not_too_long(
    mechanism: str, most: int, start: bytes, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = sasl.java_text
    monkeypatch.setattr(sasl, "java_text", lambda raw: read.append(len(raw)) or real(raw))
    token = start + b"x" * (most - len(start) - len(end)) + end
    observer = chosen(mechanism)
    observer.token(token)
    assert read == [most]
    assert observer.state is SaslState.ASKED
    too_long = start + b"x" + token[len(start) :]
    observer = chosen(mechanism)
    with pytest.raises(
        SaslRefusal, match=f"of {most + 1} bytes; of {mechanism} at most {most}"
    ) as no:
        observer.token(too_long)
    assert (no.value.code, no.value.reason) == (
        KafkaError.SASL_AUTHENTICATION_FAILED,
        "unreadable",
    )
    assert read == [most]
    assert observer.state is SaslState.FAILED


def test_raw_tokens_follow_a_handshake_of_version_0() -> None:
    observer = chosen("PLAIN", version=0)
    assert observer.raw
    observer.token(b"\0alice\0secret")
    observer.answered(0, b"")
    assert observer.name == "alice"
    with pytest.raises(RemoteProtocolError):
        observer.handshake("PLAIN", 1)
