"""A console that a real browser looks at: served on a port, checked by axe-core."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page
from starlette.requests import Request

from headgate.config.listeners import HostPort
from headgate.console.access.sign_in import SignIn
from headgate.console.access.viewer import Role, Viewer
from headgate.console.app import make_app
from headgate.console.parts import ConsoleParts
from headgate.console.serve import listen
from kit.console import TENANTS, sign_in

WIDTHS = (390, 1440)
SCHEMES = ("light", "dark")


class _Access(SignIn):
    """Takes the header ``x-test-viewer`` (``operator``, ``tenant:payments``) for the viewer."""

    async def viewer_of(self, request: Request) -> tuple[Viewer | None, str]:
        """Return who the header says."""
        role, _, tenant = request.headers["x-test-viewer"].partition(":")
        name = tenant or role
        return Viewer(name, Role(role), tenant, TENANTS.get(tenant, frozenset()), name), name

    def role_of(self, owner: str) -> tuple[Role, str]:
        """Return what the header said of somebody."""
        return (Role.TENANT, owner) if owner in TENANTS else (Role(owner), "")


@contextlib.contextmanager
def served(parts: ConsoleParts, port: int = 0) -> Iterator[str]:
    """Serve a console on this port, or a free one; yields its address."""
    sock = listen(HostPort("127.0.0.1", port))
    port = sock.getsockname()[1]
    app = make_app(parts, sign_in(parts, f"127.0.0.1:{port}", _Access))
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def looking(
    browser: Browser, role: str, tenant: str = "", *, errors: bool = False, **context: Any
) -> Iterator[Page]:
    """
    Open a page as somebody; at its end no script may have failed.

    Args:
        browser: Chromium.
        role: ``viewer``, ``tenant``, ``operator``.
        tenant: for the role tenant.
        errors: whether the browser may complain (a lost line, a page that isn't there).
        context: of Playwright, such as ``color_scheme``.
    """
    who = f"{role}:{tenant}" if tenant else role
    made = browser.new_context(extra_http_headers={"x-test-viewer": who}, **context)
    made.set_default_timeout(60_000)
    page = made.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    yield page
    made.close()
    assert errors or wrong == []


def violations(page: Page) -> list[str]:
    """Return what axe-core finds wrong with a page, with the first place of each."""
    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found]


def sticks_out(page: Page) -> int:
    """Return by how many pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def by_keyboard(page: Page, name: str) -> None:
    """Press Tab until a link, button or field of this name has the focus."""
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate(
            """name => { const e = document.activeElement;
              return [e.textContent.trim(), e.getAttribute('aria-label'),
                      ...[...(e.labels || [])].map(l => l.textContent.trim())].includes(name); }""",
            name,
        ):
            return
    raise AssertionError(f"no Tab leads to {name!r}")
