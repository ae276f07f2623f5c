"""
A store's identity: a random id, a growing revision, and the stores that it took over from.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from headgate.errors import StoreMovedOn, StoreReplaced


class StoreIdentity(NamedTuple):
    """
    Which store it is, and how often it was changed.

    It is kept inside the store (SQLite row, znode, record of the topic), so that another file,
    chroot or topic of the same name isn't taken for this one.

    Args:
        id: random, made with the store.
        revision: grows with every change of quotas or broker settings made through Headgate.
        succeeds: stores it took over from, latest first: the id of each, and the revision up to
            which this store has its changes.
    """

    id: str
    revision: int
    succeeds: tuple[tuple[str, int], ...] = ()

    def follows(self, known: StoreIdentity) -> bool:
        """Whether this is the known store or one that took over from it, and not an older state."""
        if self.id == known.id:
            return self.revision >= known.revision
        return any(id_ == known.id and n >= known.revision for id_, n in self.succeeds)

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f"{self.id}, revision {self.revision}"


#: Takeovers that a store remembers. A gateway that missed more takes it for an unknown store, until
#: an operator accepts it (``headgate store accept``).
MOST_SUCCEEDED = 16


def new_identity() -> StoreIdentity:
    """Return the identity of a new store."""
    return StoreIdentity(secrets.token_hex(8), 0)


def succeeded(previous: StoreIdentity) -> tuple[tuple[str, int], ...]:
    """Return the ``succeeds`` of a store that takes over from another one."""
    return ((previous.id, previous.revision), *previous.succeeds)[:MOST_SUCCEEDED]


def check_follows(
    url: str,
    known: StoreIdentity | None,
    found: StoreIdentity | None,
    *,
    at_any_revision: bool = False,
) -> None:
    """
    Refuse a home that isn't the known store any more; None is known: it may be any.

    Args:
        url: what errors call the store.
        known: the identity it had.
        found: the identity just read from it; None: it has none.
        at_any_revision: an older state of the known store passes too.

    Raises:
        StoreReplaced: it is another store, an older state of it, or nothing.
    """
    if known is None:
        return
    least = known._replace(revision=0) if at_any_revision else known
    if found is None or not found.follows(least):
        raise replaced(url, known, found)


def check_revision(url: str, expected: int | None, found: StoreIdentity | None) -> None:
    """
    Refuse a change that is based on another revision than the store's; None: on any.

    Raises:
        StoreMovedOn: nothing was changed.
    """
    if expected is not None and (found is None or found.revision != expected):
        raise moved_on(url, expected, found)


def moved_on(url: str, expected: int, found: StoreIdentity | None, done: int = 0) -> StoreMovedOn:
    """Return the error of a store whose revision isn't the one that a change is based on."""
    at = "has no identity" if found is None else f"is at revision {found.revision}"
    what = "nothing was changed" if not done else f"{done} entities were changed before"
    return StoreMovedOn(f"{url} {at}, and the change is based on revision {expected}; {what}")


def replaced(url: str, known: StoreIdentity, found: StoreIdentity | None) -> StoreReplaced:
    """Return the error for a home that is no longer the known store."""
    if found is None:
        what = "now there is none there: it was emptied, or is another one"
    elif found.id == known.id:
        what = f"now it is at revision {found.revision}, as an older copy of it would be"
    else:
        what = f"now it is store {found}"
    return StoreReplaced(
        f"{url} was store {known}; {what}. Bring the store back, or accept what is there "
        "(headgate store accept)"
    )
