"""
The settings file and all that it names, read again while the gateway serves.

Files are read and understood on a thread, which lets the event loop go on within a millisecond; the
loop only puts finished parts in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.config import load_settings
from headgate.config.reloading import take_over
from headgate.errors import ConfigError
from headgate.gateway.log import get_logger

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.config.settings import Settings
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.broker.listener import ListenerParts
    from headgate.gateway.cluster.quotas import QuotasInForce
    from headgate.gateway.cluster.ways import Ways
    from headgate.gateway.kept.current import Current
    from headgate.gateway.loop.slices import Slices

log = get_logger("headgate.gateway")


class Reloads:
    """
    Reads the settings again, one time after the other.

    Args:
        in_force: the settings; changed here.
        ways: makes the parts of listeners.
        brokers: those fronted now.
        quotas: puts limits of connections in force.
        slices: of the loop.
    """

    def __init__(
        self,
        in_force: Current,
        ways: Ways,
        brokers: Mapping[int, Broker],
        quotas: QuotasInForce,
        slices: Slices,
    ) -> None:
        self._in_force = in_force
        self._ways = ways
        self._brokers = brokers
        self._quotas = quotas
        self._slices = slices
        self._turn = asyncio.Lock()
        self._asked = 0
        self._served = 0  # how many had asked when the last reading began

    async def reload(self, config: Path) -> None:
        """
        Put in force what the file says now, or log why not and change nothing.

        Several who ask while a file is read are served by one more reading, which begins after all
        of them asked. So the latest file is in force in the end.
        """
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._served >= mine:
                return
            self._served = self._asked
            found = await asyncio.to_thread(self._read, config, self._in_force.settings)
            if isinstance(found, str):
                log.error("settings not reloaded", error=found)
                return
            settings, kept, parts = found
            for name in kept:
                log.warning("changed; that needs a restart", setting=name)
            self._in_force.settings = settings
            unused = self._ways.take(settings, parts)
            for broker in self._brokers.values():
                # A listener may have been added meanwhile.
                broker.reload(settings, {name: self._ways.parts(name) for name in broker.listeners})
            self._quotas.limit_connections()
            log.info("settings reloaded")
            for lending in unused:
                await self._slices.run(lending.freeing())

    def _read(
        self, config: Path, before: Settings
    ) -> tuple[Settings, tuple[str, ...], dict[str, ListenerParts]] | str:
        """Return settings, those that need a restart, and parts; or what is wrong with them."""
        try:
            settings, kept = take_over(before, load_settings(config))
            return settings, kept, self._ways.all_parts(settings)
        except (ConfigError, OSError) as error:
            # Not the error itself: its frames hold all that was read, and the loop would free that.
            return str(error)
