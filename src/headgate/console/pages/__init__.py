"""
One module a page: its rows (``ROUTES``) and the functions that answer.

A function is ``async (request) -> Response``; ``parts(request)`` and ``viewer(request)`` give it
what it needs. A name that the viewer may not see gets the same answer as an unknown one: ``raise
missing()``. The order here is that of the navigation.

- ``now``: who is throttled at this moment, and everybody's headroom.
- ``tenant``: one principal's use, quotas, connections and history.
- ``why``: which quota throttles a client, and what would end that.
- ``quotas``: every quota, with its use, its waits and its last change.
- ``usage``: who used most in a period.
- ``change``: edit a quota, after a preview; undo.
- ``plan``: compares a quotas file with the quotas in force, and applies it.
- ``raises``: tenants ask for more, operators answer.
- ``tokens``: of the HTTP API: made, listed, ended.
- ``sign_in``: signing in and out.
"""

from __future__ import annotations

from typing import Final

from headgate.console.pages import (
    change,
    now,
    plan,
    quotas,
    raises,
    sign_in,
    tenant,
    tokens,
    usage,
    why,
)
from headgate.console.routing import Page

PAGES: Final[tuple[Page, ...]] = (
    *now.ROUTES,
    *tenant.ROUTES,
    *why.ROUTES,
    *quotas.ROUTES,
    *usage.ROUTES,
    *change.ROUTES,
    *plan.ROUTES,
    *raises.ROUTES,
    *tokens.ROUTES,
    *sign_in.ROUTES,
)
"""The table of routes: whatever isn't in it isn't served."""
