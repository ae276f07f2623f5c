"""The credentials that mTLS clients get upstream, and the errors in a file of credentials."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from headgate.client import tls as tls_module
from headgate.client.connection import Connection
from headgate.client.security import Security
from headgate.config import SecurityProtocol, Settings
from headgate.config.listeners import HostPort
from headgate.errors import ConfigError, StoreError
from headgate.gateway.broker.dialing import Dialer
from headgate.gateway.connection.hosts import BrokerHosts
from headgate.gateway.identity.lending import Lending
from headgate.metrics.meters import Meters

SECRET = "hunter2-horse"


def lending(tmp_path: Path, text: str, **more: str) -> Lending:
    path = tmp_path / "credentials.yaml"
    path.write_text(text, encoding="utf-8")
    properties = {
        "headgate.upstream": "kafka:9092",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "headgate.upstream.admin.security.protocol": "SASL_SSL",
        "headgate.upstream.admin.sasl.username": "admin",
        "headgate.upstream.admin.sasl.password": "admin-secret",
        "headgate.upstream.credentials.file": str(path),
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return Lending(Settings.from_properties(properties), SecurityProtocol.SASL_SSL)


ALICE = """\
credentials:
  - principal: alice
    sasl.mechanism: SCRAM-SHA-512
    sasl.username: alice
    sasl.password: {}
"""


@pytest.mark.parametrize("password", ["plain", "0123", "yes", "1.50", "'p@ss'", "~"])
def test_a_password_is_the_text_it_is(tmp_path: Path, password: str) -> None:
    lent = lending(tmp_path, ALICE.format(password)).lend("alice")
    assert lent is not None
    assert (lent.sasl_mechanism, lent.sasl_username) == ("SCRAM-SHA-512", "alice")
    assert lent.sasl_password is not None
    assert lent.sasl_password.value == password.strip("'")


def test_who_isnt_in_the_file_shares_or_is_refused_and_never_borrows_the_gateways_own(
    tmp_path: Path,
) -> None:
    assert lending(tmp_path, ALICE.format("x")).lend("mallory") is None
    shared = lending(
        tmp_path,
        ALICE.format("x"),
        headgate__upstream__shared__enable="true",
        headgate__upstream__shared__sasl__username="everybody",
        headgate__upstream__shared__sasl__password="everybodys",
    )
    lent = shared.lend("mallory")
    assert lent is not None
    assert lent.sasl_username == "everybody"
    alice = shared.lend("alice")
    assert alice is not None
    assert alice.sasl_username == "alice"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ALICE.format("@" + SECRET), "credentials.yaml:5 isn't YAML"),
        (ALICE.format('"' + SECRET), "isn't YAML"),
        (ALICE.format(SECRET + "\n   sasl.mechanism: PLAIN"), "isn't YAML"),
        (f"credentials: {SECRET}", "must hold a list named credentials"),
        (f"credentials:\n  - sasl.password: {SECRET}", "entry 1 names no principal"),
        (
            f"credentials:\n  - principal: alice\n    password: {SECRET}",
            r"entry 1 \(alice\): unknown password",
        ),
        (
            f"credentials:\n  - principal: alice\n    sasl.mechanism: OAUTHBEARER\n"
            f"    sasl.username: alice\n    sasl.password: {SECRET}",
            r"entry 1 \(alice\): sasl\.mechanism OAUTHBEARER can't be lent; use one of PLAIN",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_no_secret(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        lending(tmp_path, text)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None or SECRET not in str(raised.value.__cause__)


def test_a_file_that_isnt_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"credentials\.file: .*no\.yaml can't be read: No such"):
        lending(tmp_path, "", headgate__upstream__credentials__file=str(tmp_path / "no.yaml"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"headgate__upstream__shared__sasl__username": "everybody"},
            "the upstream speaks SASL_SSL: headgate.upstream.shared.enable needs",
        ),
        (
            {
                "headgate__upstream__shared__sasl__username": "everybody",
                "headgate__upstream__shared__sasl__password": SECRET,
                "headgate__upstream__shared__security__protocol": "SASL_PLAINTEXT",
            },
            "security.protocol=SASL_PLAINTEXT, but clients' connections go on in SASL_SSL",
        ),
    ],
)
def test_what_could_never_log_in_is_said_at_the_start(
    tmp_path: Path, more: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        lending(tmp_path, ALICE.format("x"), headgate__upstream__shared__enable="true", **more)
    assert says in str(raised.value)
    with pytest.raises(ConfigError, match=r"entry 1 \(bob\): the upstream speaks SASL_SSL"):
        lending(tmp_path, "credentials:\n  - principal: bob\n    sasl.username: bob\n")


MTLS = """\
credentials:
  - principal: alice
    ssl.keystore.location: {folder}/alice.pem
  - principal: bob
    ssl.keystore.location: {folder}/bob.pem
"""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def over_tls(folder: Path, authority: trustme.CA) -> Lending:
    for name in ("alice", "bob"):
        certificate = authority.issue_cert(common_name=name)
        certificate.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "credentials.yaml").write_text(MTLS.format(folder=folder), encoding="utf-8")
    properties = {
        "headgate.upstream": "kafka:9092",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "headgate.upstream.ssl.truststore.type": "PEM",
        "headgate.upstream.ssl.truststore.location": str(folder / "ca.pem"),
        "headgate.upstream.credentials.file": str(folder / "credentials.yaml"),
    }
    return Lending(Settings.from_properties(properties), SecurityProtocol.SSL)


def test_a_context_is_made_once_for_each_credential(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent = over_tls(tmp_path, authority)
    alice, bob = lent.lend("alice"), lent.lend("bob")
    assert alice is not None
    assert bob is not None
    assert lent.contexts.ready(alice.ssl) is None
    made = lent.contexts.get(alice.ssl)
    again = lent.lend("alice")
    assert again is not None
    assert lent.contexts.ready(again.ssl) is made
    assert lent.contexts.get(again.ssl) is made
    assert lent.contexts.get(bob.ssl) is not made
    monkeypatch.setattr(tls_module, "_MOST_CONTEXTS", 2)
    lent.contexts.get(lent._trust)
    assert list(lent.contexts._made) == [bob.ssl, lent._trust]


@pytest.mark.parametrize("changed", ["alice.pem", "ca.pem"])
def test_a_changed_certificate_or_trust_store_is_read_again(
    tmp_path: Path, authority: trustme.CA, changed: str
) -> None:
    lent = over_tls(tmp_path, authority)
    alice = lent.lend("alice")
    assert alice is not None
    made = lent.contexts.get(alice.ssl)
    if changed == "ca.pem":
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / changed)
    else:
        fresh = authority.issue_cert(common_name="alice")
        fresh.private_key_and_cert_chain_pem.write_to_path(tmp_path / changed)
    # A file's time goes in ticks of some ms, and who is quick has written both within one.
    written = (tmp_path / changed).stat().st_mtime_ns
    os.utime(tmp_path / changed, ns=(written, written + 1_000_000_000))
    assert lent.contexts.ready(alice.ssl) is None
    after = lent.contexts.get(alice.ssl)
    assert after is not made
    assert lent.contexts.ready(alice.ssl) is after
    trusted = {c["serialNumber"] for c in after.get_ca_certs()}
    assert (trusted == {c["serialNumber"] for c in made.get_ca_certs()}) == (changed != "ca.pem")


def test_a_half_written_certificate_leaves_the_one_before_in_force_and_is_said_once(
    tmp_path: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    lent = over_tls(tmp_path, authority)
    alice, bob = lent.lend("alice"), lent.lend("bob")
    assert alice is not None
    assert bob is not None
    made = lent.contexts.get(alice.ssl)
    whole = (tmp_path / "alice.pem").read_bytes()
    (tmp_path / "alice.pem").write_bytes(whole[: len(whole) // 2])
    for _ in range(3):
        assert lent.contexts.get(alice.ssl) is made
    assert [m for m in caplog.messages if "can't be used" in m] == caplog.messages
    assert len(caplog.messages) == 1
    (tmp_path / "alice.pem").write_bytes(whole)
    assert lent.contexts.get(alice.ssl) is not made
    (tmp_path / "bob.pem").unlink()
    with pytest.raises(ConfigError, match=r"bob\.pem can't be read"):
        lent.contexts.get(bob.ssl)


class FakeLink:
    """A link as far as the way upstream is concerned."""

    def __init__(self) -> None:
        identity = SimpleNamespace(principal="bob")
        self.session = SimpleNamespace(identity=identity)
        self.closed: tuple[str, str] | None = None

    def close(self, reason: str, detail: str = "") -> None:
        self.closed = reason, detail


async def test_a_client_whose_lent_certificate_cant_be_read_is_closed_with_the_reason(
    tmp_path: Path, authority: trustme.CA
) -> None:
    lent = over_tls(tmp_path, authority)
    (tmp_path / "bob.pem").unlink()
    meters = Meters()
    listener: Any = SimpleNamespace(settings=SimpleNamespace(upstream_connect_timeout_ms=1_000))
    link: Any = FakeLink()
    dialer = Dialer(1, meters, BrokerHosts())
    await dialer._connect_lent(listener, lent, HostPort("127.0.0.1", 1), link)
    reason, detail = link.closed
    assert reason == "upstream-unreachable"
    assert "bob.pem can't be read" in detail
    assert meters.upstream_failures["login"] == 1


async def test_a_broker_that_no_lent_way_reaches_counts_as_unreachable_for_newcomers(
    tmp_path: Path, authority: trustme.CA
) -> None:
    lent, meters = over_tls(tmp_path, authority), Meters()
    listener: Any = SimpleNamespace(settings=SimpleNamespace(upstream_connect_timeout_ms=1_000))
    link: Any = FakeLink()
    dialer = Dialer(1, meters, BrokerHosts())
    began_s = time.monotonic()
    await dialer._connect_lent(listener, lent, HostPort("127.0.0.1", 1), link)
    assert link.closed[0] == "upstream-unreachable"
    assert dict(meters.upstream_failures) == {"connect": 1}
    assert dialer.failed_at >= began_s


@pytest.mark.parametrize("how", ["end of stream", "closing"])
async def test_a_broker_that_hung_up_after_the_login_is_said_so(how: str) -> None:
    aborted: list[bool] = []
    transport = SimpleNamespace(
        is_closing=lambda: how == "closing", abort=lambda: aborted.append(True)
    )
    reader, writer = asyncio.StreamReader(), SimpleNamespace(transport=transport)
    connection = Connection(
        reader,
        writer,  # type: ignore[arg-type]
        "kafka:9092",
        Security(),
    )
    if how == "end of stream":
        assert connection.detach() is transport
        reader.feed_eof()
    with pytest.raises(StoreError, match="kafka:9092: the broker hung up after the login"):
        connection.detach()
    assert aborted == [True]
