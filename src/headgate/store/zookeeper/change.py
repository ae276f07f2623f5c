"""
Decides the steps of the ZooKeeper transaction that alters one entity.

Pure: znodes as read come in, steps and what changed go out. Versions in the steps make the
transaction fail when a znode was changed in between; the store then reads and decides again.

A znode goes with its last key. One that is made again has version 0, as the first one had, so its
own version doesn't tell that it isn't the one that was read. But the folder of an entity's history
stays, and each change of the entity's quotas or credentials raises that folder's version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from headgate.errors import MALFORMED
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.store.base import ChangeOrigin, KeyChange, Recorded, json_bytes
from headgate.store.zookeeper.layout import (
    CHANGE_PREFIX,
    CHANGES,
    HISTORY,
    HOMES,
    KAFKA_HOME,
    OLDER,
    chain,
    decode_config,
    decode_values,
    encode_config,
    encode_notice,
    encode_value,
    history_node,
    home_of,
)
from headgate.store.zookeeper.znodes import TransactionStep, Znode

Nodes = Mapping[str, Znode | None]


def reads_of(alteration: QuotaAlteration) -> list[str]:
    """Return the znodes that must be known to decide about an alteration, in reading order."""
    path = alteration.entity.path
    homes = {home_of(op.key) if op.key.is_known else KAFKA_HOME for op in alteration.ops}
    paths = [node for home in HOMES if home in homes for node in chain(home, path)]
    older = OLDER.get(alteration.entity)
    if older is not None and older not in paths:
        paths.append(older)
    return [history_node(path), *paths]


def decide(
    alteration: QuotaAlteration, nodes: Nodes, *, t_ms: int, origin: ChangeOrigin
) -> list[TransactionStep]:
    """
    Return the steps of the transaction that alters an entity; none: nothing to do.

    Args:
        alteration: validated; ops of both roots go into the same transaction.
        nodes: the znodes of :func:`reads_of`.
        t_ms: the time for the history, epoch milliseconds.
        origin: where it comes from, for the history.

    Raises:
        InvalidQuota: a znode holds something that isn't a configuration; it is not overwritten.
    """
    entity = alteration.entity
    steps: list[TransactionStep] = []
    changed: list[KeyChange] = []
    for home in HOMES:
        ops = [op for op in alteration.ops if op.key.is_known and home_of(op.key) == home]
        if not ops:
            continue
        own_steps, own_changed = _decide_home(home, entity, ops, nodes)
        if own_changed:
            steps += [*own_steps, notice_step(home, entity.path)]
            changed += own_changed
    if changed:
        folder = history_node(entity.path)
        steps.append(unchanged_step(folder, nodes[folder]))
        steps.append(
            TransactionStep("sequence", f"{folder}/e_", encode_history(t_ms, origin, changed))
        )
    return steps


def _decide_home(
    home: str, entity: QuotaEntity, ops: Sequence[Op], nodes: Nodes
) -> tuple[list[TransactionStep], list[KeyChange]]:
    path = entity.path
    links = chain(home, path)
    target = links[-1]
    node = nodes[target]
    config = decode_config(node.data if node else None)
    older_path = OLDER.get(entity) if home == KAFKA_HOME else None
    older_node = nodes[older_path] if older_path else None
    older = decode_config(older_node.data if older_node else None)
    values = decode_values(home, {**older, **config})[0]
    new, new_older = dict(config), dict(older)
    changed: list[KeyChange] = []
    for key, value in ops:
        before = values.get(key)
        if value is None:
            new.pop(key.name, None)
            new_older.pop(key.name, None)
        elif before != value:
            new[key.name] = encode_value(key, value)
        if before != value:
            changed.append(KeyChange(key, before, value))
    steps: list[TransactionStep] = []
    if new != config:
        steps += write_config(links, new, nodes)
    if older_path and older_node and new_older != older:
        # The older layout is written only to remove what was cleared.
        steps.append(
            TransactionStep("set", older_path, encode_config(new_older), older_node.version)
        )
    return steps, changed


def write_config(
    links: list[str], config: Mapping[str, str], nodes: Nodes
) -> list[TransactionStep]:
    """
    Return the steps that give an entity's znode a configuration, or take the znode away.

    Args:
        links: the znode and its parents, from the top.
        config: what it is to hold. If empty, the znode is deleted unless it has children, and with
            it the parents that this leaves empty.
        nodes: those znodes as read.
    """
    target = links[-1]
    node = nodes[target]
    if node is None:
        parents = [TransactionStep("create", link) for link in links[:-1] if nodes[link] is None]
        return [*parents, TransactionStep("create", target, encode_config(config))]
    if config or node.children:
        return [TransactionStep("set", target, encode_config(config), node.version)]
    # The znode goes with its last key, and so do parents that this leaves empty.
    # Source: AdminZkClient.tryCleanQuotaNodes.
    steps = [TransactionStep("delete", target, None, node.version)]
    for link in reversed(links[:-1]):
        parent = nodes[link]
        if parent is None or parent.children != 1 or decode_config(parent.data):
            break
        steps.append(TransactionStep("delete", link, None, parent.version))
    return steps


def unchanged_step(folder: str, before: Znode | None) -> TransactionStep:
    """
    Return the step that fails if an entity was changed since it was read, and counts this change.

    Kafka's own tools don't count theirs: where one deletes and makes a znode again between a read
    and a transaction, this isn't seen.

    Args:
        folder: the folder of the entity's history (``history_node``).
        before: that folder as it was before any other of the entity's znodes was read.
    """
    if before is None:
        return TransactionStep("create", folder)
    return TransactionStep("set", folder, before.data, before.version)


def notice_step(home: str, path: str) -> TransactionStep:
    """Return the step that notifies of a change of what has this path under a root."""
    return TransactionStep("sequence", f"{CHANGES[home]}/{CHANGE_PREFIX}", encode_notice(path))


# --- history


def encode_history(t_ms: int, origin: ChangeOrigin, changed: Sequence[KeyChange]) -> bytes:
    """Return a history entry: one alteration of one entity."""
    return json_bytes({"version": 1, **Recorded(t_ms, origin, changed).told()})


def decode_history(data: bytes | None) -> Recorded | None:
    """Read a history entry; None for what isn't one."""
    try:
        return Recorded.of(json.loads(data or b"null"))
    except MALFORMED:
        return None


def history_path(entity_folder: str) -> str:
    """Return the entity path a folder of the history is about."""
    return entity_folder.removeprefix(f"{HISTORY}/").replace("+", "/")
