"""
Take connections of one listener, no faster than its quotas allow (KIP-612).

While a delay runs, or no slot is free, nothing is accepted: connections wait in the kernel's
backlog. Accepting goes on when the delay is over *and* a slot is free.
"""

from __future__ import annotations

import _socket
import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headgate.clock import now_ms
from headgate.gateway.log import LogLimit, get_logger
from headgate.metrics.meters import BlockedMeter
from headgate.throttle.connection import Outcome, host_address

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.charging.journal import Journal
    from headgate.metrics.meters import ListenerMeters
    from headgate.throttle.connection import ConnectionQuotas

log = get_logger("headgate.gateway")

_AGAIN_MS: Final = 100
"""Wait after a failure to accept: the next attempt may fail too."""
MOST_PARKED: Final = 1_000
"""Connections of addresses that come too fast and wait to be closed; if more come the one that
waits longest is closed early, for each holds a descriptor."""


class AcceptFailures:
    """Counts failures to accept, and logs one a minute of each kind."""

    def __init__(self) -> None:
        self._lines = LogLimit("connections wait to be accepted", 1)

    def note(self, error: OSError, listener: str, meters: ListenerMeters) -> None:
        """Note one; who connects waits in the kernel's queue."""
        meters.closed[f"accept-{error.errno}"] += 1
        if self._lines.passes(error.errno, listener=listener):
            log.warning("connections wait to be accepted", listener=listener, detail=str(error))


class Acceptor:
    """
    The accept loop of one listener of one broker.

    Args:
        sock: listening, not blocking.
        listener: its name.
        broker_id: for the journal.
        quotas: the broker's.
        meters: the listener's.
        journal: notes every connection.
        on_accept: called with the socket and the client's address as Java spells it.
        now_ms: the clock.
    """

    def __init__(
        self,
        sock: socket.socket,
        listener: str,
        broker_id: int,
        quotas: ConnectionQuotas,
        meters: ListenerMeters,
        journal: Journal,
        on_accept: Callable[[socket.socket, str], None],
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._sock = sock
        self.listener = listener
        self._broker_id = broker_id
        self._quotas = quotas
        self._meters = meters
        self._journal = journal
        self._on_accept = on_accept
        self._failures = AcceptFailures()
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._reserved = False  # broker and listener are charged for the next connection
        self.blocked_since_ms = 0
        self._counts = False  # this wait is a quota's, not a failure's
        if meters.blocked is None:
            meters.blocked = BlockedMeter(now_ms())
        self._blocked = meters.blocked
        self._delay_ends_ms = 0
        self._parked: dict[socket.socket, asyncio.TimerHandle] = {}
        self._listening = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: host and port."""
        name = self._sock.getsockname()
        return str(name[0]), int(name[1])

    @property
    def started(self) -> bool:
        """Whether connections are, or were, accepted."""
        return self._listening or self._reserved or bool(self.blocked_since_ms)

    @property
    def accepting(self) -> bool:
        """Whether new connections are taken: at once, or when a delay is over or a slot is free."""
        return (
            self.started
            and self._sock.fileno() >= 0
            and self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        )

    def start(self) -> None:
        """Begin to accept."""
        if not self._listening and self._sock.fileno() >= 0:
            self._listening = True
            self._loop.add_reader(self._sock.fileno(), self._ready)

    def _stop(self) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._sock.fileno())

    def slot_freed(self) -> None:
        """A connection closed or a limit changed: perhaps there is a slot now."""
        if self.blocked_since_ms:
            self._go_on()

    def _ready(self) -> None:
        """Take one connection. Nothing is charged, and no wait begins, before one is there."""
        try:
            now = self._now_ms()
            if self._reserve(now):
                self._accept(now)
        except Exception:
            # The port stays readable: without a pause this would be the loop's only business.
            log.exception("a connection couldn't be taken", listener=self.listener)
            self._meters.closed["accept-failed"] += 1
            self._pause()

    def _reserve(self, now: int) -> bool:
        """Charge the next connection; False when it has to wait."""
        delay_ms = 0 if self._reserved else self.rate(now)
        # Also after a wait: another listener's connection may have taken the slot.
        if delay_ms <= 0 and self._quotas.slot_available(self.listener):
            self._reserved = True
            self._delay_ends_ms = 0
            return True
        if not self._reserved:
            self._journal.connection(self._broker_id, self.listener, "", now, delay_ms)
        self._reserved = True
        self._stop()
        self._counts = True
        self.blocked_since_ms = now
        self._delay_ends_ms = now + delay_ms
        self._timer = self._loop.call_later(max(delay_ms, 1) / 1000, self._go_on)
        return False

    def rate(self, now_ms: int) -> int:
        """Charge broker and listener for one connection; return how long it is delayed, ms."""
        delay_ms = self._quotas.reserve(self.listener, now_ms)
        if delay_ms > 0 and self._quotas.observing:
            self._journal.connection(self._broker_id, self.listener, "", now_ms, delay_ms)
            return 0
        if delay_ms > 0:
            self._meters.throttle_time.record(delay_ms, now_ms)
        return delay_ms

    def _pause(self) -> None:
        """Accept nothing for a moment."""
        self._stop()
        self._counts = False
        self.blocked_since_ms = self._now_ms()
        self._delay_ends_ms = self.blocked_since_ms + _AGAIN_MS
        self._timer = self._loop.call_later(_AGAIN_MS / 1000, self._go_on)

    def _go_on(self) -> None:
        now = self._now_ms()
        # If the clock was set back to before the delay began, the delay counts as over.
        if self.blocked_since_ms <= now < self._delay_ends_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(
                max(self._delay_ends_ms - now, 1) / 1000, self._go_on
            )
            return
        # KIP-612: without a free slot the acceptor waits for one, whatever the rate. It goes on
        # when a slot is free and the delay is over, as in ConnectionQuotas.waitForConnectionSlot.
        if not self.blocked_since_ms or not self._quotas.slot_available(self.listener):
            return
        if self._counts and now > self.blocked_since_ms:
            self._blocked.mark(now - self.blocked_since_ms, now)
        self.blocked_since_ms = 0
        self.start()

    def _accept(self, now: int) -> None:
        try:
            sock, peer = accept(self._sock)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # Out of descriptors: wait, rather than spin on a readable listener.
            self._failures.note(error, self.listener, self._meters)
            self._pause()
            return
        self._reserved = False
        try:
            self.admit(sock, host_address(peer[0]), now)
        except BaseException:
            sock.close()
            raise

    def admit(self, sock: socket.socket, address: str, now: int) -> None:
        """Take a rated connection over, unless its address has too many or opens them too fast."""
        outcome, throttle_ms = self._quotas.admit(self.listener, address, now)
        self._journal.connection(self._broker_id, self.listener, address, now, throttle_ms)
        if outcome is Outcome.THROTTLED:
            self._meters.closed["ip-connection-rate"] += 1
            self._meters.ip_throttle_time.record(throttle_ms, now)
            self._parked[sock] = self._loop.call_later(throttle_ms / 1000, self._close_parked, sock)
            if len(self._parked) > MOST_PARKED:
                self._close_parked(next(iter(self._parked)))
        elif outcome is Outcome.TOO_MANY:
            self._meters.closed["max-connections-per-ip"] += 1
            self._quotas.release(self.listener, address)
            sock.close()
        else:
            self._meters.accepted += 1
            try:
                self._on_accept(sock, address)
            except BaseException:
                self._quotas.release(self.listener, address)
                raise

    def _close_parked(self, sock: socket.socket) -> None:
        timer = self._parked.pop(sock, None)
        if timer is not None:
            timer.cancel()
        with contextlib.suppress(OSError):
            sock.close()

    def stop_accepting(self) -> None:
        """Take no more connections; the port stays bound until ``close``."""
        self._stop()
        if self._timer is not None:
            self._timer.cancel()
        self.blocked_since_ms = 0

    def close(self) -> None:
        """Close the port and what is parked."""
        self.stop_accepting()
        for sock in list(self._parked):
            self._close_parked(sock)
        self._sock.close()


class Accepted(socket.socket):
    """
    A client's socket that tells its family and type as numbers.

    The loop asks for them some five times while it takes a connection over, then it detaches the
    socket. ``socket.socket`` makes an enum member each time, which costs more than all the rest.
    """

    __slots__ = ()
    family = _socket.socket.family  # type: ignore[assignment]
    type = _socket.socket.type  # type: ignore[assignment]
    detach = _socket.socket.detach


def accept(listening: socket.socket) -> tuple[Accepted, Any]:
    """
    Accept a connection as ``socket.accept`` does; the new socket isn't blocking.

    Raises:
        OSError: as of ``socket.accept``.
    """
    fd, peer = listening._accept()  # type: ignore[attr-defined]
    sock = Accepted(_family(listening), socket.SOCK_STREAM, 0, fd)
    sock.setblocking(False)
    return sock, peer


_family = _socket.socket.family.__get__


def size_buffers(sock: socket.socket, settings: Settings) -> None:
    """
    Set the kernel's buffers of a listener's connections.

    Args:
        sock: it listens; what it accepts from now on has the same buffers.
        settings: ``socket.send.buffer.bytes`` and ``socket.receive.buffer.bytes``; -1 leaves a size
            to the system.
    """
    for option, size in (
        (socket.SO_SNDBUF, settings.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, settings.socket_receive_buffer_bytes),
    ):
        if size >= 0:
            sock.setsockopt(socket.SOL_SOCKET, option, size)


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """
    Open a listening socket.

    Args:
        host: "" is every interface (IPv6 with IPv4 where there is IPv6).
        port: 0 lets the system choose.
        backlog: ``socket.listen.backlog.size``.

    Raises:
        OSError: the port is in use, or the address isn't this machine's.
    """
    if host:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    else:
        try:
            sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            address = ("::", port)
        except OSError:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            address = ("0.0.0.0", port)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
