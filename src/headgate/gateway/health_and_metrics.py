"""
The health and metrics of one gateway, and their listener: ``headgate.http.listener``.

The listener has /healthz, /readyz and /metrics, and nothing else: Starlette's response types on a
uvicorn server in the gateway's own loop, or in its supervisor's. A scrape reads sensors without
changing them, and in slices.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.build import build
from headgate.clock import now_ms
from headgate.gateway.cluster.discovery import silent_lines
from headgate.gateway.connection.acceptor import listen
from headgate.http_serving import HttpConnection, Server, end_oldest
from headgate.metrics.expose import CONTENT_TYPE, Drawn, draw, page
from headgate.metrics.samples import rank_steps, sample_steps
from headgate.steps import finish

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.gateway.background import BackgroundWork
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.charging.journal import Journal
    from headgate.gateway.cluster.ports import Ports
    from headgate.gateway.connection.pool import Pool
    from headgate.gateway.periodic_work import PeriodicWork
    from headgate.gateway.splits.gateway_splits import GatewaySplits
    from headgate.gateway.store_link.in_force import InForceNow
    from headgate.gateway.store_link.link import StoreLink
    from headgate.metrics.samples import BrokerView
    from headgate.steps import Work


def _ranking(view: BrokerView) -> Work[None]:
    yield from rank_steps(view, now_ms)


class HealthAndMetrics:
    """
    What one gateway shows; ``http.HttpListener`` serves it.

    Args:
        in_force: what is in force.
        brokers: those fronted now.
        ports: their ports.
        splits: the splits of cluster-wide quotas.
        store_link: the store.
        periodic: counts files of the usage journal.
        pool: the bytes that connections hold.
        work: the gateway's own slices, and the meter that measures them.
        trouble: says why the store can't be read or changed now, or returns None.

    Attributes:
        started: whether the gateway serves, and isn't draining.
        journal: the process's usage journal.
        worker: the gateway's name.
    """

    def __init__(
        self,
        in_force: InForceNow,
        brokers: Mapping[int, Broker],
        ports: Ports,
        splits: GatewaySplits,
        store_link: StoreLink,
        periodic: PeriodicWork,
        pool: Pool,
        work: BackgroundWork,
        journal: Journal,
        trouble: Callable[[], str | None],
    ) -> None:
        self._in_force = in_force
        self._brokers = brokers
        self._ports = ports
        self._splits = splits
        self._store_link = store_link
        self._periodic = periodic
        self._pool = pool
        self._slices = work.slices
        self._stall_meter = work.stall_meter
        self._spawn = work.tasks.spawn
        self._ranking: set[int] = set()  # brokers whose quota-ids are being ranked
        self._trouble = trouble
        self.journal = journal
        self.worker = ""
        self.started = False

    # --- health -----------------------------------------------------------------------------

    async def health(self) -> str | None:
        """See ``HealthSource``: a gateway lives if it answers."""
        return None

    async def ready(self) -> str | None:
        """See ``HealthSource``."""
        return self.why_not_ready()

    async def note(self) -> str | None:
        """See ``HealthSource``."""
        return self.lacks()

    def lacks(self) -> str | None:
        """Say what a ready gateway lacks: brokers, changes its store refuses, splits; or None."""
        notes = (*silent_lines(self._brokers), self._store_link.refuses(), self._splits.note())
        return "\n".join(filter(None, notes)) or None

    def silent(self) -> dict[int, str]:
        """Return why brokers that are fronted don't answer, by id."""
        return {b: broker.silent for b, broker in self._brokers.items() if broker.silent}

    def why_not_ready(self) -> str | None:
        """Say why the gateway isn't ready to serve, or None."""
        why = self.unready()
        if self._brokers and len(self.silent()) == len(self._brokers):
            why = "\n".join((*filter(None, (why,)), *silent_lines(self._brokers)))
        return why

    def unready(self) -> str | None:
        """Do so, whether brokers answer or not."""
        if not self.started:
            return "not started, or draining"
        if not self._brokers:
            return "standing by" if self._ports.standing_by else "no broker is fronted"
        why = list(self._closed_ports())
        trouble = self._trouble()
        if trouble is not None and not self._store_link.does_without:
            why.append(f"the last known quotas are in force: {trouble}")
        return "\n".join(why) or None

    def _closed_ports(self) -> Iterator[str]:
        """Name each port, open here or given to clients, that doesn't accept connections."""
        books = self._ports.books
        for broker_id, broker in self._brokers.items():
            told = (name for name, book in books.items() if broker_id in book)
            for name in dict.fromkeys((*told, *broker.listeners)):
                listener = broker.listeners.get(name)
                bind = None
                if name in books:
                    bind = self._in_force.settings.ports.bind(name, broker_id)
                if (
                    listener is None
                    or not listener.acceptor.accepting
                    or (bind is not None and bind.port not in (0, listener.acceptor.address[1]))
                ):
                    yield f"listener {name} of broker {broker_id} doesn't accept connections"

    # --- metrics ----------------------------------------------------------------------------

    async def metrics(self) -> list[Drawn]:
        """See ``HealthSource``."""
        return [await self.rendered()]

    async def rendered(self) -> Drawn:
        """Draw every series of the brokers fronted, in slices; lines by family."""
        rendered: dict[str, bytes] = {}
        for broker in list(self._brokers.values()):
            view = await self._slices.run(broker.view_steps(now_ms()))
            self._complete(view, first=broker is next(iter(self._brokers.values()), None))
            for name, lines in (await self._slices.run(draw(sample_steps(view, now_ms)))).items():
                rendered[name] = rendered.get(name, b"") + lines
            if broker.broker_id not in self._ranking:  # a scrape doesn't wait for this
                self._ranking.add(broker.broker_id)
                self._spawn(self._rank(view))
        return rendered

    async def _rank(self, view: BrokerView) -> None:
        """Choose who has series from the next scrape on."""
        try:
            await self._slices.run(_ranking(view))
        finally:
            self._ranking.discard(view.broker_id)

    def views(self) -> list[BrokerView]:
        """Return what the metrics are read from, one per broker."""
        views = [finish(broker.view_steps(now_ms())) for broker in self._brokers.values()]
        for view in views:
            self._complete(view, first=view is views[0])
        return views

    def info(self) -> dict[str, str]:
        """Return the labels of ``headgate_info``, the same for all brokers of a gateway."""
        settings = self._in_force.settings
        runs = build()
        return {
            "version": runs.version,
            "commit": runs.commit,
            "enforce": settings.enforce,
            "fetch": settings.fetch,
            "pacing": settings.pacing,
            "worker": self.worker,
        }

    def _complete(self, view: BrokerView, *, first: bool) -> None:
        """Add the process's figures to a broker's view."""
        meters = view.meters
        # One journal and one pool a process: only the first broker shows theirs, for right sums.
        written, dropped = self.journal.events if first else (0, 0)
        meters.usage_events, meters.usage_dropped = written, dropped
        meters.usage_damaged = self._periodic.usage_damaged if first else 0
        meters.usage_removed = self._periodic.usage_removed if first else 0
        meters.queued_bytes = self._pool.used if first else 0
        meters.loop_longest_ms = self._stall_meter.longest_ms if first else 0.0
        meters.loop_slow = self._stall_meter.slow if first else 0
        broker = self._brokers.get(view.broker_id)
        meters.broker_up = broker is None or not broker.silent
        meters.store_version = self._in_force.table.version
        view.info = self.info()
        view.most = self._in_force.settings.metrics_quota_ids
        meters.split_expired = self._splits.expired(broker)
        meters.store_up = self._trouble() is None


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


class HealthSource(Protocol):
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

    def __init__(self, bind: HostPort, shown: HealthSource) -> None:
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
        # Scrapes that come while a page is being rendered get that page: it is rendered once.
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
