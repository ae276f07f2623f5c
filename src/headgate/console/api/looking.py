"""
Resources that only tell: why a client waits, who used most, who changed what.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from starlette.requests import Request

from headgate.console.access.viewer import EVERYBODY
from headgate.console.api.problems import RefusedRequest
from headgate.console.api.quotas import ClientAsked, named
from headgate.console.api.resource import EntityPath, KeyName, ListTold, PageAsked, Resource, Text
from headgate.console.asking import changes_seen, moment_of
from headgate.console.pages.usage import AGAIN_S, UsageQuery, used
from headgate.console.parts import parts, viewer
from headgate.console.routing import missing
from headgate.java_text import Number, finite
from headgate.live.why import Why, why
from headgate.quota.entity import entity_from_path
from headgate.store.base import HistoryEntry

MOST_WHY: Final = 50
"""Quotas of an answer, the one that decides first: a principal may use any number of client-ids."""


class WhyAsked(ClientAsked, frozen=True):
    """A principal, and one of its client-ids; only about one key, if one is named."""

    key: KeyName | Literal[""] = ""


class UsageAsked(PageAsked, frozen=True, kw_only=True):
    """Whose use is asked for: as on the page Usage."""

    last: Literal["15m", "1h", "3h", "1d", "7d", "30d"] = "1h"
    who: Literal["quota-id", "user", "tenant"] = "quota-id"
    sort: Literal["produced", "fetched", "time", "waits"] = "produced"
    find: Text = ""


class UseTold(msgspec.Struct, frozen=True):
    """
    What one quota-id, user or tenant used in the period.

    Args:
        name: the user or tenant; "" for a quota-id that belongs to no user, and for no tenant.
        client_id: of a quota-id; "" otherwise, and for a quota-id of all client-ids.
        produced_bytes: written to brokers.
        fetched_bytes: read from them.
        request_ms: time that brokers' threads worked for it.
        throttled: requests that had to wait.
        waited_ms: the sum of these waits.
    """

    name: str
    client_id: str
    produced_bytes: float
    fetched_bytes: float
    request_ms: float
    throttled: float
    waited_ms: float


class UsageTold(msgspec.Struct, frozen=True):
    """
    Who used most.

    Args:
        since_ms: when the period begins, or the journal, if that is later; epoch ms.
        files_read: how many files of the journal were read; the next answer is of more of them.
        files: how many there are of the period.
        whole: the sum of all that the viewer may see.
        uses: a page of it, the one who used most first.
    """

    since_ms: float
    files_read: int
    files: int
    whole: UseTold
    uses: ListTold[UseTold]


class HistoryAsked(PageAsked, frozen=True, kw_only=True):
    """Which changes are asked for: of all quotas, or of one entity; a tenant names one."""

    entity: EntityPath | None = None


class ChangeTold(msgspec.Struct, frozen=True):
    """
    One change of one quota.

    Args:
        at_ms: when, epoch ms.
        entity: of what, as a path.
        key: what it limits.
        before: the value until then; null: none.
        after: the value since; null: none.
        change: the name of the change, to undo it; "" for a tenant.
        who: who made it; "" for a tenant.
        tool: by which program; "" for a tenant.
        message: why; "" for a tenant.
    """

    at_ms: int
    entity: str
    key: str
    before: Number
    after: Number
    change: str
    who: str
    tool: str
    message: str

    @classmethod
    def of(cls, entry: HistoryEntry) -> ChangeTold:
        """Tell an entry of the history."""
        return cls(
            entry.t_ms, entry.entity.path, entry.key.name, finite(entry.before),
            finite(entry.after), entry.change, entry.who, entry.tool, entry.message,
        )  # fmt: skip


class HistoryTold(msgspec.Struct, frozen=True):
    """
    One page of the history, the latest change first.

    Args:
        rows: the changes of the page.
        page: its number.
        more: whether there are older ones.
    """

    rows: tuple[ChangeTold, ...]
    page: int
    more: bool


async def reason(request: Request, asked: WhyAsked) -> Why:
    """Say why a client waits, or how much room it has."""
    about = named(request)
    about = about._replace(client_id=about.client_id or None)
    moment = await moment_of(request, about)
    if moment.picture is None:
        raise RefusedRequest(503, moment.problem, retry_s=AGAIN_S)
    found = why(moment.picture, *about, asked.key or None)
    return msgspec.structs.replace(found, quotas=found.quotas[:MOST_WHY])


async def usage(request: Request, asked: UsageAsked) -> UsageTold:
    """Return a page of who used most."""
    if parts(request).journal is None:
        raise missing()
    if asked.who == "tenant" and not viewer(request).sees_all:
        raise RefusedRequest(403, "A tenant's sums are told to those who see all.", "who")
    query = UsageQuery(asked.last, asked.who, asked.sort, asked.find.strip())
    use, uses, whole = await used(
        request, query, lambda rows: ListTold[UseTold].of(rows, asked, lambda row: UseTold(*row))
    )
    if use is None or isinstance(use, str) or whole is None:
        why = use if use and viewer(request).sees_all else "The journal isn't read yet."
        raise RefusedRequest(503, str(why), retry_s=AGAIN_S)
    return UsageTold(use.since_ms, use.read, use.files, UseTold(*whole), uses)


async def history(request: Request, asked: HistoryAsked) -> HistoryTold:
    """Return a page of the changes that the viewer may see; no more of the history is read."""
    entity = None if asked.entity is None else entity_from_path(asked.entity)
    if entity is None and not viewer(request).sees_all:
        raise RefusedRequest(422, "A tenant is told the history of one entity at a time.", "entity")
    last = asked.page * asked.size
    told = await changes_seen(request, entity, last + 1)
    rows = told[last - asked.size : last]
    return HistoryTold(tuple(map(ChangeTold.of, rows)), asked.page, len(told) > last)


RESOURCES: Final = (
    Resource(
        "GET", "/why", "Say why a client waits, or how much room it has.", EVERYBODY,
        reason, WhyAsked, Why, refusals=(503,),
    ),
    Resource(
        "GET", "/usage", "Tell who used most in a period.", EVERYBODY,
        usage, UsageAsked, UsageTold, refusals=(503,),
    ),
    Resource(
        "GET", "/history", "Tell what was changed, the latest first.", EVERYBODY,
        history, HistoryAsked, HistoryTold,
    ),
)  # fmt: skip
