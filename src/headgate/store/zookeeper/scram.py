"""
SCRAM credentials in the znodes of users, where brokers of a ZooKeeper-mode cluster read them.

They stand beside the user's quotas in one znode; both sides leave the other's entries alone.

Source: ScramCredentialUtils, ScramFormatter, AdminZkClient in Apache Kafka 3.9.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from typing import Final

from headgate.errors import StoreError
from headgate.quota.entity import DEFAULT, QuotaEntity, parse_name
from headgate.store.base import AuditEvent
from headgate.store.zookeeper.change import write_config
from headgate.store.zookeeper.client import Step
from headgate.store.zookeeper.layout import (
    CHANGE_PREFIX,
    CHANGES,
    KAFKA_HOME,
    chain,
    decode_config,
    encode_notice,
)
from headgate.store.zookeeper.store import ZooKeeperStore

MECHANISMS: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_PATIENCE_S: Final = 10.0


def credential_text(mechanism: str, password: str, iterations: int) -> str:
    """
    Return a credential as a znode holds it; the password isn't in it.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        password: as UTF-8, unprepared, as Kafka takes it.
        iterations: 4,096 or more.
    """
    digest = MECHANISMS[mechanism]
    salt = secrets.token_bytes(24)
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    parts = {
        "salt": salt,
        "stored_key": hashlib.new(digest, client_key).digest(),
        "server_key": hmac.digest(salted, b"Server Key", digest),
    }
    encoded = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items()]
    return ",".join([*encoded, f"iterations={iterations}"])


def read_credentials(store: ZooKeeperStore) -> dict[str, dict[str, str]]:
    """Return each user's credentials by mechanism, users that have any."""
    folder = f"{KAFKA_HOME}/users"
    names = store.client.children([folder])[folder]
    nodes = store.client.nodes(f"{folder}/{name}" for name in names)
    found: dict[str, dict[str, str]] = {}
    for name in names:
        user = parse_name(name)
        node = nodes[f"{folder}/{name}"]
        config = decode_config(node.data if node else None)
        own = {key: value for key, value in config.items() if key in MECHANISMS}
        if own and user is not DEFAULT:
            found[str(user)] = own
    return found


def alter_credentials(
    store: ZooKeeperStore, user: str, ops: Mapping[str, str | None], *, who: str, tool: str
) -> None:
    """
    Set and remove (None) credentials of one user, with a notification and an audit line.

    Raises:
        StoreError: the ensemble is out of reach, or others keep changing the znode.
    """
    path = QuotaEntity.of(user=user).path
    links = chain(KAFKA_HOME, path)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        nodes = store.client.nodes(links)
        node = nodes[links[-1]]
        config = decode_config(node.data if node else None)
        new = {key: value for key, value in config.items() if ops.get(key, "") is not None}
        new.update({key: value for key, value in ops.items() if value is not None})
        if new == config:
            return
        notice = Step("sequence", f"{CHANGES[KAFKA_HOME]}/{CHANGE_PREFIX}", encode_notice(path))
        [outcome] = store.client.commit([[*write_config(links, new, nodes), notice]])
        if outcome is None:
            break
        if time.monotonic() > deadline:
            raise StoreError(f"{store.url}: {path} keeps changing; try again", retriable=True)
    done = ", ".join(f"{key} {'removed' if v is None else 'set'}" for key, v in ops.items())
    store.audit(AuditEvent(who, tool, "alter_scram_credentials", "done", path, done))
