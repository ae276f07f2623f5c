"""
``headgate.http.listener``: /healthz, /readyz and /metrics, and nothing else.

Starlette's response types on a uvicorn server in the gateway's own loop; a scrape reads sensors
without changing them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.gateway.acceptor import listen
from headgate.metrics.expose import expose
from headgate.metrics.samples import BrokerView, Sample, read_samples

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Quiet(uvicorn.Server):
    """A server whose signals are the gateway's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Leave SIGTERM and SIGINT alone."""
        yield


class HttpListener:
    """
    Serve health and metrics.

    Args:
        bind: where.
        ready: why the gateway isn't ready, or None.
        views: what the metrics are read from.
    """

    def __init__(
        self,
        bind: HostPort,
        ready: Callable[[], str | None],
        views: Callable[[], list[BrokerView]],
    ) -> None:
        self._ready = ready
        self._views = views
        self._sock = listen(bind.host, bind.port, 64)
        self._task: asyncio.Task[None] | None = None
        app = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
            ]
        )
        self._server = _Quiet(
            uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", loop="none")
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
        self._sock.close()

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, request: Request) -> Response:
        why = self._ready()
        return PlainTextResponse(
            "ready\n" if why is None else why + "\n", 200 if why is None else 503
        )

    async def _metrics(self, request: Request) -> Response:
        now_ms = time.time_ns() // 1_000_000
        samples: list[Sample] = []
        for view in self._views():
            samples.extend(read_samples(view, now_ms))
        return Response(expose(samples), media_type=_METRICS_TYPE)
