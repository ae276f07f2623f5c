"""
Which quota throttles a client and why, who shares it, since when, and what would end it.
"""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from headgate.console.access.viewer import EVERYBODY
from headgate.console.asking import ClientQuery, asked, configured, moment_of, seen, unknown
from headgate.console.drawing import ladders, levels
from headgate.console.events import Moment, live_part, wants_events, watches
from headgate.console.parts import viewer
from headgate.console.rendering import draw, render
from headgate.console.routing import Page
from headgate.live.quota_ids import rows
from headgate.live.why import why

MOST_OTHERS: Final = 6
"""Quotas beside the one that decides."""


async def show(request: Request) -> Response:
    """Return the form, and the answer if somebody was named."""
    looks = viewer(request)
    names = [] if looks.sees_all else sorted(looks.principals)
    about = asked(request)
    if about is None:
        return render(request, "why.html.j2", names=names, about=None)
    about = about._replace(client_id=about.client_id or None)  # a field left blank
    found = watches(request)
    if wants_events(request):
        return live_part(
            found, found.of(*about), looks.name, lambda moment: _live(seen(moment, looks), about)
        )
    moment = await moment_of(request, about)
    by_quotas = [] if moment.picture else ladders(await configured(request, about))
    return render(
        request,
        "why.html.j2",
        names=names,
        about=about,
        moment=moment,
        live=_live(moment, about),
        ladders=by_quotas,
        unknown=await unknown(request, about, moment.picture),
    )


def _live(moment: Moment, about: ClientQuery) -> Markup:
    picture = moment.picture
    if picture is None:
        return draw("why_live.html.j2", moment=moment)
    answer = why(picture, *about)
    by_id = {(row.use.key, row.use.user, row.use.client_id): row for row in rows(picture)}
    quotas = [(q, by_id.get((q.key, q.user, q.client_id))) for q in answer.quotas]
    first = answer.quotas[0] if answer.quotas else None
    return draw(
        "why_live.html.j2",
        moment=moment,
        about=about,
        answer=answer,
        first=first,
        row=quotas[0][1] if quotas else None,
        rungs=levels(first, *about) if first is not None and first.entries else (),
        others=quotas[1 : MOST_OTHERS + 1],
    )


ROUTES: Final = (Page("/why", show, EVERYBODY, nav="Why"),)
