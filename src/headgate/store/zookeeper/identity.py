"""
Which store a ZooKeeper chroot is: ``/headgate/identity/<id>``, whose version counts the changes.

The id is the node's name, so a step that sets the node fails where the chroot was emptied or is
another store: no change can get into the wrong one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from headgate.errors import MALFORMED, StoreError
from headgate.store.home import log
from headgate.store.identity import StoreIdentity, new_identity
from headgate.store.zookeeper.client import ZkClient
from headgate.store.zookeeper.layout import IDENTITY
from headgate.store.zookeeper.znodes import TransactionStep, Znode


def node_of(id_: str) -> str:
    """Return the path of the znode whose version is a store's revision."""
    return f"{IDENTITY}/{id_}"


def count_step(id_: str, version: int = -1) -> TransactionStep:
    """Return the step that makes the revision grow; with a version, only if it is that one."""
    return TransactionStep("set", node_of(id_), b"", version)


def read(client: ZkClient, known: StoreIdentity | None) -> StoreIdentity | None:
    """Return which store it is; the known one's node is looked at first."""
    found = None if known is None else _read(client, [known.id])
    return found or _read(client, client.children([IDENTITY])[IDENTITY])


def _read(client: ZkClient, names: Sequence[str]) -> StoreIdentity | None:
    for name in names:
        path = node_of(name)
        nodes = client.nodes([path, f"{path}/succeeds"])
        node, said = nodes[path], nodes[f"{path}/succeeds"]
        if node is not None:
            return StoreIdentity(name, node.version, _succeeds(said))
    return None


def _succeeds(node: Znode | None) -> tuple[tuple[str, int], ...]:
    """Read which stores it took over from; none where that can't be read."""
    try:
        told = json.loads(node.data) if node is not None and node.data else []
        return tuple((str(id_), int(revision)) for id_, revision in told)
    except MALFORMED:
        log.warning("%s is passed over: it names no stores", f"{IDENTITY}/…/succeeds")
        return ()


def make(client: ZkClient) -> None:
    """Give a chroot an identity, unless another process does it first: then that one is used."""
    folder = client.nodes([IDENTITY])[IDENTITY]
    first = TransactionStep("create", IDENTITY)
    if folder is not None:
        if client.children([IDENTITY])[IDENTITY]:
            return
        # Emptied by hand. Its version was read before its children: of two processes one fails.
        first = TransactionStep("set", IDENTITY, b"", folder.version)
    client.commit([[first, TransactionStep("create", node_of(new_identity().id))]])


def succeed(client: ZkClient, id_: str, succeeds: tuple[tuple[str, int], ...]) -> None:
    """Write which stores this one took over from."""
    path = f"{node_of(id_)}/succeeds"
    verb = "create" if client.nodes([path])[path] is None else "set"
    step = TransactionStep(verb, path, json.dumps(succeeds).encode())
    if client.commit([[step, count_step(id_)]])[0] is not None:
        raise StoreError("somebody else changed the store; try again", retriable=True)
