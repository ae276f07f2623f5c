"""
Whether each broker that is fronted answers: the gateway asks it a question of its own, again and
again, and waits for the answer for a bounded time.

A broker may hang, out of memory for example: its ports stay open, and clients wait without an
answer. Nothing else of the gateway notices, since it doesn't know how long an answer may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.errors import HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.log import get_logger

if TYPE_CHECKING:
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.cluster.ways import Ways
    from headgate.gateway.kept.current import Current
    from headgate.gateway.loop.tasks import Tasks

log = get_logger("headgate.gateway")

ASK_S: Final = 10.0
"""Seconds from one round of questions to the next."""


def silent_lines(brokers: Mapping[int, Broker]) -> list[str]:
    """Return a line for each broker that doesn't answer."""
    found = sorted((broker_id, broker.silent) for broker_id, broker in brokers.items())
    return [f"broker {broker_id} doesn't answer: {why}" for broker_id, why in found if why]


@dataclass(frozen=True)
class Answering:
    """
    The questions to the brokers; ``Broker.silent`` says what became of the last one.

    Args:
        in_force: the settings; ``headgate.upstream.connect.timeout.ms`` is how long to wait.
        brokers: those fronted now.
        ways: how they are asked.
    """

    in_force: Current
    brokers: Mapping[int, Broker]
    ways: Ways

    async def keep(self, tasks: Tasks) -> None:
        """Ask for as long as the gateway runs; ``tasks`` write down what goes wrong."""
        while True:
            await asyncio.sleep(ASK_S)
            try:
                await self.ask()
            except Exception as error:
                tasks.log_failure("asking the brokers", error)

    async def ask(self) -> None:
        """Ask every broker once, all at the same time."""
        asked = list(self.brokers.items())
        found = await asyncio.gather(*(self._ask(broker) for _, broker in asked))
        for (broker_id, broker), why in zip(asked, found, strict=True):
            if why and not broker.silent:
                log.error("a broker doesn't answer the gateway", broker=broker_id, error=why)
            elif broker.silent and not why:
                log.info("a broker answers again", broker=broker_id)
            broker.silent = why

    async def _ask(self, broker: Broker) -> str:
        """
        Ask a broker where its clients' connections go; return why it doesn't answer, or "".

        The cluster soon stops naming one that hangs. Its clients wait all the same.
        """
        there = ((name, item.upstream) for name, item in broker.listeners.items())
        listener, where = next(((n, at) for n, at in there if at is not None), ("", None))
        if where is None:
            return ""
        try:
            security, tls = await self.ways.own(listener)
            timeout_ms = self.in_force.settings.for_listener(listener).upstream_connect_timeout_ms
            setting = self.ways.own_setting(listener)
            await up.answers(where, security, tls, timeout_ms, setting)
        except HeadgateError as error:
            return str(error)
        return ""
