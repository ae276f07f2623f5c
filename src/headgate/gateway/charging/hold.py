"""
How a connection's request waits at the gates of its quota-ids (``gates``).

A Produce waits until it may pass. A fetch is held twice at most: its request before it is passed
on, and its answer if the gate closed while the broker had the request. Both holds end
``headgate.fetch.hold.max.ms`` after the request came, at the latest. The time that a request waited
here is subtracted from its MaxWait. So a fetch takes no longer than the greater of the two.

When that time is over, the fetch is passed on asking for next to nothing, and its answer is
emptied. The client is told how long the gate stays closed, and is muted for that time; the
connection keeps its place. The broker is asked all the same, since it would otherwise miss a step
of the fetch session's epoch, and what the request changes in the session's partitions.

Arguments and results are times of the wall clock. The times kept here are the gates' own
(``Gates.time``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headgate.gateway.charging.gates import GateKey, Gates, GateTurn

PASS: Final = 0
"""Go on."""
HELD: Final = 1
"""Not yet."""
LITTLE: Final = 2
"""Held for long enough: go on, and answer empty."""
SHARE_HOLD_MS: Final = 4_500
"""Longest hold of a ShareFetch, which may bring acknowledgements: less than a third of the shortest
lock of a record that a broker allows (``group.share.min.record.lock.duration.ms``, 15 s)."""


UNTOLD_MS: Final = 20_000
"""How long a Produce may wait here in silence. Who waited longer is told so with its next answer:
clients give a request up 30 s after they sent it, and what they are told they wait before that."""
SHORT_MS: Final = 5_000
"""Who waits for less is told its own throttle again."""


@dataclass(slots=True, eq=False)
class Hold:
    """
    The fetch, or the Produce, of one connection.

    Args:
        gates: of the broker.
        nudge: has the session look again soon.

    Attributes:
        asks_nothing: the request asked for no records, so its answer passes without its turn.
        expired: the hold lasted too long, so the answer is emptied.
        wake_ms: when to look again while it is held, epoch ms; 0: when it is woken.
        waited_ms: how long was waited since ``take_waited``.
    """

    _gates: Gates
    nudge: Callable[[], None] | None = None
    asks_nothing: bool = False
    expired: bool = False
    wake_ms: int = 0
    waited_ms: int = 0
    _told_ms: int = 0
    _turns: dict[GateKey, GateTurn] = field(default_factory=dict)
    _had: set[GateKey] = field(default_factory=set)  # where this request or answer had its turn
    _keys: tuple[GateKey, ...] = ()
    _since_ms: int | None = None  # when the request came
    _held_ms: int | None = None  # when it began to be held

    def admit(
        self,
        keys: tuple[GateKey, ...],
        principal: str,
        since_ms: int,
        most_ms: int | None,
        now_ms: int,
    ) -> int:
        """
        Say what becomes of a request, or of an answer that has come.

        Args:
            keys: the quota-ids that it is charged to.
            principal: whose turn it takes.
            since_ms: when the request came; read only at the first call for it.
            most_ms: the longest it is held; None: for as long as it takes.
            now_ms: epoch ms.

        Returns:
            PASS, HELD or LITTLE.
        """
        if keys is not self._keys:
            for key in [key for key in self._turns if key not in keys]:
                turn = self._turns.pop(key)
                turn.gate.stand_aside(turn)
            self._keys = keys
        gates = self._gates
        now_ms = gates.time(now_ms)
        if self._since_ms is None:
            self._since_ms = min(since_ms + gates.ahead_ms, now_ms)
        closed = self._closed(principal, now_ms)
        if closed is None:
            self._stop(now_ms)
            return PASS
        until_ms = None if most_ms is None else self._since_ms + most_ms
        if until_ms is not None and now_ms >= until_ms:
            self._stop(now_ms)
            self.expired = True
            return LITTLE
        if self._held_ms is None:
            self._held_ms = now_ms
        due_ms = until_ms
        if closed.appointed:
            next_ms = closed.gate.next_ms(now_ms)
            due_ms = next_ms if until_ms is None else min(until_ms, next_ms)
        self.wake_ms = 0 if due_ms is None else due_ms - gates.ahead_ms
        return HELD

    @property
    def waiting(self) -> bool:
        """Whether a request or an answer is held."""
        return self._held_ms is not None

    @property
    def idle(self) -> bool:
        """Whether nothing has to be remembered: nothing is at the gates, and no place is kept."""
        return self._since_ms is None and not self._turns

    def rest(self, now_ms: int) -> tuple[int, GateKey | None]:
        """
        Return how long the gates stay closed, ms, and the quota-id whose gate does longest.

        0, and the first there is, where all are open; None: there is none.
        """
        now_ms += self._gates.ahead_ms  # who draws a picture may have looked at the clock long ago
        longest: tuple[int, GateKey | None] = (0, next(iter(self._keys), None))
        for key in self._keys:
            gate = self._gates.get(key)
            rest_ms = 0 if gate is None else gate.opens_ms(now_ms) - now_ms
            if rest_ms > longest[0]:
                longest = (rest_ms, key)
        return longest

    def take_waited(self) -> int:
        """Return how long was waited since the last call, ms."""
        waited_ms, self.waited_ms = self.waited_ms, 0
        return waited_ms

    def told_ms(self, throttle_ms: int) -> int:
        """
        Return what to tell a Produce that is charged, and to mute its client for, ms.

        That is its throttle; or where those before it take longer than a client waits for its
        answer, as much more as it waited in silence.
        """
        waited_ms = self.take_waited()
        if not throttle_ms or waited_ms < SHORT_MS:
            self._told_ms = 0
        elif waited_ms > UNTOLD_MS:
            self._told_ms = max(self._told_ms, throttle_ms) + waited_ms - UNTOLD_MS
        return max(throttle_ms, self._told_ms)

    def pass_unasked(self, now_ms: int) -> None:
        """Let a request pass that asks for no records, without asking the gates."""
        self._stop(self._gates.time(now_ms))
        self.asks_nothing = True

    def step_aside(self, now_ms: int) -> None:
        """Something else keeps a request that is held: it keeps its places, and others pass."""
        if self._held_ms is not None:
            now_ms = self._gates.time(now_ms)
            self._hold_nothing_but(None, now_ms)
            self._stop(now_ms)

    def drop_answer(self, now_ms: int) -> None:
        """Stop holding an answer: there is no room for its bytes, and it will be emptied."""
        self._stop(self._gates.time(now_ms))

    def delayed_ms(self, now_ms: int) -> int:
        """Return how long ago the request came, ms; 0: it isn't at the gates."""
        now_ms = self._gates.time(now_ms)
        return 0 if self._since_ms is None else max(now_ms - self._since_ms, 0)

    def charged(self, now_ms: int) -> None:
        """
        Forget a request that was charged, and give its turns at the gates back.

        A Produce has passed then; a fetch's answer goes to the client.
        """
        self._since_ms = None
        self.expired = self.asks_nothing = False
        if self._turns:
            now_ms = self._gates.time(now_ms)
            turns, self._turns = self._turns, {}
            for turn in turns.values():
                turn.gate.done(turn, now_ms)

    def emptied(self) -> None:
        """The answer was emptied: the next fetch keeps this one's place."""
        self._since_ms = None
        self.expired = self.asks_nothing = False
        for turn in self._turns.values():
            turn.gate.stand_aside(turn)

    def leave(self) -> None:
        """The connection closes."""
        self.nudge = None
        self._held_ms = None
        for turn in self._turns.values():
            turn.gate.left(turn)
        self._turns.clear()

    def _closed(self, principal: str, now_ms: int) -> GateTurn | None:
        """
        Wait at one gate at a time; return the place it has there, None: all have let it pass.

        The gate that opens last comes first. Where it had its turn it isn't asked again: with
        several gates asked each time, who pays several quotas would hardly ever find all open.
        """
        while (key := self._next_gate(now_ms)) is not None:
            turn = self._turn_at(key, principal)
            if not turn.gate.admit(turn, now_ms):
                self._hold_nothing_but(turn, now_ms)
                return turn
            self._had.add(key)
        return None

    def _next_gate(self, now_ms: int) -> GateKey | None:
        """Return where it waits already, or else the gate that opens last; None: it had all."""
        found: GateKey | None = None
        last_ms = 0
        for key in self._keys:
            gate = self._gates.get(key)
            if gate is None or key in self._had:
                continue
            turn = self._turns.get(key)
            if turn is not None and turn.gate is gate:
                if turn.waiting:
                    return key
            elif gate.idle(now_ms):
                continue
            opens_ms = gate.opens_ms(now_ms)
            if turn is not None and turn.granted and opens_ms <= now_ms:
                self._had.add(key)  # since its request passed
            elif found is None or opens_ms > last_ms:
                found, last_ms = key, opens_ms
        return found

    def _turn_at(self, key: GateKey, principal: str) -> GateTurn:
        """Return its place at a gate; it takes one if it has none."""
        turn, gate = self._turns.get(key), self._gates.get(key)
        assert gate is not None
        if turn is None or turn.gate is not gate:
            number = gate.place(principal) if turn is None else turn.number
            if number is None:
                number = next(self._gates.numbers)
            turn = self._turns[key] = GateTurn(gate, principal, number, self._wake)
        return turn

    def _hold_nothing_but(self, waiting: GateTurn | None, now_ms: int) -> None:
        """Have the next pass wherever it has a turn: it waits elsewhere now."""
        for turn in self._turns.values():
            if turn is not waiting and (turn.granted or turn.waiting):
                turn.gate.done(turn, now_ms)

    def _stop(self, now_ms: int) -> None:
        """Note that the request or answer isn't held any more."""
        self._had.clear()
        if self._held_ms is not None:
            self.waited_ms += max(now_ms - self._held_ms, 0)
            self._held_ms = None
        for turn in self._turns.values():
            if turn.waiting:
                turn.gate.stand_aside(turn)

    def _wake(self) -> None:
        if self.nudge is not None:
            self.nudge()
