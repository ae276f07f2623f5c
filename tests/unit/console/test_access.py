"""Users that a proxy names; the files of tenants and roles; what may listen where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.clock import now_ms
from headgate.config.listeners import HostPort
from headgate.config.settings import Settings
from headgate.console.access.names import check_reach, names_of
from headgate.console.access.opening import open_access
from headgate.console.access.proxy import Proxies
from headgate.console.access.roles import read_roles
from headgate.console.access.tenants import NO_TENANTS, read_tenants
from headgate.console.access.unsigned import Unsigned
from headgate.console.access.viewer import Role
from headgate.console.app import make_app
from headgate.errors import ConfigError
from kit.console import Console, ask

USER = "X-Forwarded-User"
PROXY = Proxies(["10.0.0.5", "10.1.0.0/24"], USER, "X-Forwarded-Groups")


def scope(peer: str, *headers: tuple[str, str]) -> dict[str, Any]:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    return {"client": (peer, 1), "headers": raw}


# --- proxies


@pytest.mark.parametrize("peer", ["10.0.0.5", "10.1.0.77", "::ffff:10.0.0.5"])
def test_a_proxy_of_ours_names_the_user(peer: str) -> None:
    asked = scope(peer, (USER, "alice"), ("X-Forwarded-Groups", "a, ops"), ("accept", "*/*"))
    named, address = PROXY.read(asked)
    assert named == ("alice", {"a", "ops"})
    assert address == peer
    assert asked["headers"] == [(b"accept", b"*/*")]


@pytest.mark.parametrize("peer", ["10.0.0.6", "127.0.0.1", "", "not an address", "::1"])
def test_headers_of_all_others_are_removed(peer: str) -> None:
    asked = scope(
        peer, (USER, "alice"), ("x_forwarded_user", "alice"), ("X-Forwarded-For", "1.1.1.1")
    )
    assert PROXY.read(asked) == (None, peer)
    assert asked["headers"] == []


def test_what_a_client_added_before_the_proxy_isnt_believed() -> None:
    two = scope("10.0.0.5", (USER, "admin"), (USER, "alice"))
    assert PROXY.read(two)[0] is None
    underscore = scope("10.0.0.5", ("x_forwarded_user", "admin"))
    assert PROXY.read(underscore)[0] is None
    # The client's own groups beside the proxy's would make an operator of it.
    groups = scope(
        "10.0.0.5", (USER, "alice"), ("X-Forwarded-Groups", "ops"), ("X-Forwarded-Groups", "a")
    )
    assert PROXY.read(groups) == (None, "10.0.0.5")
    assert groups["headers"] == []
    behind = scope("10.0.0.5", ("X-Forwarded-For", "6.6.6.6, 10.9.9.9"))
    assert PROXY.read(behind) == (None, "10.9.9.9")


def test_a_proxys_user_has_the_role_of_the_file_and_no_password(
    console: Console, tmp_path: Path
) -> None:
    console.access.proxies = Proxies(["127.0.0.1"], USER, None)
    roles = tmp_path / "roles.yaml"
    roles.write_text("proxy: [{user: alice, role: operator}]\n")
    console.access.roles = read_roles(roles)
    assert ask(console.app, "/change", headers={USER.lower(): "alice"}).status == 200
    assert ask(console.app, "/change", headers={USER.lower(): "mallory"}).status == 303
    assert ask(console.app, "/change").status == 303
    # A form needs a token here too: a browser sends its proxy's sign-in with every request.
    posted = ask(console.app, "/sign-out", method="POST", headers={USER.lower(): "alice"})
    assert posted.status == 403


def test_a_header_without_proxies_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="the proxies that are believed"):
        Proxies([], USER, None)
    with pytest.raises(ConfigError, match=r"proxy\.addresses"):
        Proxies(["10.0.0.5/8"], USER, None)


# --- files


def test_tenants_are_lists_of_principals(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text("tenants: {payments: {principals: [alice, 007]}}\n")
    assert read_tenants(file) == {"payments": frozenset({"alice", "007"})}
    for text in (
        "",
        "tenants: [a]",
        "tenants: {a: {prefixes: [x]}}",
        "tenants: {a: {principals: x}}",
        "x: [",
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"tenants\.yaml"):
            read_tenants(file)


def test_roles_are_by_subject_user_or_group_never_by_address(tmp_path: Path) -> None:
    file = tmp_path / "roles.yaml"
    file.write_text(
        "oidc:\n  - {subject: '1', role: operator}\n  - {group: g, role: tenant, tenant: t}\n"
    )
    roles = read_roles(file)
    assert roles.of("oidc", "1", {"g"}) == (Role.OPERATOR, "")
    assert roles.of("oidc", "2", {"g"}) == (Role.TENANT, "t")
    assert roles.of("oidc", "2", ()) is None
    assert roles.of("proxy", "1", {"g"}) is None
    for row in (
        "{email: a@b, role: viewer}",
        "{subject: a, role: root}",
        "{subject: a, role: tenant}",
        "{subject: a, role: viewer, tenant: t}",
        "{subject: a, group: b, role: viewer}",
        "{role: viewer}",
        "x",
    ):
        file.write_text(f"oidc: [{row}]\n")
        with pytest.raises(ConfigError, match="entry 1"):
            read_roles(file)


# --- what may listen where

SETTINGS = Settings.from_properties({}).console
LOOPBACK = HostPort("127.0.0.1", 8088)
WORLD = HostPort("10.0.0.1", 8088)


@pytest.mark.parametrize(
    ("listener", "changed", "problem"),
    [
        (WORLD, {}, "nobody has to sign in"),
        (LOOPBACK, {"url": "https://console.example"}, "nobody has to sign in"),
        (HostPort("", 8088), {"data_dir": "d", "certificate": "c", "key": "k"}, "every address"),
        (WORLD, {"data_dir": "d"}, "unencrypted"),
        (WORLD, {"data_dir": "d", "url": "http://console.example"}, "unencrypted"),
        (WORLD, {"data_dir": "d", "certificate": "c"}, "go together"),
        (LOOPBACK, {"oidc_issuer": "https://i"}, "needs headgate.console.data.dir"),
        (LOOPBACK, {"data_dir": "d", "oidc_issuer": "https://i"}, "roles.file"),
    ],
)
def test_what_would_let_in_too_many_isnt_started(
    listener: HostPort, changed: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_reach(replace(SETTINGS, **changed), listener)


@pytest.mark.parametrize(
    ("listener", "changed"),
    [
        (LOOPBACK, {}),
        (LOOPBACK, {"data_dir": "d"}),
        (WORLD, {"data_dir": "d", "certificate": "c", "key": "k"}),
        (WORLD, {"data_dir": "d", "url": "https://console.example"}),
    ],
)
def test_what_is_safe_is_started(listener: HostPort, changed: dict[str, str]) -> None:
    check_reach(replace(SETTINGS, **changed), listener)


def test_without_sign_in_a_console_reads_only_and_by_loopbacks_names_only(console: Console) -> None:
    access = open_access(SETTINGS, LOOPBACK, NO_TENANTS, None, now_ms)
    assert isinstance(access, Unsigned)
    app = make_app(console.parts, access)
    for host in ("127.0.0.1:8088", "localhost:8088", "LOCALHOST:8088", "[::1]:8088"):
        assert ask(app, "/", headers={"host": host}).status == 200
    for host in ("evil.example:8088", "127.0.0.1", "localhost.evil.example:8088", ""):
        assert ask(app, "/", headers={"host": host}).status == 421
    good = {"host": "localhost:8088"}
    assert ask(app, "/change", headers=good).status == 403
    assert ask(app, "/sign-in", headers=good).status == 404
    assert ask(app, "/sign-out", method="POST", headers=good).status in (403, 404)


def test_names_follow_the_listener_and_the_url() -> None:
    origins, hosts = names_of(HostPort("10.0.0.1", 443), "https://console.example:443/", tls=True)
    assert hosts == {"10.0.0.1:443", "10.0.0.1", "console.example:443", "console.example"}
    assert "https://console.example" in origins
    for url in ("console.example", "ftp://x", "https://x/path", "https://", "https://a@b"):
        with pytest.raises(ConfigError, match="--url"):
            names_of(LOOPBACK, url, tls=False)
