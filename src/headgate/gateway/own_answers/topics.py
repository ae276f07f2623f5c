"""
What the cluster says about topics whose partitions are charged (KIP-599).

A question that fails is asked once more, at another broker if there is one, with a bounded wait
each time. If that fails too, the last known answer counts. Without one a topic is charged the least
that Kafka would charge, and a metric counts it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.client.connection import Connection
from headgate.errors import HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.log import get_logger
from headgate.gateway.loop.log_limit import LogLimit

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.config.security import ClientSecurity
    from headgate.gateway.connection.link import Way

log = get_logger("headgate.gateway")

WAIT_S: Final = 3.0
"""Longest wait for each of the two questions; the client's request waits as long."""
_MOST_TOPICS: Final = 100_000
"""Topics remembered, by name and by id: some 10 MB."""
_DEFAULT_FOR_S: Final = 60.0
"""How long the cluster's ``num.partitions`` is used before it is asked for again."""
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
    Asks the cluster how many partitions topics have, and remembers the answers.

    Args:
        own: returns credentials and TLS of the gateway's own questions on a listener.
        clusters: the last description of each listener's upstream.
        wait_s: for each question.
    """

    def __init__(
        self,
        own: Callable[[str], Awaitable[tuple[ClientSecurity, Any]]],
        clusters: Mapping[str, up.Cluster],
        wait_s: float = WAIT_S,
    ) -> None:
        self._own = own
        self._clusters = clusters
        self._wait_s = wait_s
        self.failures = LogLimit("the cluster can't be asked about topics")
        self._known: OrderedDict[up.TopicRef, int] = OrderedDict()
        self._default: tuple[int, float] | None = None

    async def partitions(
        self, broker_id: int, listener: Way, refs: Collection[up.TopicRef]
    ) -> dict[up.TopicRef, int]:
        """
        Return how many partitions topics have.

        Args:
            broker_id: the broker that is asked first.
            listener: the one through which it is asked.
            refs: topics by name or id.

        Returns:
            Partitions by the name or id asked for: 0 if there is no such topic. Nothing for topics
            that the answer leaves out or, without an answer, that aren't remembered.
        """
        if not refs:
            return {}
        found = await self._ask(
            broker_id, listener, lambda connection, _: up.topic_partitions(connection, refs)
        )
        if found is None:
            return {ref: self._known[ref] for ref in refs if ref in self._known}
        for ref, count in found.items():
            self._known[ref] = count
            self._known.move_to_end(ref)
        while len(self._known) > _MOST_TOPICS:
            self._known.popitem(last=False)
        return {ref: found[ref] for ref in refs if ref in found}

    async def default(self, broker_id: int, listener: Way) -> int | None:
        """
        Return ``num.partitions``, the partitions of topics that don't say how many; None: unknown.
        """
        now = time.monotonic()
        if self._default is not None and now < self._default[1]:
            return self._default[0]
        found = await self._ask(
            broker_id,
            listener,
            lambda connection, id: up.broker_config(connection, id, "num.partitions"),
        )
        if found is not None and found.isdecimal():
            self._default = (int(found), now + _DEFAULT_FOR_S)
        return None if self._default is None else self._default[0]

    async def _ask(
        self,
        broker_id: int,
        listener: Way,
        question: Callable[[Connection, int], Awaitable[T]],
    ) -> T | None:
        """Ask a broker, then another; None when neither answers in time."""
        for asked_id, where in self._whom(broker_id, listener):
            try:
                async with asyncio.timeout(self._wait_s):
                    connection = await self._connect(listener, where)
                    try:
                        return await question(connection, asked_id)
                    finally:
                        await connection.close()
            except _FAILURES as error:
                if self.failures.passes(asked_id, broker=asked_id):
                    log.warning(
                        "the cluster can't be asked about topics",
                        broker=asked_id,
                        error=str(error) or type(error).__name__,
                    )
        return None

    def _whom(self, broker_id: int, listener: Way) -> list[tuple[int, HostPort]]:
        """Return the broker and another one; the broker twice where it is alone."""
        if listener.upstream is None:
            return []
        own = (broker_id, listener.upstream)
        cluster = self._clusters.get(listener.name)
        others = [b for b in cluster.brokers.items() if b[0] != broker_id] if cluster else []
        return [own, others[0] if others else own]

    async def _connect(self, listener: Way, where: HostPort) -> Connection:
        security, tls = await self._own(listener.name)
        return await up.connect(where, security, tls, listener.settings.upstream_connect_timeout_ms)
