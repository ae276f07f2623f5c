"""
The quota-ids of the demo's clients: which there are, what their quota is, what they have used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.demo import sample
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
    sums: dict[tuple[str, str], list[int]] = {}
    acks: dict[tuple[str, str], float] = {}
    for place, role, *figures, ack_ms in report["rows"]:
        sent, told_ms, told, _longest, errors, meant, messages = figures
        key = (_quota_id(sample.CLIENTS[place], lines), role)
        total = sums.setdefault(key, [0, 0, 0, 0, 0, 0])
        for i, value in enumerate((sent, told_ms, told, errors, meant, messages)):
            total[i] += value
        acks[key] = max(acks.get(key, 0.0), ack_ms)
    for key, (sent, told_ms, told, errors, meant, messages) in sums.items():
        line = lines[key]
        line.add(report["s"], sent, told_ms, told, errors)
        line.meant, line.messages, line.slowest_ack_ms = meant, messages, acks[key]


def attained(lines: Sequence[Line]) -> tuple[float, float]:
    """
    How the clients fared that want less than their quota.

    Returns:
        Messages acknowledged, as a share of those they meant to send; the slowest
        acknowledgement, ms.
    """
    free = [line for line in lines if line.what == "produce" and not line.saturating]
    sent = sum(line.messages for line in free)
    meant = sum(line.meant for line in free)
    return (sent / meant if meant else 0.0), max((ln.slowest_ack_ms for ln in free), default=0.0)


def _quota_id(client: sample.Client, lines: dict[tuple[str, str], Line]) -> str:
    pair = f"{client.name}:{client.client_id}"
    return pair if (pair, "produce") in lines else f"{client.name}:"


def scaled(store_url: str, factor: float) -> str:
    """Return a quotas file with every quota so many times as large."""
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
