"""
The stream of changes: server-sent events, as live pages have them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from anyio import to_thread
from starlette.requests import Request

from headgate.console.access.viewer import EVERYBODY, Viewer
from headgate.console.api.changes import MOST_CHANGES, PlannedTold
from headgate.console.api.resource import Asked, Resource
from headgate.console.events import EVENTS, EventStream, watches
from headgate.console.parts import viewer
from headgate.quota.table import QuotaTable, TableChange, table_delta


class ChangedTold(msgspec.Struct, frozen=True):
    """
    Quotas that have changed, as an event tells them.

    Args:
        revision: of the quotas since then, as plans name it; "" for a tenant.
        changes: since the event before; the first event has none.
        more: how many more there are.
    """

    revision: str
    changes: tuple[PlannedTold, ...]
    more: int


class _News(NamedTuple):
    state: str
    table: QuotaTable
    changes: tuple[TableChange, ...]


async def stream(request: Request, asked: Asked) -> EventStream:
    """Tell each change of a quota that the viewer may see, within a second or so."""
    found, looks = watches(request), viewer(request)

    async def after(last: _News | None) -> _News:
        state = "" if last is None else last.state
        while True:
            state, table = await found.quotas.after(state)
            if last is None:
                return _News(state, table, ())
            changes = await to_thread.run_sync(_seen, last.table, table, looks)
            if changes or looks.sees_all:  # a tenant isn't told when others' quotas change
                return _News(state, table, changes)

    def tell(news: _News) -> object:
        told = tuple(map(PlannedTold.of, news.changes[:MOST_CHANGES]))
        more = len(news.changes) - len(told)
        revision = news.state if looks.sees_all else ""
        return msgspec.to_builtins(ChangedTold(revision, told, more))

    return EventStream(found, looks.name, after, tell)


def _seen(old: QuotaTable, new: QuotaTable, looks: Viewer) -> tuple[TableChange, ...]:
    changes = table_delta(old, new).changes
    return tuple(
        c
        for c in changes
        if looks.sees_all or (isinstance(c.entity.user, str) and looks.sees(c.entity.user))
    )


RESOURCES: Final = (
    Resource(
        "GET", "/stream", "Tell each change of a quota as it happens: server-sent events, "
        "each with a ChangedTold; for a minute, then connect again.", EVERYBODY,
        stream, Asked, ChangedTold, refusals=(503,), media_type=EVENTS,
    ),
)  # fmt: skip
