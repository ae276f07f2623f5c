"""
Templates and static files.

``render(request, "now.html.j2", …)`` gives a template these besides its own values: ``viewer``,
``nav`` (label, path, whether it is this page), ``csrf`` (the token; ``{{ csrf_field() }}`` is the
hidden field of a form), ``static("console.css")``, ``url("/tenant", user=…)``. Filters: those of
``headgate.templates``, and ``name`` for names that others chose.
Style attributes and inline scripts don't work: the content policy forbids them.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from headgate import words
from headgate.console.access.csrf import FIELD, csrf_token
from headgate.console.access.viewer import Viewer
from headgate.quota.entity import Default, QuotaEntity
from headgate.quota.human import human
from headgate.quota.precedence import PRECEDENCE, Source
from headgate.templates import environment

STATIC: Final = "/static"
LONGEST_NAME: Final = 80
"""Characters of a name that a table shows."""


@cache
def templates() -> Environment:
    """Return the environment of all templates."""
    made = environment(
        "headgate.console", name=name, what=words.what_of, unit=words.unit_of, short=short,
        path=path, clock=clock, figures=words.figures, entity=entity, source=source,
    )  # fmt: skip
    made.globals.update(static=static, url=url, human=human, dash=words.NONE, levels=PRECEDENCE)
    return made


def render(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """
    Return a page.

    Args:
        request: the request that it answers.
        template: in ``templates/``.
        status: the HTTP status.
        context: what else the template needs.
    """
    viewer: Viewer | None = request.state.viewer
    token = csrf_token(request.state.csrf_key)
    nav = [
        (page.nav, page.path, f"{request.url.path}/".startswith(f"{page.path}/"))
        for page in request.app.state.nav
        if viewer is not None and (page.roles is None or viewer.role in page.roles)
    ]
    text = (
        templates()
        .get_template(template)
        .render(
            viewer=viewer,
            nav=nav,
            csrf=token,
            csrf_field=lambda: Markup('<input type="hidden" name="{}" value="{}">').format(
                FIELD, token
            ),
            **context,
        )
    )
    # A name may hold a lone surrogate, which no encoding has a place for.
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def draw(template: str, **context: Any) -> Markup:
    """Return a part of a page; its template gets only its own values."""
    return Markup(templates().get_template(template).render(**context))


def name(text: str) -> Markup:
    """
    Return a client's name for a page: control characters spelled out, text direction isolated.
    """
    return Markup("<bdi>{}</bdi>").format(words.printable(text))


def short(text: str) -> Markup:
    """Return a name as ``name`` does, shortened for a table."""
    return name(_shortened(text))


def path(text: str) -> Markup:
    """Return an entity's path as ``short`` does; a line may end after a slash."""
    parts = words.printable(_shortened(text)).split("/")
    return Markup("<bdi>{}</bdi>").format(Markup("/<wbr>").join(parts))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def clock(ms: int) -> str:
    """Return a moment without its date: ``14:34:29 UTC``."""
    return words.moment(ms).partition(" ")[2]


def entity(entity: QuotaEntity) -> Markup:
    """Return what a quota is set for: ``user alice, any other client-id``."""
    return Markup(", ").join(
        Markup("any other {}").format(kind)
        if isinstance(called, Default)
        else Markup("{} {}").format(kind, name(called))
        for kind, called in entity
    )


def source(given: Source | None) -> Markup:
    """Return where an effective quota comes from."""
    if given is None:
        return Markup("no quota")
    return entity(given) if isinstance(given, QuotaEntity) else Markup.escape(str(given))


def url(path: str, **query: str | int | None) -> str:
    """Return a path with its query, percent-encoded; None is left out, ``_`` in names is ``-``."""
    pairs = [(key.replace("_", "-"), value) for key, value in query.items() if value is not None]
    return f"{path}?{urlencode(pairs, errors='surrogatepass')}" if pairs else path


@cache
def static(file: str) -> str:
    """Return the path of a static file, with a hash: when its content changes, so does the path."""
    content = (resources.files("headgate.console") / "static" / file).read_bytes()
    return f"{STATIC}/{file}?v={hashlib.sha256(content).hexdigest()[:16]}"
