"""
Addresses of hosts, looked up off the loop: those that connection limits name, and brokers'.

``connection_creation_rate`` of an ``ip`` entity and ``max.connections.per.ip.overrides`` may name a
host. As in Kafka it is looked up once. Its limit is in force once its address is known; a look-up
that fails is repeated. A broker's host may move, so its addresses are only kept for a while.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headgate.gateway.log import get_logger
from headgate.throttle.connection import host_address

log = get_logger("headgate.gateway")

_AGAIN_S: Final = 30.0
KEPT_S: Final = 30.0
"""How long a broker's addresses are used: as long as Java's clients keep them
(``networkaddress.cache.ttl``)."""


class Hosts:
    """
    What is known of hosts' addresses.

    One host is looked up after the other: libuv has two threads for look-ups, and one whose name
    server is silent takes many seconds. Clients that wait for their broker's address must find a
    thread.

    Args:
        spawn: runs a task as long as the gateway lives.

    Attributes:
        found: called when an address has been found.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._spawn = spawn
        self.found: Callable[[], None] = lambda: None
        self._known: dict[str, str | None] = {}
        self._turn = asyncio.Lock()

    def address(self, host: str) -> str | None:
        """Return a host's address as Java spells it; None: it isn't known yet, and is looked up."""
        if _is_address(host):
            return host_address(host)
        if host not in self._known:
            self._known[host] = None
            self._spawn(self._look_up(host))
        return self._known[host]

    async def _look_up(self, host: str) -> None:
        said = False
        while True:
            try:
                async with self._turn:
                    rows = await asyncio.get_running_loop().getaddrinfo(
                        host, None, type=socket.SOCK_STREAM
                    )
            except (OSError, UnicodeError) as error:
                if not said:
                    log.warning(
                        "a host that a connection limit names has no address; its limit waits",
                        host=host,
                        error=str(error),
                    )
                    said = True
                await asyncio.sleep(_AGAIN_S)
                continue
            self._known[host] = host_address(str(rows[0][4][0]))
            log.info("a connection limit's host has an address", host=host, at=self._known[host])
            self.found()
            return


class BrokerHosts:
    """
    Addresses of brokers' hosts; connections that need the same one share a look-up.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._asking: dict[str, asyncio.Task[tuple[str, ...]]] = {}

    def known(self, host: str) -> tuple[str, ...] | None:
        """Return a host's addresses; None: they aren't known, or too old."""
        found = self._known.get(host)
        return None if found is None or self._clock() >= found[0] else found[1]

    async def look_up(self, host: str) -> tuple[str, ...]:
        """
        Return a host's addresses, at least one.

        Raises:
            OSError: it has none.
            UnicodeError: it can't be a host's name.
        """
        task = self._asking.get(host)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(host))
            self._asking[host] = task
            task.add_done_callback(lambda _: self._asking.pop(host))
        return await asyncio.shield(task)  # a caller that gives up doesn't end it for others

    async def _ask(self, host: str) -> tuple[str, ...]:
        where = host or "127.0.0.1"
        if _is_address(where):
            self._known[host] = (float("inf"), (where,))
            return (where,)
        rows = await asyncio.get_running_loop().getaddrinfo(where, None, type=socket.SOCK_STREAM)
        addresses = tuple(dict.fromkeys(str(row[4][0]) for row in rows))
        self._known[host] = (self._clock() + KEPT_S, addresses)
        return addresses

    def forget(self, host: str) -> None:
        """Look a host up again for the next connection: no connection could be made to it."""
        self._known.pop(host, None)


@functools.lru_cache(4_096)
def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
