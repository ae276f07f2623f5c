"""
One client connection on the event loop: two transports, a session between them.

Backpressure: the high-water mark is 0, so a side that can't take everything at once stops the
reading of the other side until it has drained; a link keeps at most a buffer per direction.

``Timers`` end with their link. ``HangupWatch`` notices clients that hang up while nothing is read
from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.clock import now_ms
from headgate.gateway.connection.pool import MINIMUM_BYTES, STUCK_MS, Account, ConnectionKind
from headgate.gateway.connection.refusals import DELAYED
from headgate.gateway.connection.transports import BrokerSide, ClientSide
from headgate.gateway.log import get_logger
from headgate.gateway.session.commands import (
    Ask,
    Close,
    Continue,
    PauseBroker,
    PauseClient,
    ResumeBroker,
    ResumeClient,
    WakeAt,
)
from headgate.gateway.session.rewrite import Rewrite, Rewritten

if TYPE_CHECKING:
    import ssl

    from headgate.config.listeners import HostPort
    from headgate.config.settings import Settings
    from headgate.gateway.connection.pool import ReadBuffer
    from headgate.gateway.connection.refusals import Refusals
    from headgate.gateway.session.session import Session
    from headgate.metrics.meters import ListenerMeters

log = get_logger("headgate.gateway")

LATE_ANSWER_S: Final = 10.0
"""
How long a link waits for the answer to a fetch whose client has gone, so that the fetch is charged.
A broker answers within half a second by default (``fetch.max.wait.ms``). The link counts as open.
"""
_NOWHERE: Final[Any] = None


class ListenerView(Protocol):
    """What a link, and requests made on its client's behalf, need of the client's listener."""

    name: str
    settings: Settings
    upstream: HostPort | None
    """Where the broker is; None: everything is answered here."""
    upstream_tls: ssl.SSLContext | None
    meters: ListenerMeters


class Link:
    """
    A client's connection and its upstream twin.

    Args:
        session: decides what is passed on, held and answered.
        buffer: the loop's read buffer.
        hangup: notices clients that close while nothing is read from them.
        on_ask: answers an ``Ask`` or does a ``Rewrite``; called with the link and either.
        on_closed: called once, with the link, the reason and a detail.
        refusals: where a refused client waits for its answer; None: it is told at once.
        listener: the broker's listener that the client came to.
        address: the client's, as Java spells it.
        opened_ms: when the client was accepted, epoch ms.

    Attributes:
        task: connects to the broker, later makes an answer of the gateway's own. It is cancelled
            when the link closes.
    """

    __slots__ = (
        "_account",
        "_broker_paused",
        "_buffer",
        "_continuing",
        "_hangup",
        "_left",
        "_on_ask",
        "_on_closed",
        "_paused",
        "_refusals",
        "_starved",
        "_timers",
        "_waits",
        "address",
        "broker",
        "bytes_in",
        "bytes_out",
        "client",
        "closed",
        "kept",
        "listener",
        "opened_ms",
        "session",
        "task",
    )

    def __init__(
        self,
        session: Session,
        buffer: ReadBuffer,
        hangup: HangupWatch,
        on_ask: Callable[[Link, Ask | Rewrite], None],
        on_closed: Callable[[Link, str, str], None],
        refusals: Refusals | None = None,
        listener: ListenerView = _NOWHERE,
        address: str = "",
        opened_ms: int = 0,
    ) -> None:
        self.session = session
        session.nudge = self._nudged
        self.listener = listener
        self.address = address
        self.client = ClientSide(self, buffer)
        self.broker = BrokerSide(self, buffer)
        self.bytes_in = self.bytes_out = 0
        self.opened_ms = opened_ms
        self.closed: str | None = None
        self.task: asyncio.Task[None] | None = None
        self.kept: Any = None  # an object that must live as long as the link
        self._paused = self._broker_paused = self._continuing = False
        self._buffer = buffer
        self._account: Account | None = None  # of the pool, once it holds something
        self._starved = False  # the pool has no room for more
        self._refusals = refusals
        self._waits = False  # it was refused, and isn't told yet
        self._left: str | None = None  # the client hung up before its broker was reached
        self._timers = Timers()
        self._hangup = hangup
        self._on_ask = on_ask
        self._on_closed = on_closed

    def upstream_ready(self) -> None:
        """The broker's transport is up."""
        self.session.upstream_ready(now_ms())
        self.settle()
        if self._left is None or self.closed is not None:
            return
        if self.client.transport is None:
            self.client_gone(self._left)
        elif self._paused:  # its last bytes aren't read yet: see its end again
            self._hangup.watch(self, self.client.transport)

    def settle(self) -> None:
        """Write what the session has to say and do what it commands, until it has nothing left."""
        session = self.session
        if session.closed is not None and self._must_wait(session.closed.reason):
            return
        while True:
            if session.to_client:
                self.client.send(session.to_client)
            if session.to_broker:
                self.broker.send(session.to_broker)
            if not session.commands:
                if session.retains or self._account is not None:
                    self.weigh()
                return
            commands = session.commands[:]
            session.commands.clear()
            for command in commands:
                kind = command.__class__
                if kind is WakeAt:
                    self.client.freely = False
                    t_ms: int = command.t_ms  # type: ignore[union-attr]
                    self._timers.after(max(t_ms - now_ms(), 1) / 1000, self._wake, t_ms)
                elif kind is Ask or kind is Rewrite:
                    self.client.freely = False
                    self._on_ask(self, command)  # type: ignore[arg-type]
                elif kind is PauseClient:
                    self._paused = True
                    self.client_reading()
                    if self.client.transport is not None:
                        self._hangup.watch(self, self.client.transport)
                elif kind is ResumeClient:
                    self._paused = False
                    self._hangup.forget(self)
                    self.client_reading()
                elif kind is PauseBroker or kind is ResumeBroker:
                    self._broker_paused = kind is PauseBroker
                    self.broker_reading(not self.client.full)
                elif kind is Continue:
                    self._continuing = True
                    self.client_reading()
                    self.broker_reading(False)
                    asyncio.get_running_loop().call_soon(self._continue)
                elif kind is Close:
                    self.close(command.reason, command.detail)  # type: ignore[union-attr]

    def weigh(self) -> None:
        """Tell the pool what is held here, and read no further while it has no room."""
        account = self._account
        session = self.session
        if self.closed is not None:
            return
        retained = session.retained()
        owed = self.client.owed + self.broker.owed
        if account is None:
            if retained + owed <= MINIMUM_BYTES:
                return
            account = self._account = Account(self._go_on, self._give_up)
        elif retained + owed == account.size <= MINIMUM_BYTES:
            return
        if not session.known:
            kind = ConnectionKind.UNKNOWN
        else:
            kind = (
                ConnectionKind.OURS if session.made_to_wait and not owed else ConnectionKind.KNOWN
            )
        now_ms = time.monotonic_ns() // 1_000_000
        starved = not self._buffer.pool.hold(account, retained + owed, kind, now_ms)
        if starved != self._starved:
            self._starved = starved
            self._read_or_not()

    def _read_or_not(self) -> None:
        """Stop reading, because the pool has no room for more, or read again."""
        self.client_reading()
        if self.session.collects_answer or not self._starved:
            self.broker_reading(not self.client.full)
        if self._starved:
            if self.client.transport is not None:
                self._hangup.watch(self, self.client.transport)
        elif not self._paused:
            self._hangup.forget(self)

    def _go_on(self) -> None:
        """The pool has room again."""
        if self.closed is None:
            self._starved = False
            self._read_or_not()

    def _give_up(self) -> None:
        """Close for the pool, which is full: this link holds much of it without progress."""
        held = 0 if self._account is None else self._account.size
        self.close("memory", f"{held} bytes held for {STUCK_MS} ms while others waited for room")

    def _must_wait(self, reason: str) -> bool:
        """Have a refused client wait for its answer and its end (``refusals``), once."""
        if self._waits:
            return True
        refusals = self._refusals
        if (
            refusals is None
            or self.closed is not None
            or reason not in DELAYED
            or not refusals.hold(self, self._tell)
        ):
            return False
        self._waits = True
        session = self.session
        # Copied: until it is sent, the loop's buffer serves other links.
        session.to_client[:] = [b"".join(session.to_client)]
        session.to_broker.clear()
        self.broker.abort()
        return True

    def _tell(self) -> None:
        """Tell a client that waits for it that it was refused."""
        self._waits = False
        refusals, self._refusals = self._refusals, None
        if refusals is not None:
            refusals.forget(self)
        self.settle()

    def refuse(self, reason: str, detail: str) -> None:
        """Refuse the client for something outside its session, such as missing credentials."""
        session = self.session
        if self.closed is None and session.closed is None:
            session.close(reason, detail, now_ms())
            self.settle()

    def answer(self, ask: Ask, frame: bytes) -> None:
        """Answer a question ourselves."""
        self.session.answer(ask, frame, now_ms())
        self.settle()

    def forward(
        self, ask: Ask, frame: bytes, merge: Callable[[bytes], bytes | Ask] | None = None
    ) -> None:
        """Pass a question on to the broker."""
        self.session.forward(ask, frame, merge, now_ms())
        self.settle()

    def rewritten(self, rewrite: Rewrite, result: Rewritten) -> None:
        """Pass on an answer whose addresses were replaced."""
        self.session.rewritten(rewrite, result, now_ms())
        self.settle()

    def resume(self, ask: Ask) -> None:
        """Go on with a client whose token's owner was looked up."""
        self.session.resume(ask, now_ms())
        self.settle()

    def clock_set(self, by_ms: int, now_ms: int) -> None:
        """
        Move this link's times with the wall clock, which was set.

        Args:
            by_ms: how far it was set forward, or back if negative. Times from before and after it
                was set back can't be told apart, so only times in the future are moved, to now.
            now_ms: the wall clock as it is now, epoch ms.
        """
        session, by_ms = self.session, max(by_ms, 0)
        self.opened_ms = min(self.opened_ms + by_ms, now_ms)
        session.last_ms = min(session.last_ms + by_ms, now_ms)
        if session.partial_since_ms:
            session.partial_since_ms = min(session.partial_since_ms + by_ms, now_ms)

    def client_reading(self) -> None:
        """Read from the client unless the session, the pool or the broker's side forbids it."""
        transport = self.client.transport
        if transport is None or transport.is_closing():
            return
        if self._paused or self._starved or self._continuing or self.broker.full:
            transport.pause_reading()
        else:
            if self._hangup.full:
                self._hangup.forget(self)
            transport.resume_reading()

    def broker_reading(self, on: bool) -> None:
        """Read from the broker if ``on``, unless the session or the pool forbids it."""
        transport = self.broker.transport
        if transport is None or transport.is_closing():
            return
        if (
            on
            and not (self._broker_paused or self._continuing)
            and not (self._starved and self.session.collects_answer)
        ):
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _nudged(self) -> None:
        """Have the session, whose turn has come, look again."""
        self._buffer.looks.add(self._look_again)

    def _look_again(self) -> None:
        self._have(self.session.nudged)

    def _have(self, go_on: Callable[..., None], *more: int) -> None:
        """Have the session go on in a callback that brings no bytes."""
        if self.closed is None:
            with self._buffer.stall_meter.watching():
                go_on(now_ms(), *more)
                self.settle()

    def _continue(self) -> None:
        self._continuing = False
        self._have(self.session.go_on)
        if self.closed is None:
            self.client_reading()
            self.broker_reading(not self.client.full)

    def _wake(self, t_ms: int) -> None:
        # The loop's own clock is never set and has counted the delay; it may be early by 1 ms.
        self._have(self.session.wake, t_ms)

    def lost(self, side: object, exc: Exception | None) -> None:
        """One side's connection has gone."""
        if self.closed is not None or (self._waits and side is self.broker):
            return
        identity = self.session.identity
        if side is self.client:
            self.client_gone(str(exc or ""))
        elif identity.close_reason is not None:
            self.close(identity.close_reason, identity.close_text)
        else:
            self.close("upstream-gone", str(exc or ""))

    def client_gone(self, detail: str) -> None:
        """
        The client has hung up: close, once every charge of it is known.

        Requests that it sent before its broker was reached are passed on first: a broker, too,
        reads what came before a connection's end.
        """
        session = self.session
        if self.closed is not None or session.gone:
            return
        identity = session.identity
        if identity.close_reason is not None and not identity.raw:
            # It was told that its authentication failed, and hung up before its broker did.
            self.close(identity.close_reason, identity.close_text)
            return
        reached = session.upstream_is_up
        if not reached and not self._waits and self.task is not None and session.retained():
            self._left = detail
            self._hangup.forget(self)
            return
        if self._waits or not session.client_gone(now_ms()):
            self.close("client-gone", detail)
            return
        self._hangup.forget(self)
        self.client.abort()
        self.client.full = False
        self.broker_reading(True)
        self._timers.after(LATE_ANSWER_S, self.close, "client-gone", detail)
        self.settle()

    def close(self, reason: str, detail: str = "") -> None:
        """Close both sides, once; what the client is still owed is sent first."""
        if self._waits:  # it is told now, and keeps the reason for which it was refused
            self._tell()
            return
        if self.closed is not None:
            return
        self.closed = reason
        self.session.close(reason, detail, now_ms())
        self._timers.close()  # they would keep this link for as long as the client was muted
        if self._paused or self._starved or self._hangup.full:
            self._hangup.forget(self)
        if self._account is not None:
            self._buffer.pool.forget(self._account)
            self._account = None
        if self.task is not None:
            self.task.cancel()
        try:
            if reason == "client-gone":
                self.client.abort()
                self.broker.close()  # sends the requests that are left: they were charged
            else:
                if reason == "drained":
                    self.client.say_goodbye()
                else:
                    self.client.close()
                self.broker.abort()  # a half-sent request must not look like a whole one's end
        except Exception as error:
            log.debug("a transport couldn't be closed", error=repr(error))
        if self._left is not None and self.client.transport is None:
            self.broker.release()
        self._on_closed(self, reason, detail)


class Timers:
    """Timers that are cancelled together, once: a timer keeps alive whose method it calls."""

    __slots__ = ("_closed", "_handles", "_made")

    def __init__(self) -> None:
        self._handles: dict[int, asyncio.TimerHandle] = {}
        self._made = 0
        self._closed = False

    def after(self, delay_s: float, do: Callable[..., None], *more: Any) -> None:
        """Do something later, unless ``close`` is called before, or was."""
        if not self._closed:
            self._made += 1
            loop = asyncio.get_running_loop()
            self._handles[self._made] = loop.call_later(delay_s, self._due, self._made, do, *more)

    def _due(self, timer: int, do: Callable[..., None], *more: Any) -> None:
        del self._handles[timer]
        do(*more)

    def close(self) -> None:
        """Cancel all of them."""
        self._closed = True
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()


FULL_SWEEPS: Final = 10
"""
How many sweeps in a row, each a second after the other, find a link's broker full before the link
ends if its client hangs up. Until then what the client sent last is still read and passed on.
"""


class HangupWatch:
    """
    Watch the sockets of paused links; tell a link whose client has gone.

    A transport that doesn't read doesn't see its peer's FIN. Linux tells it apart from data
    (EPOLLRDHUP), so one epoll descriptor, itself watched by the event loop, covers all such
    connections. On other systems a client's end is seen when its connection is read again.

    Attributes:
        full: how many sweeps in a row found a link's broker full.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._links: dict[int, Link] = {}
        self._fds: dict[Link, int] = {}
        self.full: dict[Link, int] = {}
        self._epoll: Any = None
        if hasattr(select, "epoll"):
            self._epoll = select.epoll()
            loop.add_reader(self._epoll.fileno(), self._ready)

    def watch(self, link: Link, transport: asyncio.BaseTransport) -> None:
        """Watch the client's socket of a link that isn't read from now on."""
        sock = transport.get_extra_info("socket")
        if self._epoll is None or sock is None:
            return
        fd = sock.fileno()
        if fd < 0 or link in self._fds:
            return
        with contextlib.suppress(OSError):
            self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLONESHOT)
            self._links[fd] = link
            self._fds[link] = fd

    def found_full(self, link: Link, transport: asyncio.BaseTransport | None) -> None:
        """
        Note that a sweep found a link's broker full, so that nothing is read from its client.

        A broker may read nothing for hours, and then so long nobody would notice that the client
        has hung up.
        """
        self.full[link] = self.full.get(link, 0) + 1
        if self.full[link] > FULL_SWEEPS and transport is not None:
            self.watch(link, transport)

    def forget(self, link: Link) -> None:
        """The link is read again, or closed."""
        self.full.pop(link, None)
        fd = self._fds.pop(link, None)
        if fd is None:
            return
        del self._links[fd]
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def _ready(self) -> None:
        for fd, _ in self._epoll.poll(0):
            link = self._links.get(fd)
            if link is not None:
                link.client_gone("hung up while muted")

    def close(self) -> None:
        """Stop watching."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
