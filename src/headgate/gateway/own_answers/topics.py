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
from headgate.steps import FEW, Work, taken

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.config.security import ClientSecurity
    from headgate.gateway.connection.link import Way

log = get_logger("headgate.gateway")

WAIT_S: Final = 3.0
"""Longest wait for each answer; the request waits as long, twice if another broker is asked."""
_MOST_TOPICS: Final = 20_000
"""Topics remembered, by name and by id: some 2 MB. Five times as many would be moved, when Python
makes room for one more, for 8 ms."""
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
        wait_s: for each answer.
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
        self,
        broker_id: int,
        listener: Way,
        refs: Collection[up.TopicRef],
        run: up.Run = up.at_once,
    ) -> dict[up.TopicRef, int]:
        """
        Return how many partitions topics have.

        Args:
            broker_id: the broker that is asked first.
            listener: the one through which it is asked.
            refs: topics by name or id.
            run: does what takes long.

        Returns:
            Partitions by the name or id asked for: 0 if there is no such topic. Nothing for topics
            that the answer leaves out or, without an answer, that aren't remembered.
        """
        left: list[up.TopicRef] = await run(_once(refs))
        counts: dict[up.TopicRef, int] = {}

        async def ask_all(connection: Connection, _: int, limit: asyncio.Timeout) -> None:
            while left:
                await up.topic_partitions(connection, left, counts, run)
                limit.reschedule(asyncio.get_running_loop().time() + self._wait_s)

        if left:
            await self._ask(broker_id, listener, ask_all)
        found: dict[up.TopicRef, int] = await run(self._heard(refs, left, counts))
        return found

    def _heard(
        self,
        refs: Collection[up.TopicRef],
        left: list[up.TopicRef],
        counts: dict[up.TopicRef, int],
    ) -> Work[dict[up.TopicRef, int]]:
        """
        Remember answers; return the partitions of the topics that were asked for.

        Args:
            refs: the topics.
            left: those of them that nobody answered.
            counts: the answers; is emptied.
        """
        found: dict[up.TopicRef, int] = {}
        for ref in taken(left):
            if ref not in counts and ref in self._known:
                found[ref] = self._known[ref]
            yield
        for ref in refs:
            count = counts.pop(ref, None)
            if count is not None:
                found[ref] = count
                self._remember(ref, count)
            yield
        while counts:
            self._remember(*counts.popitem())
            yield
        return found

    def _remember(self, ref: up.TopicRef, count: int) -> None:
        self._known[ref] = count
        self._known.move_to_end(ref)
        if len(self._known) > _MOST_TOPICS:
            self._known.popitem(last=False)

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
            lambda connection, id, _: up.broker_config(connection, id, "num.partitions"),
        )
        if found is not None and found.isdecimal():
            self._default = (int(found), now + _DEFAULT_FOR_S)
        return None if self._default is None else self._default[0]

    async def _ask(
        self,
        broker_id: int,
        listener: Way,
        question: Callable[[Connection, int, asyncio.Timeout], Awaitable[T]],
    ) -> T | None:
        """Ask a broker, then another; None when neither answers in time."""
        for asked_id, where in self._whom(broker_id, listener):
            try:
                async with asyncio.timeout(self._wait_s) as limit:
                    connection = await self._connect(listener, where)
                    try:
                        return await question(connection, asked_id, limit)
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


def _once(refs: Collection[up.TopicRef]) -> Work[list[up.TopicRef]]:
    """Return topics without those that are named again: each is asked for once."""
    once: dict[up.TopicRef, None] = {}
    for number, ref in enumerate(refs, 1):
        once[ref] = None
        if not number % FEW:
            yield
    return list(once)
