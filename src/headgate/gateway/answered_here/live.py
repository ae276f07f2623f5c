"""
Answer requests for what goes on now (``wire.messages.live``): use, throttles and connections.

``super.users`` and ``headgate.admin.principals`` may ask about everybody. Any other authenticated
user may ask about itself; ``live.seen`` takes out what belongs to others. Refusing a request costs
little: it holds two names.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from operator import is_not
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from msgspec.structs import replace

from headgate.clock import now_ms
from headgate.errors import KafkaError
from headgate.gateway.broker.live_view import (
    Connected,
    connected_steps,
    picture_steps,
    without_capacity,
)
from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.identity.identity import ANONYMOUS
from headgate.gateway.store_link.in_force import static_defaults
from headgate.live.effective import effective_of, travelling
from headgate.live.picture import BrokerPicture, Picture, QuotaChange, carried, encode_steps
from headgate.live.seen import as_seen_by
from headgate.live.why import outlived
from headgate.quota.precedence import PRECEDENCE
from headgate.quota.table import QuotaTable
from headgate.wire.messages import decode_request, encode_response
from headgate.wire.messages.live import LIVE, LiveRequest, LiveResponse

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.answered_here.support import AnswerSupport
    from headgate.gateway.background import TimeSlices
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.session.commands import Ask

FRESH_MS: Final = 500
"""How long one look at all connections serves every question."""
MOST: Final = 10_000
"""Quota-ids of each broker that an administrator gets at most."""
MOST_OWN: Final = 500
"""Quota-ids of each broker that any other user gets at most."""
MOST_CHANGES: Final = 20
"""Changes of each entity, the latest, that are read to say who changed a quota during a wait."""
_PAUSES: Final = 9
"""
A pause, in multiples of the time that a picture took to make. For so long a picture of everybody
serves all administrators, and the next question of any other principal waits. So questions take
at most a tenth of the loop's time.
"""


async def _nothing_known() -> Mapping[int, str]:
    return {}


class LiveAnswers:
    """
    What goes on at the brokers of one gateway.

    Args:
        brokers: those fronted now, by id.
        not_ready: says why the gateway isn't ready to serve, or None.
        expired: whether a broker's cluster-wide quotas are split by numbers that are out of date.
        name: of the gateway.

    Attributes:
        silent_elsewhere: returns why brokers don't answer that other workers front, by id; a
            supervisor's worker asks its supervisor.
    """

    def __init__(
        self,
        brokers: Mapping[int, Broker],
        not_ready: Callable[[], str | None],
        expired: Callable[[Broker | None], bool],
        name: Callable[[], str],
    ) -> None:
        self._brokers = brokers
        self._not_ready = not_ready
        self._expired = expired
        self._name = name
        self.silent_elsewhere: Callable[[], Awaitable[Mapping[int, str]]] = _nothing_known
        self._looks: dict[int, Connected] = {}
        self._looking = asyncio.Lock()
        # By broker and size: until when it serves, when it was made, the picture of everybody.
        self._drawn: dict[tuple[int, int], tuple[float, int, BrokerPicture]] = {}
        self._drawing = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._free: dict[str, float] = {}  # when a principal's next question has its turn
        self._made_of: tuple[QuotaTable, Settings] | None = None
        self._explained = QuotaTable()

    async def answer(self, support: AnswerSupport, broker_id: int, ask: Ask) -> bytes:
        """
        Answer a question: for all brokers of the process on the admin listener, else for one, and
        for those that don't answer: nobody can log in at their ports.

        Args:
            support: of the gateway.
            broker_id: of the port that it came to.
            ask: the question.

        Raises:
            RemoteProtocolError: the request doesn't parse.
        """
        request = decode_request(LIVE, 0, ask.frame, ask.body_offset)
        principal = ask.principal
        everywhere = ask.plan.kind == RequestKind.DRAFT
        if support.may_administer(principal):
            picture = await self._picture(support, broker_id, everywhere, request, MOST)
        elif request.user == principal != ANONYMOUS:
            async with self._turn(principal):
                picture = await self._picture(support, broker_id, everywhere, request, MOST_OWN)
                picture = as_seen_by(picture, frozenset((principal,)))
        else:
            await support.refused(ask, ask.client_id or "kafka")
            error = KafkaError.CLUSTER_AUTHORIZATION_FAILED
            refusal = LiveResponse(int(error), error.generic_message, None)
            return encode_response(LIVE, 0, ask.correlation_id, refusal)
        text = await support.slices.run(encode_steps(picture))
        return encode_response(LIVE, 0, ask.correlation_id, LiveResponse(0, None, text))

    @contextlib.asynccontextmanager
    async def _turn(self, principal: str) -> AsyncIterator[None]:
        """Wait for a principal's earlier questions, and for the pause that follows them."""
        async with self._turns.setdefault(principal, asyncio.Lock()):
            await asyncio.sleep(self._free.get(principal, 0.0) - time.monotonic())
            began = time.monotonic()
            try:
                yield
            finally:  # one that hangs up doesn't get another turn sooner
                now = time.monotonic()
                self._free = {p: free for p, free in self._free.items() if free > now}
                self._free[principal] = now + _PAUSES * (now - began)

    async def _picture(
        self,
        support: AnswerSupport,
        broker_id: int,
        everywhere: bool,
        request: LiveRequest,
        limit: int,
    ) -> Picture:
        user, client_id = request.user, request.client_id
        most = min(max(request.most, 1), limit)
        found: list[BrokerPicture] = []
        looked_ms: list[int] = []
        for broker in list(self._brokers.values()):
            if not (everywhere or broker.broker_id == broker_id or broker.silent):
                continue
            if user is None:
                made_ms, picture = await self._everybody(support.slices, broker, most)
            else:
                connected = await self._connected(support.slices, broker)
                made_ms = connected.at_ms
                steps = picture_steps(broker, connected, user, client_id, most, now_ms())
                picture = await support.slices.run(steps)
            looked_ms.append(made_ms)
            found.append(
                replace(
                    picture,
                    gateway=self._name(),
                    ready=self._not_ready() or "",
                    splits_expired=self._expired(broker),
                    silent=broker.silent,
                )
            )
        enforce = support.in_force.settings.enforce
        for other, why in (await self.silent_elsewhere()).items():
            if other not in self._brokers:
                found.append(BrokerPicture(other, enforce=enforce, silent=why))
        table = await self._table(support)
        brokers = tuple(sorted(found, key=lambda broker: broker.broker_id))
        idle = without_capacity(support.in_force.settings)
        return Picture(
            at_ms=min(looked_ms, default=now_ms()),
            brokers=brokers,
            user=user,
            client_id=client_id,
            exempt=user in support.in_force.settings.exempt_principals,
            effective=()
            if user is None
            else travelling(effective_of(table, user, client_id, idle)),
            version=table.version,
            changes=() if user is None else await self._changes(support, brokers, user, client_id),
        )

    async def _changes(
        self,
        support: AnswerSupport,
        brokers: tuple[BrokerPicture, ...],
        user: str,
        client_id: str | None,
    ) -> tuple[QuotaChange, ...]:
        """Return who changed the quota by which a client waits longest, since the wait was told."""
        wait = outlived(brokers, user, client_id)
        if wait is None:
            return ()
        client, key, since_ms = wait
        levels = (level.entity(client.principal, client.client_id) for level in PRECEDENCE)
        found: list[QuotaChange] = []
        for entity in filter(None, levels):
            found += (
                QuotaChange(
                    key, e.entity.path, e.t_ms, _carried(e.before), _carried(e.after), e.who
                )
                for e in await support.history(entity, MOST_CHANGES)
                if e.key.name == key and e.t_ms >= since_ms
            )
        return tuple(sorted(found, key=lambda change: change.at_ms))

    async def _everybody(
        self, slices: TimeSlices, broker: Broker, most: int
    ) -> tuple[int, BrokerPicture]:
        """Return when the picture of everybody was made, and the picture; a fresh one if due."""
        async with self._drawing:
            drawn = self._drawn.get((broker.broker_id, most))
            began = time.monotonic()
            if drawn is None or drawn[0] < began:
                connected = await self._connected(slices, broker)
                made = await slices.run(
                    picture_steps(broker, connected, None, None, most, now_ms())
                )
                now = time.monotonic()
                drawn = (now + _PAUSES * (now - began), connected.at_ms, made)
                self._drawn = {at: it for at, it in self._drawn.items() if it[0] > now}
                self._drawn[broker.broker_id, most] = drawn
            return drawn[1:]

    async def _connected(self, slices: TimeSlices, broker: Broker) -> Connected:
        """Return a broker's connections, as they were less than FRESH_MS ago."""
        async with self._looking:
            look = self._looks.get(broker.broker_id)
            if look is None or not 0 <= now_ms() - look.at_ms < FRESH_MS:
                look = await slices.run(connected_steps(broker, now_ms()))
                self._looks = {b: seen for b, seen in self._looks.items() if b in self._brokers}
                self._looks[broker.broker_id] = look
            return look

    async def _table(self, support: AnswerSupport) -> QuotaTable:
        """Return the quotas in force, the settings file's static defaults included; indexed."""
        current = support.in_force
        made_of = (current.table, current.settings)
        if self._made_of is None or any(map(is_not, self._made_of, made_of)):
            table = current.table.with_static_defaults(static_defaults(current.settings))
            await support.on_thread(table.keys)
            self._made_of, self._explained = made_of, table
        return self._explained


def _carried(value: float | None) -> float | None:
    return None if value is None else carried(value)
