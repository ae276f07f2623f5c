"""
What the cluster says of topics, for those whose partitions are charged (KIP-599).

A question is asked once more, of another broker if there is one, with a bounded wait each time;
then what was heard last counts. What nobody can tell is charged as little as Kafka would at least,
and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.client.connection import Connection
from headgate.errors import HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.log import get_logger

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.broker.listener import BrokerListener
    from headgate.gateway.gateway_state import GatewayState

log = get_logger("headgate.gateway")

WAIT_S: Final = 3.0
"""Longest wait for each of the two questions; the client's request waits as long."""
_MOST_TOPICS: Final = 100_000
"""Topics remembered, by name and by id: some 10 MB."""
_DEFAULT_FOR_S: Final = 60.0
"""How long the cluster's ``num.partitions`` is believed."""
_FAILURES: Final = (
    HeadgateError,
    OSError,
    EOFError,
    TimeoutError,
    ValueError,
    LookupError,
)

T = TypeVar("T")


class Topics:
    """
    Partitions of topics, asked of the cluster and remembered.

    Args:
        gateway: whose credentials and clusters are used.
        wait_s: for each question.
    """

    def __init__(self, gateway: GatewayState, wait_s: float = WAIT_S) -> None:
        self._gateway = gateway
        self._wait_s = wait_s
        self._known: OrderedDict[up.TopicRef, int] = OrderedDict()
        self._default: tuple[int, float] | None = None

    async def partitions(
        self, front: Broker, face: BrokerListener, refs: Collection[up.TopicRef]
    ) -> dict[up.TopicRef, int]:
        """
        Return how many partitions topics have.

        Args:
            front: the broker that is asked first.
            face: the listener through which it is asked.
            refs: topics by name or id.

        Returns:
            Partitions by what each was called: 0 if there is no such topic; nothing for topics of
            which neither the cluster tells nor was ever heard.
        """
        if not refs:
            return {}
        found = await self._ask(
            front, face, lambda connection, _: up.topic_partitions(connection, refs)
        )
        if found is None:
            return {ref: self._known[ref] for ref in refs if ref in self._known}
        for ref, count in found.items():
            self._known[ref] = count
            self._known.move_to_end(ref)
        while len(self._known) > _MOST_TOPICS:
            self._known.popitem(last=False)
        return {ref: found[ref] for ref in refs if ref in found}

    async def default(self, front: Broker, face: BrokerListener) -> int | None:
        """Return ``num.partitions``, what a topic gets that leaves it open; None: unknown."""
        now = time.monotonic()
        if self._default is not None and now < self._default[1]:
            return self._default[0]
        found = await self._ask(
            front, face, lambda connection, id: up.broker_config(connection, id, "num.partitions")
        )
        if found is not None and found.isdecimal():
            self._default = (int(found), now + _DEFAULT_FOR_S)
        return None if self._default is None else self._default[0]

    async def _ask(
        self,
        front: Broker,
        face: BrokerListener,
        question: Callable[[Connection, int], Awaitable[T]],
    ) -> T | None:
        """Ask a broker, then another; None when neither answers in time."""
        for broker_id, where in self._whom(front.broker_id, face):
            try:
                async with asyncio.timeout(self._wait_s):
                    connection = await self._connect(face, where)
                    try:
                        return await question(connection, broker_id)
                    finally:
                        await connection.close()
            except _FAILURES as error:
                log.warning(
                    "the cluster can't be asked about topics",
                    broker=broker_id,
                    error=str(error) or type(error).__name__,
                )
        return None

    def _whom(self, broker_id: int, face: BrokerListener) -> list[tuple[int, HostPort]]:
        """Return the broker itself and another one; itself again where it is alone."""
        if face.upstream is None:
            return []
        own = (broker_id, face.upstream)
        cluster = self._gateway.clusters.get(face.name)
        others = [b for b in cluster.brokers.items() if b[0] != broker_id] if cluster else []
        return [own, others[0] if others else own]

    async def _connect(self, face: BrokerListener, where: HostPort) -> Connection:
        protocol, security, tls = self._gateway.own_way(face.name)
        return await up.connect(
            where,
            replace(security, security_protocol=protocol),
            tls,
            face.settings.upstream_connect_timeout_ms,
        )
