"""
Tokens of the HTTP API: each is somebody's, has a scope and an end; only its hash is kept.

SHA-256 is enough for that: a token is 32 random bytes, which nobody finds by trying.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.console.access.viewer import Scope
from headgate.console.database import Database
from headgate.errors import ConfigError
from headgate.words import printable

API: Final = "/api/"
"""What the paths of the API begin with: tokens count there alone."""
PREFIX: Final = "headgate_"
"""What tokens begin with, so that programs that look for leaked ones find them."""
MOST_DAYS: Final = 366
MOST_OF_ONE: Final = 20
MOST_LABEL: Final = 100
_DAY_MS: Final = 86_400_000
_NOTED_MS: Final = 60_000
"""The shortest time between two notes of a token's last use."""
_COLUMNS: Final = "id, owner, label, scope, made_ms, ends_ms, used_ms"


class Token(NamedTuple):
    """
    A token, without itself.

    Args:
        id: names it where it's listed and ended.
        owner: as the history calls its owner: a local user, ``oidc:SUBJECT``, ``proxy:USER``.
        label: what it is for.
        scope: what it may, of what its owner may.
        made_ms: when it was made, epoch ms.
        ends_ms: when it ends, epoch ms.
        used_ms: when it was used last, to the minute, epoch ms; 0: never.
    """

    id: str
    owner: str
    label: str
    scope: Scope
    made_ms: int
    ends_ms: int
    used_ms: int


class Tokens:
    """
    The tokens in the console's database (its tables are made by ``users``).

    Args:
        database: the console's own state.
        clock_ms: the wall clock, epoch ms.
    """

    def __init__(self, database: Database, clock_ms: Callable[[], int]) -> None:
        self._database = database
        self._clock_ms = clock_ms

    def make(self, owner: str, label: str, scope: Scope, days: int) -> str:
        """
        Make a token; returns it: nobody can read it again.

        Args:
            owner: whose.
            label: what it is for.
            scope: what it may.
            days: after which it ends.

        Raises:
            ConfigError: the label or the days make no sense, or the owner has too many.
        """
        if not 0 < len(label) <= MOST_LABEL or printable(label) != label:
            raise ConfigError(f"say in 1 to {MOST_LABEL} characters of one line what it is for")
        if not 1 <= days <= MOST_DAYS:
            raise ConfigError(f"a token ends after 1 to {MOST_DAYS} days")
        token, now = PREFIX + secrets.token_urlsafe(32), self._clock_ms()
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM tokens WHERE ends_ms<=?", (now,))
            count = "SELECT count(*) FROM tokens WHERE owner=?"
            if connection.execute(count, (owner,)).fetchone()[0] >= MOST_OF_ONE:
                raise ConfigError(f"{owner} has {MOST_OF_ONE} tokens: end one first")
            made = (secrets.token_hex(4), owner, label, scope.value, now, now + days * _DAY_MS, 0)
            connection.execute(
                f"INSERT INTO tokens (hash, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (_hash(token), *made),
            )
        return token

    def find(self, token: str) -> Token | None:
        """Return what is known of a token; None: there is none, or it has ended."""
        now = self._clock_ms()
        found = self._read("WHERE hash=? AND ends_ms>?", (_hash(token), now))
        if not found:
            return None
        if now - found[0].used_ms >= _NOTED_MS:
            self._database.change("UPDATE tokens SET used_ms=? WHERE id=?", (now, found[0].id))
        return found[0]

    def listed(self, owner: str | None = None) -> list[Token]:
        """Return the tokens that haven't ended, of one owner or of all, the latest first."""
        where = "WHERE ends_ms>? AND owner=ifnull(?, owner) ORDER BY made_ms DESC, rowid DESC"
        return self._read(where, (self._clock_ms(), owner))

    def end(self, id: str, owner: str | None = None) -> bool:
        """End a token, if it is this owner's (None: anybody's); returns whether there was one."""
        with self._database.transaction() as connection:
            ended = connection.execute(
                "DELETE FROM tokens WHERE id=? AND owner=ifnull(?, owner)", (id, owner)
            )
        return bool(ended.rowcount)

    def _read(self, where: str, values: tuple[object, ...]) -> list[Token]:
        rows = self._database.rows(f"SELECT {_COLUMNS} FROM tokens {where}", values)
        return [Token._make((*row[:3], Scope(row[3]), *row[4:])) for row in rows]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
