"""
What ZooKeeper holds and how it is spelled: KIP-55's paths, JSON and notifications, byte for byte.

Pure. Quotas that Kafka knows are under ``/config``, where a ZooKeeper-mode broker reads them. The
others are under ``/headgate/quotas`` in the same layout: Kafka's tool fails on an entity whose
znode has a key that the tool doesn't know (tried on 3.9.2). A variable ``home`` in this package is
one of these two roots.

Source: KIP-55; ZkData.scala, AdminZkClient.scala and ZkAdminManager.scala of Kafka 3.9.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from headgate.errors import MALFORMED, ApiError, InvalidQuota, invalid_request
from headgate.java_text import java_double, properties_order
from headgate.quota.entity import DEFAULT, QuotaEntity, entity_from_path
from headgate.quota.key import KEYS, QuotaKey
from headgate.store.base import json_bytes

KAFKA_HOME = "/config"
OWN_ROOT = "/headgate"
OWN_HOME = "/headgate/quotas"
CHANGES = {KAFKA_HOME: "/config/changes", OWN_HOME: "/headgate/changes"}
CHANGE_PREFIX = "config_change_"
BROKERS = "/config/brokers"
HISTORY = "/headgate/history"
AUDIT = "/headgate/audit"
LEASES = "/headgate/leases"
#: Below it one node: its name is the store's id, its version the revision, and its child
#: ``succeeds`` names the stores that this one took over from.
IDENTITY = "/headgate/identity"
HOMES = (KAFKA_HOME, OWN_HOME)
#: Entity types that have quotas, as both roots name them.
TYPES = ("users", "clients", "ips")
#: Znodes that must exist before anything is changed.
SKELETON = (
    KAFKA_HOME,
    *CHANGES.values(),
    *(f"{KAFKA_HOME}/{name}" for name in TYPES),
    BROKERS,
    OWN_HOME,
    *(f"{OWN_HOME}/{name}" for name in TYPES),
    HISTORY,
    AUDIT,
    LEASES,
)

#: Where KIP-55's first draft kept defaults. These znodes may still hold data: they are read, and
#: written only to remove keys that are cleared.
OLDER: Mapping[QuotaEntity, str] = {
    QuotaEntity.of(user=DEFAULT): "/config/users",
    QuotaEntity.of(client_id=DEFAULT): "/config/clients",
    QuotaEntity.of(user=DEFAULT, client_id=DEFAULT): "/config/users/<default>/clients",
}

_LONG_MAX = 2**63 - 1


def home_of(key: QuotaKey) -> str:
    """Return the root under which a key is kept."""
    return KAFKA_HOME if key.known_to_kafka else OWN_HOME


def chain(home: str, path: str) -> list[str]:
    """
    Return the znodes from an entity's type down to its own.

    ``/config/users/u``, ``/config/users/u/clients``, ``/config/users/u/clients/c``.
    """
    words = path.split("/")
    return [f"{home}/{'/'.join(words[:n])}" for n in range(2, len(words) + 1)]


def node_name_error(entity: QuotaEntity) -> ApiError | None:
    """Refuse an entity that can't be a znode: ``.`` and ``..`` mean other things in a path."""
    for entity_type, name in entity:
        if name in (".", ".."):
            return invalid_request(
                f"{name} can't be a {entity_type} quota in ZooKeeper, where it is no node name"
            )
    return None


def history_node(path: str) -> str:
    """Return where an entity's history is; ``+`` occurs in no sanitised name."""
    return f"{HISTORY}/{path.replace('/', '+')}"


# --- entity configuration


def encode_config(config: Mapping[str, str]) -> bytes:
    """
    Return an entity's znode as Kafka writes it: compact JSON, keys in java.util.Properties' order.

    Source: ConfigEntityZNode.encode; Json.encodeAsBytes (Jackson).
    """
    ordered = {key: config[key] for key in properties_order(config)}
    return json_bytes({"version": 1, "config": ordered})


def decode_config(data: bytes | None) -> dict[str, str]:
    """
    Return the settings in an entity's znode; empty where it holds nothing.

    Raises:
        InvalidQuota: the data isn't a version 1 configuration.
    """
    if not data:
        return {}
    try:
        found = json.loads(data)
        config = found["config"]
        if found["version"] != 1 or not isinstance(config, dict):
            raise ValueError("not version 1")
    except MALFORMED as exc:
        text = data[:80].decode("utf-8", "replace")
        raise InvalidQuota(f'not of the form {{"version":1,"config":{{…}}}}: {text!r}') from exc
    return {str(key): str(value) for key, value in config.items()}


def encode_value(key: QuotaKey, value: float) -> str:
    """
    Return a value's text: whole types as integers, others as Java's Double.toString.

    Source: ZkAdminManager.alterClientQuotaConfigs; 2^63 as a double is Long.MAX_VALUE.
    """
    if KEYS[key].value_type == "DOUBLE":
        return java_double(value)
    return str(min(int(value + 1e-6), _LONG_MAX))


def decode_values(home: str, config: Mapping[str, str]) -> tuple[dict[QuotaKey, float], list[str]]:
    """
    Return the quotas among an entity's settings.

    Args:
        home: the root it was read under; keys that belong to the other root don't count.
        config: what the znode says; SCRAM credentials and the like are passed over.

    Returns:
        Values by key, and a sentence for every quota that can't be read.
    """
    values: dict[QuotaKey, float] = {}
    problems: list[str] = []
    for name, text in config.items():
        key = QuotaKey.parse(name)
        if not key.is_known or home_of(key) != home or name != key.name:
            continue
        try:
            value = float(text)
            if math.isnan(value):
                raise ValueError(text)
        except ValueError:
            problems.append(f"{name} is {text!r}, which is no number")
            continue
        values[key] = value
    return values, problems


# --- notifications


def encode_notice(entity_path: str) -> bytes:
    """Return a notification of version 2. Source: ConfigEntityChangeNotificationZNode.encode."""
    return json_bytes({"version": 2, "entity_path": entity_path})


def decode_notice(data: bytes | None) -> str | None:
    """
    Read a notification of version 2 or 1.

    Returns:
        The path to look at: ``users/alice``, ``brokers/1``, ``users`` (older layout); None for
        what is no notification.

    Source: KIP-55 "Quota Persistence in Zookeeper"; ZkConfigManager.processNotification.
    """
    try:
        found = json.loads(data or b"null")
        if found["version"] == 1:
            return f"{found['entity_type']}/{found['entity_name']}"
        if found["version"] == 2:
            return str(found["entity_path"])
    except MALFORMED:
        pass
    return None


def noticed_entity(entity_path: str) -> QuotaEntity | None:
    """Return the entity a notification is about; None when it is about something else."""
    path = entity_path.strip("/")
    for entity, older in OLDER.items():
        if f"{KAFKA_HOME}/{path}" == older:
            return entity
    try:
        entity = entity_from_path(path)
    except InvalidQuota:
        return None
    # Kafka finds a quota by the sanitised name alone: another spelling of it is never enforced.
    return entity if entity.path == path else None


def sequence(name: str) -> int:
    """Return a sequential znode's number; -1 for a name that doesn't end in one."""
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1
