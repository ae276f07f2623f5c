"""
One client connection and its upstream connection, without sockets: bytes and wake-ups in, bytes
out.

The shell calls ``client_data``, ``broker_data``, ``upstream_ready`` and ``wake``, and what commands
ask for. After each call it writes ``to_broker`` and ``to_client`` and does ``commands``.

Slices in ``to_broker`` and ``to_client`` are good until the next call; what is kept longer is
copied. A frame is collected only when its plan says so (``charging.plans``).

When the client waits: after a request that may be throttled, no other request of its connection is
passed on until it is answered, as in Kafka. After a throttled answer the connection stays muted
(``waits``). What arrives meanwhile is held, up to ``HELD_BYTES``; then the shell is told to read
no more. Requests that no quota can throttle, whenever they are charged, are pipelined: those that
are charged nothing, all of a connection without a finite quota, and those that fit into the
``headroom``.

What is charged: every request that was passed on, once. It is charged when it is answered. It is
charged earlier if other charges depend on it, or if the conversation ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.fetch_gate import SET_BACK_MS
from headgate.gateway.charging.lanes import MOST_WAITING, Debts
from headgate.gateway.charging.plans import RequestKind, RequestPlan
from headgate.gateway.session import authentication, questions
from headgate.gateway.session.answers import AnswerReader
from headgate.gateway.session.commands import (
    Ask,
    AwaitTurn,
    Close,
    Command,
    Continue,
    ResumeBroker,
    WakeAt,
)
from headgate.gateway.session.relay import IN_FLIGHT_BYTES, Passing, told_before
from headgate.gateway.session.requests import RequestReader
from headgate.gateway.session.rewrite import Rewriter
from headgate.gateway.session.waits import (
    ANSWER,
    ANSWERS,
    HOLDS_CLIENT,
    HOLDS_TURN,
    NO_REQUEST,
    OURS,
    QUESTION,
    THROTTLE,
    TURN,
    UPSTREAM,
    WORK,
)

if TYPE_CHECKING:
    from headgate.gateway.charging.clients import Told
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.charging.fetch_hold import FetchHold
    from headgate.gateway.charging.headroom import Headroom
    from headgate.gateway.charging.lanes import Lane, LaneKey
    from headgate.gateway.session.commands import ClientIdentity, ClusterView
    from headgate.gateway.session.fetch import FetchSession
    from headgate.gateway.session.relay import Collecting, InFlight
    from headgate.gateway.session.rewrite import Rewrite, Rewritten
    from headgate.throttle.controller_mutation import MutationQuota
    from headgate.throttle.line import Place

# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_PRODUCE: Final = RequestKind.PRODUCE
BUDGET: Final = 400
"""Most units of work in one callback; beyond it others are served first. Most clients have less in
flight than it allows."""
MAX_UNKNOWN_BYTES: Final = 524_288
"""Largest request before authentication is over."""
CHARGED_BY_ANSWER: Final = frozenset({RequestKind.FETCH, RequestKind.SHARE_FETCH})


@dataclass(slots=True, eq=False)
class Session:
    """
    The conversation of one client with one broker.

    Charging sees a client's connection as this object (``charging.clients.ClientConnection``).

    Args:
        rules: charges requests and knows the limits.
        identity: observes authentication and says who the client is.
        plans: how each API is handled (``plans.build_plans``), by ``key << 16 | version``.
        cluster: the brokers, as this listener's clients see them.
        pass_unknown: ``headgate.unknown.apis=pass``.
        max_request_bytes: ``socket.request.max.bytes``.
        client_ip: for the journal.
        listener: for the journal.
        connection: for the journal; unique within the worker.

    Attributes:
        context: who is charged for the client's requests.
        client_id: as the client's last request names it.
        known: the client has been authenticated.
        tokens: bare SASL tokens pass, not Kafka's frames.
        max_bytes: the largest request that the client may send now.
        debts_taken: kinds of requests that have waited for earlier connections' debts
            (``RequestPlan.bit``).
        repays: kinds whose next charge may repay such a debt.
        to_broker: what is to be sent to the broker, in pieces.
        to_client: what is to be sent to the client, in pieces.
        commands: what the shell is to do.
        closed: why the session is over; None while it isn't.
        unanswered: requests passed on and not answered yet, oldest first.
        begun: the request whose rest is still to come.
        question: a request that the shell answers or says how to pass on.
        waits: why the client's next request isn't taken (``waits.Waits``); 0: it is.
        holds: why the broker's next answer isn't (``waits.Holds``); 0: it is.
        budget: units of work that may still be done in this callback; a small request is one.
        alone: nothing follows the last request in flight before it is answered.
        gone: the client has hung up, and some of its charges aren't known yet.
        throttled_until_ms: when the throttle in force ends, epoch ms; 0: there is none.
        places: where the next Produce waits for what throttles didn't tell, by quota key.
        hold: what the connection's fetches wait for; None before the first wait.
        fetch_session: of the client, where fetches are answered empty.
        debts: what the connection owes if it closes now.
        early_in: the headroom where it may have requests in flight that aren't charged yet.
        mutation_quota: of the topic change in flight.
        spent_ns: thread time that isn't charged yet.
        asked_ms: when a broker begins with the oldest request in flight, epoch ms.
        answer_sent: an answer is being sent, whose time is charged as network time.
        told: the last wait that was told, or found owed.
        muted_by: the wait in force, or the last that was; None: there was none.
        origins: the journal's own, kept for as long as the connection is open.
        origin_seen: the one that the journal used last, by quota type.
        requests_taken: requests passed on or asked about since the shell last counted.
        retains: bytes may be held or collected (``Session.retained``).
        last_ms: when bytes last came from either side, epoch ms.
        partial_since_ms: when the request that isn't complete yet began, epoch ms.
        requests: reads what comes from the client.
        answers: reads what comes from the broker.
    """

    rules: Enforcement
    identity: ClientIdentity
    plans: InitVar[Mapping[int, RequestPlan]]
    cluster: InitVar[ClusterView]
    _: KW_ONLY
    pass_unknown: InitVar[bool] = False
    max_request_bytes: int = 104_857_600
    client_ip: str = ""
    listener: str = ""
    connection: str = ""
    context: Context = field(init=False)
    client_id: str = ""
    known: bool = field(init=False)
    tokens: bool = False
    max_bytes: int = field(init=False)
    debts_taken: int = 0
    repays: int = 0
    to_broker: list[Any] = field(default_factory=list)
    to_client: list[Any] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    closed: Close | None = None
    unanswered: deque[InFlight] = field(default_factory=deque)
    begun: Passing | Collecting | None = None
    question: Ask | None = None
    waits: int = UPSTREAM
    holds: int = 0
    budget: int = BUDGET
    alone: bool = False
    gone: bool = False
    throttled_until_ms: int = 0
    places: dict[str, Place] = field(default_factory=dict)
    hold: FetchHold | None = None
    fetch_session: FetchSession | None = None
    debts: Debts | None = None
    early_in: Headroom | None = None
    mutation_quota: MutationQuota | None = None
    spent_ns: int = 0
    asked_ms: int = 0
    answer_sent: bool = False
    told: Told | None = None
    muted_by: Told | None = None
    origins: dict[Any, Any] = field(default_factory=dict)
    origin_seen: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    requests_taken: int = 0
    retains: bool = False
    last_ms: int = 0
    partial_since_ms: int = 0
    requests: RequestReader = field(init=False)
    answers: AnswerReader = field(init=False)

    def __post_init__(
        self, plans: Mapping[int, RequestPlan], cluster: ClusterView, pass_unknown: bool
    ) -> None:
        self.requests = RequestReader(self.commands, plans)
        self.answers = AnswerReader(Rewriter(cluster), pass_unknown)
        self.context = self.rules.context(self.identity.principal, "")
        self.known = self.identity.authenticated
        self.max_bytes = self.max_request_bytes
        if not self.known:
            self.max_bytes = min(self.max_bytes, MAX_UNKNOWN_BYTES)

    # --- what the shell reports -------------------------------------------------------------

    def upstream_ready(self, now_ms: int) -> None:
        """The upstream connection is up: take what the client has said meanwhile."""
        self.requests.open(self, now_ms)
        self._charge_if_closed(now_ms)

    def client_data(self, data: memoryview, now_ms: int) -> None:
        """
        Take bytes from the client.

        Args:
            data: a writable view, valid until the shell has written the output; a fetch's limits
                are patched in place.
            now_ms: milliseconds of the epoch.
        """
        self.last_ms = now_ms
        self.budget = BUDGET
        if self.closed is not None:
            return
        requests = self.requests
        # The rest of a request that is half passed always goes on: its answer is waited for.
        if (self.waits & NO_REQUEST and self.begun is None) or requests.held.size:
            requests.held.add(data)
            self.retains = True
            return
        try:
            requests.feed(self, data, now_ms, owned=False)
        except RemoteProtocolError as error:
            self.end(error.reason, f"from the client: {error}")
        if self.closed is not None:
            self._charge_rest(now_ms)

    def broker_data(self, data: memoryview, now_ms: int) -> None:
        """Take bytes from the broker; arguments as for ``client_data``."""
        self.last_ms = now_ms
        self.budget = BUDGET
        if self.closed is not None:
            return
        try:
            self.answers.feed(self, data, now_ms)
        except RemoteProtocolError as error:
            self.end(error.reason, f"from the broker: {error}")
        if self.gone or self.closed is not None:
            self._after_answers(now_ms)

    def _after_answers(self, now_ms: int) -> None:
        """Close if the client has gone and nothing more is due; charge what is left if closed."""
        if self.gone and self.closed is None and not self._size_due:
            self.end("client-gone")
        if self.closed is not None:
            self._charge_rest(now_ms)

    def client_gone(self, now_ms: int) -> bool:
        """
        The client has hung up: what it still had to say is dropped.

        Returns:
            Whether fetches are unanswered, which are charged by their answers' size. Then the
            broker is still read, and the session closes when the last of these answers has begun.
        """
        if self.closed is not None or not self._size_due:
            return False
        self.gone = True
        self.requests.held.clear()
        if self.holds & HOLDS_TURN:
            self._look_again(now_ms)
            self._charge_if_closed(now_ms)
        return self._size_due

    def go_on(self, now_ms: int) -> None:
        """Read on in what came before, after a ``Continue``."""
        self.budget = BUDGET
        self.waits &= ~WORK
        if self.closed is not None:
            return
        try:
            self.answers.go_on(self, now_ms)
        except RemoteProtocolError as error:
            self.end(error.reason, f"from the broker: {error}")
        self.requests.go_on(self, now_ms)
        self._after_answers(now_ms)

    def wake(self, now_ms: int, due_ms: int = 0) -> None:
        """
        The time of a ``WakeAt`` has come; harmless when it hasn't.

        Setting the wall clock makes a throttle neither longer nor shorter, as at a broker.

        Args:
            now_ms: milliseconds of the epoch.
            due_ms: the ``t_ms`` of the ``WakeAt``, which has come by a clock that is never set. It
                ends only the throttle that ends at this time. 0: ``now_ms`` is of such a clock.
        """
        if self.closed is not None:
            return
        early_ms = due_ms - now_ms
        if self.waits_turn:
            self._look_again(now_ms)
        until_ms = self.throttled_until_ms
        if until_ms and self.closed is None and due_ms in (0, until_ms):
            if until_ms - now_ms > 0 and early_ms <= SET_BACK_MS:  # timers may be early by one
                self.commands.append(WakeAt(until_ms))
            else:
                self.throttled_until_ms = 0
                self.waits &= ~THROTTLE
                if self.debts is not None:
                    self.debts.paid(until_ms)
                self.requests.go_on(self, now_ms)
        self._charge_if_closed(now_ms)

    def nudged(self, now_ms: int) -> None:
        """The turn of a held request has come, since the one before it is over."""
        if self.closed is None:
            if self.waits_turn:
                self._look_again(now_ms)
            self._charge_if_closed(now_ms)

    def _look_again(self, now_ms: int) -> None:
        """Go on with a request that was held, or with its answer, if its turn has come."""
        if not self.holds & HOLDS_TURN:
            self.requests.go_on(self, now_ms)
            return
        try:
            if self.answers.release(self, now_ms):
                self.commands.append(ResumeBroker())
        except RemoteProtocolError as error:
            self.end(error.reason, f"from the broker: {error}")

    # --- what the shell decides -------------------------------------------------------------

    def answer(self, ask: Ask, frame: bytes, now_ms: int) -> None:
        """Answer a question; ``frame`` is the whole answer with its length prefix."""
        if self._asks(ask):
            throttle = questions.answer(self, ask, frame, now_ms)
            self.requests.answered(self, throttle, now_ms)
            self._charge_if_closed(now_ms)

    def forward(
        self,
        ask: Ask,
        frame: bytes,
        merge: Callable[[bytes], bytes | Ask] | None = None,
    ) -> None:
        """
        Pass a question on after all.

        Args:
            ask: the request.
            frame: what goes upstream: the request as it came, or a part of it.
            merge: makes the client's answer out of the broker's; or gives the question back, to be
                answered by ``answer`` later on.
        """
        if self._asks(ask):
            questions.forward(self, ask, frame, merge)

    def resume(self, ask: Ask, now_ms: int) -> None:
        """The owner of a client's delegation token was looked up: let it pass, or refuse it."""
        self.last_ms = now_ms
        if not self._asks(ask):
            return
        self.no_question()
        try:
            authentication.pass_on(self, ask.plan, ask.correlation_id, ask.body_offset, ask.frame)
        except RemoteProtocolError as error:
            self.end(error.reason, f"from the client: {error}")
        self._charge_if_closed(now_ms)

    def rewritten(self, rewrite: Rewrite, result: Rewritten, now_ms: int) -> None:
        """The addresses of an answer were replaced: pass it on, and what came behind it."""
        if self.closed is None:
            try:
                self.answers.rewritten(self, rewrite, result, now_ms)
            except RemoteProtocolError as error:
                self.end(error.reason, f"from the broker: {error}")
            self._after_answers(now_ms)

    def _asks(self, ask: Ask) -> bool:
        """Whether a question still waits for its answer."""
        return self.closed is None and self.question is ask

    def close(self, reason: str, detail: str, now_ms: int) -> None:
        """End the conversation for a reason of the shell's; what was passed on is charged."""
        if self.closed is None:
            self.end(reason, detail)
            self._charge_rest(now_ms)

    def account_client(self, nanos: int) -> None:
        """Add the thread time of a callback that took bytes from the client."""
        self.spent_ns += nanos

    def account_broker(self, nanos: int, now_ms: int) -> None:
        """Add the thread time of a callback that took bytes from the broker."""
        if self.answer_sent:
            self.answer_sent = False
            self.rules.network_time(self, self.context, nanos, now_ms)
        else:
            self.spent_ns += nanos

    # --- what the shell may ask -------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Bytes taken from the client that wait for their turn."""
        return self.requests.held.size

    @property
    def collects_answer(self) -> bool:
        """Whether an answer of the broker's is being collected."""
        return self.answers.collects

    def retained(self) -> int:
        """Return how many bytes are held or collected now, all of them copies."""
        size = self.requests.retained(self) + self.answers.retained
        if self.question is not None:
            size += len(self.question.frame)
        if self.waits & ANSWERS:
            size += IN_FLIGHT_BYTES * len(self.unanswered)
        self.retains = size > 0
        return size

    @property
    def at_rest(self) -> bool:
        """Whether no request is half read or unanswered: the moment to drain."""
        waits = self.waits & THROTTLE or self.waits_turn
        return (
            not self.in_flight
            and self.requests.at_rest(self)
            and self.answers.at_rest
            and not (self.held_bytes and not waits)
        )

    @property
    def _size_due(self) -> bool:
        """Whether answers that are limited by their size are due and haven't begun."""
        due = islice(self.unanswered, 1 if self.answers.passing else 0, None)
        return any(
            asked.plan.kind in CHARGED_BY_ANSWER and asked.context.fetches_alone for asked in due
        )

    # --- the end ----------------------------------------------------------------------------

    def _charge_if_closed(self, now_ms: int) -> None:
        if self.closed is not None:
            self._charge_rest(now_ms)

    def _charge_rest(self, now_ms: int) -> None:
        """
        Charge what was passed on and isn't charged yet: the conversation is over.

        Of a Produce that was passed on in part, that part is charged; as in a whole one, the length
        prefix doesn't count. Afterwards ``throttled_until_ms`` says when the client would have been
        read again if it had stayed. Nothing that was held or collected is kept.
        """
        self.charge_unanswered(first_is_charged=self.answers.passing, now_ms=now_ms)
        if self.retains:
            self.requests.drop()
            self.answers.drop(self)

    @property
    def upstream_is_up(self) -> bool:
        """Whether the upstream connection is up."""
        return not self.waits & UPSTREAM

    @property
    def broker_id(self) -> int:
        """The upstream broker's id."""
        return self.rules.broker_id

    @property
    def in_flight(self) -> int:
        """How many requests were passed on or asked about, and not answered yet."""
        return len(self.unanswered) + (self.question is not None)

    @property
    def made_to_wait(self) -> bool:
        """Whether the client waits for the gateway: muted, held, or with a question to answer."""
        return bool(self.waits & OURS or self.holds & HOLDS_TURN)

    @property
    def waits_turn(self) -> bool:
        """Whether a fetch is held, or a newcomer waits for those that repay before it."""
        return bool(self.waits & TURN or self.holds & HOLDS_TURN)

    # --- who is charged ---------------------------------------------------------------------

    def identified(self, principal_before: str) -> None:
        """Use what the identity has become, now that the broker has answered to SASL."""
        identity = self.identity
        self.tokens = identity.raw
        if identity.authenticated and not self.known:
            self.known = True
            self.debts_taken = 0
            self.max_bytes = self.max_request_bytes
        if identity.principal != principal_before:
            self.use_context()

    def use_context(self) -> None:
        """Ask the rules who is charged, by the principal and the client id as they are now."""
        self.debts_taken = 0
        self.context = self.rules.context(self.identity.principal, self.client_id)
        if self.places:
            names = {name for name, _ in self.context.overdue}
            for name in self.places.keys() - names:
                self.places.pop(name).leave()

    # --- why the client waits ---------------------------------------------------------------

    def wait_for_answer(self) -> None:
        """Take nothing more until the request just received is answered."""
        if not self.waits & (ANSWER | THROTTLE):
            self.asked_ms = self.last_ms
        self.waits |= ANSWER

    def ask(self, question: Ask) -> None:
        """Have the shell answer a request or say how to pass it on."""
        self.question = question
        self.waits |= QUESTION
        self.commands.append(question)

    def no_question(self) -> None:
        """Note that the shell has said what becomes of a request."""
        self.question = None
        self.waits &= ~QUESTION

    def go_on_later(self) -> None:
        """Have the rest of what came read in a later callback, since this one has done enough."""
        self.retains = True
        if not self.waits & WORK:
            self.waits |= WORK
            self.commands.append(Continue())

    def start_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """Mute the client for this long, unless it is muted for longer already."""
        if not self.waits & (ANSWER | THROTTLE):
            self.asked_ms = self.last_ms
        self.waits |= THROTTLE | ANSWER if self.unanswered else THROTTLE
        until_ms = now_ms + throttle_ms
        if until_ms <= self.throttled_until_ms:
            return
        self.throttled_until_ms = until_ms
        self.muted_by = self.told
        self.commands.append(WakeAt(until_ms))

    def leave_places(self) -> None:
        """A Produce doesn't wait for its turn any more: it passes, or something else keeps it."""
        for place in self.places.values():
            place.leave()
        self.places.clear()

    def debts_end_ms(self, plan: RequestPlan, now_ms: int) -> int:
        """Return when closed connections' debts let the first request of a kind pass, epoch ms."""
        # Differs: a newcomer waits for the mute that a closed connection of its quota-id left;
        # Kafka forgets it.
        # Differs: one that finds no such mute waits while another repays it, and may have hung up
        # unseen.
        # Differs: a thousand newcomers of a principal wait in this way; one more is closed.
        if not self.known:
            self.debts_taken |= plan.bit
            return now_ms
        lanes = tuple(self.rules.lanes_of(self.context, plan.owes))
        debts = self._own_debts()
        until_ms = debts.enter(lanes, now_ms, plan.owes)
        if debts.repays:
            self.repays |= plan.bit
        if debts.is_in(lanes):
            self.debts_taken |= plan.bit
        elif debts.turned_away:
            self.end("too-many-waiting", f"{MOST_WAITING} wait where others repay a debt")
        elif debts.waits_at is not None:
            if debts.nudge is None:
                self.commands.append(AwaitTurn(debts))
            self.commands.append(WakeAt(until_ms))
        if until_ms > now_ms and debts.waits_at is None:
            self.told = debts.waits_by
        return until_ms

    def repaid(self, plan: RequestPlan, now_ms: int) -> None:
        """Note that a request is charged of a kind that may have waited for a debt."""
        if self._own_debts().charged(plan.owes, now_ms):
            self.repays = 0

    def note_debt(self, key: LaneKey, lane: Lane) -> None:
        """Note a throttle, to be left behind if the connection closes before it is over."""
        self._own_debts().owe(key, lane)

    def _own_debts(self) -> Debts:
        if self.debts is None:
            self.debts = Debts(self.rules.lanes)
        return self.debts

    # --- what is charged --------------------------------------------------------------------

    def charge(
        self, plan: RequestPlan, context: Context, size: int, upstream_ms: int, now_ms: int
    ) -> int:
        """
        Charge a request that is neither a Produce nor a fetch.

        Args:
            plan: of the request.
            context: who is charged.
            size: bytes of the request.
            upstream_ms: the throttle time that the broker told.
            now_ms: epoch ms.

        Returns:
            The throttle time, ms.
        """
        quota = self.mutation_quota
        if quota is not None:
            self.mutation_quota = None
            return self.rules.mutation(self, context, plan, size, upstream_ms, quota, now_ms)
        if self.rules.counts_requests:
            return self.rules.request(self, context, plan, size, upstream_ms, now_ms)
        return 0

    def charge_early(self, now_ms: int) -> None:
        """Charge requests that went early (``headroom``), answered or not; none is throttled."""
        headroom, self.early_in = self.early_in, None
        if headroom is not None:
            for allowance in headroom.all:
                allowance.early.pop(self, None)
            # The last one isn't early if it is alone. Answered, it stays so until the mute is over.
            self._charge_claims(max(len(self.unanswered) - self.alone, 0), now_ms)

    def set_stalled(self, on: bool, now_ms: int) -> None:
        """
        Note that the client doesn't take its answers, or does again.

        Answers aren't read meanwhile, so what was asked is charged now: else a client could keep
        a part of a quota claimed for as long as it likes.
        """
        self.holds = self.holds | HOLDS_CLIENT if on else self.holds & ~HOLDS_CLIENT
        if on:
            self.charge_early(now_ms)
            if self.alone:
                self._charge_claims(len(self.unanswered), now_ms)

    def _charge_claims(self, end: int, now_ms: int) -> None:
        """Charge what claims headroom of the first ``end`` unanswered requests."""
        unanswered = self.unanswered
        first = end
        # All that was charged before is older than all that wasn't.
        while first and unanswered[first - 1].claim.__class__ is not int:
            first -= 1
        for at in range(first, end):
            asked = unanswered[at]
            claim = asked.claim
            if claim is None or isinstance(claim, int):
                continue
            throttle = self._charge_passed(asked, now_ms)
            if throttle:
                self.start_throttle(throttle, now_ms)
            told = None if asked.plan.kind in CHARGED_BY_ANSWER else throttle
            unanswered[at] = asked._replace(claim=told)

    def _charge_passed(self, asked: InFlight, now_ms: int) -> int:
        """Charge a request, but no fetch, without its answer; return the throttle time, ms."""
        plan, size, context = asked.plan, asked.size, asked.context
        told_before(asked)
        if plan.kind is _KIND_PRODUCE:
            ids = asked.producer_ids
            return self.rules.produce(self, context, plan, size, ids, 0, True, now_ms)
        if plan.kind in CHARGED_BY_ANSWER:
            return 0
        return self.charge(plan, context, size, 0, now_ms)

    # --- the end ----------------------------------------------------------------------------

    def end(self, reason: str, detail: str = "") -> None:
        """End the conversation, and have the shell close both sides."""
        self.closed = Close(reason, detail)
        self.commands.append(self.closed)

    def charge_unanswered(self, *, first_is_charged: bool, now_ms: int) -> None:
        """
        Charge all that was passed on or asked about and not answered.

        What throttles is left behind as debt.
        """
        cut = self._take_cut()
        if self.places:
            self.leave_places()
        self.charge_early(now_ms)
        unanswered = self.unanswered
        while unanswered:
            asked = unanswered.popleft()
            if not first_is_charged and asked.claim.__class__ is not int:
                self._owe(self._charge_passed(asked, now_ms), now_ms)
            first_is_charged = False
        ask = self.question
        self.no_question()
        if ask is not None:
            # Its answer isn't ready, but a part may have reached the broker, and topics be charged.
            size = len(ask.frame) - 4
            self._owe(self.charge(ask.plan, self.context, size, 0, now_ms), now_ms)
        if cut is not None:
            plan, context = cut.asked.plan, cut.asked.context
            size = cut.asked.size - cut.left
            if context.headroom is not None:
                context.headroom.make_way(size, now_ms)
            throttle = self.rules.produce(
                self, context, plan, size, None, 0, not cut.silent, now_ms
            )
            self._owe(throttle, now_ms)
        self.waits &= ~TURN
        if self.hold is not None:
            self.hold.leave()
        self._own_debts().leave(now_ms)

    def _take_cut(self) -> Passing | None:
        """Forget the request that is half passed; return it if the passed part is to be charged."""
        begun, self.begun = self.begun, None
        if not isinstance(begun, Passing):
            return None
        asked, unanswered = begun.asked, self.unanswered
        if not begun.silent:
            if not unanswered or unanswered[-1] is not asked:
                return None  # it was answered before it was all there, and charged
            unanswered.pop()
        return begun if asked.plan.kind is _KIND_PRODUCE and asked.size > begun.left else None

    def _owe(self, throttle_ms: int, now_ms: int) -> None:
        """Note until when a client that has gone would have been muted."""
        if throttle_ms > 0:
            self.throttled_until_ms = max(self.throttled_until_ms, now_ms + throttle_ms)
            self.waits |= THROTTLE
