"""
Quotas files that were uploaded: the one that each viewer looks at, and the last one applied.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from headgate.console.database import Database

_MIGRATIONS: Final = (
    """
    CREATE TABLE uploads (
        who TEXT PRIMARY KEY, t_ms INTEGER, name TEXT, text TEXT, prune INTEGER
    );
    CREATE TABLE applied (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        who TEXT, t_ms INTEGER, name TEXT, text TEXT, prune INTEGER
    )
    """,
)


class Upload(NamedTuple):
    """
    A quotas file.

    Args:
        who: the viewer who uploaded it.
        t_ms: when, epoch ms.
        name: of the file, as the browser told it.
        text: what is in it.
        prune: whether quotas that it doesn't mention are to be removed.
    """

    who: str
    t_ms: int
    name: str
    text: str
    prune: bool

    @property
    def mark(self) -> str:
        """A hash of its text and ``prune``: whether this is the file that a page showed."""
        return hashlib.sha256(f"{self.prune} {self.text}".encode()).hexdigest()[:16]


class Uploads:
    """
    Keeps one file for each viewer, and the last one that was applied.

    Args:
        database: the console's own state.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate("uploads", _MIGRATIONS)

    def keep(self, upload: Upload) -> None:
        """Keep what a viewer looks at now, instead of what it was before."""
        self._database.change("INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?)", upload)

    def of(self, who: str) -> Upload | None:
        """Return what a viewer looks at."""
        return self._one("SELECT * FROM uploads WHERE who = ?", (who,))

    def applied(self, upload: Upload | None = None) -> Upload | None:
        """Record a file as applied, if one is given; return the last one that was applied."""
        if upload is not None:
            with self._database.transaction() as connection:
                connection.execute(
                    "INSERT OR REPLACE INTO applied VALUES (1, ?, ?, ?, ?, ?)", upload
                )
                connection.execute("DELETE FROM uploads WHERE who = ?", (upload.who,))
        return self._one("SELECT who, t_ms, name, text, prune FROM applied")

    def _one(self, query: str, values: tuple[object, ...] = ()) -> Upload | None:
        rows = self._database.rows(query, values)
        if not rows:
            return None
        who, t_ms, name, text, prune = rows[0]
        return Upload(who, t_ms, name, text, bool(prune))
