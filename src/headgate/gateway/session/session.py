"""
One client connection and its upstream connection, without sockets: bytes and wake-ups in, bytes
out.

The shell calls ``client_data``, ``broker_data``, ``upstream_ready`` and ``wake``, and what commands
ask for. After each call it writes ``to_broker`` and ``to_client`` and does ``commands``.

Slices in ``to_broker`` and ``to_client`` are good until the next call; what is kept longer is
copied. A frame is collected only when its plan says so (``charging.plans``).

When the client waits: after a request that may be throttled, no other request of its connection is
passed on until it is answered, as in Kafka. After a throttled answer the connection stays muted
(``mute.py``). What arrives meanwhile is held, up to ``HELD_BYTES``; then the shell is told to read
no more. Requests that no quota can throttle, whenever they are charged, are pipelined: those that
are charged nothing, all of a connection without a finite quota, and those that fit into the
``headroom``.

What is charged: every request that was passed on, once. It is charged when it is answered. It is
charged earlier if other charges depend on it, or if the conversation ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.fetch_gate import SET_BACK_MS
from headgate.gateway.charging.plans import RequestPlan
from headgate.gateway.session import authentication, questions
from headgate.gateway.session.answer_reader import AnswerReader
from headgate.gateway.session.commands import Ask, Command, ResumeBroker, WakeAt
from headgate.gateway.session.in_flight import IN_FLIGHT_BYTES
from headgate.gateway.session.mute import THROTTLE_ENDED
from headgate.gateway.session.request_reader import RequestReader
from headgate.gateway.session.rewrite import Rewriter
from headgate.gateway.session.state import BUDGET, CHARGED_BY_ANSWER, SessionState

if TYPE_CHECKING:
    from headgate.gateway.session.interfaces import ClusterView
    from headgate.gateway.session.rewrite import Rewrite, Rewritten


class Session:
    """
    The conversation of one client with one broker.

    Args:
        state: of a conversation that hasn't begun yet: who the client is, who charges it.
        plans: how each API is handled (``plans.build_plans``), by ``key << 16 | version``.
        cluster: the brokers, as this listener's clients see them.
        pass_unknown: ``headgate.unknown.apis=pass``.

    Attributes:
        state: who the client is, what is in flight, why it waits.
        to_broker: what the shell has to send to the broker; it empties the list.
        to_client: what the shell has to send to the client; likewise.
        commands: what the shell has to do; likewise.
    """

    __slots__ = ("_answers", "commands", "requests", "state", "to_broker", "to_client")

    def __init__(
        self,
        state: SessionState,
        plans: Mapping[int, RequestPlan],
        cluster: ClusterView,
        *,
        pass_unknown: bool = False,
    ) -> None:
        self.state = state
        self.to_broker: Final[list[Any]] = state.to_broker
        self.to_client: Final[list[Any]] = state.to_client
        self.commands: Final[list[Command]] = state.commands
        self.requests = RequestReader(state, plans)
        self._answers = AnswerReader(state, self.requests, Rewriter(cluster), pass_unknown)

    # --- what the shell reports -------------------------------------------------------------

    def upstream_ready(self, now_ms: int) -> None:
        """The upstream connection is up: take what the client has said meanwhile."""
        self.requests.open(now_ms)
        self._charge_if_closed(now_ms)

    def client_data(self, data: memoryview, now_ms: int) -> None:
        """
        Take bytes from the client.

        Args:
            data: a writable view, valid until the shell has written the output; a fetch's limits
                are patched in place.
            now_ms: milliseconds of the epoch.
        """
        state = self.state
        state.last_ms = now_ms
        state.budget = BUDGET
        if state.closed is not None:
            return
        requests = self.requests
        # The rest of a request that is half passed always goes on: its answer is waited for.
        if (state.blocked and state.begun is None) or requests.held.size:
            requests.held.add(data)
            state.retains = True
            return
        try:
            requests.feed(data, now_ms, owned=False)
        except RemoteProtocolError as error:
            state.close(error.reason, f"from the client: {error}")
        if state.closed is not None:
            self._charge_rest(now_ms)

    def broker_data(self, data: memoryview, now_ms: int) -> None:
        """Take bytes from the broker; arguments as for ``client_data``."""
        state = self.state
        state.last_ms = now_ms
        state.budget = BUDGET
        if state.closed is not None:
            return
        try:
            self._answers.feed(data, now_ms)
        except RemoteProtocolError as error:
            state.close(error.reason, f"from the broker: {error}")
        self._after_answers(now_ms)

    def _after_answers(self, now_ms: int) -> None:
        """Close if the client has gone and nothing more is due; charge what is left if closed."""
        state = self.state
        if state.gone and state.closed is None and not self._size_due:
            state.close("client-gone")
        if state.closed is not None:
            self._charge_rest(now_ms)

    def client_gone(self, now_ms: int) -> bool:
        """
        The client has hung up: what it still had to say is dropped.

        Returns:
            Whether fetches are unanswered, which are charged by their answers' size. Then the
            broker is still read, and the session closes when the last of these answers has begun.
        """
        state = self.state
        if state.closed is not None or not self._size_due:
            return False
        state.gone = True
        self.requests.held.clear()
        if self._answers.keeps:
            self._look_again(now_ms)
            self._charge_if_closed(now_ms)
        return self._size_due

    def stalled(self, on: bool, now_ms: int) -> None:
        """The client doesn't take its answers, or does again (``SessionState.set_stalled``)."""
        self.state.set_stalled(on, now_ms)

    def go_on(self, now_ms: int) -> None:
        """Read on in what came before, after a ``Continue``."""
        state = self.state
        state.budget, state.continues = BUDGET, False
        if state.closed is not None:
            return
        try:
            self._answers.go_on(now_ms)
        except RemoteProtocolError as error:
            state.close(error.reason, f"from the broker: {error}")
        if state.blocked:
            self.requests.go_on(now_ms)
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
        state = self.state
        if state.closed is not None:
            return
        early_ms = due_ms - now_ms
        if state.waits_turn:
            self._look_again(now_ms)
        until_ms = state.throttled_until_ms
        if until_ms and state.closed is None and due_ms in (0, until_ms):
            if until_ms - now_ms > 0 and early_ms <= SET_BACK_MS:  # timers may be early by one
                state.commands.append(WakeAt(until_ms))
            else:
                state.throttled_until_ms = 0
                if state.debts is not None:
                    state.debts.paid(until_ms)
                state.mute.apply(THROTTLE_ENDED)
                self.requests.go_on(now_ms)
        self._charge_if_closed(now_ms)

    def nudged(self, now_ms: int) -> None:
        """The turn of a held request has come, since the one before it is over."""
        if self.state.closed is None:
            if self.state.waits_turn:
                self._look_again(now_ms)
            self._charge_if_closed(now_ms)

    def _look_again(self, now_ms: int) -> None:
        """Go on with a request that was held, or with its answer, if its turn has come."""
        if not self._answers.keeps:
            self.requests.go_on(now_ms)
            return
        try:
            if self._answers.release(now_ms):
                self.state.commands.append(ResumeBroker())
        except RemoteProtocolError as error:
            self.state.close(error.reason, f"from the broker: {error}")

    # --- what the shell decides -------------------------------------------------------------

    def answer(self, ask: Ask, frame: bytes, now_ms: int) -> None:
        """Answer a question; ``frame`` is the whole answer with its length prefix."""
        if self._asks(ask):
            throttle = questions.answer(self.state, ask, frame, now_ms)
            self.requests.answered(throttle, now_ms)
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
            questions.forward(self.state, ask, frame, merge)

    def resume(self, ask: Ask, now_ms: int) -> None:
        """The owner of a client's delegation token was looked up: let it pass, or refuse it."""
        state = self.state
        state.last_ms = now_ms
        if not self._asks(ask):
            return
        state.question = None
        try:
            authentication.pass_on(state, ask.plan, ask.correlation_id, ask.body_offset, ask.frame)
        except RemoteProtocolError as error:
            state.close(error.reason, f"from the client: {error}")
        self._charge_if_closed(now_ms)

    def rewritten(self, rewrite: Rewrite, result: Rewritten, now_ms: int) -> None:
        """The addresses of an answer were replaced: pass it on, and what came behind it."""
        if self.state.closed is None:
            try:
                self._answers.rewritten(rewrite, result, now_ms)
            except RemoteProtocolError as error:
                self.state.close(error.reason, f"from the broker: {error}")
            self._after_answers(now_ms)

    def _asks(self, ask: Ask) -> bool:
        """Whether a question still waits for its answer."""
        return self.state.closed is None and self.state.question is ask

    def close(self, reason: str, detail: str, now_ms: int) -> None:
        """End the conversation for a reason of the shell's; what was passed on is charged."""
        if self.state.closed is None:
            self.state.close(reason, detail)
            self._charge_rest(now_ms)

    def account_client(self, nanos: int) -> None:
        """Add the thread time of a callback that took bytes from the client."""
        self.state.spent_ns += nanos

    def account_broker(self, nanos: int, now_ms: int) -> None:
        """Add the thread time of a callback that took bytes from the broker."""
        state = self.state
        if state.answer_sent:
            state.answer_sent = False
            state.rules.network_time(state, state.context, nanos, now_ms)
        else:
            state.spent_ns += nanos

    # --- what the shell may ask -------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Bytes taken from the client that wait for their turn."""
        return self.requests.held.size

    @property
    def collects_answer(self) -> bool:
        """Whether an answer of the broker's is being collected."""
        return self._answers.collects

    def retained(self) -> int:
        """Return how many bytes are held or collected now, all of them copies."""
        state = self.state
        size = self.requests.retained + self._answers.retained
        if state.question is not None:
            size += len(state.question.frame)
        if state.until_answered:
            size += IN_FLIGHT_BYTES * len(state.unanswered)
        state.retains = size > 0
        return size

    @property
    def at_rest(self) -> bool:
        """Whether no request is half read or unanswered: the moment to drain."""
        state = self.state
        waits = state.throttled_until_ms or state.waits_turn
        return (
            not state.in_flight
            and self.requests.at_rest
            and self._answers.at_rest
            and not (self.held_bytes and not waits)
        )

    @property
    def _size_due(self) -> bool:
        """Whether answers that are limited by their size are due and haven't begun."""
        due = islice(self.state.unanswered, 1 if self._answers.passing else 0, None)
        return any(asked[1].kind in CHARGED_BY_ANSWER and asked[3].fetches_alone for asked in due)

    # --- the end ----------------------------------------------------------------------------

    def _charge_if_closed(self, now_ms: int) -> None:
        if self.state.closed is not None:
            self._charge_rest(now_ms)

    def _charge_rest(self, now_ms: int) -> None:
        """
        Charge what was passed on and isn't charged yet: the conversation is over.

        Of a Produce that was passed on in part, that part is charged; as in a whole one, the length
        prefix doesn't count. Afterwards ``throttled_until_ms`` says when the client would have been
        read again if it had stayed. Nothing that was held or collected is kept.
        """
        self.state.charge_unanswered(first_is_charged=self._answers.passing, now_ms=now_ms)
        if self.state.retains:
            self.requests.drop()
            self._answers.drop()
