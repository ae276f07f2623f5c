"""
Who is affected by a change of quotas: connected clients, and what each has before and after.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice
from typing import Final, NamedTuple

from headgate.live.picture import Picture
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONNECTION, QuotaKey
from headgate.quota.plan import EffectiveLine, Plan, effective_changes, touches
from headgate.quota.precedence import EffectiveQuota, resolve_entity

MOST_SHOWN: Final = 100
"""Rows of each table; the rest is counted."""


class Affected(NamedTuple):
    """
    A connected client whose quota would change.

    Args:
        client: its user and client-id, or its address.
        key: of the quota.
        before: what applies now.
        after: what would apply.
        connections: how many it has open.
    """

    client: QuotaEntity
    key: QuotaKey
    before: EffectiveQuota
    after: EffectiveQuota
    connections: int


class Preview(NamedTuple):
    """
    What a plan means for clients.

    Args:
        affected: connected clients, those with most connections first; bounded.
        more: how many more of them there are.
        clients: how many clients they are; one may be affected by several keys.
        waiting: connections that wait now by a quota that would change.
        wait_ms: for how long the last of them does.
        watched: how many clients were looked at; None: there is no gateway that knows them.
        unseen: how many aren't in the picture, because it is bounded.
        named: the changes for clients that quotas name, connected or not; bounded.
    """

    affected: tuple[Affected, ...]
    more: int
    clients: int
    waiting: int
    wait_ms: int
    watched: int | None
    unseen: int
    named: tuple[EffectiveLine, ...]


def preview(plan: Plan, picture: Picture | None) -> Preview:
    """
    Say which clients a plan affects: those whose limit or quota-id would change.

    Args:
        plan: what is to be changed.
        picture: who is connected now; None: there is no gateway that says so.
    """
    clients, addresses = connected(picture) if picture is not None else (Counter(), Counter())
    found = []
    touched = touches(plan.changes)
    for client, connections in chain(clients.items(), addresses.items()):
        for key in touched(client):
            if (key == CONNECTION) != (client.ip is not None):
                continue
            before = resolve_entity(plan.current, client, key)
            after = resolve_entity(plan.desired, client, key)
            limited = before.value is not None or after.value is not None
            if limited and (before.value, before.tags) != (after.value, after.tags):
                found.append(Affected(client, key, before, after, connections))
    found.sort(key=lambda row: (-row.connections, row.client.sort_key, row.key))
    brokers = () if picture is None else picture.brokers
    return Preview(
        tuple(found[:MOST_SHOWN]),
        len(found[MOST_SHOWN:]),
        len({row.client for row in found}),
        *_waiting(found, picture),
        None if picture is None else len(clients),
        sum(b.other_quotas + sum(use.other_clients for use in b.quotas) for b in brokers),
        tuple(islice(effective_changes(plan, ()), MOST_SHOWN)),
    )


def _waiting(found: list[Affected], picture: Picture | None) -> tuple[int, int]:
    """Return how many connections wait by what would change, and for how long the last does, ms."""
    if picture is None:
        return 0, 0
    changed = {(row.client, row.key.name) for row in found}
    waiting = until_ms = 0
    for broker in picture.brokers:
        for use in broker.quotas:
            for client in use.clients:
                whose = QuotaEntity.of(user=client.principal, client_id=client.client_id)
                if client.held and (whose, use.key) in changed:
                    waiting += client.held
                    until_ms = max(until_ms, client.held_until_ms)
    return waiting, max(until_ms - picture.at_ms, 0)


def connected(picture: Picture) -> tuple[Counter[QuotaEntity], Counter[QuotaEntity]]:
    """
    Return who is connected by user and client-id, and by address, with how many connections.

    A picture lists a client under each quota that it is charged to. Here a client counts once for
    each broker.
    """
    clients: Counter[QuotaEntity] = Counter()
    addresses: Counter[QuotaEntity] = Counter()
    for broker in picture.brokers:
        here = {(c.principal, c.client_id): c for use in broker.quotas for c in use.clients}
        for (user, client_id), client in here.items():
            clients[QuotaEntity.of(user=user, client_id=client_id)] += client.connections
            for address, connections in client.addresses:
                addresses[QuotaEntity.of(ip=address)] += connections
    return clients, addresses
