"""
Resources of the quotas: what is configured, what applies, and changes.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from starlette.requests import Request

from headgate.admin.listing import QuotaQuery, QuotaRow
from headgate.console.access.viewer import EVERYBODY
from headgate.console.api.resource import (
    Asked,
    ClientId,
    EntityPath,
    KeyName,
    ListTold,
    Name,
    PageAsked,
    Resource,
    Text,
)
from headgate.console.asking import ClientQuery, configured
from headgate.console.asking import asked as client_asked
from headgate.console.pages.quotas import quotas_found
from headgate.console.routing import missing
from headgate.java_text import Number, finite
from headgate.quota.entity import entity_from_path


class QuotasAsked(PageAsked, frozen=True, kw_only=True):
    """Which quotas are asked for: as on the page Quotas."""

    find: Text = ""
    key: KeyName | Literal[""] = ""
    kind: Literal["", "user", "client-id", "user+client-id", "ip", "default"] = ""
    only: Literal["", "throttled", "unmatched"] = ""
    sort: Literal["name", "value", "use", "waits", "matched", "changed"] = "name"
    turned: bool = False


class EntityAsked(Asked, frozen=True):
    """An entity by its path: ``users/alice/clients/etl``, ``users/<default>``."""

    entity: EntityPath


class ClientAsked(Asked, frozen=True):
    """A principal, and one of its client-ids; without it: any."""

    user: Name
    client_id: ClientId | None = None


class QuotaTold(msgspec.Struct, frozen=True):
    """
    A configured quota.

    Args:
        entity: what it is set for, as a path.
        key: what it limits.
        value: its value; of bytes and requests per second.
        use: of the quota-id with the least room, at the broker where it has it; null: unknown.
        limit: what this use is compared with.
        matched: how many quota-ids are charged to it; null: unknown.
        waiting: connections that wait by it.
        throttled: whether one waits, or was told to a moment ago.
        changed_ms: when it was changed last, epoch ms; null: no history has it.
        change: this change's name, to undo it; "": unknown, or not told to a tenant.
        who: who changed it; "" likewise.
        message: why; "" likewise.
        until_ms: when it ends, epoch ms; null: it stays.
        then: the value that returns then; null: none.
    """

    entity: str
    key: str
    value: Number
    use: float | None
    limit: Number
    matched: int | None
    waiting: int | None
    throttled: bool | None
    changed_ms: int | None
    change: str
    who: str
    message: str
    until_ms: int | None
    then: Number

    @classmethod
    def of(cls, row: QuotaRow) -> QuotaTold:
        """Tell a row of the listing."""
        now, last, end = row.now, row.last, row.end
        use = now.use if now is not None else None
        return cls(
            row.entity.path, row.key.name, finite(row.value),
            None if use is None else use.rate, None if use is None else finite(use.limit),
            None if now is None else now.matched, None if now is None else now.held,
            None if now is None else now.throttled,
            None if last is None else last.t_ms, "" if last is None else last.change,
            "" if last is None else last.who, "" if last is None else last.message,
            None if end is None else end.until_ms, None if end is None else finite(end.former),
        )  # fmt: skip


class EntityTold(msgspec.Struct, frozen=True):
    """The quotas of one entity."""

    entity: str
    quotas: tuple[QuotaTold, ...]


class EntryTold(msgspec.Struct, frozen=True):
    """A quota that matches: what it is set for, as a path or as a setting, and its value."""

    entity: str
    value: Number


class AppliesTold(msgspec.Struct, frozen=True):
    """
    What applies to a client for one key.

    Args:
        key: what is limited.
        entries: every quota that matches; the one that applies first.
        user: the user of the quota-id that the client is charged to; "": of all.
        client_id: its client-id; "": of all.
        unlimited: none of the entries applies.
        note: where Kafka departs from plain precedence.
    """

    key: str
    entries: tuple[EntryTold, ...]
    user: str
    client_id: str
    unlimited: bool
    note: str


class EffectiveTold(msgspec.Struct, frozen=True):
    """What applies to a client by the configured quotas, for each key."""

    user: str
    client_id: str | None
    quotas: tuple[AppliesTold, ...]


async def listed(request: Request, asked: QuotasAsked) -> ListTold[QuotaTold]:
    """Return a page of the quotas that the viewer may see."""
    query = QuotaQuery(
        asked.find.strip(), asked.key, asked.kind, asked.only, asked.sort, asked.turned
    )
    now, found, _ = await quotas_found(request, query)
    return ListTold[QuotaTold].of(found, asked, lambda number: QuotaTold.of(now.row(number)))


async def described(request: Request, asked: EntityAsked) -> EntityTold:
    """Return one entity's quotas; one without any, or of others, is as an unknown one."""
    entity = entity_from_path(asked.entity)
    names = (name for _, name in entity if isinstance(name, str))
    now, found, _ = await quotas_found(request, QuotaQuery(max(names, key=len, default="")))
    rows = [row for row in map(now.row, found) if row.entity == entity]
    if not rows:
        raise missing()
    return EntityTold(entity.path, tuple(map(QuotaTold.of, rows)))


async def effective(request: Request, asked: ClientAsked) -> EffectiveTold:
    """Return what applies to a client."""
    about = named(request)
    picture = await configured(request, about)
    return EffectiveTold(
        *about,
        tuple(
            AppliesTold(
                quota.key, tuple(EntryTold(e.entity, finite(e.value)) for e in quota.entries),
                quota.user, quota.client_id, quota.unlimited, quota.note,
            )
            for quota in picture.effective
        ),
    )  # fmt: skip


def named(request: Request) -> ClientQuery:
    """Return the client that is asked about, as pages read it from the address."""
    about = client_asked(request)
    assert about is not None, "a user is needed"
    return about


RESOURCES: Final = (
    Resource(
        "GET", "/quotas", "List what is configured, with its use now.", EVERYBODY,
        listed, QuotasAsked, ListTold[QuotaTold],
    ),
    Resource(
        "GET", "/quotas/describe", "Tell the quotas of one entity.", EVERYBODY,
        described, EntityAsked, EntityTold,
    ),
    Resource(
        "GET", "/quotas/effective", "Tell which quotas apply to a client, and what they override.",
        EVERYBODY, effective, ClientAsked, EffectiveTold,
    ),
)  # fmt: skip
