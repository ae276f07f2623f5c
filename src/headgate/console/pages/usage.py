"""
Who used most: bytes, request time and waits of a period, over all brokers, by the journals.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from headgate.admin.listing import cell
from headgate.console.access.viewer import EVERYBODY, Viewer
from headgate.console.events import watches
from headgate.console.paging import PagePart, one_of, page_of, text_to_find
from headgate.console.parts import parts, viewer
from headgate.console.rendering import render, url
from headgate.console.routing import Page, missing

if TYPE_CHECKING:
    from headgate.usage.sums import PeriodUse, UseRow

AGAIN_S: Final = 2
"""A page whose first reading isn't done yet is asked for again after this long."""
PERIODS: Final = (
    ("15m", "15 minutes", 900_000),
    ("1h", "hour", 3_600_000),
    ("3h", "3 hours", 10_800_000),
    ("1d", "day", 86_400_000),
    ("7d", "week", 604_800_000),
    ("30d", "30 days", 2_592_000_000),
)
"""In the address, in words, and how long."""
SORTS: Final = (
    ("produced", "Produced", "produced_bytes"),
    ("fetched", "Fetched", "fetched_bytes"),
    ("time", "Request time", "request_ms"),
    ("waits", "Waits", "waited_ms"),
)
"""In the address, in words, and the figure."""


class UsageQuery(NamedTuple):
    """
    What the page's address asks for.

    Args:
        last: how long, up to now: ``1h``.
        who: what a row stands for (``usage.sums.WHO``).
        sort: by which figure: ``produced``.
        find: only names that have this.
    """

    last: str = "1h"
    who: str = "quota-id"
    sort: str = "produced"
    find: str = ""

    @property
    def period_ms(self) -> int:
        """How long the period is."""
        return next(ms for name, _, ms in PERIODS if name == self.last)

    def link(self, path: str = "/usage", **more: str | int | None) -> str:
        """Return the address of this query; what is as usual is left out."""
        usual = UsageQuery()
        told = {n: v for n, v in self._asdict().items() if v != getattr(usual, n)}
        return url(path, **{**told, **more})


def query_of(request: Request, looks: Viewer) -> UsageQuery:
    """Return what is asked for; a word that isn't known counts as none."""
    usual = UsageQuery()
    who = ("quota-id", "user", *(("tenant",) if looks.sees_all else ()))
    return UsageQuery(
        one_of(request, "last", {name for name, _, _ in PERIODS}, usual.last),
        one_of(request, "who", who, usual.who),
        one_of(request, "sort", {name for name, _, _ in SORTS}, usual.sort),
        text_to_find(request),
    )


async def used(
    request: Request, query: UsageQuery, show: Callable[[list[UseRow]], Any]
) -> tuple[PeriodUse | str | None, Any, UseRow | None]:
    """Return the reading, what is shown of the rows that the viewer may see, and their sum."""
    looks, journals = viewer(request), watches(request).journals
    use = None if journals is None else await journals.used_in(query.period_ms)
    if use is None or isinstance(use, str):
        return use, show([]), None
    principals = None if looks.sees_all else looks.principals
    tenants = request.app.state.access.tenants
    sort = next(figure for name, _, figure in SORTS if name == query.sort)
    rows = use.rows

    def ranked() -> tuple[Any, UseRow]:
        from headgate.usage.sums import Ranking

        ranking = Ranking(rows, query.who, tenants, principals)
        return show(ranking.select(sort, query.find)), ranking.whole

    shown, whole = await to_thread.run_sync(ranked)
    return use, shown, whole


async def show(request: Request) -> Response:
    """Return a page of who used most."""
    query = query_of(request, viewer(request))
    part: PagePart
    use, part, whole = await used(request, query, lambda rows: page_of(rows, request))
    has_journal = parts(request).journal is not None
    problem = use if isinstance(use, str) else ""
    answer = render(
        request, "usage.html.j2", query=query, part=part, whole=whole, problem=problem,
        use=None if problem else use, has_journal=has_journal, periods=PERIODS, sorts=SORTS,
    )  # fmt: skip
    if has_journal and use is None:
        answer.headers["refresh"] = str(AGAIN_S)
    return answer


async def file(request: Request) -> Response:
    """Return all rows that are asked for as CSV; 503 until the period is read whole."""
    if parts(request).journal is None:
        raise missing()
    query = query_of(request, viewer(request))
    use, text, _ = await used(request, query, lambda rows: _as_csv(rows, query.who))
    if use is None or isinstance(use, str) or not use.is_whole:
        return Response("The journal isn't read yet.\n", 503, {"retry-after": str(AGAIN_S)})
    return Response(
        text.encode("utf-8", "replace"), media_type="text/csv; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="usage-{query.last}.csv"'},
    )  # fmt: skip


def _as_csv(rows: list[UseRow], who: str) -> str:
    from headgate.usage.sums import FIGURES

    text = io.StringIO()
    out = csv.writer(text, lineterminator="\r\n")
    names = ["user", "client_id"] if who == "quota-id" else [who]
    out.writerow([*names, *FIGURES])
    for row in rows:
        called = [row.name, row.client_id][: len(names)]
        out.writerow([*map(cell, called), *(round(value, 3) for value in row[2:])])
    return text.getvalue()


ROUTES: Final = (
    Page("/usage", show, EVERYBODY, nav="Usage"),
    Page("/usage/file", file, EVERYBODY),
)
"""The page's rows in the table of routes."""
