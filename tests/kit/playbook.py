"""
A tiny language for gateway session tests: what comes in, what goes out, like a conversation.

::

    play = Playbook(session)
    play >> Ready() << NOTHING
    play >> FromClient(produce) << ToBroker(produce)
    play >> FromBroker(answer) << ToClient(told) << Mute(1_000)
    play >> FromClient(more) << NOTHING          # muted: held
    play >> After(1_000) << ToBroker(more)

``>>`` gives an event to the session, ``<<`` takes the next thing it said. An event while something
is still unsaid fails the test, so every test says everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.gateway.session import commands
from headgate.gateway.session.rewrite import Rewrite
from headgate.steps import finish

if TYPE_CHECKING:
    from headgate.gateway.session.session import Session

START_MS: Final = 1_700_000_000_000
"""Where a playbook's clock begins: an epoch time, as token buckets expect."""


@dataclass(frozen=True)
class Ready:
    """The upstream connection is up."""


@dataclass(frozen=True)
class FromClient:
    """Bytes from the client; ``pieces`` cuts them into reads of that many bytes."""

    data: bytes
    pieces: int = 0


@dataclass(frozen=True)
class FromBroker:
    """Bytes from the broker; ``pieces`` cuts them into reads of that many bytes."""

    data: bytes
    pieces: int = 0


@dataclass(frozen=True)
class After:
    """Let time pass, then wake the session."""

    ms: int


@dataclass(frozen=True)
class Answer:
    """Answer what was asked."""

    frame: bytes


@dataclass(frozen=True)
class Forward:
    """Pass on what was asked."""

    frame: bytes
    merge: Callable[[bytes], bytes] | None = None


ANY: Final = object()
"""Matches whatever bytes."""
NOTHING: Final = object()
"""The session said nothing more."""


@dataclass(frozen=True)
class ToBroker:
    """Bytes to the broker: exactly these, or ANY."""

    data: Any = ANY


@dataclass(frozen=True)
class ToClient:
    """Bytes to the client: exactly these, or ANY."""

    data: Any = ANY


@dataclass(frozen=True)
class Mute:
    """The client is muted for so long, ms."""

    ms: int


@dataclass(frozen=True)
class Pause:
    """The shell is to stop reading from the client."""


@dataclass(frozen=True)
class Resume:
    """The shell is to read again."""


@dataclass(frozen=True)
class Closed:
    """The session closes, for this reason."""

    reason: str


@dataclass(frozen=True)
class Asked:
    """A request is to be answered or passed on: its API key."""

    key: int


class Playbook:
    """
    Drives a session.

    Args:
        session: fresh.
        now_ms: its clock's start.
    """

    def __init__(self, session: Session, now_ms: int = START_MS) -> None:
        self.session = session
        self.now_ms = now_ms
        self.said: list[Any] = []
        self.asked: commands.Ask | None = None

    def __rshift__(self, event: object) -> Self:
        if self.said:
            raise AssertionError(f"before {event}, the session had said {self.said}")
        session = self.session
        if isinstance(event, Ready):
            session.upstream_ready(self.now_ms)
            self._listen()
        elif isinstance(event, FromClient):
            for piece in _cut(event.data, event.pieces):
                session.client_data(piece, self.now_ms)
                self._listen()
        elif isinstance(event, FromBroker):
            for piece in _cut(event.data, event.pieces):
                session.broker_data(piece, self.now_ms)
                self._listen()
        elif isinstance(event, After):
            self.now_ms += event.ms
            session.wake(self.now_ms)
            self._listen()
        elif isinstance(event, Answer):
            if self.asked is None:
                raise AssertionError("nothing was asked")
            session.answer(self.asked, event.frame, self.now_ms)
            self._listen()
        elif isinstance(event, Forward):
            if self.asked is None:
                raise AssertionError("nothing was asked")
            session.forward(self.asked, event.frame, event.merge, self.now_ms)
            self._listen()
        else:
            raise TypeError(f"{event!r} isn't an event")
        return self

    def __lshift__(self, expected: object) -> Self:
        if expected is NOTHING:
            if self.said:
                raise AssertionError(f"expected nothing, but the session said {self.said}")
            return self
        if not self.said:
            raise AssertionError(f"expected {expected}, but the session said nothing")
        said = self.said.pop(0)
        if isinstance(expected, (ToBroker, ToClient)) and expected.data is ANY:
            if type(said) is not type(expected):
                raise AssertionError(f"expected {expected}, but the session said {said}")
            return self
        if said != expected:
            raise AssertionError(f"expected {expected},\nbut the session said {said}")
        return self

    def _listen(self) -> None:
        """Take what the session has to say, as a shell would; bytes of one call are joined."""
        session = self.session
        if session.to_broker:
            self._say(ToBroker, b"".join(session.to_broker))
            session.to_broker.clear()
        if session.to_client:
            self._say(ToClient, b"".join(session.to_client))
            session.to_client.clear()
        orders = session.commands[:]
        session.commands.clear()
        for order in orders:
            if isinstance(order, commands.WakeAt):
                self.said.append(Mute(order.t_ms - self.now_ms))
            elif isinstance(order, commands.PauseClient):
                self.said.append(Pause())
            elif isinstance(order, commands.ResumeClient):
                self.said.append(Resume())
            elif isinstance(order, commands.Close):
                self.said.append(Closed(order.reason))
            elif isinstance(order, commands.Ask):
                self.asked = order
                self.said.append(Asked(order.plan.key))
            elif isinstance(order, commands.Continue):
                session.go_on(self.now_ms)
                self._listen()
            elif isinstance(order, Rewrite):
                session.rewritten(order, finish(order.work), self.now_ms)
                self._listen()

    def _say(self, kind: type[ToBroker] | type[ToClient], data: bytes) -> None:
        last = self.said[-1] if self.said else None
        if isinstance(last, kind):
            self.said[-1] = kind(last.data + data)
        else:
            self.said.append(kind(data))


def _cut(data: bytes, pieces: int) -> list[memoryview]:
    """Cut bytes into reads: writable views, each of memory of its own."""
    step = pieces or max(len(data), 1)
    return [memoryview(bytearray(data[i : i + step])) for i in range(0, len(data), step)]
