"""
Who is throttled at this moment, by which quota, how hard and for how long; everybody's headroom.
"""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from headgate.console.access.viewer import SEEING_ALL
from headgate.console.events import Moment, live_part, wants_events, watches
from headgate.console.parts import viewer
from headgate.console.rendering import draw, render
from headgate.console.routing import Page
from headgate.live.quota_ids import QuotaIdRow, matching, rows

MOST_THROTTLED: Final = 50
MOST_OTHERS: Final = 25
"""Rows of the tables; the rest is counted, and found by its name."""
MOST_FIND: Final = 200
"""Characters to look for."""
_MOST_TEXTS: Final = 20
"""Searches whose drawn page is kept, for other viewers with the same search."""


class _Drawn:
    """The live part of the page, drawn once for all viewers with the same search."""

    def __init__(self) -> None:
        self._number = -1
        self._rows: list[QuotaIdRow] = []
        self._texts: dict[str, Markup] = {}

    def text(self, moment: Moment, find: str) -> Markup:
        """Return the live part."""
        if moment.number != self._number:
            self._number, self._texts = moment.number, {}
            self._rows = rows(moment.picture) if moment.picture is not None else []
        text = self._texts.get(find)
        if text is None:
            text = draw("now_live.html.j2", **self._context(moment, find))
            if len(self._texts) < _MOST_TEXTS:
                self._texts[find] = text
        return text

    def _context(self, moment: Moment, find: str) -> dict[str, Any]:
        found = matching(self._rows, find) if find else self._rows
        throttled = [row for row in found if row.throttled]
        others = found[len(throttled) :]
        brokers = () if moment.picture is None else moment.picture.brokers
        return {
            "moment": moment,
            "find": find,
            "throttled": throttled[:MOST_THROTTLED],
            "more_throttled": len(throttled) - MOST_THROTTLED,
            "others": others[:MOST_OTHERS],
            "more_others": len(others) - MOST_OTHERS,
            "held": sum(row.held for row in self._rows),
            "count": sum(row.throttled for row in self._rows),
            "ids": len(self._rows),
            "untold": sum(broker.other_quotas for broker in brokers),
            "brokers": brokers,
            "connections": sum(broker.connections for broker in brokers),
        }


def _drawn(request: Request) -> _Drawn:
    state = request.app.state
    if not hasattr(state, "now_drawn"):
        state.now_drawn = _Drawn()
    found: _Drawn = state.now_drawn
    return found


async def show(request: Request) -> Response:
    """Return the page as it is at this moment, or its live part again and again."""
    found, drawn = watches(request), _drawn(request)
    find = request.query_params.get("find", "")[:MOST_FIND].strip()
    if wants_events(request):
        return live_part(
            found, found.everybody, viewer(request).name, lambda moment: drawn.text(moment, find)
        )
    moment = await found.everybody.now()
    live = drawn.text(moment, find)
    return render(request, "now.html.j2", find=find, moment=moment, live=live)


ROUTES: Final = (Page("/", show, SEEING_ALL, nav="Now"),)
