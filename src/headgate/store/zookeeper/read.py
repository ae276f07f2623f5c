"""
Reads quotas out of znodes: which znodes make up an entity, and the whole tree at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.errors import InvalidQuota, StoreError
from headgate.quota.entity import QuotaEntity, entity_from_path
from headgate.quota.key import QuotaKey
from headgate.store.home import log
from headgate.store.zookeeper.client import ZkClient
from headgate.store.zookeeper.layout import (
    BROKERS,
    HOMES,
    KAFKA_HOME,
    OLDER,
    TYPES,
    chain,
    decode_config,
    decode_values,
)
from headgate.store.zookeeper.znodes import Znode

#: How often an entity that changed while it was read is read again. After that it is taken as read.
MOST_PASSES = 100


def read_tree(client: ZkClient) -> tuple[list[QuotaEntity], dict[str, Znode | None]]:
    """Return every entity there is a znode of (and the defaults), and those znodes."""
    nodes = client.nodes(OLDER.values())
    entities: dict[QuotaEntity, None] = dict.fromkeys(OLDER)
    for home in HOMES:
        tops = client.children(f"{home}/{kind}" for kind in TYPES)
        paths = [f"{folder}/{name}" for folder, names in tops.items() for name in names]
        nodes.update(client.nodes(paths))
        parents = {path for path, node in nodes.items() if node and node.children}
        users = [p for p in paths if p.startswith(f"{home}/users/") and p in parents]
        pairs = client.children(f"{user}/clients" for user in users)
        below = [f"{folder}/{name}" for folder, names in pairs.items() for name in names]
        nodes.update(client.nodes(below))
        for path in (*paths, *below):
            entity = entity_at(home, path)
            if entity is not None:
                entities[entity] = None
    return list(entities), nodes


def sources(entity: QuotaEntity) -> list[str]:
    """Return the paths of the znodes whose data make up an entity's quotas."""
    older = OLDER.get(entity)
    return [*([older] if older else []), *(chain(home, entity.path)[-1] for home in HOMES)]


def read_entities(client: ZkClient, entities: Iterable[QuotaEntity]) -> dict[str, Znode | None]:
    """
    Return the znodes of :func:`sources` of entities, each entity's as of one moment.

    An entity has a znode under each root, and one read tells about one znode. So all but the last
    are read once more: those that didn't change had these values when the last one was read.
    """
    nodes: dict[str, Znode | None] = {}
    left = list(entities)
    for _ in range(MOST_PASSES):
        if not left:
            break
        nodes.update(client.nodes(path for entity in left for path in sources(entity)))
        again = client.nodes(path for entity in left for path in sources(entity)[:-1])
        left = [
            entity
            for entity in left
            if any(_made(again[path]) != _made(nodes[path]) for path in sources(entity)[:-1])
        ]
    return nodes


def _made(node: Znode | None) -> tuple[int, int] | None:
    """Return the transactions that made a znode and its data."""
    return None if node is None else (node.czxid, node.mzxid)


def broken(client: ZkClient) -> list[str]:
    """Tell what is wrong with znodes of quotas or settings, or that they are of KIP-55's layout."""
    _, nodes = read_tree(client)
    names = client.children([BROKERS])[BROKERS]
    nodes.update(client.nodes(f"{BROKERS}/{name}" for name in names))
    found = []
    for path, node in sorted(nodes.items()):
        try:
            config = decode_config(node.data if node else None)
        except InvalidQuota as exc:
            found.append(f"{path} is {exc}: it is passed over, and can't be changed here")
            continue
        home = next(home for home in HOMES if path.startswith(f"{home}/"))
        if not path.startswith(f"{BROKERS}/"):
            found += [
                f"in {path} {problem}: it is passed over"
                for problem in decode_values(home, config)[1]
            ]
    return found + [
        f"{path} holds quotas of {entity.path} in an older layout, which brokers don't read; "
        "set them again and delete them there"
        for entity, path in OLDER.items()
        if config_at(path, nodes)
    ]


def config_at(path: str, nodes: Mapping[str, Znode | None]) -> dict[str, str]:
    """Return the settings in a znode; for one that is no configuration none, and a warning."""
    node = nodes.get(path)
    try:
        return decode_config(node.data if node else None)
    except InvalidQuota as exc:
        log.warning("%s is passed over: it is %s", path, exc)
        return {}


def settings_in(path: str, node: Znode | None) -> dict[str, str]:
    """
    Return the settings in a znode that is about to be changed.

    Raises:
        StoreError: it is no configuration.
    """
    try:
        return decode_config(node.data if node else None)
    except InvalidQuota as exc:
        raise StoreError(f"the znode {path} is {exc}; fix it first") from exc


def gone_by(client: ZkClient, home: str, path: str) -> int:
    """
    Return a transaction as of which a znode that was found missing is missing.

    A notification may be older than the deletion, so it doesn't tell. The parent does: it knows the
    last transaction that made or deleted one of its children. It is read before the znode and once
    more after it: if that was the same, then nothing was made or deleted in between.

    Args:
        client: a connection.
        home: the root that the znode is under.
        path: the entity's.
    """
    *above, own = [f"{home}/{path.partition('/')[0]}", *chain(home, path)]
    last = -1
    for _ in range(MOST_PASSES):
        nodes = client.nodes([*above, own])
        again = nodes[own]
        if again is not None:
            return again.czxid - 1
        parent = next(node for link in reversed(above) if (node := nodes[link]) is not None)
        if parent.pzxid == last:
            break
        last = parent.pzxid
    return last


def values_of(entity: QuotaEntity, nodes: Mapping[str, Znode | None]) -> dict[QuotaKey, float]:
    """Return an entity's quotas from the znodes of :func:`sources`."""
    values: dict[QuotaKey, float] = {}
    older = OLDER.get(entity)
    for home in HOMES:
        path = f"{home}/{entity.path}"
        # Where a <default> node has the key too, that node wins.
        both = config_at(older, nodes) if older and home == KAFKA_HOME else {}
        found, problems = decode_values(home, {**both, **config_at(path, nodes)})
        for problem in problems:
            log.warning("in %s %s", path, problem)
        values.update(found)
    return values


def entity_at(home: str, path: str) -> QuotaEntity | None:
    """Return the entity of a znode; None where Kafka wouldn't find it by that name."""
    relative = path.removeprefix(f"{home}/")
    try:
        entity = entity_from_path(relative)
    except InvalidQuota as exc:
        log.warning("%s is passed over: %s", path, exc)
        return None
    if entity.path != relative:
        log.warning("%s is passed over: Kafka spells it %s", path, entity.path)
        return None
    return entity
