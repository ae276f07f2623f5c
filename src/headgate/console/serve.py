"""
The console's server: sockets, TLS, signals.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvicorn
from starlette.types import ASGIApp

from headgate import http_serving
from headgate.config.listeners import HostPort
from headgate.errors import ConfigError
from headgate.http_serving import end_oldest

_MOST_REQUESTS: Final = 500
"""Pages and live updates at once; the next is answered 503."""
_LAST_ANSWERS_S: Final = 2
"""How long answers may still be read when the console ends."""
ASK_S: Final = 20.0
"""A client that connected, or had its answer, has this long for the whole head of a request."""
READ_S: Final = 30.0
"""A client that doesn't read what was sent is cut off after this long."""


class _Deadline:
    """
    Aborts a connection after a time, unless called off; closing would wait for a slow reader.

    Args:
        seconds: after which it ends.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """Begin, if that isn't done yet."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, transport.abort)

    def call_off(self) -> None:
        """Cancel it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ConsoleConnection(http_serving.HttpConnection):
    """
    One connection. A slow one is closed, because their number is bounded and others wait.

    Where as many are open as may be, a further one closes the oldest of those that haven't asked
    for anything in full.

    Args:
        given: uvicorn's.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._asks = _Deadline(ASK_S)
        self._reads = _Deadline(READ_S)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self._watch()
        others = [c for c in self.others() if not c.transport.is_closing()]
        if len(others) + 1 >= (self.limit_concurrency or _MOST_REQUESTS):
            end_oldest(c for c in others if not c.is_answered)  # or this one is told 503

    def data_received(self, data: bytes) -> None:
        """Take what was sent."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Go on to the next request, if there is one."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Wait for a client that doesn't read."""
        super().pause_writing()
        self._reads.begin(self.transport)

    def resume_writing(self) -> None:
        """Go on: it was read."""
        super().resume_writing()
        self._reads.call_off()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._asks.call_off()
        self._reads.call_off()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.is_answered:
            self._asks.call_off()
        else:
            self._asks.begin(self.transport)


class _Server(http_serving.Server):
    """
    A server that reports when it is ready.

    Args:
        config: uvicorn's.
        ready: called when requests are served.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        self._ready()


class PemFiles(NamedTuple):
    """A certificate chain and its key, as PEM files."""

    certificate: Path
    key: Path


def listen(bind: HostPort) -> socket.socket:
    """
    Return a socket that listens.

    Raises:
        ConfigError: the port can't be used.
    """
    try:
        family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
        return socket.create_server((bind.host, bind.port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(f"can't listen on {bind}: {error.strerror or error}") from error


def end_with_parent() -> None:
    """End this process by SIGTERM when its stdin closes, as it does when its parent is gone."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="headgate-parent", daemon=True).start()


def config_of(app: ASGIApp, tls: PemFiles | None = None) -> uvicorn.Config:
    """Return uvicorn's settings; proxies' headers are read by ``access.proxy``, not by uvicorn."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        http=ConsoleConnection,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MOST_REQUESTS,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )


def serve(
    app: ASGIApp, sock: socket.socket, tls: PemFiles | None, ready: Callable[[], None]
) -> None:
    """
    Serve until SIGTERM or SIGINT.

    Args:
        app: the application.
        sock: listens already.
        tls: a certificate; None: plain HTTP.
        ready: called when requests are served.

    Raises:
        ConfigError: the certificate can't be used.
    """
    config = config_of(app, tls)
    try:
        config.load()
    except OSError as error:
        raise ConfigError(
            f"headgate.console.ssl.* ({', '.join(map(str, tls or ()))}): {error}"
        ) from error
    server = _Server(config, ready)

    def stop() -> None:
        server.should_exit = True

    async def main() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        await server.serve(sockets=[sock])

    asyncio.run(main())
