"""SIGHUP on a running gateway: new connections get the new settings, old ones continue."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from headgate.config import load_settings
from headgate.gateway import Gateway, GatewayThread

from .gateway_kit import wait_for
from .scripted_upstream import VERSIONS, Upstream, connect, read_answer, upstream

__all__ = ["upstream"]

PROPERTIES = """\
listeners=TLS://127.0.0.1:0
listener.security.protocol.map=TLS:SSL
headgate.upstream=127.0.0.1:{port}
headgate.upstream.security.protocol=PLAINTEXT
headgate.upstream.credentials.file={folder}/credentials.yaml
headgate.broker.id.min=1
headgate.broker.id.max=1
headgate.data.dir={folder}
headgate.usage=none
ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
ssl.principal.mapping.rules=RULE:^.*CN=([^,]+).*$/$1/
"""


class Served:
    """A gateway that speaks TLS, started from a file."""

    def __init__(self, folder: Path, upstream: Upstream) -> None:
        self.folder, self.authority = folder, trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.config = folder / "headgate.properties"
        self.write(PROPERTIES.format(port=upstream.port, folder=folder))
        self.certify("server", "localhost")
        self.lend("alice")
        settings = load_settings(self.config)
        self.gateway = GatewayThread(lambda: Gateway(settings)).start()

    def write(self, text: str) -> None:
        self.config.write_text(text)

    def change(self, old: str, new: str) -> None:
        self.write(self.config.read_text().replace(old, new))

    def certify(self, name: str, *identities: str, common_name: str | None = None) -> None:
        made = self.authority.issue_cert(*identities, common_name=common_name)
        made.private_key_and_cert_chain_pem.write_to_path(str(self.folder / f"{name}.pem"))

    def lend(self, *principals: str) -> None:
        (self.folder / "credentials.yaml").write_text(
            "credentials:\n" + "".join(f"  - principal: {name}\n" for name in principals)
        )

    def reload(self) -> None:
        self.gateway.call(lambda: self.gateway.gateway.reload(self.config))

    def connect(self, name: str) -> ssl.SSLSocket:
        self.certify(name, f"{name}@example", common_name=name)
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        context.load_cert_chain(str(self.folder / f"{name}.pem"))
        return context.wrap_socket(connect(self.gateway, "TLS"), server_hostname="localhost")

    def closed(self, reason: str) -> int:
        return self.gateway.gateway.brokers[1].meters.listeners["TLS"].closed[reason]


def serves(client: socket.socket) -> bool:
    """Whether it is answered; False if it is closed instead, and neither is a failure."""
    try:
        client.sendall(VERSIONS)
        return read_answer(client)[4:8] == struct.pack(">i", 9)
    except TimeoutError:
        raise
    except (EOFError, OSError):
        return False


@pytest.fixture
def served(tmp_path: Path, upstream: Upstream) -> Iterator[Served]:
    made = Served(tmp_path, upstream)
    yield made
    made.gateway.stop(0)


def test_new_certificates_and_credentials_are_for_new_connections(served: Served) -> None:
    with served.connect("alice") as old, served.connect("bob") as refused:
        assert serves(old)
        assert not serves(refused)
        before = old.getpeercert()
        served.certify("server", "localhost")
        served.lend("alice", "bob")
        served.reload()
        with served.connect("bob") as new:
            assert serves(new)
            after = new.getpeercert()
            assert before is not None
            assert after is not None
            assert after["serialNumber"] != before["serialNumber"]
        assert serves(old)  # who was here before goes on
        (served.folder / "server.pem").write_text("broken")
        served.lend("alice")
        served.reload()  # a mistake: nothing changes
        with served.connect("bob") as newer:
            assert serves(newer)
    wait_for(lambda: served.closed("no-upstream-credentials") == 1, "the reason")


def test_new_rules_name_new_connections(served: Served) -> None:
    with served.connect("alice") as client:
        assert serves(client)
    served.change("$/$1/", "$/tenant-$1/")
    served.lend("tenant-alice")
    served.reload()
    with served.connect("alice") as client:
        assert serves(client)
    served.change("^.*CN=([^,]+).*$/tenant-$1/", "^.*CN=(nobody)$/$1/")
    served.reload()
    with served.connect("alice") as client:
        assert not serves(client)
    wait_for(lambda: served.closed("principal") == 1, "the reason")


def test_certificates_may_become_optional(served: Served) -> None:
    served.change("ssl.client.auth=required", "ssl.client.auth=none")
    served.reload()
    context = ssl.create_default_context(cafile=str(served.folder / "ca.pem"))
    raw = connect(served.gateway, "TLS")
    with context.wrap_socket(raw, server_hostname="localhost") as client:
        assert serves(client)
