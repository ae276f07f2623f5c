"""
Whether a name is in use: by a client that is connected, or by a quota. For administrators only: it
tells the names of others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headgate.live.picture import Picture
from headgate.quota.entity import QuotaEntity
from headgate.words import near_names


def unknown_name(
    user: str, client_id: str | None, everybody: Picture | None, quotas: Iterable[QuotaEntity]
) -> str:
    """
    Say that a name isn't in use, and which names come near; "" for a name that is known.

    Args:
        user: a principal, raw.
        client_id: one of its client-ids; None: any.
        everybody: what goes on now, of all; None: not known.
        quotas: the entities that have quotas.
    """
    users: dict[str, set[str]] = {}
    client_ids: set[str] = set()
    for broker in everybody.brokers if everybody is not None else ():
        for use in broker.quotas:
            if use.user:
                users.setdefault(use.user, set()).add(use.client_id)
            for client in use.clients:
                users.setdefault(client.principal, set()).add(client.client_id)
    for entity in quotas:
        if isinstance(entity.user, str):
            users.setdefault(entity.user, set())
        if isinstance(entity.client_id, str):
            client_ids.add(entity.client_id)
            if isinstance(entity.user, str):
                users[entity.user].add(entity.client_id)
    if user not in users:
        return _said(f"user {user}", user, users)
    known = users[user] | client_ids
    if client_id and client_id not in known:
        return _said(f"client-id {client_id} of {user}", client_id, known)
    return ""


def _said(what: str, name: str, known: Collection[str]) -> str:
    near = near_names(name, filter(None, known)) or "."
    return f"No {what} is connected now, and no quota names one{near}"
