"""
Files of resources, as Kubernetes and Jikkou have them: Strimzi's and Jikkou's, also in one file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import yaml

from headgate.quota.formats import jikkou, strimzi
from headgate.quota.formats.nodes import (
    NULL,
    ForeignRows,
    QuotaDocument,
    field,
    mapping,
    scalar,
    text,
)

_MAY_HOLD: Final = ("Template", "Kustomization", "HelmRelease", "Application", "ApplicationSet")
"""Kinds of resources that others are made of."""
_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")


class _ResourceKind(NamedTuple):
    """A kind that holds quotas: whose it is, what reads it."""

    group: str
    read: Callable[[yaml.Node, ForeignRows], None]


_KINDS: Final = {
    "KafkaUser": _ResourceKind(strimzi.GROUP, strimzi.read_user),
    "Kafka": _ResourceKind(strimzi.GROUP, strimzi.read_kafka),
    "KafkaClientQuota": _ResourceKind(jikkou.GROUP, jikkou.read_quota),
}


def is_jikkou(given: QuotaDocument) -> bool:
    """Tell whether a file holds a resource of Jikkou."""
    return any(
        (text(document, "apiVersion") or "").startswith(f"{jikkou.GROUP}/")
        for document in given.documents
    )


def is_strimzi(given: QuotaDocument) -> bool:
    """Tell whether a file holds resources, and isn't a quotas file."""
    return any(field(document, "apiVersion") is not None for document in given.documents)


def read_strimzi(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read resources, or lists of them as ``kubectl get`` prints."""
    _Resources(rows).read(given.documents)


read_jikkou = read_strimzi
write_jikkou = jikkou.write


class _Resources:
    """Walks resources and adds the rows of those that hold quotas."""

    def __init__(self, rows: ForeignRows) -> None:
        self.rows = rows
        self.clusters: set[str] = set()
        self.others: Counter[str] = Counter()

    def read(self, documents: Sequence[yaml.Node]) -> None:
        rows, cluster = self.rows, self.rows.cluster
        seen, read = 0, 0
        for resource in self.all(documents):
            kind = text(resource, "kind")
            seen += 1
            if kind is None or text(resource, "apiVersion") is None:
                rows.wrong(resource, "not a resource: it has no apiVersion and kind")
            elif kind == "KafkaUser" and self.group_of(resource) == jikkou.GROUP:
                self.others["KafkaUser of Jikkou"] += 1
            elif kind in _KINDS:
                read += 1
                if self.is_of_its_group(resource, kind) and self.is_wanted(resource, kind):
                    _KINDS[kind].read(resource, rows)
            elif "quota" in kind.lower() and kind != "ResourceQuota":
                rows.wrong(resource, f"a {kind} isn't read; write its quotas as a quotas file")
            elif kind in _MAY_HOLD:
                rows.unread(resource, f"a {kind} may hold quotas, and isn't read; render it first")
            else:
                self.others[kind] += 1
        first = documents[0]
        if seen and not read:
            kinds = "no KafkaUser of Strimzi, no Kafka and no KafkaClientQuota of Jikkou"
            rows.wrong(first, f"{kinds} is among these resources")
        if cluster is None and len(self.clusters) > 1:
            names = ", ".join(sorted(self.clusters))
            rows.wrong(first, f"resources of several clusters ({names}): choose by --strimzi NAME")
        elif read and cluster is not None and cluster not in self.clusters:
            rows.wrong(first, f"nothing here is of the cluster {cluster}")
        if self.others:
            kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(self.others.items()))
            rows.say(first, f"not read, since they hold no quotas: {kinds}")

    def all(self, documents: Sequence[yaml.Node]) -> Iterator[yaml.Node]:
        for document in documents:
            if document.tag == NULL:
                continue
            kind = text(document, "kind") or ""
            if kind.endswith("List"):
                items = field(document, "items")
                if text(document, "metadata", "continue"):
                    self.rows.unread(document, "a list's first page; its others may hold quotas")
                if isinstance(items, yaml.SequenceNode):
                    yield from self.all([_whole(item, document, kind) for item in items.value])
                    continue
                self.rows.wrong(document, "a list of resources needs items: [...]")
            yield document

    def group_of(self, resource: yaml.Node) -> str:
        return (text(resource, "apiVersion") or "").partition("/")[0]

    def is_of_its_group(self, resource: yaml.Node, kind: str) -> bool:
        group = _KINDS[kind].group
        if self.group_of(resource) == group:
            return True
        newest = f"{group}/v1, or an older version of it"
        self.rows.wrong(resource, f"a {kind}'s apiVersion is {newest}")
        return False

    def is_wanted(self, resource: yaml.Node, kind: str) -> bool:
        """Whether it is of the cluster that is read, and not being deleted."""
        rows = self.rows
        name = text(resource, "metadata", "name")
        if _KINDS[kind].group == jikkou.GROUP:
            return jikkou.is_wanted(resource, rows)
        if not name:
            rows.wrong(resource, f"a {kind} needs metadata.name")
            return False
        cluster = name if kind == "Kafka" else text(resource, "metadata", "labels", strimzi.CLUSTER)
        if cluster is not None:
            self.clusters.add(cluster)
        if rows.cluster is not None and cluster != rows.cluster:
            whose = "of no cluster" if cluster is None else f"of the cluster {cluster}"
            rows.say(resource, f"left out: {kind} {name} is {whose}")
            return False
        deleted = text(resource, "metadata", "deletionTimestamp")
        if deleted:
            rows.say(resource, f"left out: {kind} {name} is being deleted, since {deleted}")
            return False
        way = "; quotas are in spec.quotas" if kind == "KafkaUser" else ""
        rows.known(resource, f"{kind} {name}", _FIELDS, way)
        return True


def _whole(item: yaml.Node, of: yaml.Node, kind: str) -> yaml.Node:
    """Return an item of a list; Jikkou's lists leave out what all items have in common."""
    version = text(of, "apiVersion") or ""
    named = text(item, "kind") is not None or text(item, "apiVersion") is not None
    if (
        named
        or not version.startswith(f"{jikkou.GROUP}/")
        or not isinstance(item, yaml.MappingNode)
    ):
        return item
    common = {"apiVersion": version, "kind": kind.removesuffix("List")}
    pairs = [(scalar(name, item), scalar(value, item)) for name, value in common.items()]
    return mapping([*pairs, *item.value], item)
