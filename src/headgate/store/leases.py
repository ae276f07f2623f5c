"""
Leases: the right to be the only one doing something, with an epoch that only grows.

The rules are here. A home keeps a record for each lease, and changes it only if nobody else has
since it was read.

No two clocks have to agree. A worker that wants another's lease reads its record repeatedly: each
renewal changes the mark there. Once the mark has stayed the same for as long as the lease lasts, by
the worker's own monotonic clock, the holder didn't renew it in time, and it may be taken. The
holder counts from before it asked for the renewal, so for the holder the lease ends first.

If another store or an older copy takes the store's place, an epoch may be lower than before. A
worker that saw the higher epoch then waits for the whole ttl too, even if the lease is free there:
the holder with the higher epoch may not have noticed the change yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headgate.errors import StoreError


class LeaseRecord(NamedTuple):
    """
    What a home keeps about a lease.

    Args:
        owner: the worker that holds it; "" where it was given up or never taken.
        epoch: of its latest holder; 0 where it was never taken.
        mark: a number that grows with each change of the record.
        ttl_ms: how long it lasts unless renewed; 0 where nobody holds it, or an earlier release
            wrote it.
    """

    owner: str
    epoch: int
    mark: int
    ttl_ms: int


NOBODYS = LeaseRecord("", 0, 0, 0)


class NewRecord(NamedTuple):
    """What a home is to write about a lease; the home adds the mark."""

    owner: str
    epoch: int
    ttl_ms: int


Decide = Callable[[LeaseRecord], NewRecord | None]


class LeaseHome(Protocol):
    """Where the records of leases are kept."""

    def look(self, name: str) -> LeaseRecord:
        """Return a lease's record as of now; the home is prepared for a change first."""

    def change(self, name: str, decide: Decide) -> bool:
        """
        Read a lease as of now, and write what ``decide`` returns for it.

        Returns:
            False where ``decide`` returned None, or another process changed the lease meanwhile.
        """


@dataclass(eq=False)
class Lease:
    """
    The right to be the only one doing something, for a while.

    ``epoch`` grows with every holder, so a former holder can be fenced: a reader that has seen a
    higher epoch ignores the lower one. Every call reads or changes the lease's record in the home.
    """

    _home: LeaseHome
    name: str
    owner: str
    epoch: int
    ttl_ms: int
    _renewed_at: float
    _monotonic: Callable[[], float]

    def renew(self) -> bool:
        """
        Extend it by its ttl, even after it ran out, unless another owner has taken it.

        Returns:
            False once it was taken by another or released: it is over then.
        """
        asked_at = self._monotonic()
        renewed = NewRecord(self.owner, self.epoch, self.ttl_ms)
        done = self._home.change(self.name, lambda held: renewed if self._mine(held) else None)
        if done:
            self._renewed_at = asked_at
        elif self._mine(self._home.look(self.name)):
            raise StoreError(f"the lease {self.name} couldn't be renewed", retriable=True)
        return done

    def held(self) -> bool:
        """Return whether its epoch is still the store's latest, and it hasn't run out."""
        in_time = self._monotonic() < self._renewed_at + self.ttl_ms / 1000
        return self._mine(self._home.look(self.name)) and in_time

    def release(self) -> None:
        """
        Give it up at once; does nothing if another holder has it.

        The epoch stays, so the next holder's is higher.
        """
        given_up = NewRecord("", self.epoch, 0)
        self._home.change(self.name, lambda held: given_up if self._mine(held) else None)

    def _mine(self, held: LeaseRecord) -> bool:
        return (held.owner, held.epoch) == (self.owner, self.epoch)


class _SeenRecord(NamedTuple):
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
        self._seen: dict[str, _SeenRecord] = {}
        """By name: a worker asks for each broker's, and for the one that shows that it waits."""

    def take(self, name: str, owner: str, ttl_ms: int) -> Lease | None:
        """
        Take a lease; None while another owner may hold it, or where another took it first.

        If its holder doesn't renew it, another owner gets it by asking repeatedly: once this store
        has seen it unchanged for as long as it lasts.

        Args:
            name: what only one may do.
            owner: the worker that asks. A worker that restarted takes its own lease over at once,
                with a new epoch, which fences the older holder.
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
        return Lease(self._home, name, *taken, asked_at, self._monotonic)

    def _may_run(self, name: str, owner: str, held: LeaseRecord, ttl_ms: int) -> bool:
        """Whether another owner may still hold a lease, given its record as just read."""
        seen = self._seen.get(name)
        free = held.owner in ("", owner)
        if free and seen is None:
            return False
        if seen is None or seen.record != held:
            back = seen is not None and held.epoch < seen.record.epoch
            seen = self._seen[name] = _SeenRecord(held, self._monotonic(), back)
        if free and not seen.back:
            return False
        return self._monotonic() - seen.since < (held.ttl_ms or ttl_ms) / 1000
