"""
Client quotas of Confluent Cloud, as its CLI and its API print them.

A quota limits a principal on all brokers together, which is Headgate's unit ``bps``. Where it
names several principals, or all others, its documents don't say whether they share it.

Source: ``confluent kafka quota list -o json``; the schema kafka-quotas.v1.ClientQuota.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import yaml

from headgate.quota.formats.nodes import (
    NULL,
    ForeignRows,
    QuotaDocument,
    QuotaNode,
    each,
    field,
    names_of,
    pairs_of,
    text,
)
from headgate.quota.key import CONSUMER_BPS, PRODUCER_BPS, QuotaKey

_KEYS: Final[dict[str, QuotaKey]] = {
    "ingress": PRODUCER_BPS,
    "egress": CONSUMER_BPS,
    "ingress_byte_rate": PRODUCER_BPS,
    "egress_byte_rate": CONSUMER_BPS,
}


def _quotas(root: yaml.Node | None) -> Iterator[yaml.Node]:
    """Yield the quotas of a list, an answer of the API, or of one quota."""
    data = field(root, "data")
    for quota in each(filter(None, (root if data is None else data,))):
        yield field(quota, "spec") or quota


def is_cloud(given: QuotaDocument) -> bool:
    """Tell whether a file holds client quotas of Confluent Cloud."""
    first = next(_quotas(given.root), None)
    limited = names_of(first) & {"ingress", "egress", "throughput"}
    return bool(limited) and "principals" in names_of(first)


def read_cloud(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read client quotas of one cluster of Confluent Cloud."""
    clusters: dict[str, yaml.Node] = {}
    if given.root is not None and text(given.root, "metadata", "next"):
        rows.unread(given.root, "Confluent Cloud: a list's first page; its others may hold quotas")
    for quota in _quotas(given.root):
        cluster = text(quota, "cluster") or text(quota, "cluster", "id")
        clusters.setdefault(str(cluster), quota)
        read_quota(quota, quota, field(quota, "throughput") or quota, rows)
    if len(clusters) > 1:
        several = f"quotas of several clusters ({', '.join(sorted(clusters))})"
        rows.wrong(list(clusters.values())[1], f"Confluent Cloud: {several}; give those of one")


def read_quota(at: yaml.Node, quota: yaml.Node, throughput: yaml.Node, rows: ForeignRows) -> None:
    """
    Read one quota.

    Args:
        at: where it stands.
        quota: the mapping that has ``principals``.
        throughput: the mapping that has the limits.
        rows: where to.
    """
    principals = field(quota, "principals")
    names = [field(one, "id") or one for one in each(filter(None, [principals]))]
    name = names[0] if len(names) == 1 else None
    if not isinstance(name, yaml.ScalarNode) or name.value == "<default>" or "," in name.value:
        whose = f"principals {_shown(names)}" if names else "no principal"
        told = f"Confluent Cloud: a quota of {whose}: whether they share it isn't documented"
        rows.wrong(at, f"{told}; write each one's quota in a quotas file")
        return
    values = [
        QuotaNode(key, _KEYS[key.value].name, value)
        for key, value in _pairs(throughput)
        if key.value in _KEYS and value.tag != NULL
    ]
    rows.say(
        at,
        f"{name.value} is the id of a Confluent Cloud account: in a Kafka of your own the client "
        "may have another name",
    )
    rows.add(at, {"user": name}, values)


def _shown(names: list[yaml.Node]) -> str:
    return ", ".join(str(name.value) for name in names[:3] if isinstance(name, yaml.ScalarNode))


def _pairs(node: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    for one in each([node]):
        yield from pairs_of(one)
