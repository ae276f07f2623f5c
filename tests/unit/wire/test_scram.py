"""A SCRAM credential is what the RFC's example needs it to be."""

import base64
import hashlib
import hmac

from headgate.wire.scram import LEAST_ITERATIONS, credential_text


def test_scram_credentials_are_those_of_the_rfc_s_example() -> None:
    # RFC 7677 section 3: user "user", password "pencil".
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    nonce = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server_first = f"{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    message = f"n=user,r=rOprNGfwEbeRWgbNEkqO,{server_first},c=biws,{nonce}".encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    server_signature = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    text = credential_text("SCRAM-SHA-256", "pencil", salt, LEAST_ITERATIONS)
    fields = dict(part.split("=", 1) for part in text.split(","))
    stored, server = (base64.b64decode(fields[name]) for name in ("stored_key", "server_key"))
    mask = hmac.digest(stored, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
    assert hashlib.sha256(client_key).digest() == stored
    assert hmac.digest(server, message, "sha256") == server_signature
    assert fields["iterations"] == "4096"
    assert base64.b64decode(fields["salt"]) == salt
