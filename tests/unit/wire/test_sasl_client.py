from __future__ import annotations

import base64
import json

import pytest

from headgate.errors import RemoteProtocolError
from headgate.wire.sasl_client import oauthbearer, plain, scram, unsecured_token

# RFC 7677 section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_speaks_rfc_7677s_example() -> None:
    exchange = scram("SCRAM-SHA-256", "user", "pencil", nonce=lambda: NONCE)
    assert next(exchange) == FIRST
    assert exchange.send(SERVER_FIRST) == FINAL
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


def test_scram_escapes_names() -> None:
    assert next(scram("SCRAM-SHA-512", "a=b,c", "x", nonce=lambda: "n")) == b"n,,n=a=3Db=2Cc,r=n"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (SERVER_FIRST.replace(b"rOpr", b"XXXX"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"nonsense", "malformed"),
        (SERVER_FIRST.replace(b"i=4096", b"i=999999999"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=0"), "iterations"),
    ],
)
def test_scram_trusts_no_first_message(message: bytes, told: str) -> None:
    exchange = scram("SCRAM-SHA-256", "user", "pencil", nonce=lambda: NONCE)
    next(exchange)
    with pytest.raises(RemoteProtocolError, match=told):
        exchange.send(message)


@pytest.mark.parametrize("message", [b"v=AAAA", b"", b"e=other-error"])
def test_scram_trusts_no_server_without_the_proof(message: bytes) -> None:
    exchange = scram("SCRAM-SHA-256", "user", "pencil", nonce=lambda: NONCE)
    next(exchange)
    exchange.send(SERVER_FIRST)
    with pytest.raises(RemoteProtocolError, match="proof is wrong"):
        exchange.send(message)


def test_plain_sends_name_and_password() -> None:
    assert list(plain("alice", "s3cret")) == [b"\x00alice\x00s3cret"]


def test_oauthbearer_ends_politely_when_refused() -> None:
    exchange = oauthbearer("tok")
    assert next(exchange) == b"n,,\x01auth=Bearer tok\x01\x01"
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(RemoteProtocolError, match="invalid_token"):
        exchange.send(b"")


def test_oauthbearer_ends_when_taken() -> None:
    exchange = oauthbearer("tok")
    next(exchange)
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_an_unsecured_token_is_an_unsigned_jwt() -> None:
    header, claims, signature = unsecured_token("alice", 1000, 60).split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    decoded = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert decoded == {"sub": "alice", "iat": 1000, "exp": 1060}
