"""
The quota-ids of the demo's clients: which there are, what their quota is, what they have used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.demo import sample
from headgate.demo.load import Seen
from headgate.demo.progress import Line


def lines_of(store_url: str) -> list[Line]:
    """Return the quota-ids the demo's clients count against, with their quotas, as resolved."""
    from headgate.quota.key import QuotaKey
    from headgate.quota.precedence import resolve
    from headgate.store import open_store

    store = open_store(store_url)
    try:
        table = store.snapshot()
    finally:
        store.close()
    found: dict[tuple[str, str], Line] = {}
    for client in sample.CLIENTS:
        for what, key in (("produce", sample.PRODUCE), ("fetch", sample.FETCH)):
            effective = resolve(table, client.name, client.client_id, QuotaKey.parse(key))
            at = (effective.quota_id, what)
            if at not in found:
                source = getattr(effective.source, "path", "") if effective.source else ""
                found[at] = Line(
                    effective.quota_id, what, effective.value, source, client.saturating
                )
    return sorted(found.values(), key=lambda line: (line.what != "produce", line.quota_id))


def take(report: dict[str, Any], lines: dict[tuple[str, str], Line]) -> None:
    """Add the clients' figures up by quota-id."""
    found: dict[tuple[str, str], list[Seen]] = {}
    for place, role, *figures in report["rows"]:
        found.setdefault((_quota_id(sample.CLIENTS[place], lines), role), []).append(Seen(*figures))
    for key, parts in found.items():
        lines[key].add(report["s"], sum(parts, Seen()))


def attained(lines: Sequence[Line]) -> tuple[float, float]:
    """
    How the clients fared that want less than their quota.

    Returns:
        Messages acknowledged, as a share of those they meant to send; the slowest
        acknowledgement, ms.
    """
    free = [line for line in lines if line.what == "produce" and not line.saturating]
    sent = sum(line.seen.messages for line in free)
    meant = sum(line.seen.meant for line in free)
    slowest_ms = max((line.seen.slowest_ack_ms for line in free), default=0.0)
    return (sent / meant if meant else 0.0), slowest_ms


def _quota_id(client: sample.Client, lines: dict[tuple[str, str], Line]) -> str:
    pair = f"{client.name}:{client.client_id}"
    return pair if (pair, "produce") in lines else f"{client.name}:"


def scaled(store_url: str, factor: float) -> str:
    """Return a quotas file with every quota multiplied by ``factor``."""
    from headgate.quota.file import dump_quotas
    from headgate.quota.table import QuotaTable
    from headgate.store import open_store

    store = open_store(store_url)
    try:
        table = store.snapshot()
    finally:
        store.close()
    return dump_quotas(
        QuotaTable.of(
            {e: {k: factor * v for k, v in values.items()} for e, values in table.entities.items()}
        )
    )
