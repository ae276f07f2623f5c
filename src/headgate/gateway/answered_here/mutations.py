"""
Topic creations, deletions and growth: charged, and refused in the broker's place (KIP-599).

A broker charges after it has validated a topic; a proxy can't wait for that, so it charges first
and gives back what the broker then refused. Where the request's version has error 89
(THROTTLING_QUOTA_EXCEEDED), topics over quota get it and the other topics are passed on; clients of
older versions are told to wait.

The cluster is asked how many partitions a deleted topic has, and how many a new topic gets by
default if its request doesn't say (``Topics``). A question that fails is asked once more, at
another broker if there is one, with a bounded wait each time. If that fails too, the last known
answer counts. Without one a topic is charged as one mutation, and a metric counts it: Kafka charges
at least as much.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.client.connection import Connection
from headgate.errors import ApiError, HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.log import LogLimit, get_logger
from headgate.steps import FEW, Work, emptying, taken
from headgate.wire import apis
from headgate.wire.messages import decode_request_steps, mutation

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.config.security import ClientSecurity
    from headgate.gateway.answered_here.support import AnswerSupport
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.connection.link import Link, ListenerView
    from headgate.gateway.session.commands import Ask

log = get_logger("headgate.gateway")

AT_LEAST: Final = 1
"""Mutations charged for a topic whose partitions aren't known."""


async def charge(
    support: AnswerSupport, topics: Topics, rules: Enforcement, link: Link, ask: Ask
) -> None:
    """Charge a request topic by topic, refuse what is over quota, pass on the rest; in slices."""
    plan = ask.plan
    run = support.slices.run
    request = await run(decode_request_steps(plan.key, plan.version, ask.frame, ask.body_offset))
    current, default = await _known(run, topics, rules.broker_id, link.listener, plan.key, request)
    asked = await run(
        mutation.mutations(
            plan.key, plan.version, request, current=current.get, default_partitions=default
        )
    )
    refused: list[Any] = []
    charged: dict[Any, int] = {}
    context = link.session.context
    quota = rules.mutations.quota(context, plan, rules.clock())
    link.session.mutation_quota = quota

    def charge_each() -> Work[None]:
        size: int | None = len(ask.frame)
        for topic, partitions in zip(asked.topics, asked.partitions, strict=True):
            if current.get(topic) == 0:
                count = 0  # there is no such topic: the broker refuses it and charges nothing
            elif partitions is None:
                # Differs: a topic whose partitions the cluster won't tell counts as one mutation.
                count = AT_LEAST
                rules.meters.mutations_guessed += 1
            else:
                count = partitions
            now_ms = rules.clock()
            try:
                quota.record(count, now_ms)
            except ApiError:
                refused.append(topic)
            else:
                charged[topic] = count if quota.was_charged else 0
            rules.mutations.charged(link.session, context, plan, count, quota, size, now_ms)
            size = None
            yield

    await run(charge_each())
    if not refused:
        frame = ask.frame
    elif not charged:
        throttle_ms = quota.throttle_time_ms(rules.clock())
        link.answer(
            ask,
            await run(
                mutation.refuse(plan.key, plan.version, ask.correlation_id, refused, throttle_ms)
            ),
        )
        return
    else:
        frame = await run(mutation.keep(plan.key, plan.version, ask.frame, request, refused))

    def give_back(topic: Any) -> None:
        if topic.error_code:
            name = getattr(topic, "name", None)
            count = charged.get(name if name is not None else getattr(topic, "topic_id", None))
            if count:
                # Differs: charged when asked, given back when refused; Kafka validates first.
                rules.mutations.give_back(link.session, context, plan, count)

    def merged(answer: bytes) -> Work[bytes]:
        frame = yield from mutation.merge(plan.key, plan.version, answer, refused, give_back)
        yield from emptying(charged)
        return frame

    def merge(answer: bytes) -> bytes | Ask:
        return support.merge(link, ask, merged(answer), len(answer) + len(ask.frame))

    link.forward(ask, frame, merge)


async def _known(
    run: up.Run, topics: Topics, broker_id: int, listener: ListenerView, key: int, request: Any
) -> tuple[dict[Any, int], int | None]:
    """Return the partitions of existing topics; ``num.partitions`` where a new topic needs it."""
    if key == apis.CREATE_TOPICS:
        if await run(_leaves_open(request)):
            return {}, await topics.default(broker_id, listener)
        return {}, None
    refs = await run(mutation.named(request))
    return await topics.partitions(broker_id, listener, refs, run), None


def _leaves_open(request: Any) -> Work[bool]:
    """Whether a topic to create doesn't say how many partitions it shall have."""
    for number, topic in enumerate(request.topics, 1):
        if topic.num_partitions == -1 and not topic.assignments:
            return True
        if not number % FEW:
            yield
    return False


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
        listener: ListenerView,
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

    async def default(self, broker_id: int, listener: ListenerView) -> int | None:
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
        listener: ListenerView,
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

    def _whom(self, broker_id: int, listener: ListenerView) -> list[tuple[int, HostPort]]:
        """Return the broker and another one; the broker twice where it is alone."""
        if listener.upstream is None:
            return []
        own = (broker_id, listener.upstream)
        cluster = self._clusters.get(listener.name)
        others = [b for b in cluster.brokers.items() if b[0] != broker_id] if cluster else []
        return [own, others[0] if others else own]

    async def _connect(self, listener: ListenerView, where: HostPort) -> Connection:
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
