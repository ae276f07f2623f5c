"""
What one conversation remembers, and what both of its sides do: hold, block, throttle, close.

``session_requests`` adds the client's side, ``session_answers`` the broker's, ``session`` the
verbs.
"""

from __future__ import annotations

import struct
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.gateway.charging.lanes import Debts
from headgate.gateway.charging.plans import Kind, Plan
from headgate.gateway.session.commands import Ask, AwaitTurn, Close, Command, PauseClient, WakeAt
from headgate.gateway.session.fetch_hold import HELD, SHARE_HOLD_MS, FetchHold
from headgate.gateway.session.mute import (
    NOT_MUTED,
    REQUEST_RECEIVED,
    THROTTLE_STARTED,
    ChannelMute,
    MuteState,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.charging.context import Context
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.charging.fetch_gate import GateKey
    from headgate.gateway.charging.headroom import Headroom
    from headgate.gateway.charging.lanes import Lane, LaneKey
    from headgate.gateway.session.interfaces import Face, Identity
    from headgate.throttle.controller_mutation import MutationQuota
    from headgate.wire.messages import fetch, produce

HELD_BYTES: Final = 262_144
"""Most bytes held for a waiting client before reading stops: one read buffer of the shell."""
IN_FLIGHT_BYTES: Final = 128
"""What remembering one unanswered request takes, about."""
SMALL_BYTES: Final = 4_096
"""What comes in smaller pieces than this is held in one."""
INT: Final = struct.Struct(">i")
INT_MAX: Final = 2**31 - 1

InFlight: TypeAlias = (
    "tuple[int, Plan, int, Context, frozenset[int] | None,"
    " Callable[[bytes], bytes | Ask] | None, Headroom | int | None]"
)
"""Correlation id, plan, request bytes (header and body, as Kafka counts them), who is charged,
producer ids, merge, claim. A plain tuple: one is made per request. The claim is the headroom that
it claims from until it is charged; once it is, before its answer, the throttle to be told, ms."""
_NONE_SEEN: Final = (None,) * 7
PENDING: Final = (
    MuteState.MUTED_AND_RESPONSE_PENDING,
    MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
)
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_PRODUCE: Final = Kind.PRODUCE
_KIND_SHARE_FETCH: Final = Kind.SHARE_FETCH
_LATER: Final = frozenset({Kind.FETCH, Kind.SHARE_FETCH})
"""Charged by their answers."""


class SessionState:
    """
    The state of one client's conversation with one broker.

    Args:
        rules: charges requests and knows the limits (``enforcement.Enforcement``).
        plans: how each API is handled (``plans.build_plans``), by ``key << 16 | version``.
        identity: observes authentication and says who the client is.
        face: knows what clients of this listener are told of the brokers, as of now.
        pass_unknown: ``headgate.unknown.apis=pass``.
        max_request_bytes: ``socket.request.max.bytes``.
        max_unauthenticated_bytes: largest request before authentication is over.
        client_ip: for the journal.
        listener: for the journal.
        connection: for the journal; unique within the worker.
    """

    __slots__ = (
        "_answer_head",
        "_answer_left",
        "_answer_taken",
        "_answer_throttle",
        "_asked",
        "_barrier",
        "_blocked",
        "_client_raw",
        "_dropping",
        "_entered",
        "_epoch",
        "_face",
        "_fetch_session",
        "_head",
        "_held",
        "_held_size",
        "_inflight",
        "_kept",
        "_known",
        "_left",
        "_lone",
        "_lost_session",
        "_masker",
        "_max_bytes",
        "_network_due",
        "_open",
        "_part",
        "_paused",
        "_plans",
        "_raw",
        "_silent",
        "_stalled",
        "_taken",
        "_taken_plan",
        "_walker",
        "asked_ms",
        "client_id",
        "client_ip",
        "closed",
        "commands",
        "connection",
        "context",
        "debts",
        "early_in",
        "gone",
        "hold",
        "identity",
        "last_ms",
        "listener",
        "max_request_bytes",
        "mutation_quota",
        "mute",
        "muted_by",
        "origin_seen",
        "origins",
        "partial_since_ms",
        "pass_unknown",
        "requests",
        "retains",
        "rules",
        "spent_ns",
        "throttled_until_ms",
        "to_broker",
        "to_client",
    )

    def __init__(
        self,
        rules: Enforcement,
        plans: dict[int, Plan],
        identity: Identity,
        face: Face,
        *,
        pass_unknown: bool = False,
        max_request_bytes: int = 104_857_600,
        max_unauthenticated_bytes: int = 524_288,
        client_ip: str = "",
        listener: str = "",
        connection: str = "",
    ) -> None:
        self.rules = rules
        self._plans = plans
        self.context: Context = rules.context(identity.principal, "")
        self._epoch = -1
        self._client_raw: bytes | None = None
        self.to_broker: list[Any] = []
        self.to_client: list[Any] = []
        self.commands: list[Command] = []
        self._inflight: deque[InFlight] = deque()
        self.closed: Close | None = None
        self.last_ms = 0
        self.asked_ms = 0  # when the request now in flight of a limited client was all in
        self.requests = 0
        self.retains = False  # bytes may be held or collected: ``retained``
        self.spent_ns = 0
        self._max_bytes = (
            max_request_bytes
            if identity.authenticated
            else min(max_request_bytes, max_unauthenticated_bytes)
        )
        self._held_size = 0
        # The request being read: an incomplete header, or bytes still to pass or to collect.
        self._head = b""
        self._left = 0
        # The same for the answer being read.
        self._answer_head = b""
        self._answer_left = 0
        self._part: InFlight | None = None  # the request itself, if it is passed on in pieces
        self._silent = False  # it gets no answer (acks=0)
        self.throttled_until_ms = 0
        self.origin_seen: tuple[Any, ...] = _NONE_SEEN  # the journal's, that was used last
        self._known = identity.authenticated
        self._entered = 0  # kinds of requests that were charged already (``lanes``)
        self._raw = False  # bare SASL tokens pass, not Kafka's frames
        self._blocked = True  # nothing is taken from the client for now
        self._lone = False  # nothing follows the last request in flight until it is answered
        self._stalled = False  # the client doesn't take its answers
        self.gone = False  # the client has hung up, and some of its charges aren't known yet
        self.early_in: Headroom | None = None  # where it may have early requests in flight
        self._network_due = False

        self.identity = identity
        self._face = face
        self.pass_unknown = pass_unknown
        self.max_request_bytes = max_request_bytes
        self.client_ip, self.listener, self.connection = client_ip, listener, connection
        self.origins: dict[Any, Any] = {}  # the journal's, of this connection
        self.mutation_quota: MutationQuota | None = None  # of the request now in flight
        self.partial_since_ms = 0  # when the request that isn't complete yet began
        self.muted_by = ""  # the quota type whose throttle is in force or was last
        self.mute = ChannelMute()
        self.client_id = ""

        self._open = False  # the upstream connection is up
        self._barrier = False  # what comes next waits until everything before is answered
        self._asked: Ask | None = None
        self._paused = False
        self._held: deque[memoryview] = deque()
        self._taken: bytearray | None = None
        self._taken_plan: Plan | None = None
        self._walker: produce.IdWalker | None = None
        self._answer_taken: bytearray | None = None
        self._answer_throttle = 0
        self.debts: Debts | None = None
        self.hold: FetchHold | None = None
        self._kept: bytearray | None = None  # an answer that waits for its turn (``fetch_hold``)
        self._masker: fetch.EndpointMasker | None = None
        self._dropping = False  # the rest of an answer that was emptied
        self._fetch_session = self._lost_session = 0

    # --- what the shell may ask -------------------------------------------------------------

    @property
    def unanswered(self) -> deque[InFlight]:
        """Requests passed on and not answered yet, oldest first; not to be changed."""
        return self._inflight

    @property
    def broker_id(self) -> int:
        """The upstream broker's id."""
        return self.rules.broker_id

    @property
    def in_flight(self) -> int:
        """Requests passed on or asked about, and not answered yet."""
        return len(self._inflight) + (self._asked is not None)

    @property
    def held_bytes(self) -> int:
        """Bytes taken from the client that wait for their turn."""
        return self._held_size

    @property
    def known(self) -> bool:
        """Whether it has been authenticated."""
        return self._known

    @property
    def made_to_wait(self) -> bool:
        """Whether the client waits for the gateway alone: muted, or its question is answered."""
        waits = self.hold is not None and self.hold.waiting
        return waits or bool(self.throttled_until_ms) or self._asked is not None

    @property
    def collects_answer(self) -> bool:
        """Whether an answer of the broker's is being collected."""
        return self._answer_taken is not None

    def retained(self) -> int:
        """Return how many bytes are held or collected now; no matter how, these are copies."""
        size = self._held_size + len(self._head) + len(self._answer_head)
        if self._taken is not None:
            size += len(self._taken)
        if self._answer_taken is not None:
            size += len(self._answer_taken)
        if self._kept is not None:
            size += len(self._kept)
        if self._asked is not None:
            size += len(self._asked.frame)
        if self._barrier:
            size += IN_FLIGHT_BYTES * len(self._inflight)
        self.retains = size > 0
        return size

    @property
    def at_rest(self) -> bool:
        """Whether no request is half read or unanswered: the moment to drain."""
        return not (
            self._inflight
            or self._asked
            or self._head
            or self._left
            or self._answer_left
            or self._answer_head
            or (
                self._held_size
                and not (self.throttled_until_ms or (self.hold is not None and self.hold.waiting))
            )
        )

    # --- what both sides do -----------------------------------------------------------------

    def _hold(self, data: memoryview) -> None:
        """Keep bytes that just came, behind what is held already: a copy."""
        held = self._held
        self.retains = True
        self._held_size += len(data)
        if held and len(held[-1]) + len(data) <= SMALL_BYTES:
            # A piece costs some hundred bytes more: byte by byte that would be a hundred MB.
            held.append(memoryview(bytearray(held.pop()) + data))
        else:
            held.append(memoryview(bytearray(data)))
        if self._held_size > HELD_BYTES and not self._paused:
            self._paused = True
            self.commands.append(PauseClient())

    def _put_back(self, data: memoryview, *, owned: bool) -> None:
        """Keep bytes that can't be taken yet, before what is held: a copy unless they are ours."""
        self.retains = True
        self._held.appendleft(data if owned else memoryview(bytearray(data)))
        self._held_size += len(data)
        if self._held_size > HELD_BYTES and not self._paused:
            self._paused = True
            self.commands.append(PauseClient())

    def _block(self) -> None:
        """Take nothing more until the request just received is answered."""
        self._blocked = True
        if self.mute.state is NOT_MUTED:
            self.asked_ms = self.last_ms
            self.mute.mute()
            self.mute.apply(REQUEST_RECEIVED)

    def _charge(
        self, plan: Plan, context: Context, size: int, upstream_ms: int, now_ms: int
    ) -> int:
        """Charge what is neither produced nor fetched."""
        quota = self.mutation_quota
        if quota is not None:
            self.mutation_quota = None
            return self.rules.mutation(self, context, plan, size, upstream_ms, quota, now_ms)
        if self.rules.counts_requests:
            return self.rules.request(self, context, plan, size, upstream_ms, now_ms)
        return 0

    def _start_throttle(self, throttle: int, now_ms: int) -> None:
        self._block()
        until = now_ms + throttle
        if self.throttled_until_ms:
            if until <= self.throttled_until_ms:
                return
        else:
            self.mute.apply(THROTTLE_STARTED)
        self.throttled_until_ms = until
        self.commands.append(WakeAt(until))

    def note_debt(self, key: LaneKey, lane: Lane) -> None:
        """Note a throttle, to be left behind if the connection closes before it is over."""
        if self.debts is None:
            self.debts = Debts(self.rules.lanes)
        self.debts.owe(key, lane)

    def _enter(self, plan: Plan, context: Context, now_ms: int) -> int:
        """Return until when the first request of its kind waits for what others left to pay."""
        # Differs: a newcomer waits for the mute that a closed connection of its quota-id left;
        # Kafka forgets it.
        self._entered |= plan.bit
        if not self._known:
            return now_ms
        if self.debts is None:
            self.debts = Debts(self.rules.lanes)
        return self.debts.enter(self.rules.lanes_of(context, plan.owes), now_ms)

    def _turn(
        self, plan: Plan, context: Context, keys: tuple[GateKey, ...], since_ms: int, now_ms: int
    ) -> int:
        """Say whether a fetch or its answer may go on (``FetchHold.admit``); if not, come back."""
        hold = self.hold
        if hold is None:
            hold = self.hold = FetchHold(self.rules.gates)
        most_ms = self.rules.hold_ms
        if plan.kind is _KIND_SHARE_FETCH and most_ms > SHARE_HOLD_MS:
            most_ms = SHARE_HOLD_MS
        way = hold.admit(keys, context.principal, since_ms, most_ms, now_ms)
        if way == HELD:
            if hold.nudge is None:
                self.commands.append(AwaitTurn(hold))
            self.commands.append(WakeAt(hold.wake_ms))
        elif hold.waited_ms:
            self.rules.held(self, context, plan, hold.take_waited(), now_ms)
        return way

    def _close(self, reason: str, detail: str, now_ms: int) -> None:
        self.closed = Close(reason, detail)
        self.commands.append(self.closed)
        self.abandon(now_ms)

    # --- what is charged before its answer, or without one ----------------------------------

    def charge_early(self, now_ms: int) -> None:
        """Charge what went early, answered or not; none of it is throttled for that."""
        headroom, self.early_in = self.early_in, None
        if headroom is not None:
            for allowance in headroom.all:
                allowance.early.pop(self, None)
            # The last one was lone and may be answered: it is until the client's mute is over.
            self._charge_claims(max(len(self._inflight) - self._lone, 0), now_ms)

    def stalled(self, on: bool, now_ms: int) -> None:
        """
        The client doesn't take its answers, or does again.

        Answers aren't read meanwhile, so what it has asked is charged now: nothing of a quota stays
        claimed for as long as a client likes.
        """
        self._stalled = on
        if on:
            self.charge_early(now_ms)
            if self._lone:
                self._charge_claims(len(self._inflight), now_ms)

    @property
    def _size_due(self) -> bool:
        """Whether answers that are limited by their size are due and haven't begun."""
        begun = self._answer_left and self._answer_taken is None
        due = islice(self._inflight, 1 if begun else 0, None)
        return any(asked[1].kind in _LATER and asked[3].fetches_alone for asked in due)

    def _charge_claims(self, end: int, now_ms: int) -> None:
        """Charge what claims headroom of the first ``end`` requests in flight."""
        inflight = self._inflight
        first = end
        # What was charged before is behind all that wasn't.
        while first and inflight[first - 1][6].__class__ is not int:
            first -= 1
        for at in range(first, end):
            correlation_id, plan, size, context, producer_ids, merge, claim = inflight[at]
            if claim is None or isinstance(claim, int):
                continue
            throttle = self._charge_passed(inflight[at], now_ms)
            if throttle:
                self._start_throttle(throttle, now_ms)
            told = None if plan.kind in _LATER else throttle
            inflight[at] = (correlation_id, plan, size, context, producer_ids, merge, told)

    def _charge_passed(self, asked: InFlight, now_ms: int) -> int:
        """Charge a request without its answer; return what throttles, ms."""
        _, plan, size, context, producer_ids, _, claim = asked
        if plan.kind is not _KIND_PRODUCE:
            if claim is not None:
                claim.release(0, None)  # type: ignore[union-attr]
            return 0 if plan.kind in _LATER else self._charge(plan, context, size, 0, now_ms)
        if claim is not None:
            claim.release(size, producer_ids)  # type: ignore[union-attr]
        return self.rules.produce(self, context, plan, size, producer_ids, 0, True, now_ms)

    def abandon(self, now_ms: int) -> None:
        """
        The conversation is over: charge what was passed on and isn't charged yet.

        Of a Produce that is cut short what was passed counts, its length field apart, as in a whole
        one. ``throttled_until_ms`` is afterwards when a client that stays would be read again.
        """
        inflight = self._inflight
        part = self._part
        if part is not None and not self._silent:
            if inflight and inflight[-1] is part:
                inflight.pop()
            else:
                part = None  # answered before it was all there, and charged
        self.charge_early(now_ms)
        begun = bool(self._answer_left) and self._answer_taken is None
        while inflight:
            asked = inflight.popleft()
            if not begun and asked[6].__class__ is not int:
                self._owe(self._charge_passed(asked, now_ms), now_ms)
            begun = False  # the first answer's head has come: it is charged
        if part is not None and part[1].kind is _KIND_PRODUCE and part[2] > self._left:
            _, plan, size, context, _, _, _ = part
            size -= self._left
            if context.headroom is not None:
                context.headroom.make_way(size, now_ms)
            throttle = self.rules.produce(
                self, context, plan, size, None, 0, not self._silent, now_ms
            )
            self._owe(throttle, now_ms)
        self._part = None
        if self.hold is not None:
            self.hold.leave()
        if self._kept is not None:
            self.rules.gates.kept_bytes -= len(self._kept)
            self._kept = None
        if self.debts is None:
            self.debts = Debts(self.rules.lanes)
        self.debts.leave(now_ms)

    def _owe(self, throttle: int, now_ms: int) -> None:
        """Note how long a client that has gone would have been muted."""
        if throttle > 0:
            self.throttled_until_ms = max(self.throttled_until_ms, now_ms + throttle)
