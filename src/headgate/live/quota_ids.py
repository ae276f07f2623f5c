"""
The quota-ids of a picture over all brokers: who waits first, then who has the least room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headgate.live.picture import ClientUse, Picture, QuotaUse
from headgate.words import what_of


class QuotaIdRow(NamedTuple):
    """
    A quota-id over all brokers.

    Args:
        use: at the broker where it is throttled, or has the least room.
        broker_id: that broker.
        brokers: at how many brokers it is used.
        held: connections that wait, at all of them.
        held_until_ms: when the last of these goes on.
        held_since_ms: since when it has been throttled; 0: it isn't.
        clients: the clients charged to it; a client of several brokers is here once.
    """

    use: QuotaUse
    broker_id: int
    brokers: int
    held: int
    held_until_ms: int
    held_since_ms: int
    clients: tuple[ClientUse, ...]

    @property
    def throttled(self) -> bool:
        """Whether a connection waits now, or one was throttled within ``picture.PAUSE_MS``."""
        return bool(self.held or self.held_since_ms)

    @property
    def owner(self) -> tuple[str, str | None] | None:
        """Principal and client-id to ask about; None: nobody is known."""
        use = self.use
        if use.user:
            return use.user, use.client_id or None
        return pair_of(self.clients[0]) if self.clients else None


def pair_of(client: ClientUse) -> tuple[str, str]:
    """Return a client's principal and client-id."""
    return client.principal, client.client_id


def rows(picture: Picture) -> list[QuotaIdRow]:
    """Return every quota-id: first what waits, the longest first; then by room, the least first."""
    joined: dict[tuple[str, str, str, str], list[tuple[int, QuotaUse]]] = {}
    for broker in picture.brokers:
        for use in broker.quotas:
            quota_id = (use.key, use.user, use.client_id, use.ip)
            joined.setdefault(quota_id, []).append((broker.broker_id, use))
    return sorted(map(_row, joined.values()), key=_order)


def _row(uses: Sequence[tuple[int, QuotaUse]]) -> QuotaIdRow:
    broker_id, worst = uses[0]
    if len(uses) == 1:
        return QuotaIdRow(
            worst, broker_id, 1, worst.held, worst.held_until_ms, worst.held_since_ms, worst.clients
        )
    broker_id, worst = max(uses, key=lambda pair: _hardest(pair[1]))
    since = [use.held_since_ms for _, use in uses if use.held_since_ms]
    return QuotaIdRow(
        worst,
        broker_id,
        len(uses),
        sum(use.held for _, use in uses),
        max(use.held_until_ms for _, use in uses),
        min(since, default=0),
        clients_once(client for _, use in uses for client in use.clients),
    )


def clients_once(clients: Iterable[ClientUse]) -> tuple[ClientUse, ...]:
    """Return each client once, with the connections of all brokers."""
    found: dict[tuple[str, str], ClientUse] = {}
    for client in clients:
        old = found.get(pair_of(client))
        if old is not None:
            addresses = dict(old.addresses)
            for address, count in client.addresses:
                addresses[address] = addresses.get(address, 0) + count
            client = ClientUse(
                *pair_of(client),
                old.connections + client.connections,
                old.held + client.held,
                max(old.held_until_ms, client.held_until_ms),
                tuple(addresses.items()),
                max(old.other_addresses, client.other_addresses),
            )
        found[pair_of(client)] = client
    return tuple(sorted(found.values(), key=lambda client: (-client.held, -client.connections)))


def _hardest(use: QuotaUse) -> tuple[bool, int, float]:
    """Sort key: by what is left to wait, which a rate that has fallen doesn't tell."""
    return bool(use.held), use.held_until_ms, use.utilisation or 0.0


def _order(row: QuotaIdRow) -> tuple[bool, int, float, str, str]:
    use = row.use
    return not row.throttled, -row.held_until_ms, -(use.utilisation or 0.0), use.user, use.client_id


def matching(rows: Iterable[QuotaIdRow], find: str) -> list[QuotaIdRow]:
    """Return the rows that have a text in a name, address or kind of quota, whatever its case."""
    text = find.casefold()
    return [
        row
        for row in rows
        if any(
            text in part.casefold()
            for part in (row.use.user, row.use.client_id, row.use.ip, what_of(row.use.key))
        )
    ]
