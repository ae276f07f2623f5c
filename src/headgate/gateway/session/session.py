"""
One client connection and its upstream twin, without sockets: bytes and wake-ups in, bytes out.

The shell calls ``client_data``, ``broker_data``, ``upstream_ready``, ``wake``, ``answer`` and
``forward``, and after each call writes ``to_broker`` and ``to_client`` and does ``commands``.

How bytes go through. Most of a frame is never looked at. A request's header is read where it
lies, the bytes are passed on as slices of the very buffer they came in, and several frames that
need nothing in between leave as one slice. A frame is collected only when its plan says so
(``plans.py``). Slices in ``to_broker`` and ``to_client`` are good until the next call; what is
kept longer is copied.

When the client waits. After a request that may be throttled nothing of its connection follows
until it is answered, as in Kafka, and after a throttled answer the connection stays muted
(``mute.py``). What arrives meanwhile is held, up to ``HELD_BYTES``; then the shell is told to read
no more. What no quota can throttle, whenever it is charged, is pipelined freely: requests that are
charged nothing, all of a connection without any finite quota, and what there is ``headroom`` for.

What is charged. All that was passed on, once: at its answer, or before where others depend on it,
or when the conversation ends.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.errors import RemoteProtocolError
from headgate.gateway.session.answers import Replies
from headgate.gateway.session.commands import Ask, ResumeBroker, WakeAt
from headgate.gateway.session.mute import THROTTLE_ENDED
from headgate.gateway.session.requests import MAX_IN_FLIGHT
from headgate.gateway.session.state import HELD_BYTES, INT, INT_MAX

__all__ = ["HELD_BYTES", "MAX_IN_FLIGHT", "Session"]


class Session(Replies):
    """
    The conversation of one client with one broker; arguments as for ``SessionState``.

    The state and both sides are in ``session_state``, ``session_requests``, ``session_answers``.
    """

    __slots__ = ()

    # --- what the shell reports -------------------------------------------------------------

    def upstream_ready(self, now_ms: int) -> None:
        """The upstream connection is up: take what the client has said meanwhile."""
        self._open = True
        self._maybe_go_on(now_ms)

    def client_data(self, data: memoryview, now_ms: int) -> None:
        """
        Take bytes from the client.

        Args:
            data: a writable view, valid until the shell has written the output; a fetch's limits
                are patched in place.
            now_ms: milliseconds of the epoch.
        """
        self.last_ms = now_ms
        if self.closed is not None:
            return
        # The rest of a request that is half passed always goes on: its answer is waited for.
        if (self._blocked and not self._left) or self._held_size:
            self._hold(data)
            return
        try:
            self._feed_client(data, now_ms, owned=False)
        except RemoteProtocolError as error:
            self._close(error.reason, f"from the client: {error}", now_ms)

    def broker_data(self, data: memoryview, now_ms: int) -> None:
        """Take bytes from the broker; arguments as for ``client_data``."""
        self.last_ms = now_ms
        if self.closed is not None:
            return
        if self._kept is not None:  # it came before the shell stopped reading
            self._kept += data
            self.retains = True
            self.rules.gates.kept_bytes += len(data)
            return
        try:
            self._feed_broker(data, now_ms)
        except RemoteProtocolError as error:
            self._close(error.reason, f"from the broker: {error}", now_ms)
        if self.gone and self.closed is None and not self._size_due:
            self._close("client-gone", "", now_ms)

    def client_gone(self, now_ms: int) -> bool:
        """
        The client has hung up: what it still had to say is dropped.

        Returns:
            Whether fetches are unanswered, which are charged by their answers' size. Then answers
            are still wanted, and the session closes when the last of these has begun.
        """
        if self.closed is not None or not self._size_due:
            return False
        self.gone = True
        self._held.clear()
        self._held_size = 0
        if self._kept is not None:
            self._look_again(now_ms)
        return self._size_due

    def wake(self, now_ms: int, due_ms: int = 0) -> None:
        """
        The time of a ``WakeAt`` has come; harmless when it hasn't.

        Args:
            now_ms: milliseconds of the epoch.
            due_ms: the time asked for, if it has come although ``now_ms`` is before it: a wall
                clock that is set back makes nobody wait longer, as nobody does at a broker.
        """
        if self.closed is not None:
            return
        if self.hold is not None and self.hold.waiting:
            self._look_again(max(now_ms, due_ms))
        if not self.throttled_until_ms:
            return
        if max(now_ms, due_ms) < self.throttled_until_ms:
            self.commands.append(WakeAt(self.throttled_until_ms))
            return
        self.throttled_until_ms = 0
        self.mute.apply(THROTTLE_ENDED)
        self._maybe_go_on(now_ms)

    def _look_again(self, now_ms: int) -> None:
        """Go on with a fetch that was held, or with its answer, if its turn has come."""
        kept = self._kept
        if kept is None:
            self._maybe_go_on(now_ms)
            return
        self._kept = None
        self.rules.gates.kept_bytes -= len(kept)
        try:
            self._feed_broker(memoryview(kept), now_ms)
        except RemoteProtocolError as error:
            self._close(error.reason, f"from the broker: {error}", now_ms)
            return
        if self._kept is None:
            self.commands.append(ResumeBroker())

    def answer(self, ask: Ask, frame: bytes, now_ms: int) -> None:
        """Answer a request ourselves; ``frame`` is the whole answer with its length prefix."""
        if self.closed is not None or self._asked is not ask:
            return
        self._asked = None
        plan = ask.plan
        at = plan.throttle_at
        upstream = INT.unpack_from(frame, at)[0] if at > 0 else 0
        throttle = self._charge(plan, self.context, len(ask.frame) - 4, upstream, now_ms)
        if throttle > upstream and at > 0:
            told = bytearray(frame)
            INT.pack_into(told, at, min(throttle, INT_MAX))
            frame = bytes(told)
        self.to_client.append(frame)
        self._sent(throttle, now_ms)

    def resume(self, ask: Ask, now_ms: int) -> None:
        """The owner of a client's delegation token was looked up: let it pass, or refuse it."""
        self.last_ms = now_ms
        if self.closed is not None or self._asked is not ask:
            return
        self._asked = None
        try:
            self._authenticate(ask.plan, ask.correlation_id, ask.body_offset, ask.frame, now_ms)
        except RemoteProtocolError as error:
            self._close(error.reason, f"from the client: {error}", now_ms)

    def forward(
        self,
        ask: Ask,
        frame: bytes,
        merge: Callable[[bytes], bytes | Ask] | None = None,
    ) -> None:
        """
        Pass a request on after all.

        Args:
            ask: the request.
            frame: what goes upstream: the request as it came, or a part of it.
            merge: makes the client's answer out of the broker's; or gives the question back, to be
                answered by ``answer`` later on.
        """
        if self.closed is not None or self._asked is not ask:
            return
        self._asked = None
        self.to_broker.append(frame)
        self._inflight.append(
            (ask.correlation_id, ask.plan, len(ask.frame) - 4, self.context, None, merge, None)
        )

    def account_client(self, nanos: int) -> None:
        """Add the thread time of a callback that took bytes from the client."""
        self.spent_ns += nanos

    def account_broker(self, nanos: int, now_ms: int) -> None:
        """Add the thread time of a callback that took bytes from the broker."""
        if self._network_due:
            self._network_due = False
            self.rules.network_time(self, self.context, nanos, now_ms)
        else:
            self.spent_ns += nanos
