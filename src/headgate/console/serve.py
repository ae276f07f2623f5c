"""
The console's server: sockets, TLS, signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvicorn
from starlette.types import ASGIApp

from headgate.config.listeners import HostPort
from headgate.errors import ConfigError

_MOST_REQUESTS: Final = 500
"""Pages and live updates at once; the next is answered 503."""
_LAST_ANSWERS_S: Final = 2
"""How long answers may still be read when the console ends."""


class _Server(uvicorn.Server):
    """
    A server that says when it serves, and leaves signals to us: uvicorn would end by the signal.

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

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Leave SIGTERM and SIGINT alone."""
        yield


class Tls(NamedTuple):
    """A certificate chain and its key, as PEM files."""

    certificate: Path
    key: Path


def listen(bind: HostPort) -> socket.socket:
    """
    Return a socket that listens.

    Raises:
        ConfigError: the port can't be had.
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


def serve(app: ASGIApp, sock: socket.socket, tls: Tls | None, ready: Callable[[], None]) -> None:
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
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MOST_REQUESTS,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    try:
        config.load()
    except OSError as error:
        raise ConfigError(f"TLS: {error}") from error
    server = _Server(config, ready)

    def stop() -> None:
        server.should_exit = True

    async def main() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        await server.serve(sockets=[sock])

    asyncio.run(main())
