"""
Which client a page is asked about, and what its viewer may see of the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from starlette.requests import Request

from headgate.console.access.viewer import Viewer
from headgate.console.events import Moment, watches
from headgate.console.parts import parts, viewer
from headgate.console.routing import missing
from headgate.live.effective import effective_of
from headgate.live.known import unknown_name
from headgate.live.picture import Picture
from headgate.live.seen import as_seen_by
from headgate.quota.entity import QuotaEntity
from headgate.store.base import HistoryEntry


class ClientQuery(NamedTuple):
    """A principal, and one of its client-ids; None: any of them."""

    user: str
    client_id: str | None


def asked(request: Request) -> ClientQuery | None:
    """
    Return the client that a page is asked about; None: none yet.

    Raises:
        HTTPException: the viewer may not see that principal, whether it exists or not.
    """
    user = request.query_params.get("user", "")
    if not user:
        return None
    if not viewer(request).sees(user):
        raise missing()
    return ClientQuery(user, request.query_params.get("client-id"))


def seen(moment: Moment, looks: Viewer) -> Moment:
    """Return what a viewer may see of an answer."""
    if looks.sees_all:
        return moment
    problem = "What goes on now can't be asked for at the moment." if moment.problem else ""
    picture = moment.picture
    if picture is not None:
        picture = as_seen_by(picture, looks.principals)
    return replace(moment, picture=picture, problem=problem)


async def moment_of(request: Request, about: ClientQuery) -> Moment:
    """Return what goes on with a client now, as the viewer may see it."""
    return seen(await watches(request).of(*about).now(), viewer(request))


async def changes_seen(
    request: Request, entity: QuotaEntity | None = None, most: int | None = None
) -> list[HistoryEntry]:
    """
    Return the changes that the viewer may see, the newest first; a tenant isn't told who and why.

    Args:
        request: of the viewer.
        entity: only changes of this entity.
        most: only this many, before those that the viewer may not see are left out.

    Raises:
        StoreError: there is no history, or it can't be read.
    """
    looks = viewer(request)
    told = await parts(request).quotas.history_beside(lambda to: to.history(entity, most))
    if not looks.sees_all:
        own = (e for e in told if isinstance(e.entity.user, str) and looks.sees(e.entity.user))
        told = [replace(e, who="", tool="", change="", message="") for e in own]
    return told[::-1]


async def configured(request: Request, about: ClientQuery) -> Picture:
    """Return the quotas that apply, as a picture; used while no gateway answers."""
    table = await parts(request).table()
    picture = Picture(
        parts(request).clock_ms(),
        user=about.user,
        client_id=about.client_id,
        effective=effective_of(table, about.user, about.client_id),
    )
    looks = viewer(request)
    return picture if looks.sees_all else as_seen_by(picture, looks.principals)


async def unknown(request: Request, about: ClientQuery, picture: Picture | None) -> str:
    """
    Say that a name isn't in use, and what comes near; "" where it is known, or can't be.

    Only those who see everybody are told: others ask about their own names alone.
    """
    here, looks = parts(request), viewer(request)
    if not looks.sees_all or picture is None or any(b.connections for b in picture.brokers):
        return ""
    everybody = await watches(request).everybody.now()
    table = await here.table()
    return unknown_name(about.user, about.client_id, everybody.picture, table.entities)
