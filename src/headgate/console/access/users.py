"""
Local users: names, roles, and passwords hashed with argon2.
"""

from __future__ import annotations

import re
import secrets
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from headgate.console.access.viewer import Role
from headgate.console.database import Database
from headgate.errors import ConfigError

MIGRATIONS: Final = (
    """
    CREATE TABLE users (
        name TEXT PRIMARY KEY,
        role TEXT NOT NULL,
        tenant TEXT NOT NULL DEFAULT '',
        password TEXT NOT NULL
    );
    CREATE TABLE sessions (
        hash BLOB PRIMARY KEY,
        source TEXT NOT NULL,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        tenant TEXT NOT NULL,
        made_ms INTEGER NOT NULL,
        seen_ms INTEGER NOT NULL
    );
    CREATE INDEX sessions_of ON sessions (source, name);
    """,
    "CREATE TABLE tenants_file (path TEXT NOT NULL)",
    """
    CREATE TABLE tokens (
        hash BLOB PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        label TEXT NOT NULL,
        scope TEXT NOT NULL,
        made_ms INTEGER NOT NULL,
        ends_ms INTEGER NOT NULL,
        used_ms INTEGER NOT NULL
    );
    CREATE INDEX tokens_of ON tokens (owner);
    """,
)
PART: Final = "access"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
LEAST_PASSWORD: Final = 12
MOST_PASSWORD: Final = 1_000


class User(NamedTuple):
    """A local user."""

    name: str
    role: Role
    tenant: str


class Users:
    """
    The local users in the console's database.

    Args:
        database: the console's own state.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hasher = PasswordHasher()
        database.migrate(PART, MIGRATIONS)
        self._nobodys = _nobodys_hash()

    def add(self, name: str, role: Role, tenant: str, password: str) -> None:
        """
        Add a user.

        Args:
            name: as the history will call the user.
            role: what the user may.
            tenant: for the role tenant.
            password: 12 characters or more.

        Raises:
            ConfigError: there is such a user, or the name, tenant or password isn't valid.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} isn't a user name: use letters, digits, . _ @ - and no more than 100"
            )
        _check_role(role, tenant)
        _check(password)
        hashed = self._hasher.hash(password)
        with self._database.transaction() as connection:
            if connection.execute("SELECT 1 FROM users WHERE name=?", (name,)).fetchone():
                raise ConfigError(f"there is a user {name} already")
            connection.execute(
                "INSERT INTO users VALUES (?, ?, ?, ?)", (name, role.value, tenant, hashed)
            )

    def set_password(self, name: str, password: str) -> None:
        """
        Give a user another password, and end the user's sessions and tokens.

        Raises:
            ConfigError: there is no such user, or the password isn't valid.
        """
        _check(password)
        self._change("UPDATE users SET password=? WHERE name=?", self._hasher.hash(password), name)

    def set_role(self, name: str, role: Role, tenant: str) -> None:
        """
        Give a user another role, and end the user's sessions and tokens.

        Raises:
            ConfigError: there is no such user, or the tenant doesn't fit the role.
        """
        _check_role(role, tenant)
        self._change("UPDATE users SET role=?, tenant=? WHERE name=?", role.value, tenant, name)

    def remember(self, tenants_file: str | None) -> None:
        """Keep where the console's file of tenants is, so that new users are checked against it."""
        path = str(Path(tenants_file).absolute()) if tenants_file else ""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM tenants_file")
            connection.execute("INSERT INTO tenants_file VALUES (?)", (path,))

    @property
    def tenants_file(self) -> Path | None:
        """The file of tenants of the console that was last started here; None: there is none."""
        rows = self._database.rows("SELECT path FROM tenants_file")
        return Path(rows[0]["path"]) if rows and rows[0]["path"] else None

    def remove(self, name: str) -> None:
        """
        Remove a user and its sessions and tokens.

        Raises:
            ConfigError: there is no such user.
        """
        self._change("DELETE FROM users WHERE name=?", name)

    def _change(self, statement: str, *values: str) -> None:
        name = values[-1]
        with self._database.transaction() as connection:
            if not connection.execute(statement, values).rowcount:
                raise ConfigError(f"there is no user {name}")
            connection.execute("DELETE FROM sessions WHERE source='local' AND name=?", (name,))
            connection.execute("DELETE FROM tokens WHERE owner=?", (name,))

    def listed(self) -> list[User]:
        """Return all users by name."""
        rows = self._database.rows("SELECT name, role, tenant FROM users ORDER BY name")
        return [User(row["name"], Role(row["role"]), row["tenant"]) for row in rows]

    def role_of(self, name: str) -> tuple[Role, str] | None:
        """Return a user's role and tenant of now; None: there is no such user."""
        rows = self._database.rows("SELECT role, tenant FROM users WHERE name=?", (name,))
        return (Role(rows[0]["role"]), rows[0]["tenant"]) if rows else None

    def verify(self, name: str, password: str) -> User | None:
        """
        Return the user with this name and password; None, after the same time, if there is none.

        Args:
            name: as given.
            password: as given.
        """
        rows = self._database.rows("SELECT * FROM users WHERE name=?", (name,))
        hashed = rows[0]["password"] if rows else self._nobodys
        right = self._is_right(hashed, password[: MOST_PASSWORD + 1])
        if not rows or not right:
            return None
        user = User(name, Role(rows[0]["role"]), rows[0]["tenant"])
        if self._hasher.check_needs_rehash(hashed):
            self._database.change(
                "UPDATE users SET password=? WHERE name=? AND password=?",
                (self._hasher.hash(password), name, hashed),
            )
        return user

    def _is_right(self, hashed: str, password: str) -> bool:
        try:
            return self._hasher.verify(hashed, password.encode("utf-8", "surrogatepass"))
        except (VerificationError, InvalidHashError):
            return False


@cache
def _nobodys_hash() -> str:
    """Return a hash for users who don't exist, so that checking their password takes as long."""
    return PasswordHasher().hash(secrets.token_urlsafe())


def _check_role(role: Role, tenant: str) -> None:
    if bool(tenant) != (role is Role.TENANT):
        raise ConfigError("the role tenant, and no other, goes with --tenant NAME")


def _check(password: str) -> None:
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        raise ConfigError(f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD:,} characters")
