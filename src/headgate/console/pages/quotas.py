"""
Everything that is configured: each quota with its use now, its waits, and its last change.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from headgate.admin.listing import (
    KINDS,
    ONLY,
    SORTS,
    LastChanges,
    Listing,
    QuotaQuery,
    QuotasNow,
    as_csv,
    as_yaml,
    last_changes,
)
from headgate.console.access.viewer import EVERYBODY
from headgate.console.events import Moment, watches
from headgate.console.paging import one_of, page_of, text_to_find
from headgate.console.parts import ConsoleParts, parts, viewer
from headgate.console.rendering import render, url
from headgate.console.routing import Page
from headgate.errors import StoreError
from headgate.quota.key import KEYS
from headgate.quota.table import QuotaTable
from headgate.store.base import EndingQuota, HistoryEntry
from headgate.words import what_of

_AGAIN_MS: Final = 60_000
"""Servers that keep no history are asked for one again after this long."""
_FEW: Final = 200
"""Entries of the history that are read after a change; if these aren't enough, all are."""


class _Listed:
    """All rows, made once for all viewers while neither quotas nor the picture change."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._table = QuotaTable()
        self._listing = Listing(self._table, {})
        self._listed_of: LastChanges = {}
        self._ends: list[EndingQuota] = []
        self._number = -1
        self._now = self._listing.at(None)
        self._last: LastChanges = {}
        self._last_of: object = None
        self._newest: HistoryEntry | None = None
        self._ask_at_ms = 0
        self.no_history = ""

    async def at(self, here: ConsoleParts, moment: Moment) -> QuotasNow:
        """Return all quotas at a moment."""
        async with self._lock:
            table = await here.table()
            last = await self._latest(here, table)
            if table is not self._table or last is not self._listed_of:
                self._listing = await to_thread.run_sync(Listing, table, last, self._ends)
                self._table, self._listed_of, self._number = table, last, -1
            if moment.number != self._number:
                self._now = await to_thread.run_sync(self._listing.at, moment.picture)
                self._number = moment.number
            return self._now

    async def _latest(self, here: ConsoleParts, table: QuotaTable) -> LastChanges:
        """Return the latest change of each quota; it is read again when quotas have changed."""
        quotas = here.quotas
        if not quotas.keeps_history and here.clock_ms() < self._ask_at_ms:
            return self._last
        identity = await quotas.beside(lambda to: to.identity()) if quotas.keeps_history else None
        state = (identity, table.version)
        if quotas.keeps_history and state == self._last_of:
            return self._last
        if quotas.keeps_history:
            self._ends = await quotas.beside(lambda to: to.ends())
        try:
            told = await self._since(here)
        except StoreError as error:
            self.no_history = str(error)
            self._ask_at_ms = here.clock_ms() + _AGAIN_MS
            return self._last
        self._last = await to_thread.run_sync(last_changes, told, self._last)
        self._newest = told[-1] if told else self._newest
        self._last_of, self.no_history = state, ""
        return self._last

    async def _since(self, here: ConsoleParts) -> list[HistoryEntry]:
        """Return the changes since the newest one that is known; without one, all."""
        history = here.quotas.history_beside
        if self._newest is not None:
            told = await history(lambda to: to.history(limit=_FEW))
            if self._newest in told:
                return told[told.index(self._newest) + 1 :]
        return await history(lambda to: to.history())


def _listed(request: Request) -> _Listed:
    state = request.app.state
    if not hasattr(state, "quotas_listed"):
        state.quotas_listed = _Listed()
    found: _Listed = state.quotas_listed
    return found


def query_of(request: Request) -> QuotaQuery:
    """Return what the address asks for; a word that isn't known counts as none."""
    return QuotaQuery(
        text_to_find(request),
        one_of(request, "key", {key.name for key in KEYS}, ""),
        one_of(request, "kind", (*KINDS, "default"), ""),
        one_of(request, "only", ONLY, ""),
        one_of(request, "sort", SORTS, "name"),
        request.query_params.get("turned") == "yes",
    )


def link(query: QuotaQuery, path: str = "/quotas", **more: str | int | None) -> str:
    """Return the address of a query; what is as usual is left out."""
    usual = QuotaQuery()
    told = {
        name: "yes" if value is True else value
        for name, value in query._asdict().items()
        if value != getattr(usual, name)
    }
    return url(path, **{**told, **more})


async def quotas_found(request: Request, query: QuotaQuery) -> tuple[QuotasNow, list[int], Moment]:
    """Return what the viewer may see, the numbers of the rows asked for, and the moment."""
    moment = await watches(request).everybody.now()
    now = await _listed(request).at(parts(request), moment)
    looks = viewer(request)
    if not looks.sees_all:
        now = await to_thread.run_sync(now.of_users, looks.principals)
    return now, await to_thread.run_sync(now.select, query), moment


async def show(request: Request) -> Response:
    """Return a page of quotas."""
    query = query_of(request)
    now, found, moment = await quotas_found(request, query)
    part = page_of(found, request)
    brokers = () if moment.picture is None else moment.picture.brokers
    looks = viewer(request)
    return render(
        request, "quotas.html.j2", query=query, part=part, rows=[now.row(n) for n in part.rows],
        all_rows=len(now), moment=moment, link=link, to=partial(link, query),
        keys=[(key.name, what_of(key.name)) for key in KEYS],
        untold=sum(broker.other_quotas for broker in brokers),
        has_live=parts(request).live is not None,
        no_history=_listed(request).no_history if looks.sees_all else "",
    )  # fmt: skip


async def file(request: Request) -> Response:
    """Return all quotas that are asked for as a file: a quotas file, or CSV."""
    now, found, _ = await quotas_found(request, query_of(request))
    is_csv = request.query_params.get("as") == "csv"
    text = await to_thread.run_sync(as_csv if is_csv else as_yaml, map(now.row, found))
    name, kind = ("quotas.csv", "text/csv") if is_csv else ("quotas.yaml", "application/yaml")
    return Response(
        text.encode("utf-8", "replace"), media_type=f"{kind}; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )  # fmt: skip


ROUTES: Final = (
    Page("/quotas", show, EVERYBODY, nav="Quotas"),
    Page("/quotas/file", file, EVERYBODY),
)
