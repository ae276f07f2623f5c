"""
Leases: the right to be the only one doing something, with an epoch that only grows.

The rules stand here. A home keeps a record for each lease, and changes it only if it is still what
was looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from headgate.errors import StoreError


class LeaseRecord(NamedTuple):
    """
    What a home has of a lease.

    Args:
        owner: who holds it; "" where it was given up or never taken.
        epoch: of its latest holder; 0 where it was never taken.
        running: asks the home's clock whether it still has time left.
    """

    owner: str
    epoch: int
    running: Callable[[], bool]


class NewRecord(NamedTuple):
    """What is to be kept of a lease; it has ``ttl_ms`` left from now on."""

    owner: str
    epoch: int
    ttl_ms: int


Decide = Callable[[LeaseRecord], NewRecord | None]


class LeaseHome(Protocol):
    """Where the records of leases are kept."""

    def look(self, name: str) -> LeaseRecord:
        """Return a lease as of now."""
        ...

    def change(self, name: str, decide: Decide) -> bool:
        """
        Keep what ``decide`` returns for a lease as it is now.

        Returns:
            False where ``decide`` returned None, or somebody else was quicker.
        """
        ...


class HeldLease:
    """A lease that was taken; every call looks into the home."""

    def __init__(self, home: LeaseHome, name: str, owner: str, epoch: int, ttl_ms: int) -> None:
        self._home = home
        self.name = name
        self.owner = owner
        self.epoch = epoch
        self.ttl_ms = ttl_ms

    def renew(self) -> bool:
        """Extend by the ttl; a lease that ran out but that nobody took is ours again."""
        renewed = NewRecord(self.owner, self.epoch, self.ttl_ms)
        done = self._home.change(self.name, lambda held: renewed if self._mine(held) else None)
        if not done and self._mine(self._home.look(self.name)):
            raise StoreError(f"the lease {self.name} couldn't be renewed", retriable=True)
        return done

    def held(self) -> bool:
        """Return whether it is still ours and has time left."""
        held = self._home.look(self.name)
        return self._mine(held) and held.running()

    def release(self) -> None:
        """Give it up; the epoch stays, so the next holder's is higher."""
        given_up = NewRecord("", self.epoch, 0)
        self._home.change(self.name, lambda held: given_up if self._mine(held) else None)

    def _mine(self, held: LeaseRecord) -> bool:
        return (held.owner, held.epoch) == (self.owner, self.epoch)


def take(home: LeaseHome, name: str, owner: str, ttl_ms: int) -> HeldLease | None:
    """
    Take a lease; None while another owner's runs, or where another was quicker.

    Args:
        home: where its record is kept.
        name: what only one may do.
        owner: who asks.
        ttl_ms: how long it lasts unless renewed.
    """
    epoch = 0

    def decide(held: LeaseRecord) -> NewRecord | None:
        nonlocal epoch
        if held.owner not in ("", owner) and held.running():
            return None
        epoch = held.epoch + 1
        return NewRecord(owner, epoch, ttl_ms)

    return HeldLease(home, name, owner, epoch, ttl_ms) if home.change(name, decide) else None
