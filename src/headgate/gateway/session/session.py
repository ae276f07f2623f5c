"""
One client connection and its upstream connection, without sockets: bytes and wake-ups in, bytes
out.

The shell calls ``client_data``, ``broker_data``, ``upstream_ready`` and ``wake``, and what commands
ask for. After each call it writes ``to_broker`` and ``to_client`` and does ``commands``.

Slices in ``to_broker`` and ``to_client`` are good until the next call; what is kept longer is
copied. A frame is collected only when its plan says so (``charging.plans``).

What is charged: every request that was passed on, once, when its last byte was handed to the
upstream (``relay.passed``). If the conversation ends before, the part of a Produce that was passed
on is charged then. Fetches are charged when their answer's length is known, and what the gateway
answers itself when it is answered.

When the client waits: a throttle begins with the charge, and its connection is muted until it is
over (``waits``). The answer tells what is left. What arrives meanwhile is held, up to
``HELD_BYTES``; then the shell is told to read no more. Requests are pipelined, but for those that
have to go alone in flight, since what they are charged isn't known before they are answered:
fetches under a quota, and under a quota of request time all whose answers are read whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.lanes import MOST_WAITING, Debts
from headgate.gateway.charging.plans import RequestKind, RequestPlan
from headgate.gateway.session import authentication, questions
from headgate.gateway.session.answers import AnswerReader
from headgate.gateway.session.commands import (
    Ask,
    Close,
    Command,
    Continue,
    ResumeBroker,
    WakeAt,
)
from headgate.gateway.session.relay import IN_FLIGHT_BYTES, Passing, PendingThrottle
from headgate.gateway.session.requests import RequestReader
from headgate.gateway.session.rewrite import Rewriter
from headgate.gateway.session.waits import (
    ANSWER,
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
    from headgate.gateway.charging.hold import Hold
    from headgate.gateway.charging.lanes import Lane, LaneKey, Owes
    from headgate.gateway.session.commands import ClientIdentity, ClusterView
    from headgate.gateway.session.fetch import FetchSession
    from headgate.gateway.session.relay import Collecting, InFlight
    from headgate.gateway.session.rewrite import Rewrite, Rewritten
    from headgate.throttle.controller_mutation import MutationQuota

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
        passed_on: that question, if a broker has answered it already; it is charged.
        waits: why the client's next request isn't taken (``waits.Waits``); 0: it is.
        holds: why the broker's next answer isn't (``waits.Holds``); 0: it is.
        budget: units of work that may still be done in this callback; a small request is one.
        gone: the client has hung up, and some of its charges aren't known yet.
        throttled_until_ms: when the throttle in force ends, or a wait for what others owe or left,
            epoch ms; 0: there is none.
        nudge: has ``nudged`` called in a later callback; the shell sets it.
        hold: the gates that the connection's fetches wait at; None before the first wait.
        produce_hold: likewise of what it produces.
        fetch_session: of the client, where fetches are answered empty.
        debts: what the connection owes if it closes now.
        mutation_quota: of the topic change in flight.
        spent_ns: thread time that isn't charged yet.
        began_ns: since when the thread works for it in this callback; 0: nobody measures that.
        asked_ms: when a broker begins with the oldest request in flight, epoch ms.
        answer_sent: an answer is being sent, whose time is charged as network time.
        told: why it was throttled last, or what it was found to owe.
        muted_by: why it is muted, or was last; None: it wasn't, or the broker throttles it.
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
    passed_on: InFlight | None = None
    waits: int = UPSTREAM
    holds: int = 0
    budget: int = BUDGET
    gone: bool = False
    throttled_until_ms: int = 0
    nudge: Callable[[], None] | None = None
    hold: Hold | None = None
    produce_hold: Hold | None = None
    fetch_session: FetchSession | None = None
    debts: Debts | None = None
    mutation_quota: MutationQuota | None = None
    spent_ns: int = 0
    began_ns: int = 0
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
    # By a clock that is never set; 0: none is in force.
    _throttle_ends_ms: int = 0
    _decided_ends_ms: int = 0  # of that: what its own requests were decided, or the broker told
    # By the wall clock as it was then.
    _throttle_due_ms: int = 0  # the last time asked for to end it
    _decided_until_ms: int = 0
    _look_due_ms: int = 0  # the last time asked for to look again; 0: it has come
    _decided_by: Told | None = None
    _owes_by: Owes | None = None
    _called: bool = False
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

        Setting the wall clock makes a throttle neither longer nor shorter, as at a broker: when it
        is over, a clock says that is never set.

        Args:
            now_ms: milliseconds of the epoch.
            due_ms: the ``t_ms`` of the ``WakeAt``; 0: not known.
        """
        if self.closed is not None:
            return
        if due_ms == self._look_due_ms:
            self._look_due_ms = 0
        if self.waits_turn:
            self._look_again(now_ms)
        if self._throttle_ends_ms and self.closed is None:
            steady_ms = self.rules.steady_ms(now_ms)
            if self._decided_ends_ms <= steady_ms:
                self._decided_ends_ms = 0
            if self._throttle_ends_ms <= steady_ms:
                self._end_throttle(now_ms)
            elif due_ms in (0, self._throttle_due_ms):  # its timer was early, or another's
                self._wake_again(now_ms)
        self._charge_if_closed(now_ms)

    def nudged(self, now_ms: int) -> None:
        """
        What it waits for may be gone, or its turn has come: look again, as when it looked first.
        """
        self._called = False
        if self.closed is None:
            muted = self._throttle_ends_ms > self._decided_ends_ms and not self._owes_as_before()
            if muted:
                self._withdraw(now_ms)
            if self.waits_turn:
                self._look_again(now_ms)
            if muted and self.closed is None:
                self.requests.go_on(self, now_ms)
            self._charge_if_closed(now_ms)

    def _owes_as_before(self) -> bool:
        """Whether this waits for what closed connections left, under the quota-ids it has now."""
        if self._owes_by is None:
            return False
        kind, lanes = self._owes_by
        context = self.rules.context(self.identity.principal, self.client_id)
        return context.limited and tuple(self.rules.lanes_of(context, kind)) == lanes

    def _withdraw(self, now_ms: int) -> None:
        """Wait no more for what others owe or left; what was decided for this one stays."""
        self._owes_by = None
        self._throttle_ends_ms = self._decided_ends_ms
        if self._decided_ends_ms:
            self.throttled_until_ms, self.muted_by = self._decided_until_ms, self._decided_by
            self._wake_again(now_ms)
        else:
            self.throttled_until_ms = 0
            self.waits &= ~THROTTLE
        self.debts_taken = 0
        if self.debts is not None:
            self.debts.withdraw(now_ms)

    def _look_again(self, now_ms: int) -> None:
        """Go on with a request that was held, and with an answer, if its turn has come."""
        if self.holds & HOLDS_TURN:
            try:
                if self.answers.release(self, now_ms):
                    self.commands.append(ResumeBroker())
            except RemoteProtocolError as error:
                self.end(error.reason, f"from the broker: {error}")
        if self.waits & TURN:
            self.requests.go_on(self, now_ms)

    # --- what the shell decides -------------------------------------------------------------

    def answer(self, ask: Ask, frame: bytes, now_ms: int) -> None:
        """Answer a question; ``frame`` is the whole answer with its length prefix."""
        if self._asks(ask):
            questions.answer(self, ask, frame, now_ms)
            self.requests.answered(self, now_ms)
            self._charge_if_closed(now_ms)

    def forward(
        self,
        ask: Ask,
        frame: bytes,
        merge: Callable[[bytes], bytes | Ask] | None,
        now_ms: int,
    ) -> None:
        """
        Pass a question on after all.

        Args:
            ask: the request.
            frame: what goes upstream: the request as it came, or a part of it.
            merge: makes the client's answer out of the broker's; or gives the question back, to be
                answered by ``answer`` later on.
            now_ms: epoch ms.
        """
        if self._asks(ask):
            questions.forward(self, ask, frame, merge, now_ms)

    def resume(self, ask: Ask, now_ms: int) -> None:
        """The owner of a client's delegation token was looked up: let it pass, or refuse it."""
        self.last_ms = now_ms
        if not self._asks(ask):
            return
        self.no_question()
        try:
            authentication.pass_on(
                self, ask.plan, ask.correlation_id, ask.body_offset, ask.frame, now_ms
            )
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
        """Add the thread time of a callback that took bytes from the client, since its charges."""
        self.spent_ns += nanos
        self.began_ns = 0

    def account_broker(self, nanos: int, now_ms: int) -> None:
        """Add the thread time of a callback that took bytes from the broker, since its charges."""
        self.began_ns = 0
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
        if self.waits & ANSWER and len(self.unanswered) > 1:
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
        Charge what was passed on and isn't charged yet: the conversation is over. What throttles is
        left behind as debt.

        Of a Produce that was passed on in part, that part is charged; as in a whole one, the length
        prefix doesn't count. Afterwards ``throttled_until_ms`` says when the client would have been
        read again if it had stayed. Nothing that was held or collected is kept.
        """
        self._charge_cut(now_ms)
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
        """Whether a request is held at a gate, or a newcomer waits for those that repay."""
        return bool(self.waits & TURN or self.holds & HOLDS_TURN)

    @property
    def waits_for_quota(self) -> bool:
        """Whether it waits for what isn't its own throttle: it may be gone when quotas change."""
        return self.waits_turn or self._throttle_ends_ms > self._decided_ends_ms

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
        if self.debts is not None and not self.context.limited:
            self.debts.stand_aside()

    # --- why the client waits ---------------------------------------------------------------

    def wait_for_answer(self) -> None:
        """Take nothing more until the request just received is answered."""
        self.asked_ms = self.last_ms
        self.waits |= ANSWER

    def ask(self, question: Ask) -> None:
        """Have the shell answer a request or say how to pass it on."""
        self.question = question
        self.waits |= QUESTION
        self.commands.append(question)

    def no_question(self) -> InFlight | None:
        """Note that the shell has said what becomes of a request; return it if it was charged."""
        asked, self.passed_on = self.passed_on, None
        self.question = None
        self.waits &= ~QUESTION
        return asked

    def go_on_later(self) -> None:
        """Have the rest of what came read in a later callback, since this one has done enough."""
        self.retains = True
        if not self.waits & WORK:
            self.waits |= WORK
            self.commands.append(Continue())

    def start_throttle(self, throttle_ms: int, why: Told | None, now_ms: int) -> None:
        """Mute the client for this long, unless it is muted for longer already."""
        ends_ms = self.rules.steady_ms(now_ms) + throttle_ms
        if ends_ms > self._decided_ends_ms:
            self._decided_ends_ms, self._decided_until_ms = ends_ms, now_ms + throttle_ms
            self._decided_by = why
            self._mute(ends_ms, now_ms + throttle_ms, why)
            if self.closed is None:
                self.commands.append(WakeAt(now_ms + throttle_ms))

    def wait_for(
        self, wait_ms: int, why: Told | None, now_ms: int, owes_by: Owes | None = None
    ) -> None:
        """
        Take nothing for this long, or until it looks again (``nudged``).

        ``owes_by`` says by what it owes what closed connections left; while that is the same, there
        is nothing to look at.
        """
        self._owes_by = owes_by
        self.look_again_at(now_ms + wait_ms)
        self._mute(self.rules.steady_ms(now_ms) + wait_ms, now_ms + wait_ms, why)

    def _mute(self, ends_ms: int, until_ms: int, why: Told | None) -> None:
        self.waits |= THROTTLE
        if ends_ms > self._throttle_ends_ms:
            self._throttle_ends_ms = ends_ms
            self.throttled_until_ms = self._throttle_due_ms = until_ms
            self.muted_by = why

    def _wake_again(self, now_ms: int) -> None:
        """Have this session woken when what is left of its throttle is over."""
        left_ms = self._throttle_ends_ms - self.rules.steady_ms(now_ms)
        self._throttle_due_ms = now_ms + left_ms
        self.commands.append(WakeAt(self._throttle_due_ms))

    def _end_throttle(self, now_ms: int) -> None:
        """Read on, for the throttle is over."""
        until_ms, self.throttled_until_ms = self.throttled_until_ms, 0
        self._throttle_ends_ms = self._decided_ends_ms = 0
        self._owes_by = None
        self.waits &= ~THROTTLE
        if self.debts is not None:
            self.debts.paid(until_ms)
        self.requests.go_on(self, now_ms)

    def look_again_at(self, until_ms: int) -> None:
        """Look again when it is called, and at this time, epoch ms; 0: only then."""
        self.rules.waiting.add(self)
        if until_ms not in (0, self._look_due_ms):  # else that time was asked for already
            self._look_due_ms = until_ms
            self.commands.append(WakeAt(until_ms))

    def step_aside(self, now_ms: int) -> None:
        """Have others pass at the gates where a request is held, which waits for something else."""
        if self.produce_hold is not None:
            self.produce_hold.step_aside(now_ms)
        if self.hold is not None and not self.holds & HOLDS_TURN:
            self.hold.step_aside(now_ms)

    def call(self) -> None:
        """Look again soon, since what this waits for may be gone; once, however often called."""
        if self.nudge is not None and not self._called:
            self._called = True
            self.nudge()

    def throttled(self, throttle_ms: int, now_ms: int) -> PendingThrottle:
        """Mute the client for what was decided just now; return what its answer will tell."""
        self.start_throttle(throttle_ms, self.told, now_ms)
        end_ms = self.rules.steady_ms(now_ms) + throttle_ms
        return PendingThrottle(throttle_ms, end_ms, self.told, now_ms)

    def tell(self, asked: InFlight, upstream_ms: int, now_ms: int) -> int:
        """
        Note that a request is answered.

        Args:
            asked: the request.
            upstream_ms: the throttle time that the broker told.
            now_ms: epoch ms.

        Returns:
            The throttle time to be told, ms: what is left of the request's, or the broker's if that
            is longer. Then the client is muted for that.
        """
        rules, throttle, left_ms = self.rules, asked.throttle, 0
        self.answer_sent = rules.counts_requests
        if self.answer_sent:
            rules.answered(self, asked.context, asked.plan, now_ms)
        if throttle is not None:
            left_ms = max(min(throttle.ms, throttle.end_ms - rules.steady_ms(now_ms)), 0)
        if upstream_ms > left_ms:
            # Differs: a client waits here for a broker's throttle, too.
            self.start_throttle(upstream_ms, None, now_ms)
        if throttle is not None or upstream_ms > 0:
            why, since_ms = None, 0
            if throttle is not None:
                why = throttle.why
                since_ms = now_ms - throttle.at_ms
            rules.tell(self, asked.context, asked.plan, why, left_ms, upstream_ms, since_ms, now_ms)
        return max(left_ms, upstream_ms)

    def of_payer(self, asked: InFlight) -> InFlight:
        """Return a request with the client that is charged by the quotas in force now."""
        context = asked.context
        if context.epoch == self.rules.contexts.epoch:
            return asked
        return asked._replace(context=self.rules.context(context.principal, context.client_id))

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
            self.look_again_at(until_ms)
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
            self.debts = Debts(self.rules.lanes, self.call)
        return self.debts

    # --- what is charged --------------------------------------------------------------------

    def charge(self, plan: RequestPlan, context: Context, size: int, now_ms: int) -> int:
        """
        Charge a request that is neither a Produce nor a fetch.

        Args:
            plan: of the request.
            context: who is charged.
            size: bytes of the request.
            now_ms: epoch ms.

        Returns:
            The throttle time, ms.
        """
        quota = self.mutation_quota
        if quota is not None:
            self.mutation_quota = None
            return self.rules.mutation(self, context, plan, size, quota, now_ms)
        if self.rules.counts_requests:
            return self.rules.request(self, context, plan, size, now_ms)
        return 0

    # --- the end ----------------------------------------------------------------------------

    def end(self, reason: str, detail: str = "") -> None:
        """End the conversation, and have the shell close both sides."""
        self.closed = Close(reason, detail)
        self.commands.append(self.closed)

    def _charge_cut(self, now_ms: int) -> None:
        """Charge a Produce that is half passed on, a question, and thread time that is left."""
        begun, self.begun = self.begun, None
        self.unanswered.clear()
        rules, ask = self.rules, self.question
        throttle_ms = 0
        if self.no_question() is None and ask is not None:
            # Its answer isn't ready, but a part may have reached the broker, and topics be charged.
            throttle_ms = self.charge(ask.plan, self.context, len(ask.frame) - 4, now_ms)
        if isinstance(begun, Passing) and begun.asked.plan.kind is _KIND_PRODUCE:
            size = begun.asked.size - begun.left
            if size > 0:
                _, plan, _, context, *_ = self.of_payer(begun.asked)
                throttle_ms = rules.produce(
                    self, context, plan, size, None, not begun.silent, now_ms
                )
        if throttle_ms:
            self.start_throttle(throttle_ms, self.told, now_ms)
        rules.rest_of_time(self, self.context, now_ms)
        self.waits &= ~TURN
        for hold in (self.hold, self.produce_hold):
            if hold is not None:
                hold.leave()
        self._own_debts().leave(now_ms)
        self.rules.waiting.discard(self)
        self.nudge = None
