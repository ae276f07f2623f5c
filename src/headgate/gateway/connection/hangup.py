"""
Notice clients that hang up while nothing is read from them.

A transport that doesn't read doesn't see its peer's FIN. Linux tells it apart from data
(EPOLLRDHUP), so one epoll descriptor, itself watched by the event loop, covers all such
connections. On other systems a client's end is seen when its connection is read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from typing import Any, Final, Protocol

FULL_SWEEPS: Final = 10
"""
How many sweeps in a row, each a second after the other, find a link's broker full before the link
ends if its client hangs up. Until then what the client sent last is still read and passed on.
"""


class Unread(Protocol):
    """A link that isn't read."""

    def client_gone(self, detail: str) -> None:
        """Its client has hung up."""


class HangupWatch:
    """
    Watch the sockets of paused links; tell a link whose client has gone.

    Attributes:
        full: how many sweeps in a row found a link's broker full.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._links: dict[int, Unread] = {}
        self._fds: dict[Unread, int] = {}
        self.full: dict[Unread, int] = {}
        self._epoll: Any = None
        if hasattr(select, "epoll"):
            self._epoll = select.epoll()
            loop.add_reader(self._epoll.fileno(), self._ready)

    def watch(self, link: Unread, transport: asyncio.BaseTransport) -> None:
        """Watch the client's socket of a link that isn't read from now on."""
        sock = transport.get_extra_info("socket")
        if self._epoll is None or sock is None:
            return
        fd = sock.fileno()
        if fd < 0 or link in self._fds:
            return
        with contextlib.suppress(OSError):
            self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLONESHOT)
            self._links[fd] = link
            self._fds[link] = fd

    def found_full(self, link: Unread, transport: asyncio.BaseTransport | None) -> None:
        """
        Note that a sweep found a link's broker full, so that nothing is read from its client.

        A broker may read nothing for hours, and then so long nobody would notice that the client
        has hung up.
        """
        self.full[link] = self.full.get(link, 0) + 1
        if self.full[link] > FULL_SWEEPS and transport is not None:
            self.watch(link, transport)

    def forget(self, link: Unread) -> None:
        """The link is read again, or closed."""
        self.full.pop(link, None)
        fd = self._fds.pop(link, None)
        if fd is None:
            return
        del self._links[fd]
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def _ready(self) -> None:
        for fd, _ in self._epoll.poll(0):
            link = self._links.get(fd)
            if link is not None:
                link.client_gone("hung up while muted")

    def close(self) -> None:
        """Stop watching."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
