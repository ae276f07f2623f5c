"""
Quotas in Strimzi's KafkaUser and Kafka resources.

A KafkaUser holds four quotas of one user. The User Operator sets them for ``CN=NAME`` where the
user authenticates by a certificate, else for ``NAME``. A Kafka holds those of the default user.
What could hold a quota and isn't read is a mistake: with ``--prune`` the quota would be removed.

Source: Strimzi's KafkaUserQuotas (its ranges: Java's int), KafkaUserModel.getUserName,
    QuotasPluginKafka, DefaultKafkaQuotasManager; its issue 13020 (``clientQuotas``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from headgate.quota.entity import QuotaEntity
from headgate.quota.formats.nodes import NULL, ForeignRows, field, items_of, pairs_of, scalar, text
from headgate.quota.formats.values import ExportedTable, whole_or_not
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, REQUEST, QuotaKey
from headgate.quota.table import QuotaTable

NAMES: Final = {
    "producerByteRate": PRODUCER,
    "consumerByteRate": CONSUMER,
    "requestPercentage": REQUEST,
    "controllerMutationRate": MUTATION,
}
"""The fields of ``spec.quotas``; all but the last are whole numbers."""
GROUP: Final = "kafka.strimzi.io"
CLUSTER: Final = "strimzi.io/cluster"
_SPEC: Final = ("authentication", "authorization", "quotas", "clientQuotas", "template")
_BY_CERTIFICATE: Final = ("tls", "tls-external")
_MOST: Final = 2**31 - 1
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_IS_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*").fullmatch
_LONGEST: Final = 253
_LONGEST_CN: Final = 64


def read_user(user: yaml.Node, rows: ForeignRows) -> None:
    """Read the quotas of a KafkaUser."""
    name = text(user, "metadata", "name")
    rows.known(field(user, "spec"), f"the spec of KafkaUser {name}", _SPEC)
    if any(part in str(name) for part in ("{{", "${", "$(")):
        rows.wrong(user, f"the name {name!r} of a KafkaUser is a template; fill it in first")
    kind = text(user, "spec", "authentication", "type")
    if kind not in (*_BY_CERTIFICATE, "scram-sha-512", None):
        rows.wrong(user, f"unknown authentication {kind!r} of KafkaUser {name}")
    entity = scalar(f"CN={name}" if kind in _BY_CERTIFICATE else str(name), user)
    quotas = field(user, "spec", "quotas")
    if quotas is not None:
        _add(rows, user, {"user": entity}, quotas, "KafkaUser")
    by_client = field(user, "spec", "clientQuotas")
    if by_client is None:
        return
    if not isinstance(by_client, yaml.SequenceNode):
        rows.wrong(by_client, f"the clientQuotas of KafkaUser {name} are a list")
    for quotas in items_of(by_client):
        client = {"user": entity, "client-id": field(quotas, "clientId")}
        _add(rows, quotas, client, quotas, "KafkaUser", besides=("clientId",))
    rows.say(
        by_client,
        f"the clientQuotas of KafkaUser {name} are read as proposed to Strimzi (its issue 13020); "
        "no released Strimzi sets them",
    )


def read_kafka(kafka: yaml.Node, rows: ForeignRows) -> None:
    """Read the quotas of the default user."""
    name = text(kafka, "metadata", "name")
    spec = field(kafka, "spec")
    own = field(spec, "kafka")
    for node, right in ((spec, ""), (own, "quotas")):
        if node is not None and not isinstance(node, yaml.MappingNode):
            rows.wrong(node, f"the spec of Kafka {name} isn't a mapping")
        for key, _ in pairs_of(node):
            if "quota" in str(key.value).lower() and key.value != right:
                told = f"unknown field {key.value!r} of Kafka {name}"
                rows.wrong(key, f"{told}; its quotas are in spec.kafka.quotas")
    for key, _ in pairs_of(field(own, "config")):
        if str(key.value).startswith(("quota.", "client.quota.")):
            rows.say(key, f"not read: the broker setting {key.value} of Kafka {name}")
    quotas = field(own, "quotas")
    if quotas is None:
        return
    kind = text(quotas, "type")
    if kind == "strimzi":
        rows.wrong(
            quotas,
            f"the quotas of Kafka {name} are of Strimzi's plugin, which limits all clients of "
            "a broker together; Headgate has no such quota: only `type: kafka` is read",
        )
        return
    if isinstance(quotas, yaml.MappingNode) and kind != "kafka":
        rows.wrong(quotas, f"the quotas of Kafka {name} need `type: kafka`, not {kind}")
    _add(rows, kafka, {"user": None}, quotas, "Kafka", besides=("type",))


def _add(
    rows: ForeignRows,
    at: yaml.Node,
    entity: Mapping[str, yaml.Node | None],
    quotas: yaml.Node,
    kind: str,
    besides: tuple[str, ...] = (),
) -> None:
    if isinstance(quotas, yaml.MappingNode):
        rows.add(at, entity, rows.values(quotas, f"a {kind}'s", NAMES, besides))
    elif quotas.tag != NULL:
        example = "a mapping such as {producerByteRate: 1048576}"
        rows.wrong(quotas, f"a {kind}'s quotas are {example}")


def kafka_users(table: QuotaTable, cluster: str) -> ExportedTable:
    """
    Write quotas as KafkaUser resources, which hold a part of what Kafka has.

    Args:
        table: the quotas.
        cluster: the name of Strimzi's ``Kafka``, for the label by which its operator finds users.
    """
    users, left_out = [], []
    named: set[str] = set()
    for entity in sorted(table.entities):
        quotas, why_not = _held(entity, table.entities[entity])
        plain = str(entity.user).removeprefix("CN=")
        if quotas and plain in named:
            quotas, why_not = {}, [f"a KafkaUser {plain} is written already, for another name"]
        elif quotas:
            named.add(plain)
        left_out += [f"{entity} {reason}" for reason in why_not]
        if quotas:
            users.append(_resource(str(entity.user), quotas, cluster))
    document = {"apiVersion": "v1", "kind": "List", "items": users}
    return ExportedTable(document, len(users), tuple(left_out), users)


def _held(
    entity: QuotaEntity, values: Mapping[QuotaKey, float]
) -> tuple[dict[str, float], list[str]]:
    """Return the quotas that a KafkaUser holds, and the others with the reason."""
    name = entity.user
    if entity.client_id is not None or entity.ip is not None or not isinstance(name, str):
        return {}, ["a KafkaUser is one user, not a client-id, an address or a default"]
    plain = name.removeprefix("CN=")
    longest = _LONGEST if plain == name else _LONGEST_CN
    if not _IS_NAME(plain) or len(plain) > longest:
        return {}, [f"not a name of Kubernetes: lower case, digits, - and ., up to {longest}"]
    fields = {key: name for name, key in NAMES.items()}
    quotas: dict[str, float] = {}
    left_out = []
    for key, value in sorted(values.items()):
        known = fields.get(key)
        whole = value.is_integer() and value <= _MOST
        if known is None:
            left_out.append(f"{key}: Strimzi has no such quota")
        elif whole or (key == MUTATION and value < float("inf")):
            quotas[known] = whole_or_not(value)
        else:
            left_out.append(f"{key}: {value} isn't a whole number up to {_MOST}")
    return quotas, left_out


def _resource(name: str, quotas: Mapping[str, float], cluster: str) -> dict[str, Any]:
    plain = name.removeprefix("CN=")
    spec: dict[str, Any] = {"quotas": dict(quotas)}
    if plain != name:
        # Without it the operator would set them for the plain name.
        spec = {"authentication": {"type": "tls"}, **spec}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "KafkaUser",
        "metadata": {"name": plain, "labels": {CLUSTER: cluster}},
        "spec": spec,
    }
