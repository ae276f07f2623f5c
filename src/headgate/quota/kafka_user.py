"""
Quotas in KafkaUser resources of Strimzi: read as a quotas file is, and written from a table.

A KafkaUser holds four quotas of one user. The User Operator sets them for ``CN=NAME`` where the
user authenticates by a certificate, else for ``NAME``.

Source: Strimzi's KafkaUserQuotas (its ranges: Java's int), KafkaUserModel.getUserName.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, REQUEST, QuotaKey
from headgate.quota.table import QuotaTable

NAMES: Final = {
    "producerByteRate": PRODUCER,
    "consumerByteRate": CONSUMER,
    "requestPercentage": REQUEST,
    "controllerMutationRate": MUTATION,
}
"""The fields of ``spec.quotas``; all but the last are whole numbers."""
_GROUP: Final = "kafka.strimzi.io"
_BY_CERTIFICATE: Final = ("tls", "tls-external")
_MOST: Final = 2**31 - 1
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_IS_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*").fullmatch
_LONGEST: Final = 253
_LONGEST_CN: Final = 64
_TEXT: Final = "tag:yaml.org,2002:str"
Wrong = Callable[[yaml.Node, str], None]
"""Takes a node and what is wrong with it."""


def are_resources(documents: Sequence[yaml.Node]) -> bool:
    """Tell whether a file holds resources of Kubernetes, and isn't a quotas file."""
    return any(_field(document, "apiVersion") is not None for document in documents)


def as_quotas_file(documents: Sequence[yaml.Node], wrong: Wrong) -> yaml.MappingNode:
    """
    Return the quotas of KafkaUsers as a quotas file; resources of other kinds are passed over.

    Args:
        documents: KafkaUsers, or lists of them as ``kubectl get`` prints.
        wrong: told each mistake.
    """
    resources = list(_resources(documents))
    users = [found for found in resources if _text(found, "kind") == "KafkaUser"]
    if resources and not users:
        wrong(documents[0], "no KafkaUser of Strimzi is among these resources")
    rows = [row for user in users if (row := _row(user, wrong)) is not None]
    start, end = documents[0].start_mark, documents[-1].end_mark
    listed = yaml.SequenceNode("tag:yaml.org,2002:seq", rows, start, end)
    return _mapping([(_scalar("quotas", documents[0]), listed)], documents[0])


def _resources(documents: Sequence[yaml.Node]) -> Iterator[yaml.Node]:
    for document in documents:
        items = _field(document, "items")
        listed = (_text(document, "kind") or "").endswith("List")
        if listed and isinstance(items, yaml.SequenceNode):
            yield from items.value
        else:
            yield document


def _row(user: yaml.Node, wrong: Wrong) -> yaml.MappingNode | None:
    """Return one user's quotas as an entry of a quotas file; None if it has none."""
    if not (_text(user, "apiVersion") or "").startswith(f"{_GROUP}/"):
        wrong(user, f"a KafkaUser's apiVersion is {_GROUP}/v1, or an older version of it")
        return None
    quotas = _field(user, "spec", "quotas")
    if quotas is None:
        return None
    name = _text(user, "metadata", "name")
    if not name:
        wrong(user, "a KafkaUser needs metadata.name")
        return None
    kind = _text(user, "spec", "authentication", "type")
    entity = f"CN={name}" if kind in _BY_CERTIFICATE else name
    if kind not in (*_BY_CERTIFICATE, "scram-sha-512", None):
        wrong(user, f"unknown authentication {kind!r} of KafkaUser {name}")
    if not isinstance(quotas, yaml.MappingNode):
        wrong(quotas, "a KafkaUser's quotas are a mapping such as {producerByteRate: 1048576}")
        return None
    named = _mapping([(_scalar("user", user), _scalar(entity, user))], user)
    pairs: list[tuple[yaml.Node, yaml.Node]] = [(_scalar("entity", user), named)]
    for key, value in quotas.value:
        if isinstance(key, yaml.ScalarNode) and key.value in NAMES:
            pairs.append((_scalar(NAMES[key.value].name, key), value))
        else:
            wrong(key, f"unknown quota {key.value!r}; a KafkaUser's are {', '.join(NAMES)}")
    return _mapping(pairs, user)


def _field(node: yaml.Node | None, *names: str) -> yaml.Node | None:
    """Return what is at a path of names in mappings."""
    for name in names:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for key, value in pairs if key.value == name), None)
    return node


def _text(node: yaml.Node, *names: str) -> str | None:
    found = _field(node, *names)
    return str(found.value) if isinstance(found, yaml.ScalarNode) else None


def _scalar(text: str, at: yaml.Node) -> yaml.ScalarNode:
    return yaml.ScalarNode(_TEXT, text, at.start_mark, at.end_mark)


def _mapping(pairs: list[tuple[yaml.Node, yaml.Node]], at: yaml.Node) -> yaml.MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, at.start_mark, at.end_mark)


def kafka_users(table: QuotaTable, cluster: str) -> tuple[list[dict[str, Any]], list[str]]:
    """
    Write quotas as KafkaUser resources, which hold a part of what Kafka has.

    Args:
        table: the quotas.
        cluster: the name of Strimzi's ``Kafka``, for the label by which its operator finds users.

    Returns:
        The resources, and a line for each quota that none can hold.
    """
    users, left_out = [], []
    for entity in sorted(table.entities):
        quotas, why_not = _held(entity, table.entities[entity])
        left_out += [f"{entity} {reason}" for reason in why_not]
        if quotas:
            users.append(_resource(str(entity.user), quotas, cluster))
    return users, left_out


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
    fields = {key: field for field, key in NAMES.items()}
    quotas: dict[str, float] = {}
    left_out = []
    for key, value in sorted(values.items()):
        field = fields.get(key)
        whole = value.is_integer() and value <= _MOST
        if field is None:
            left_out.append(f"{key}: Strimzi has no such quota")
        elif whole or (key == MUTATION and value < float("inf")):
            quotas[field] = int(value) if whole else value
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
        "apiVersion": f"{_GROUP}/v1",
        "kind": "KafkaUser",
        "metadata": {"name": plain, "labels": {"strimzi.io/cluster": cluster}},
        "spec": spec,
    }
