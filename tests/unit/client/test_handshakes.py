"""The bytes that a handshake may take: certificates count, what follows them doesn't."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from headgate.client.handshakes import (
    MOST_BYTES,
    NO_RX_CERTIFICATE_COMPRESSION,
    ServerContext,
)
from headgate.client.tls import server_context, tls_of

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server(folder: Path, authority: trustme.CA) -> ssl.SSLContext:
    """A listener's context, which wants certificates."""
    key, trust = folder / "server.pem", folder / "ca.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(trust))
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
    }
    return server_context(tls_of(stores), "required")


def client(folder: Path, authority: trustme.CA, certificates: int) -> ssl.SSLContext:
    """A client's context, which sends this many certificates."""
    own = authority.issue_cert("a@example")
    chain = [blob.bytes() for blob in own.cert_chain_pems]
    path = folder / "client.pem"
    path.write_bytes(own.private_key_pem.bytes() + b"".join((chain * certificates)[:certificates]))
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(str(path))
    return context


def shake(ours: ssl.SSLContext, theirs: ssl.SSLContext, behind: bytes, step: int) -> bytes:
    """
    Let both shake hands, the client's bytes coming in such steps; return what is read of what the
    client sends right behind its handshake.
    """
    to_server, to_client, wire = ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = ours.wrap_bio(to_server, to_client, server_side=True)
    asking = theirs.wrap_bio(to_client, wire, server_hostname="localhost")
    done = {accepting: False, asking: False}

    def go_on(side: ssl.SSLObject) -> None:
        if not done[side]:
            try:
                side.do_handshake()
                done[side] = True
            except ssl.SSLWantReadError:
                pass

    read = b""
    for _ in range(10):
        before = done[asking]
        go_on(asking)
        if done[asking] and not before:
            asking.write(behind)
        while wire.pending:
            to_server.write(wire.read(step))
            go_on(accepting)
        while done[accepting] and len(read) < len(behind):
            try:
                read += accepting.read(1 << 16)
            except ssl.SSLWantReadError:
                break
    return read


@pytest.mark.parametrize("step", [1, 1_000, 1 << 20])
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_what_follows_a_handshake_in_one_piece_is_not_counted(
    tmp_path: Path, authority: trustme.CA, version: ssl.TLSVersion, step: int
) -> None:
    ours, theirs = server(tmp_path, authority), client(tmp_path, authority, 10)
    theirs.minimum_version = theirs.maximum_version = version
    behind = bytes(range(256)) * (3 * MOST_BYTES // 256)
    assert shake(ours, theirs, behind, step) == behind


@pytest.mark.parametrize("step", [1_000, 1 << 20])
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_too_many_certificates_are_refused_before_they_are_looked_at(
    tmp_path: Path, authority: trustme.CA, version: ssl.TLSVersion, step: int
) -> None:
    ours, theirs = server(tmp_path, authority), client(tmp_path, authority, 80)
    theirs.minimum_version = theirs.maximum_version = version
    with pytest.raises(ssl.SSLError, match=f"^the handshake .* {MOST_BYTES} bytes: too many"):
        shake(ours, theirs, b"x", step)


def test_compressed_certificates_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred of them come in a kilobyte, which a bound on bytes doesn't see (RFC 8879)."""
    for version, refuses in (((3, 0, 19, 0, 0), False), ((3, 2, 0, 0, 0), True)):
        monkeypatch.setattr(ssl, "OPENSSL_VERSION_INFO", version)
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        assert bool(context.options & NO_RX_CERTIFICATE_COMPRESSION) is refuses
