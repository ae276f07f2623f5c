"""
The file that gives roles to people who sign in by OIDC or by a proxy.

::

    oidc:
      - {subject: "248289761001", role: operator}
      - {group: payments-team, role: tenant, tenant: payments}
    proxy:
      - {user: alice, role: viewer}

The first row that fits counts; a person that no row names isn't let in. There is no row by e-mail
address: providers let people change theirs.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from headgate.console.access.viewer import Role
from headgate.errors import ConfigError
from headgate.yaml_reading import read_yaml_file

_PERSON: Final = {"oidc": "subject", "proxy": "user"}


class RoleRow(NamedTuple):
    """One row: a name or a group, and the role."""

    name: str
    group: str
    role: Role
    tenant: str


class Roles:
    """
    The rows of the file.

    Args:
        rows: of ``oidc`` and of ``proxy``.
    """

    def __init__(self, rows: dict[str, list[RoleRow]]) -> None:
        self._rows = rows

    def of(self, source: str, name: str, groups: Collection[str]) -> tuple[Role, str] | None:
        """
        Return the role and tenant of a person; None: there is none.

        Args:
            source: ``oidc`` or ``proxy``.
            name: the subject, or the proxy's name of the user.
            groups: as the provider or proxy says.
        """
        for row in self._rows.get(source, ()):
            if (row.name and row.name == name) or (row.group and row.group in groups):
                return row.role, row.tenant
        return None


def read_roles(path: Path) -> Roles:
    """
    Read a roles file.

    Raises:
        ConfigError: it can't be read, or says something else; names each place.
    """
    found = read_yaml_file(path)
    if not isinstance(found, dict) or not set(found) <= set(_PERSON):
        raise ConfigError(f"{path}: expected lists named oidc and proxy")
    problems: list[str] = []
    rows: dict[str, list[RoleRow]] = {}
    for source, listed in found.items():
        if not isinstance(listed, list):
            problems.append(f"{path}: {source} isn't a list")
            continue
        rows[source] = []
        for number, given in enumerate(listed, 1):
            row = _row(given, _PERSON[source])
            if row is None:
                problems.append(
                    f"{path}: {source}, entry {number}: expected {{{_PERSON[source]}: NAME, role: "
                    "viewer|operator}, {group: NAME, role: …}, or role: tenant with tenant: NAME"
                )
            else:
                rows[source].append(row)
    if problems:
        raise ConfigError(problems)
    return Roles(rows)


def _row(given: object, person: str) -> RoleRow | None:
    if not isinstance(given, dict) or not set(given) <= {person, "group", "role", "tenant"}:
        return None
    if not all(isinstance(value, str) and value for value in given.values()):
        return None
    who = [key for key in (person, "group") if key in given]
    role, tenant = given.get("role"), given.get("tenant", "")
    if len(who) != 1 or role not in set(Role) or bool(tenant) != (role == Role.TENANT):
        return None
    return RoleRow(given.get(person, ""), given.get("group", ""), Role(role), tenant)
