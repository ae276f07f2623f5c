"""
The file that lists the principals of each tenant.

::

    tenants:
      payments: {principals: [alice, bob]}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from headgate.errors import ConfigError
from headgate.words import near_names
from headgate.yaml_reading import read_yaml_file

Tenants = Mapping[str, frozenset[str]]
"""A tenant's name to its principals, raw. A tenant that isn't in it has none."""

NO_TENANTS: Tenants = MappingProxyType({})


def read_tenants(path: Path) -> Tenants:
    """
    Read a tenants file.

    Raises:
        ConfigError: it can't be read, or says something else; names the place.
    """
    found = read_yaml_file(path)
    rows = found.get("tenants") if isinstance(found, dict) and len(found) == 1 else None
    if not isinstance(rows, dict):
        raise ConfigError(f"{path}: expected `tenants: {{NAME: {{principals: [alice, bob]}}}}`")
    tenants: dict[str, frozenset[str]] = {}
    problems = []
    for name, row in rows.items():
        names = row.get("principals") if isinstance(row, dict) and len(row) == 1 else None
        if not name or not isinstance(names, list) or not all(map(_is_name, names)):
            problems.append(f"{path}: tenant {name!r} isn't of the form {{principals: [alice]}}")
        else:
            tenants[name] = frozenset(names)
    if problems:
        raise ConfigError(problems)
    return MappingProxyType(tenants)


def unknown_tenant(name: str, tenants: Tenants, where: str) -> str:
    """Say that a tenant isn't known, and what comes near."""
    listed = ", ".join(sorted(tenants)) or "none"
    near = near_names(name, tenants)
    return f"{where} has no tenant {name}{near}; its tenants: {listed}"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name)
