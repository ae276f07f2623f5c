"""
SCRAM credentials in the znodes of users, where brokers of a ZooKeeper-mode cluster read them.

They share a znode with the user's quotas. Who changes one of the two leaves the other as it is.

Source: ScramCredentialUtils, ScramFormatter, AdminZkClient in Apache Kafka 3.9.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from headgate.errors import StoreError
from headgate.quota.entity import QuotaEntity
from headgate.store.base import AuditEvent
from headgate.store.zookeeper.change import notice_step, unchanged_step, write_config
from headgate.store.zookeeper.client import settled
from headgate.store.zookeeper.layout import KAFKA_HOME, chain, history_node
from headgate.store.zookeeper.read import config_at, entity_at, settings_in
from headgate.store.zookeeper.store import ZooKeeperStore
from headgate.wire.scram import HASHES

_PATIENCE_S: Final = 10.0


def read_credentials(store: ZooKeeperStore) -> dict[str, dict[str, str]]:
    """Return the credentials by mechanism of each user that has any."""
    folder = f"{KAFKA_HOME}/users"
    names = store.home.client.children([folder])[folder]
    nodes = store.home.client.nodes(f"{folder}/{name}" for name in names)
    found: dict[str, dict[str, str]] = {}
    for name in names:
        path = f"{folder}/{name}"
        entity = entity_at(KAFKA_HOME, path)
        user = None if entity is None else entity.user
        own = {key: value for key, value in config_at(path, nodes).items() if key in HASHES}
        if own and isinstance(user, str):
            found[user] = own
    return found


def alter_credentials(
    store: ZooKeeperStore, user: str, ops: Mapping[str, str | None], *, who: str, tool: str
) -> None:
    """
    Set and remove (None) credentials of one user, with a notification and an audit line.

    Raises:
        StoreError: ZooKeeper can't be reached, the znode isn't a configuration, or others keep
            changing it.
    """
    path = QuotaEntity.of(user=user).path
    links, folder = chain(KAFKA_HOME, path), history_node(path)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        nodes = store.home.client.nodes([folder, *links])
        node = nodes[links[-1]]
        config = settings_in(links[-1], node)
        new = {key: value for key, value in config.items() if ops.get(key, "") is not None}
        new.update({key: value for key, value in ops.items() if value is not None})
        if new == config:
            return
        steps = [
            *write_config(links, new, nodes),
            notice_step(KAFKA_HOME, path),
            unchanged_step(folder, nodes[folder]),
        ]
        if settled(store.home.client, steps, links[-1], node) is None:
            break
        if time.monotonic() > deadline:
            raise StoreError(f"{store.url}: {path} keeps changing; try again", retriable=True)
    done = ", ".join(f"{key} {'removed' if v is None else 'set'}" for key, v in ops.items())
    store.history.audit(AuditEvent(who, tool, "alter_scram_credentials", "done", path, done))
