"""
What is read of a znode, what a transaction does to one, and how it may fail.
"""

from __future__ import annotations

from typing import NamedTuple

#: What is said about a change that was sent and not answered.
UNSURE = "was being changed: that may have happened, or may yet"


class Conflict(Exception):
    """Another process changed a znode first: read again, decide again."""


class Interrupted(Exception):
    """The connection broke while a transaction was under way: it may have happened or not."""


class Znode(NamedTuple):
    """A znode: data (None where it has none), version for set and delete, and more of its Stat."""

    data: bytes | None
    version: int
    children: int
    czxid: int
    mzxid: int
    pzxid: int
    mtime_ms: int


class TransactionStep(NamedTuple):
    """One step of a transaction."""

    verb: str  # create | set | delete | sequence | check
    path: str
    data: bytes | None = None
    version: int = -1
