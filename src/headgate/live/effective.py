"""
The quotas of a table that apply to a principal and client-id, in the form of a picture.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from headgate.live.picture import EffectiveQuotaEntry, EffectiveQuotaOf, carried
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONNECTION, QuotaKey
from headgate.quota.precedence import resolve, resolve_entity
from headgate.quota.table import QuotaTable


def effective_of(
    table: QuotaTable, user: str, client_id: str | None, without_capacity: Collection[str] = ()
) -> tuple[EffectiveQuotaOf, ...]:
    """
    Return what applies, for every quota key under which something does.

    Args:
        table: the quotas.
        user: the principal's name, raw.
        client_id: the client-id; None: what applies to the principal alone.
        without_capacity: keys of shares that the gateway doesn't enforce.
    """
    found = []
    for key in table.keys():  # noqa: SIM118 - a QuotaTable isn't a dict
        if key == CONNECTION:
            continue
        if client_id is None:
            quota = resolve_entity(table, QuotaEntity.of(user=user), key)
        else:
            quota = resolve(table, user, client_id, key)
        entries = [EffectiveQuotaEntry(_path(e), value) for e, value in quota.overridden]
        if quota.source is not None and quota.value is not None:
            entries.insert(0, EffectiveQuotaEntry(_path(quota.source), quota.value))
        if entries:
            found.append(
                EffectiveQuotaOf(
                    key.name,
                    tuple(entries),
                    quota.user_tag,
                    quota.client_tag,
                    unlimited=quota.value is None,
                    note=no_capacity(key) if key.name in without_capacity else quota.note or "",
                )
            )
    return tuple(found)


def travelling(found: Iterable[EffectiveQuotaOf]) -> tuple[EffectiveQuotaOf, ...]:
    """Return what applies as JSON can hold it (``carried``)."""
    return tuple(
        replace(each, entries=tuple(replace(e, value=carried(e.value)) for e in each.entries))
        for each in found
    )


def no_capacity(key: QuotaKey) -> str:
    """Say that shares aren't enforced."""
    return f"{key} isn't enforced: the gateway has no headgate.capacity.{key.type}"


def _path(source: object) -> str:
    """Return the path of an entity, or what KIP-55's static default is called."""
    return source.path if isinstance(source, QuotaEntity) else str(source)
