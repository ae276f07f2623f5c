"""
Leases in the ZooKeeper home: a znode each, set by version.

Not ephemeral nodes: those live as long as a session, and a worker that hangs keeps its session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headgate.errors import MALFORMED, StoreError
from headgate.quota.sanitizer import sanitize
from headgate.store.leases import NOBODYS, Decide, LeaseRecord
from headgate.store.zookeeper.home import ZkHome
from headgate.store.zookeeper.layout import LEASES
from headgate.store.zookeeper.znodes import TransactionStep, Znode


@dataclass(frozen=True, eq=False)
class ZkLeases:
    """
    The znodes of leases.

    Args:
        home: the chroot. Where another store has taken the place of this one, a lease that somebody
            holds would look free, so that is checked.
    """

    home: ZkHome

    def look(self, name: str) -> LeaseRecord:
        """Return a lease's record as of now; the home is prepared for a change first."""
        self.home.prepare()
        self.home.check_now()
        path = _path(name)
        return self._record(path, self._node(path))

    def change(self, name: str, decide: Decide) -> bool:
        """Keep what ``decide`` returns for a lease as it is now."""
        path = _path(name)
        node = self._node(path)
        wanted = decide(self._record(path, node))
        if wanted is None:
            self.home.check_now()
            return False
        data = json.dumps(wanted._asdict()).encode()
        step = (
            TransactionStep("create", path, data)
            if node is None
            else TransactionStep("set", path, data, node.version)
        )
        return self.home.client.commit([[step]])[0] is None

    def _node(self, path: str) -> Znode | None:
        self.home.client.sync()
        return self.home.client.nodes([path])[path]

    def _record(self, path: str, node: Znode | None) -> LeaseRecord:
        if node is None or not node.data:
            return NOBODYS
        try:
            held = json.loads(node.data)
            owner, epoch = str(held["owner"]), int(held["epoch"])
            ttl_ms = int(held["ttl_ms"])
        except MALFORMED as exc:
            # Not treated as a lease that nobody ever had: its epochs would begin at 1 again.
            raise StoreError(
                f"the znode {path} holds no lease: {node.data[:80]!r}; delete it once none of its "
                "workers runs"
            ) from exc
        return LeaseRecord(owner, epoch, node.mzxid, ttl_ms)


def _path(name: str) -> str:
    return f"{LEASES}/{sanitize(name)}"
