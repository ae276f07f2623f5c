"""
One principal's use over time, what applies to it and why, its connections and its history.
"""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from headgate.console.access.viewer import EVERYBODY, Viewer
from headgate.console.asking import (
    ClientQuery,
    asked,
    changes_seen,
    configured,
    moment_of,
    seen,
    unknown,
)
from headgate.console.drawing import chart, connections, ladders
from headgate.console.events import Moment, Watches, live_part, wants_events, watches
from headgate.console.parts import parts, viewer
from headgate.console.recent import Point, Recent
from headgate.console.recorded import PrincipalUse
from headgate.console.rendering import draw, render
from headgate.console.routing import Page
from headgate.errors import StoreError
from headgate.live.picture import Picture, QuotaUse
from headgate.live.quota_ids import rows
from headgate.live.seen import in_steps
from headgate.live.why import why
from headgate.quota.entity import QuotaEntity, entity_from_path
from headgate.quota.key import QuotaKey
from headgate.quota.precedence import STATIC_DEFAULT
from headgate.store.base import HistoryEntry

MOST_NAMES: Final = 100
"""Principals in a list; the others are found by name."""
MOST_USES: Final = 12
"""Quota-ids that are drawn; each has a chart."""
MOST_CLIENTS: Final = 50
"""Rows of connections."""
MOST_CHANGES: Final = 30
"""Lines of history, the latest."""
MOST_FIND: Final = 200


async def show(request: Request) -> Response:
    """Return the page of a principal, or the list of principals."""
    about = asked(request)
    if about is None:
        return await _list(request)
    looks, found = viewer(request), watches(request)
    watch = found.of(*about)
    if wants_events(request):
        return live_part(
            found, watch, looks.name, lambda moment: _live(found, seen(moment, looks), about, looks)
        )
    moment = await moment_of(request, about)
    if found.journals is not None and moment.picture is not None:
        await found.journals.soon(*about, _shared(moment.picture))
    picture = moment.picture or await configured(request, about)
    changes, no_history = await _history(request, picture, about, looks)
    return render(
        request,
        "tenant.html.j2",
        about=about,
        moment=moment,
        live=_live(found, moment, about, looks),
        ladders=ladders(picture),
        note=picture.note,
        changes=changes,
        no_history=no_history,
        pairs=await _pairs(request, about),
        unknown=await unknown(request, about, moment.picture),
        **_named(picture, about),
    )


async def _pairs(request: Request, about: ClientQuery) -> list[tuple[str, QuotaKey, float]]:
    """Return the quotas of the principal's pairs: without a client-id none of them applies."""
    if about.client_id is not None:
        return []
    table = await parts(request).table()
    found = [
        (entity.client_id, key, value)
        for entity, values in table.entities.items()
        if entity.user == about.user and isinstance(entity.client_id, str)
        for key, value in values.items()
    ]
    return sorted(found)[: MOST_CLIENTS + 1]


def _named(picture: Picture, about: ClientQuery) -> dict[str, Any]:
    """Return the client-ids that the principal uses now, to choose one."""
    own = [c.client_id for c in connections(picture) if c.principal == about.user]
    names = list(dict.fromkeys(own))
    return {"client_ids": names[:MOST_CLIENTS], "more_client_ids": len(names) - MOST_CLIENTS}


def _live(found: Watches, moment: Moment, about: ClientQuery, looks: Viewer) -> Markup:
    picture = moment.picture
    if picture is None:
        return draw("tenant_live.html.j2", moment=moment)
    uses = rows(picture)
    past = None
    if found.journals is not None:
        past = found.journals.of(*about, _shared(picture))
    drawn = [(row, chart(_points(row.use, found.recent, past))) for row in uses[:MOST_USES]]
    clients = [c for c in connections(picture) if c.principal == about.user]
    if about.client_id is not None:
        clients = [c for c in clients if c.client_id == about.client_id]
    return draw(
        "tenant_live.html.j2",
        moment=moment,
        about=about,
        answer=why(picture, about.user, about.client_id),
        uses=drawn,
        past=past,
        reads=found.journals is not None,
        sees_all=looks.sees_all,
        more_uses=len(uses) - MOST_USES,
        clients=clients[:MOST_CLIENTS],
        more_clients=len(clients) - MOST_CLIENTS,
        open=sum(broker.connections for broker in picture.brokers),
        held=sum(client.held for client in clients),
    )


def _shared(picture: Picture) -> set[str]:
    """Return the client-ids whose quota-ids belong to no user."""
    uses = (use for broker in picture.brokers for use in broker.quotas)
    return {use.client_id for use in uses if use.client_id and not use.user}


def _points(use: QuotaUse, recent: Recent, past: PrincipalUse | None) -> list[Point]:
    """Return a quota-id's use: by the journal, then what was seen since."""
    quota_id = (use.key, use.user, use.client_id)
    if use.coarse:
        # Of a shared quota-id a tenant sees only its own past use, against the unsplit quota.
        points = [] if past is None or not use.quota else past.own.get(quota_id, [])
        quota = use.quota or 0.0
        return [p._replace(rate=in_steps(p.rate / quota) * quota, limit=quota) for p in points]
    points = [] if past is None or use.ip else past.points.get(quota_id, [])
    last_ms = points[-1].at_ms if points else 0
    return [*points, *(p for p in recent.of((*quota_id, use.ip)) if p.at_ms > last_ms)]


async def _history(
    request: Request, picture: Picture, about: ClientQuery, looks: Viewer
) -> tuple[list[HistoryEntry], str]:
    """
    Return the latest changes of quotas that match the client; and why none can be read, or "".
    """
    entities = {QuotaEntity.of(user=about.user): None}
    if about.client_id:
        entities[QuotaEntity.of(user=about.user, client_id=about.client_id)] = None
    for quota in picture.effective:
        paths = (entry.entity for entry in quota.entries)
        entities.update((entity_from_path(p), None) for p in paths if p != str(STATIC_DEFAULT))
    told: list[HistoryEntry] = []
    try:
        for entity in entities:
            if looks.sees_all or entity.user == about.user:
                told += await changes_seen(request, entity, MOST_CHANGES)
    except StoreError as error:
        return [], str(error) if looks.sees_all else "The history can't be read now."
    return sorted(told, key=lambda entry: entry.t_ms, reverse=True)[:MOST_CHANGES], ""


async def _list(request: Request) -> Response:
    looks = viewer(request)
    find = request.query_params.get("find", "")[:MOST_FIND].strip()
    names: dict[str, Any]
    if looks.sees_all:
        moment = await watches(request).everybody.now()
        found = rows(moment.picture) if moment.picture is not None else []
        names = {}
        for row in found:
            for user in (row.use.user, *(client.principal for client in row.clients)):
                if user:
                    names.setdefault(user, row)
        table = await parts(request).table()
        users = {entity.user for entity in table.entities}
        names.update(
            dict.fromkeys(sorted(u for u in users if isinstance(u, str) and u not in names))
        )
    else:
        names = dict.fromkeys(sorted(looks.principals))
    if find:
        names = {n: row for n, row in names.items() if find.casefold() in n.casefold()}
    shown = list(names.items())[:MOST_NAMES]
    return render(request, "tenants.html.j2", names=shown, more=len(names) - len(shown), find=find)


ROUTES: Final = (Page("/tenant", show, EVERYBODY, nav="Tenant"),)
