"""
Sessions: a random token in a cookie, of which only the hash is kept.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.console.access.viewer import Role
from headgate.console.database import Database

LOCAL: Final = "local"
OIDC: Final = "oidc"
_MOST_OF_ONE: Final = 20
"""Sessions of one person; one more ends the oldest."""
_NOTED_MS: Final = 60_000
"""The shortest time between two notes of a session's last use; less if the idle time is short."""


class ConsoleSession(NamedTuple):
    """A session: where its owner signed in, and what the owner may."""

    source: str
    name: str
    role: Role
    tenant: str
    key: str


class Sessions:
    """
    The sessions in the console's database (its tables are made by ``users``).

    Args:
        database: the console's own state.
        clock_ms: the wall clock, epoch ms.
        idle_ms: a session that wasn't used for this long is over.
        most_ms: a session is over after this long.
    """

    def __init__(
        self, database: Database, clock_ms: Callable[[], int], idle_ms: int, most_ms: int
    ) -> None:
        self._database = database
        self._clock_ms = clock_ms
        self._idle_ms = idle_ms
        self._most_ms = most_ms

    def start(self, source: str, name: str, role: Role, tenant: str) -> str:
        """Begin a session; returns its token, for the cookie."""
        token = secrets.token_urlsafe(32)
        now = self._clock_ms()
        with self._database.transaction() as connection:
            connection.execute(
                "DELETE FROM sessions WHERE seen_ms<=? OR made_ms<=?",
                (now - self._idle_ms, now - self._most_ms),
            )
            connection.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)",
                (_hash(token), source, name, role.value, tenant, now, now),
            )
            connection.execute(
                "DELETE FROM sessions WHERE source=? AND name=? AND hash NOT IN (SELECT hash FROM "
                "sessions WHERE source=? AND name=? ORDER BY made_ms DESC, rowid DESC LIMIT ?)",
                (source, name, source, name, _MOST_OF_ONE),
            )
        return token

    def find(self, token: str) -> ConsoleSession | None:
        """Return a token's session; None if there is none, or it is over."""
        hashed, now = _hash(token), self._clock_ms()
        # A local user's role is the one of now, and a user that was removed has no session.
        rows = self._database.rows(
            "SELECT s.source, s.name, s.made_ms, s.seen_ms, COALESCE(u.role, s.role) AS role, "
            "COALESCE(u.tenant, s.tenant) AS tenant, u.name AS known FROM sessions s "
            "LEFT JOIN users u ON s.source='local' AND u.name=s.name WHERE s.hash=?",
            (hashed,),
        )
        if not rows or (rows[0]["source"] == LOCAL and rows[0]["known"] is None):
            return None
        row = rows[0]
        if now - row["seen_ms"] >= self._idle_ms or now - row["made_ms"] >= self._most_ms:
            self.end(token)
            return None
        if now - row["seen_ms"] >= min(_NOTED_MS, self._idle_ms // 4):
            self._database.change("UPDATE sessions SET seen_ms=? WHERE hash=?", (now, hashed))
        return ConsoleSession(
            row["source"], row["name"], Role(row["role"]), row["tenant"], hashed.hex()
        )

    def end(self, token: str) -> None:
        """End a session, if there is one."""
        self._database.change("DELETE FROM sessions WHERE hash=?", (_hash(token),))

    def end_all(self, source: str) -> None:
        """End all sessions of people who signed in at this source: their roles may have changed."""
        self._database.change("DELETE FROM sessions WHERE source=?", (source,))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
