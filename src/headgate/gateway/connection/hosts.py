"""
Addresses of hosts that connection limits name: looked up off the loop, once, as Kafka does.

``connection_creation_rate`` of an ``ip`` entity and ``max.connections.per.ip.overrides`` may name a
host. Its limit is in force once its address is known; one that can't be found is asked for again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headgate.gateway.log import get_logger
from headgate.throttle.connection import host_address

log = get_logger("headgate.gateway")

_AGAIN_S: Final = 30.0


class Hosts:
    """
    What is known of hosts' addresses.

    Args:
        spawn: runs a task as long as the gateway lives.

    Attributes:
        found: called when an address has been found.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._spawn = spawn
        self.found: Callable[[], None] = lambda: None
        self._known: dict[str, str | None] = {}

    def address(self, host: str) -> str | None:
        """Return a host's address as Java spells it; None: it isn't known yet, and is asked for."""
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


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
