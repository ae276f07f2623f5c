"""
What a tenant may see of a picture: its own use; for a shared quota, "others" and coarse steps.

A tenant is a set of principals. A quota-id whose user tag names one of them is its own. A quota-id
without a user that one of its clients is charged to now is shared: there it sees its own clients,
and the rate rounded up to a quarter of the limit. It sees nothing else of other principals: no
name, count, address or time. A question about a client-id that it doesn't use now gets the same
answer whether others use it or not.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil

from msgspec.structs import replace

from headgate.live.picture import (
    BrokerPicture,
    ClientUse,
    EffectiveQuotaEntry,
    EffectiveQuotaOf,
    Picture,
    QuotaUse,
)
from headgate.quota.entity import entity_from_path

UNUSED = (
    "The client-id isn't in use by this principal now, so quotas that are set for the client-id "
    "alone aren't shown."
)
SILENT = "the gateway's own question"
STEPS = 4
"""Quarters: enough to tell who is nearly out of room, and too few to watch others by."""


def as_seen_by(picture: Picture, principals: frozenset[str]) -> Picture:
    """
    Return what a tenant may see of a picture.

    Args:
        picture: of everybody, or of one principal; then shared quota-ids have to list its clients
            first, because the lists are bounded. If it isn't the tenant's, nothing is left.
        principals: the tenant's, raw.
    """
    if picture.user is not None and picture.user not in principals:
        return Picture(
            picture.at_ms, picture.source, user=picture.user, client_id=picture.client_id
        )
    known = picture.client_id is None or any(broker.connections for broker in picture.brokers)
    effective = picture.effective
    if not known:
        cut = (_without(quota, picture.user or "") for quota in effective)
        effective = tuple(quota for quota in cut if quota.entries)
    return replace(
        picture,
        brokers=tuple(
            _broker(broker, principals, picture.user is not None) for broker in picture.brokers
        ),
        effective=effective,
        version=0,
        changes=tuple(replace(change, who="") for change in picture.changes),
        note="" if known else UNUSED,
    )


def _broker(broker: BrokerPicture, principals: Collection[str], asked: bool) -> BrokerPicture:
    uses = [use for use in (_use(use, principals) for use in broker.quotas) if use is not None]
    uses.sort(key=lambda use: (not use.held, -(use.utilisation or 0.0), use.key, use.client_id))
    return BrokerPicture(
        broker.broker_id,
        enforce=broker.enforce,
        connections=broker.connections if asked else 0,
        quotas=tuple(uses),
        splits_expired=broker.splits_expired,
        silent=broker.silent and SILENT,  # without the broker's own address
    )


def _use(use: QuotaUse, principals: Collection[str]) -> QuotaUse | None:
    if use.user:
        return use if use.user in principals else None
    own = tuple(client for client in use.clients if client.principal in principals)
    if not own:
        return None
    limit = use.limit
    rate = 0.0
    if limit and use.quota is not None:
        rate = in_steps(use.rate / limit) * use.quota
    return QuotaUse(
        use.key,
        client_id=use.client_id,
        ip=use.ip,
        quota=use.quota,
        rate=rate,
        held=sum(client.held for client in own),
        held_until_ms=max(client.held_until_ms for client in own),
        clients=tuple(_rounded(client) for client in own),
        coarse=True,
    )


def _rounded(client: ClientUse) -> ClientUse:
    """Return a client whose wait is told by quarters of the quota: others may have caused it."""
    told = client.told
    if told is None:
        return client
    rate = None
    if told.rate is not None and told.limit:
        rate = in_steps(told.rate / told.limit) * (told.quota or told.limit)
    limit = told.quota  # a broker's part of it tells what others use
    return replace(client, told=replace(told, limit=limit, rate=rate, owed=None))


def in_steps(utilisation: float) -> float:
    """Return use by limit as a tenant may see it for a shared quota: rounded up to quarters."""
    return ceil(min(utilisation * STEPS, STEPS + 1)) / STEPS


def _without(quota: EffectiveQuotaOf, user: str) -> EffectiveQuotaOf:
    """Leave out quotas of a named client-id, unless they are for this user."""
    entries = tuple(entry for entry in quota.entries if _own_or_default(entry, user))
    if entries[:1] != quota.entries[:1]:
        return EffectiveQuotaOf(quota.key, entries)
    return EffectiveQuotaOf(quota.key, entries, quota.user, quota.client_id)


def _own_or_default(entry: EffectiveQuotaEntry, user: str) -> bool:
    if entry.entity == "server.properties":
        return True
    entity = entity_from_path(entry.entity)
    return entity.user == user or not isinstance(entity.client_id, str)
