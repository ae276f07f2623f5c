"""
Headgate's broker settings in ZooKeeper, in a broker's znode beside Kafka's, which stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headgate.store.base import BrokerConfigs
from headgate.store.broker_rules import BROKER_SETTINGS, base_setting
from headgate.store.zookeeper.change import notice_step
from headgate.store.zookeeper.client import ZkClient, settled
from headgate.store.zookeeper.layout import BROKERS, KAFKA_HOME, encode_config
from headgate.store.zookeeper.read import config_at, settings_in
from headgate.store.zookeeper.znodes import TransactionStep


def read(client: ZkClient) -> BrokerConfigs:
    """Return Headgate's settings by broker; "" is the default of all."""
    names = client.children([BROKERS])[BROKERS]
    nodes = client.nodes(f"{BROKERS}/{name}" for name in names)
    found: dict[str, dict[str, str]] = {}
    for name in names:
        config = config_at(f"{BROKERS}/{name}", nodes)
        ours = {k: v for k, v in sorted(config.items()) if base_setting(k) in BROKER_SETTINGS}
        if ours:
            found["" if name == "<default>" else name] = ours
    return found


def alter(
    client: ZkClient,
    broker: str,
    ops: Mapping[str, str | None],
    more: Callable[[Mapping[str, str], Mapping[str, str | None]], list[TransactionStep]],
) -> bool:
    """
    Set and remove settings of a broker, in one transaction.

    Args:
        client: the connection.
        broker: the id as text, or "".
        ops: setting to its new value, or None to remove it.
        more: returns the other steps of the transaction, given what is set and what changes.

    Returns:
        Whether it is done, or nothing had to change; else the caller tries again.

    Raises:
        StoreError: the znode isn't a configuration, or it can't be known whether it was done.
    """
    name = broker or "<default>"
    path = f"{BROKERS}/{name}"
    node = client.nodes([path])[path]
    config = settings_in(path, node)
    changed = {key: value for key, value in ops.items() if config.get(key) != value}
    if not changed:
        return True
    new = {k: v for k, v in {**config, **changed}.items() if v is not None}
    verb, version = ("create", -1) if node is None else ("set", node.version)
    steps = [
        TransactionStep(verb, path, encode_config(new), version),
        notice_step(KAFKA_HOME, f"brokers/{name}"),
        *more(config, changed),
    ]
    return settled(client, steps, path, node) is None
