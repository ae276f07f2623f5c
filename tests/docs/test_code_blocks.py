"""Blocks in the docs are what they say: settings, YAML that something reads, Python that runs."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.config import Settings
from headgate.config.listeners import SecurityProtocol
from headgate.console.access.roles import read_roles
from headgate.console.access.tenants import read_tenants
from headgate.gateway.identity.lending import Lending
from headgate.pipeline.answers.bill import load_bill, load_owners
from headgate.quota.file import parse_quotas
from headgate.usage.format import Event, Origin
from headgate.usage.writer import JournalWriter
from kit.pages import Block, blocks


@pytest.mark.parametrize("block", blocks("properties"), ids=str)
def test_settings_shown_are_settings_without_a_mistake(block: Block) -> None:
    lines = dict(
        line.split("=", 1)
        for line in block.text.splitlines()
        if line.strip() and not line.startswith("#")
    )
    settings = Settings.from_properties({"headgate.upstream": "embedded", **lines})
    assert settings.given >= lines.keys()


def lent(path: Path) -> object:
    lines = {"headgate.upstream": "embedded", "headgate.upstream.credentials.file": str(path)}
    return Lending(Settings.from_properties(lines), SecurityProtocol.SASL_SSL)


READERS: dict[str, Callable[[Path], object]] = {
    "quotas": lambda path: parse_quotas(path.read_text()),
    "credentials": lent,
    "tenants": read_tenants,
    "oidc": read_roles,
    "proxy": read_roles,
    "amount": lambda path: load_bill(str(path)),
    "owners": lambda path: load_owners(str(path)),
    # Prometheus' own and log4j's: their form only.
    "scrape_configs": lambda path: yaml.safe_load(path.read_text()),
    "Loggers": lambda path: yaml.safe_load(path.read_text()),
}


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_shown_is_read_by_what_it_is_for(block: Block, tmp_path: Path) -> None:
    first = block.text.partition(":")[0].splitlines()[-1]
    path = tmp_path / "shown.yaml"
    path.write_text(block.text, encoding="utf-8")
    assert READERS[first](path) is not None


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_shown_is_json(block: Block) -> None:
    assert json.loads(block.text)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_shown_imports_what_there_is(block: Block) -> None:
    for node in ast.parse(block.text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(compile(ast.Module([node], []), str(block), "exec"), {})


@pytest.mark.parametrize(
    "block", [b for b in blocks("python") if b.page.name in ("stores.md", "wire.md")], ids=str
)
def test_python_without_a_server_runs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = JournalWriter(tmp_path / "usage", "w")
    writer.append(Event(Origin("record", "producer_byte_rate", 1, quota_user="alice"), 1.0, 1.0))
    writer.close()
    exec(compile(block.text, str(block), "exec"), {})
    assert ("print" in block.text) == bool(capsys.readouterr().out)
