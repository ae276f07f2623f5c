"""
Broker settings in ZooKeeper: ours among Kafka's own in a broker's znode, which stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.store.base import BrokerConfigs
from headgate.store.broker_rules import BROKER_SETTINGS, base_setting, broker_event
from headgate.store.zookeeper.client import Step, ZkClient
from headgate.store.zookeeper.history import ZkHistory
from headgate.store.zookeeper.layout import (
    BROKERS,
    CHANGE_PREFIX,
    CHANGES,
    KAFKA_HOME,
    decode_config,
    encode_config,
    encode_notice,
)
from headgate.store.zookeeper.read import config_at


def read(client: ZkClient) -> BrokerConfigs:
    """Return our settings by broker; "" is the default of all."""
    names = client.children([BROKERS])[BROKERS]
    nodes = client.nodes(f"{BROKERS}/{name}" for name in names)
    found: dict[str, dict[str, str]] = {}
    for name in names:
        config = config_at(f"{BROKERS}/{name}", nodes)
        ours = {k: v for k, v in sorted(config.items()) if base_setting(k) in BROKER_SETTINGS}
        if ours:
            found["" if name == "<default>" else name] = ours
    return found


def steps(
    client: ZkClient,
    history: ZkHistory,
    broker: str,
    ops: Mapping[str, str | None],
    who: str,
    tool: str,
) -> list[Step]:
    """
    Return the steps that change settings of a broker; none where nothing changes.

    Args:
        client: the connection.
        history: makes the audit line.
        broker: the id as text, or "".
        ops: setting to its new value, or None to remove it.
        who: the principal, for the audit.
        tool: the program, for the audit.

    Raises:
        InvalidQuota: the znode isn't a configuration.
    """
    name = broker or "<default>"
    path = f"{BROKERS}/{name}"
    node = client.nodes([path])[path]
    config = decode_config(node.data if node else None)
    changed = {key: value for key, value in ops.items() if config.get(key) != value}
    if not changed:
        return []
    new = {k: v for k, v in {**config, **changed}.items() if v is not None}
    event = broker_event(broker, config, changed, who, tool)
    verb, version = ("create", -1) if node is None else ("set", node.version)
    notice = f"{CHANGES[KAFKA_HOME]}/{CHANGE_PREFIX}"
    return [
        Step(verb, path, encode_config(new), version),
        Step("sequence", notice, encode_notice(f"brokers/{name}")),
        history.audit_step(event),
    ]
