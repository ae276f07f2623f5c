"""
The quota-ids of the demo's clients, with their quotas and use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.demo import sample
from headgate.demo.load import ClientTally

if TYPE_CHECKING:
    from headgate.quota.table import QuotaTable

SHOWN_S: Final = 30


@dataclass
class QuotaIdLine:
    """
    One quota-id and direction as the clients see it.

    Args:
        quota_id: as KIP-55 writes it, ``USER:CLIENT-ID``; a part that it doesn't have is empty.
        what: produce or fetch.
        quota: the limit per broker, bytes per second; None is unlimited.
        source: the entity whose quota it is, as KIP-55's path.
        saturating: whether its clients want more than the quota.
        seen: what its clients have seen so far, added up.
        seconds: how long they have run.
    """

    quota_id: str
    what: str
    quota: float | None
    source: str
    saturating: bool
    seen: ClientTally = field(default_factory=ClientTally)
    seconds: float = 0.0
    # (seconds, bytes) of the last reports.
    _points: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=2 * SHOWN_S + 2))

    def add(self, seconds: float, seen: ClientTally) -> None:
        """Take a report: what its clients have seen so far."""
        self.seconds, self.seen = seconds, seen
        self._points.append((seconds, seen.wire_bytes))

    def rates(self) -> list[float]:
        """Bytes per second of the last seconds, a value per second."""
        points = list(self._points)
        found = []
        at = points[0][0] if points else 0.0
        before = points[0][1] if points else 0
        for seconds, total in points[1:]:
            if seconds - at >= 0.95:
                found.append((total - before) / (seconds - at))
                at, before = seconds, total
        return found[-SHOWN_S:]

    @property
    def mean(self) -> float:
        """Mean since the start, bytes per second."""
        return self.seen.wire_bytes / self.seconds if self.seconds else 0.0


def lines_of(store_url: str) -> list[QuotaIdLine]:
    """Return the quota-ids the demo's clients count against, with their quotas, as resolved."""
    from headgate.quota.key import QuotaKey
    from headgate.quota.precedence import resolve

    table = _table(store_url)
    found: dict[tuple[str, str], QuotaIdLine] = {}
    for client in sample.CLIENTS:
        for what, key in (("produce", sample.PRODUCE), ("fetch", sample.FETCH)):
            effective = resolve(table, client.name, client.client_id, QuotaKey.parse(key))
            at = (effective.quota_id, what)
            if at not in found:
                source = getattr(effective.source, "path", "") if effective.source else ""
                found[at] = QuotaIdLine(
                    effective.quota_id, what, effective.value, source, client.saturating
                )
    return sorted(found.values(), key=lambda line: (line.what != "produce", line.quota_id))


def take(report: dict[str, Any], lines: dict[tuple[str, str], QuotaIdLine]) -> None:
    """Add the clients' figures up by quota-id."""
    found: dict[tuple[str, str], list[ClientTally]] = {}
    for place, role, *figures in report["rows"]:
        found.setdefault((_quota_id(sample.CLIENTS[place], lines), role), []).append(
            ClientTally(*figures)
        )
    for key, parts in found.items():
        lines[key].add(report["s"], sum(parts, ClientTally()))


def attained(lines: Sequence[QuotaIdLine]) -> tuple[float, float]:
    """
    Return how the clients that want less than their quota were served.

    Returns:
        Messages acknowledged, as a share of those they meant to send; the slowest
        acknowledgement, ms.
    """
    free = [line for line in lines if line.what == "produce" and not line.saturating]
    sent = sum(line.seen.messages for line in free)
    meant = sum(line.seen.meant for line in free)
    slowest_ms = max((line.seen.slowest_ack_ms for line in free), default=0.0)
    return (sent / meant if meant else 0.0), slowest_ms


def _quota_id(client: sample.SampleClient, lines: dict[tuple[str, str], QuotaIdLine]) -> str:
    pair = f"{client.name}:{client.client_id}"
    return pair if (pair, "produce") in lines else f"{client.name}:"


def scaled(store_url: str, factor: float) -> str:
    """Return a quotas file with every quota multiplied by ``factor``."""
    from headgate.quota.file import dump_quotas
    from headgate.quota.table import QuotaTable

    entities = _table(store_url).entities
    return dump_quotas(
        QuotaTable.of(
            {e: {k: factor * v for k, v in values.items()} for e, values in entities.items()}
        )
    )


def _table(store_url: str) -> QuotaTable:
    from headgate.store import open_store

    with open_store(store_url) as store:
        return store.snapshot()
