"""
What keeps a store's data: whether it is open and whole, and which store it is.
"""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Callable

from headgate.errors import StoreError
from headgate.store.availability import Availability
from headgate.store.deadline import LimitedLock
from headgate.store.identity import StoreIdentity, check_follows, succeeded

log = logging.getLogger("headgate.store")


class StoreHome(abc.ABC):
    """
    A home of quotas, opened by one store. The parts of the store share it.

    Args:
        url: what errors call the store.
        clock_ms: epoch milliseconds, for what is written down.

    Attributes:
        known: the identity that the home had first, or that was accepted since.
        lock: held while the home is read again, so that what is read of it belongs together.
        poke: wakes the thread that looks for changes.
        read: reads the quotas, and what is read with them, as of now; set by the store.
        watch: has the store look for changes from now on; set by the store.
    """

    read: Callable[[], object]
    watch: Callable[[], None]

    #: How long a change may take altogether, in seconds. Kafka's clients wait 30 s for an answer.
    change_s = 20.0

    def __init__(self, url: str, clock_ms: Callable[[], int]) -> None:
        self.url = url
        self.clock_ms = clock_ms
        self.known: StoreIdentity | None = None
        self.lock = LimitedLock(url, threading.RLock())
        self.poke = threading.Event()
        self.availability = Availability(self.poke.set)
        self.closed = False
        self._whole = False

    @abc.abstractmethod
    def read_identity(self) -> StoreIdentity | None:
        """Return the identity that the home has now. Called with ``lock`` held."""

    @abc.abstractmethod
    def make_whole(self) -> None:
        """Make what the home lacks before it can be changed: its layout, an identity."""

    @abc.abstractmethod
    def write_succeeds(self, succeeds: tuple[tuple[str, int], ...]) -> None:
        """Write which stores this one took over from; the revision grows."""

    @abc.abstractmethod
    def release(self) -> None:
        """Let go of the home; called once."""

    def oddities(self) -> list[str]:
        """Return a sentence for each thing in the home that isn't read as it should be."""
        return []

    def identity(self) -> StoreIdentity | None:
        """
        Return the identity that the home has now, even if it is another store's; writes nothing.

        None: it has none, since it was emptied or an earlier release made it.
        """
        self.check_open()
        with self.lock:
            return self.read_identity()

    def identify(self) -> StoreIdentity:
        """Prepare the home for changes: make its layout, and an identity if it has none."""
        self.check_open()
        with self.lock:
            if not self._whole:
                self.make_whole()
                self._whole = True
            self.check(self.read_identity())
            assert self.known is not None
            return self.known

    def succeed(self, previous: StoreIdentity) -> StoreIdentity:
        """Write down that this store took over from another, and at which of its revisions."""
        self.identify()
        self.write_succeeds(succeeded(previous))
        return self.identify()

    def accept(self, identity: StoreIdentity) -> None:
        """Regard an identity that was found as the known one from now on."""
        with self.lock:
            self.known = identity
        self.poke.set()

    def check(self, found: StoreIdentity | None) -> None:
        """See that what was read is the known store's, and know it; under ``lock``."""
        check_follows(self.url, self.known, found)
        self.known = found

    def check_same(self, found: StoreIdentity | None) -> None:
        """See that a home which is written to is the known store; reads check its revision."""
        check_follows(self.url, self.known, found, at_any_revision=True)

    def prepare(self) -> None:
        """Prepare the home for a change, once. Calls that only read don't do this."""
        self.check_open()
        if not self._whole:
            self.identify()

    def check_open(self) -> None:
        """Raise StoreError once the store is closed."""
        if self.closed:
            raise StoreError(f"the quota store {self.url} is closed")
