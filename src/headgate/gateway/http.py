"""
``headgate.http.listener``: /healthz, /readyz and /metrics, and nothing else.

Starlette's response types on a uvicorn server in the gateway's own loop, or in its supervisor's; a
scrape reads sensors without changing them, and in slices.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.gateway.connection.acceptor import listen
from headgate.http_serving import HttpConnection, Server, end_oldest
from headgate.metrics.expose import CONTENT_TYPE, page

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.metrics.expose import Drawn

MOST_CONNECTIONS: Final = 100
"""Monitoring needs a few; each is a descriptor that clients don't get."""
MOST_BYTES: Final = 8_192
"""Of a request, with what is sent before its answer. Scrapers and probes send some hundred."""
MOST_LINES: Final = 200
"""Of the same: each header and each chunk of a body takes h11 some microseconds."""
_LAST_ANSWERS_S: Final = 1
"""How long answers may still be read when a gateway ends: a drain mustn't wait for a scraper."""


class _Few(HttpConnection):
    """
    One of a bounded number of connections.

    A further one closes the oldest idle one. If none is idle it closes the oldest: clients that
    don't read their answers must keep no probe out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self._bytes = self._lines = 0
        if len(self.connections) > MOST_CONNECTIONS:
            held = [c for c in self.others() if _holds_out(c.transport)]
            end_oldest([c for c in held if not c.is_answered] or held or [self])

    def data_received(self, data: bytes) -> None:
        """Take what was sent; refuse more than a question that is answered here can have."""
        self._bytes += len(data)
        self._lines += data.count(b"\n")
        if self._bytes <= MOST_BYTES and self._lines <= MOST_LINES:
            super().data_received(data)
        elif not self.transport.is_closing():
            self.send_400_response("That is too much for a question.")

    def on_response_complete(self) -> None:
        """Count from 0 again; what came with an answered request is counted with the next."""
        left = self.conn.trailing_data[0]
        self._bytes, self._lines = len(left), left.count(b"\n")
        super().on_response_complete()


def _holds_out(transport: asyncio.Transport) -> bool:
    """Say whether it is open; one that closes when its answer has been read counts."""
    return not transport.is_closing() or transport.get_write_buffer_size() > 0


class Showing(Protocol):
    """Whose health and metrics are served: one gateway's, or a supervisor's workers'."""

    async def health(self) -> str | None:
        """Return which workers don't answer; None: all do."""

    async def ready(self) -> str | None:
        """Return which workers don't serve, and why; None: all do."""

    async def note(self) -> str | None:
        """Return what a ready gateway lacks, such as splits that have expired; None: nothing."""

    async def metrics(self) -> list[Drawn]:
        """Draw all series as of now, process by process."""


class HttpListener:
    """
    Serve health and metrics.

    Args:
        bind: the address to listen on.
        shown: the gateway, or the fleet of workers, that is shown.

    Raises:
        OSError: the port can't be had.
    """

    def __init__(self, bind: HostPort, shown: Showing) -> None:
        self._shown = shown
        self._sock = listen(bind.host, bind.port, 64)
        self._task: asyncio.Task[None] | None = None
        self._drawing: asyncio.Task[bytes] | None = None
        app = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
            ]
        )
        self._server = Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                loop="none",
                http=_Few,
                ws="none",
                timeout_graceful_shutdown=_LAST_ANSWERS_S,
            )
        )

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        name = self._sock.getsockname()
        return str(name[0]), int(name[1])

    def start(self) -> None:
        """Serve from now on."""
        self._task = asyncio.get_running_loop().create_task(
            self._server.serve(sockets=[self._sock])
        )

    async def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()  # of a client that still hasn't read its answer
        self._sock.close()

    async def _healthz(self, request: Request) -> Response:
        return _said(await self._shown.health(), "ok")

    async def _readyz(self, request: Request) -> Response:
        note = await self._shown.note()
        return _said(await self._shown.ready(), "ready" if note is None else f"ready\n{note}")

    async def _metrics(self, request: Request) -> Response:
        # Scrapes that come while a page is being drawn get that page: it is drawn once.
        if self._drawing is None:
            self._drawing = asyncio.get_running_loop().create_task(self._draw())
        return Response(await asyncio.shield(self._drawing), media_type=CONTENT_TYPE)

    async def _draw(self) -> bytes:
        try:
            return page(await self._shown.metrics())
        finally:
            self._drawing = None


def _said(why: str | None, fine: str) -> Response:
    """Answer that all is well, or 503 with the reason."""
    return PlainTextResponse(f"{why or fine}\n", 503 if why else 200)
