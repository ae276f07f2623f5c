"""
Leases: the right to be the only one doing something, with an epoch that only grows.

The rules stand here. A home keeps a record for each lease, and changes it only if it is still what
was looked at.

No two clocks have to agree. A worker that wants another's lease watches its record: each renewal
leaves another mark there. Once the mark has stayed the same for as long as the lease lasts, by the
watcher's own monotonic clock, its holder didn't renew it in time, and it may be taken. The holder
counts from before it asked for the renewal, so it knows of the end first.

Where another store, or an older copy, takes the store's place, an epoch is lower than before. A
worker that saw the higher one waits as well: its holder may not have heard of the change yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from headgate.errors import StoreError


class LeaseRecord(NamedTuple):
    """
    What a home has of a lease.

    Args:
        owner: who holds it; "" where it was given up or never taken.
        epoch: of its latest holder; 0 where it was never taken.
        mark: a higher one after each change of the record.
        ttl_ms: how long it lasts unless renewed; 0 where a release before this one wrote it.
    """

    owner: str
    epoch: int
    mark: int
    ttl_ms: int


NOBODYS = LeaseRecord("", 0, 0, 0)


class NewRecord(NamedTuple):
    """What is to be kept of a lease."""

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

    def __init__(
        self,
        home: LeaseHome,
        name: str,
        taken: NewRecord,
        asked_at: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._home = home
        self.name = name
        self.owner, self.epoch, self.ttl_ms = taken
        self._renewed_at = asked_at
        self._monotonic = monotonic

    def renew(self) -> bool:
        """Extend by the ttl; a lease that ran out but that nobody took is ours again."""
        asked_at = self._monotonic()
        renewed = NewRecord(self.owner, self.epoch, self.ttl_ms)
        done = self._home.change(self.name, lambda held: renewed if self._mine(held) else None)
        if done:
            self._renewed_at = asked_at
        elif self._mine(self._home.look(self.name)):
            raise StoreError(f"the lease {self.name} couldn't be renewed", retriable=True)
        return done

    def held(self) -> bool:
        """Return whether it is still ours and has time left."""
        in_time = self._monotonic() < self._renewed_at + self.ttl_ms / 1000
        return self._mine(self._home.look(self.name)) and in_time

    def release(self) -> None:
        """Give it up; the epoch stays, so the next holder's is higher."""
        given_up = NewRecord("", self.epoch, 0)
        self._home.change(self.name, lambda held: given_up if self._mine(held) else None)

    def _mine(self, held: LeaseRecord) -> bool:
        return (held.owner, held.epoch) == (self.owner, self.epoch)


class _Seen(NamedTuple):
    """A record, since when it was seen, and whether it took the place of one of a higher epoch."""

    record: LeaseRecord
    since: float
    back: bool


class LeaseTaker:
    """
    Takes leases in a home, and remembers since when it has seen those of others unchanged.

    Args:
        home: where their records are kept.
        monotonic: a clock in seconds, of this process alone.
    """

    def __init__(self, home: LeaseHome, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._home = home
        self._monotonic = monotonic
        self._seen: dict[str, _Seen] = {}
        """By name: a worker asks for one of each broker, and a standby's."""

    def take(self, name: str, owner: str, ttl_ms: int) -> HeldLease | None:
        """
        Take a lease; None while another owner's may run, or where another was quicker.

        Args:
            name: what only one may do.
            owner: who asks.
            ttl_ms: how long it lasts unless renewed.
        """
        asked_at = self._monotonic()
        taken = NewRecord(owner, 0, ttl_ms)

        def decide(held: LeaseRecord) -> NewRecord | None:
            nonlocal taken
            if self._may_run(name, owner, held, ttl_ms):
                return None
            taken = NewRecord(owner, held.epoch + 1, ttl_ms)
            return taken

        if decide(self._home.look(name)) is None or not self._home.change(name, decide):
            return None
        self._seen.pop(name, None)
        return HeldLease(self._home, name, taken, asked_at, self._monotonic)

    def _may_run(self, name: str, owner: str, held: LeaseRecord, ttl_ms: int) -> bool:
        """Whether a lease as it was just read may have time left for somebody else."""
        seen = self._seen.get(name)
        free = held.owner in ("", owner)
        if free and seen is None:
            return False
        if seen is None or seen.record != held:
            back = seen is not None and held.epoch < seen.record.epoch
            seen = self._seen[name] = _Seen(held, self._monotonic(), back)
        if free and not seen.back:
            return False
        return self._monotonic() - seen.since < (held.ttl_ms or ttl_ms) / 1000
