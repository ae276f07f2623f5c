"""
Leases in the ZooKeeper home: a znode each, set by version, timed by ZooKeeper's own clock.

Not ephemeral nodes: those live as long as a session, and a worker that hangs keeps its session.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from headgate.errors import StoreError
from headgate.quota.sanitizer import sanitize
from headgate.store.zookeeper.client import Node, Step, ZkClient
from headgate.store.zookeeper.layout import CLOCK, LEASES


def take(
    client: ZkClient, check_same: Callable[[], None], name: str, owner: str, ttl_ms: int
) -> ZkLease | None:
    """
    Take a lease; None while another owner's runs or was quicker.

    Args:
        client: the connection.
        check_same: raises where another store has taken the place of this one: a lease that isn't
            there is nobody's then.
        name: what only one may do.
        owner: who asks.
        ttl_ms: how long it lasts unless renewed.
    """
    path = f"{LEASES}/{sanitize(name)}"
    now = client.touch(CLOCK)
    node = client.nodes([path])[path]
    held = _read(node)
    running = node is not None and node.mtime_ms + held["ttl_ms"] > now
    if running and held["owner"] not in ("", owner):
        return None
    epoch = held["epoch"] + 1
    data = _data(owner, epoch, ttl_ms)
    step = Step("create", path, data) if node is None else Step("set", path, data, node.version)
    if client.commit([[step]])[0] is not None:
        return None
    return ZkLease(client, check_same, path, name, owner, epoch, ttl_ms)


class ZkLease:
    """A lease held in ZooKeeper; every call looks there."""

    def __init__(
        self,
        client: ZkClient,
        check_same: Callable[[], None],
        path: str,
        name: str,
        owner: str,
        epoch: int,
        ttl_ms: int,
    ) -> None:
        self._client = client
        self._check_same = check_same
        self._path = path
        self.name = name
        self.owner = owner
        self.epoch = epoch
        self.ttl_ms = ttl_ms

    def renew(self) -> bool:
        """Extend by the ttl; a lease that ran out but that nobody took is ours again."""
        node = self._mine()
        if node is None:
            return False
        data = _data(self.owner, self.epoch, self.ttl_ms)
        outcome = self._client.commit([[Step("set", self._path, data, node.version)]])[0]
        if outcome is not None and self._mine() is not None:
            raise StoreError(f"the lease {self.name} couldn't be renewed", retriable=True)
        return outcome is None

    def held(self) -> bool:
        """Return whether it is still ours and has time left."""
        node = self._mine()
        return node is not None and node.mtime_ms + self.ttl_ms > self._client.touch(CLOCK)

    def release(self) -> None:
        """Give it up; the epoch stays, so the next holder's is higher."""
        node = self._mine()
        if node is not None:
            data = _data("", self.epoch, 0)
            self._client.commit([[Step("set", self._path, data, node.version)]])

    def _mine(self) -> Node | None:
        self._client.sync()
        node = self._client.nodes([self._path])[self._path]
        held = _read(node)
        if (held["owner"], held["epoch"]) == (self.owner, self.epoch):
            return node
        self._check_same()
        return None


def _data(owner: str, epoch: int, ttl_ms: int) -> bytes:
    return json.dumps({"owner": owner, "epoch": epoch, "ttl_ms": ttl_ms}).encode()


def _read(node: Node | None) -> dict[str, Any]:
    held = json.loads(node.data) if node is not None and node.data else None
    return held or {"owner": "", "epoch": 0, "ttl_ms": 0}
