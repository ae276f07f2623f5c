"""
Quotas in resources of Strimzi: read as a quotas file is, and written from a table.

A KafkaUser holds four quotas of one user. The User Operator sets them for ``CN=NAME`` where the
user authenticates by a certificate, else for ``NAME``. A Kafka holds those of the default user.
What could hold a quota and isn't read is a mistake: with ``--prune`` the quota would be removed.

Source: Strimzi's KafkaUserQuotas (its ranges: Java's int), KafkaUserModel.getUserName,
    QuotasPluginKafka, DefaultKafkaQuotasManager.
"""

from __future__ import annotations

import re
from collections import Counter
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
_CLUSTER: Final = "strimzi.io/cluster"
_RESOURCE: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_SPEC: Final = ("authentication", "authorization", "quotas", "template")
_BY_CERTIFICATE: Final = ("tls", "tls-external")
_MOST: Final = 2**31 - 1
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_IS_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*").fullmatch
_LONGEST: Final = 253
_LONGEST_CN: Final = 64
_TEXT: Final = "tag:yaml.org,2002:str"
_NULL: Final = "tag:yaml.org,2002:null"
Tell = Callable[[yaml.Node, str], None]
"""Takes a node and a sentence about it."""


def are_resources(documents: Sequence[yaml.Node]) -> bool:
    """Tell whether a file holds resources of Kubernetes, and isn't a quotas file."""
    return any(_field(document, "apiVersion") is not None for document in documents)


def as_quotas_file(
    documents: Sequence[yaml.Node], cluster: str | None, wrong: Tell, say: Tell
) -> yaml.MappingNode:
    """
    Return the quotas of KafkaUsers, and of a Kafka's default user, as a quotas file.

    Args:
        documents: resources, or lists of them as ``kubectl get`` prints.
        cluster: the Strimzi cluster whose resources are read; None: the file has only one.
        wrong: told each mistake.
        say: told what was left out though it is no mistake.
    """
    return _Resources(cluster, wrong, say).read(documents)


class _Resources:
    """Walks resources of Kubernetes and collects the rows of a quotas file."""

    def __init__(self, cluster: str | None, wrong: Tell, say: Tell) -> None:
        self.cluster = cluster
        self.wrong = wrong
        self.say = say
        self.rows: list[yaml.Node] = []
        self.clusters: set[str] = set()
        self.others: Counter[str] = Counter()

    def read(self, documents: Sequence[yaml.Node]) -> yaml.MappingNode:
        read_one = {"KafkaUser": self.user, "Kafka": self.kafka}
        seen, read = 0, 0
        for resource in self.all(documents):
            kind = _text(resource, "kind")
            seen += 1
            if kind is None or _text(resource, "apiVersion") is None:
                self.wrong(resource, "not a resource: it has no apiVersion and kind")
            elif kind in read_one:
                read += 1
                if self.is_strimzis(resource, kind) and self.is_wanted(resource, kind):
                    read_one[kind](resource)
            elif "quota" in kind.lower() and kind != "ResourceQuota":
                self.wrong(resource, f"a {kind} isn't read; write its quotas as a quotas file")
            else:
                self.others[kind] += 1
        first = documents[0]
        if seen and not read:
            self.wrong(first, "no KafkaUser of Strimzi, and no Kafka, is among these resources")
        if self.cluster is None and len(self.clusters) > 1:
            names = ", ".join(sorted(self.clusters))
            self.wrong(first, f"resources of several clusters ({names}): choose by --strimzi NAME")
        elif read and self.cluster is not None and self.cluster not in self.clusters:
            self.wrong(first, f"nothing here is of the cluster {self.cluster}")
        if self.others:
            kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(self.others.items()))
            self.say(first, f"not read, since they hold no quotas: {kinds}")
        listed = yaml.SequenceNode(
            "tag:yaml.org,2002:seq", self.rows, first.start_mark, documents[-1].end_mark
        )
        return _mapping([(_scalar("quotas", first), listed)], first)

    def all(self, documents: Sequence[yaml.Node]) -> Iterator[yaml.Node]:
        for document in documents:
            if document.tag == _NULL:
                continue
            if (_text(document, "kind") or "").endswith("List"):
                items = _field(document, "items")
                if isinstance(items, yaml.SequenceNode):
                    yield from items.value
                    continue
                self.wrong(document, "a list of resources needs items: [...]")
            yield document

    def is_strimzis(self, resource: yaml.Node, kind: str) -> bool:
        if (_text(resource, "apiVersion") or "").startswith(f"{_GROUP}/"):
            return True
        self.wrong(resource, f"a {kind}'s apiVersion is {_GROUP}/v1, or an older version of it")
        return False

    def is_wanted(self, resource: yaml.Node, kind: str) -> bool:
        """Whether it is of the cluster that is read, and not being deleted."""
        name = _text(resource, "metadata", "name")
        if not name:
            self.wrong(resource, f"a {kind} needs metadata.name")
            return False
        cluster = name if kind == "Kafka" else _text(resource, "metadata", "labels", _CLUSTER)
        if cluster is not None:
            self.clusters.add(cluster)
        if self.cluster is not None and cluster != self.cluster:
            whose = "of no cluster" if cluster is None else f"of the cluster {cluster}"
            self.say(resource, f"left out: {kind} {name} is {whose}")
            return False
        deleted = _text(resource, "metadata", "deletionTimestamp")
        if deleted:
            self.say(resource, f"left out: {kind} {name} is being deleted, since {deleted}")
            return False
        self.known(resource, f"{kind} {name}", _RESOURCE)
        return True

    def known(self, node: yaml.Node | None, whose: str, names: Sequence[str]) -> None:
        """Refuse fields that aren't known, and those that stand twice."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value in seen:
                self.wrong(key, f"{key.value} of {whose} stands twice")
            elif key.value not in names:
                way = "; quotas are in spec.quotas" if "spec" in names else ""
                way = way if "KafkaUser" in whose and "quota" in str(key.value).lower() else ""
                told = f"unknown field {key.value!r} of {whose}{way}"
                self.wrong(key, f"{told}; its fields are {', '.join(names)}")
            seen.add(str(key.value))

    def user(self, user: yaml.Node) -> None:
        name = _text(user, "metadata", "name")
        self.known(_field(user, "spec"), f"the spec of KafkaUser {name}", _SPEC)
        quotas = _field(user, "spec", "quotas")
        if quotas is None:
            return
        kind = _text(user, "spec", "authentication", "type")
        entity = f"CN={name}" if kind in _BY_CERTIFICATE else name
        if kind not in (*_BY_CERTIFICATE, "scram-sha-512", None):
            self.wrong(user, f"unknown authentication {kind!r} of KafkaUser {name}")
        self.row(user, _scalar(str(entity), user), quotas, "KafkaUser")

    def kafka(self, kafka: yaml.Node) -> None:
        """Read the quotas of the default user."""
        name = _text(kafka, "metadata", "name")
        spec = _field(kafka, "spec")
        own = _field(spec, "kafka")
        for node, right in ((spec, ""), (own, "quotas")):
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if "quota" in str(key.value).lower() and key.value != right:
                    told = f"unknown field {key.value!r} of Kafka {name}"
                    self.wrong(key, f"{told}; its quotas are in spec.kafka.quotas")
        config = _field(own, "config")
        for key, _ in config.value if isinstance(config, yaml.MappingNode) else ():
            if str(key.value).startswith(("quota.", "client.quota.")):
                self.say(key, f"not read: the broker setting {key.value} of Kafka {name}")
        quotas = _field(own, "quotas")
        if quotas is None:
            return
        kind = _text(quotas, "type")
        if kind == "strimzi":
            self.wrong(
                quotas,
                f"the quotas of Kafka {name} are of Strimzi's plugin, which limits all clients of "
                "a broker together; Headgate has no such quota: only `type: kafka` is read",
            )
            return
        if isinstance(quotas, yaml.MappingNode) and kind != "kafka":
            self.wrong(quotas, f"the quotas of Kafka {name} need `type: kafka`, not {kind}")
        default = yaml.ScalarNode(_NULL, "", kafka.start_mark, kafka.end_mark)
        self.row(kafka, default, quotas, "Kafka")

    def row(self, at: yaml.Node, name: yaml.Node, quotas: yaml.Node, kind: str) -> None:
        """Add one user's quotas as an entry of a quotas file."""
        if not isinstance(quotas, yaml.MappingNode):
            example = "a mapping such as {producerByteRate: 1048576}"
            self.wrong(quotas, f"a {kind}'s quotas are {example}")
            return
        named = _mapping([(_scalar("user", at), name)], at)
        pairs: list[tuple[yaml.Node, yaml.Node]] = [(_scalar("entity", at), named)]
        for key, value in quotas.value:
            if isinstance(key, yaml.ScalarNode) and key.value in NAMES:
                pairs.append((_scalar(NAMES[key.value].name, key), value))
            elif key.value != "type" or kind != "Kafka":
                self.wrong(key, f"unknown quota {key.value!r}; a {kind}'s are {', '.join(NAMES)}")
        self.rows.append(_mapping(pairs, at))


def _field(node: yaml.Node | None, *names: str) -> yaml.Node | None:
    """Return what is at a path of names in mappings; None where nothing or null is there."""
    for name in names:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for key, value in pairs if key.value == name), None)
    return None if node is None or node.tag == _NULL else node


def _text(node: yaml.Node | None, *names: str) -> str | None:
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
        "metadata": {"name": plain, "labels": {_CLUSTER: cluster}},
        "spec": spec,
    }
