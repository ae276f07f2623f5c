"""
A chroot of ZooKeeper as a store has it open: the connection, and which store is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate.config.security import ZooKeeperSecurity
from headgate.errors import StoreError, store_missing
from headgate.store.deadline import left_s
from headgate.store.home import StoreHome
from headgate.store.identity import StoreIdentity
from headgate.store.zookeeper import identity as zk_identity
from headgate.store.zookeeper.client import ZkClient
from headgate.store.zookeeper.layout import OWN_ROOT, SKELETON
from headgate.store.zookeeper.read import broken

#: How long a change is tried, despite lost connections and other writers, before it fails.
PATIENCE_S = 60.0


class ZkHome(StoreHome):
    """
    A chroot.

    Args:
        hosts: ``host:port,host:port/chroot``.
        security: TLS, SASL, ACLs, session timeout; None for none of them.
        clock_ms: the clock of the history.

    Attributes:
        client: the connection.
        losses: how often it was lost; what was read before the last time is read again.
    """

    def __init__(
        self, hosts: str, security: ZooKeeperSecurity | None, clock_ms: Callable[[], int]
    ) -> None:
        super().__init__(f"zookeeper://{hosts}", clock_ms)
        self.losses = 0
        self.client = ZkClient(hosts, security, self._on_state)

    @property
    def id(self) -> str:
        """The id of the known store."""
        assert self.known is not None
        return self.known.id

    def find(self) -> None:
        """See that there is a chroot, and which store it is."""
        if self.client.nodes(["/"])["/"] is None:
            raise store_missing(f"{self.url}: there is no such znode")
        self.check(self.read_identity())

    def make_whole(self) -> None:
        """Make the chroot, Headgate's znodes, and an identity."""
        self.client.make_chroot()
        self.client.sync()
        known = self.client.nodes([OWN_ROOT, *SKELETON])
        self.client.make(path for path, node in known.items() if node is None)
        if self.known is None and self.read_identity() is None:
            zk_identity.make(self.client)

    def read_identity(self) -> StoreIdentity | None:
        """Return which store it is."""
        return zk_identity.read(self.client, self.known)

    def write_succeeds(self, succeeds: tuple[tuple[str, int], ...]) -> None:
        """Write which stores this one took over from."""
        zk_identity.succeed(self.client, self.id, succeeds)

    def check_now(self) -> None:
        """
        See that the chroot still is the store that was opened.

        Raises:
            StoreReplaced: it isn't.
        """
        with self.lock:
            found, known = self.read_identity(), self.known
            if known is not None and (found is None or not found.follows(known)):
                self.client.sync()  # a new session's server may be behind
                found = self.read_identity()
            self.check(found)

    def insist(self, failed: str, tried: Callable[[], bool]) -> None:
        """Call ``tried`` until it returns True; raise ``failed`` after ``PATIENCE_S`` at most."""
        deadline = time.monotonic() + left_s(PATIENCE_S)
        while not tried():
            self.check_now()
            if time.monotonic() > deadline:
                raise StoreError(f"{self.url}: {failed}", retriable=True)

    def oddities(self) -> list[str]:
        """Return what is wrong with znodes that can't be read, or are of KIP-55's older layout."""
        return broken(self.client)

    def _on_state(self, connected: bool) -> None:
        if not connected:
            self.losses += 1
        self.poke.set()

    def release(self) -> None:
        """Close the connection."""
        self.client.close()
