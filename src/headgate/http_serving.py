"""
What the gateway's HTTP listener and the console's server share: uvicorn without signals, and
connections whose number is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable
from typing import Any

import uvicorn
from h11 import LocalProtocolError
from uvicorn.protocols.http.h11_impl import H11Protocol


class Server(uvicorn.Server):
    """A server that leaves signals to its process: uvicorn would die of them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Leave SIGTERM and SIGINT alone."""
        yield


class HttpConnection(H11Protocol):
    """
    One of a bounded number of connections; a subclass decides which is closed for a newcomer.

    h11 bounds the head of a request at 64 KiB; not every parser that uvicorn may choose does.
    """

    _numbers = itertools.count()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self.number = next(self._numbers)

    @property
    def is_answered(self) -> bool:
        """Whether an answer to it is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    def others(self) -> list[HttpConnection]:
        """Return the server's other connections."""
        return [c for c in self.connections if isinstance(c, HttpConnection) and c is not self]

    def send_400_response(self, msg: str) -> None:
        """Refuse what isn't HTTP; just hang up where an answer is under way already."""
        if self.is_answered:
            self.cycle.disconnected = True  # the rest of that answer isn't sent
            self.cycle.message_event.set()
        with contextlib.suppress(LocalProtocolError):
            super().send_400_response(msg)
        self.transport.close()


def end_oldest(connections: Iterable[HttpConnection]) -> None:
    """End the connection that was opened first, without waiting for what it hasn't read."""
    oldest = min(connections, key=lambda c: c.number, default=None)
    if oldest is not None:
        oldest.transport.abort()
