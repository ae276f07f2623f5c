"""Files that an operator writes: properties, and the YAML of roles, tenants, prices, clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzzing.quotas import ROOT, folder
from fuzzing.target import Target, outcome
from headgate.cli.quotas.flags import read_clients
from headgate.config import SecurityProtocol, Settings, load_settings
from headgate.config.properties import parse_properties
from headgate.console.access.roles import read_roles
from headgate.console.access.tenants import read_tenants
from headgate.gateway.identity.lending import Lending
from headgate.pipeline.answers.chargeback import load_prices

_BASE = {
    "headgate.upstream": "127.0.0.1:9092",
    "headgate.broker.id.min": "1",
    "headgate.broker.id.max": "1",
}
_LINES = "".join(f"{name}={value}\n" for name, value in _BASE.items()).encode()


def properties(data: bytes) -> None:
    """Any file of properties: settings, or every mistake with its line."""
    found, bad = parse_properties(data.decode("utf-8", "replace"))
    lines = data.count(b"\n") + data.count(b"\r") + 1
    assert all(0 < item.line <= lines for item in found)
    assert all(0 < line <= lines for line, _ in bad)
    path = folder() / "headgate.properties"
    for text in (data, _LINES + data):
        path.write_bytes(text)
        outcome(lambda: load_settings(path), str(path))


def _lending(path: Path) -> object:
    settings = Settings.from_properties({**_BASE, "headgate.upstream.credentials.file": str(path)})
    return Lending(settings, SecurityProtocol.SASL_PLAINTEXT)


_READERS: tuple[Callable[[Path], Any], ...] = (
    read_roles,
    read_tenants,
    lambda path: load_prices(str(path)),
    lambda path: read_clients([], path),
    _lending,
)


def listings(data: bytes) -> None:
    """Any bytes as a file of roles, tenants, prices, clients or lent credentials."""
    if not data:
        return
    path = folder() / "listing.yaml"
    path.write_bytes(data[1:])
    outcome(lambda: _READERS[data[0] % len(_READERS)](path), str(path))


def _properties() -> list[bytes]:
    found = [path.read_bytes() for path in sorted((ROOT / "examples").rglob("*.properties"))]
    return [
        *found,
        b"listeners=SASL_SSL://:9093,PLAINTEXT://[::1]:9092\nadvertised.listeners=A://b:1\n",
        b"! x\n  a\\ b = c\\\n   d\\u0041\\t\nmax.connections.per.ip.overrides=a:1,b:2\n",
        b"listener.name.l.max.connections=3\nssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/L\n",
        b"headgate.store=sqlite:/x\nheadgate.usage=kafka:t\nheadgate.http.listener=0.0.0.0:0\n",
        b"headgate.console.listener=127.0.0.1:0\nquota.window.num=11\nheadgate.enforce=observe\n",
    ]


def _listings() -> list[bytes]:
    texts = (
        "oidc:\n- {subject: '1', role: operator}\n- {group: g, role: tenant, tenant: t}\n",
        "tenants:\n  payments: {principals: [alice, bob]}\n",
        "currency: EUR\nproduce_gb: 1.5\nprincipals: {alice: {produce_gb: 2}}\n",
        "- {user: alice, client-id: etl}\n- {user: bob}\n",
        "credentials:\n- {principal: CN=a, sasl.username: u, sasl.password: p}\n",
    )
    return [bytes([n]) + text.encode() for n, text in enumerate(texts)]


TARGETS = {
    "properties": Target(
        properties,
        _properties,
        (b"\\\n", b"\\u", b"=", b":", b"#", b",", b"://", b"listener.name.", b"[::1]", b"-1"),
    ),
    "listings": Target(
        listings,
        _listings,
        (b"[", b"{", b"- ", b"&a ", b"*a", b"null", b"!!binary ", b"? ", b"role: ", b"\n"),
    ),
}
