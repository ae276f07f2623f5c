"""
The listeners that aren't one broker's: the admin listener, and ports that lead to any live broker.

The worker that fronts the lowest broker opens them; a standby does so when it takes over.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headgate.clock import now_ms
from headgate.config.listeners import Listener
from headgate.gateway.answered_here.admin_listener import admin_plans
from headgate.gateway.broker.dialing import BrokerListener
from headgate.gateway.cluster.discovery import GatewayError
from headgate.gateway.connection.acceptor import AcceptFailures, accept, listen, size_buffers
from headgate.gateway.log import get_logger
from headgate.throttle.connection import host_address

if TYPE_CHECKING:
    from headgate.config.listeners import Endpoint
    from headgate.config.settings import Settings
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.cluster.discovery import Discovery
    from headgate.gateway.cluster.listener_security import ListenerSecurity
    from headgate.gateway.store_link.in_force import InForceNow

log = get_logger("headgate.gateway")


class SharedListeners:
    """
    The admin listener and bootstrap listeners of one gateway.

    Args:
        in_force: the settings.
        brokers: those fronted now.
        discovery: knows which broker is the lowest.
        security: makes what the admin listener needs.

    Attributes:
        admin_address: where KIP-546's own calls are answered; None: nowhere.
        bootstraps: ports that lead to any live broker.
    """

    def __init__(
        self,
        in_force: InForceNow,
        brokers: Mapping[int, Broker],
        discovery: Discovery,
        security: ListenerSecurity,
    ) -> None:
        self._in_force = in_force
        self._brokers = brokers
        self._discovery = discovery
        self._security = security
        self.admin_address: tuple[str, int] | None = None
        self.bootstraps: list[BootstrapListener] = []

    def open(self, *, accept: bool) -> None:
        """
        Open what isn't open, if this worker fronts the lowest broker.

        Args:
            accept: whether the admin listener accepts at once; if not, its broker's start does it.

        Raises:
            GatewayError: a port can't be had.
        """
        lowest = min(self._discovery.exposed(), default=None)
        if lowest not in self._brokers:
            return
        settings = self._in_force.settings
        if settings.admin_listener is not None and self.admin_address is None:
            self._open_admin(settings.admin_listener, accept)
        opened = {listener.endpoint for listener in self.bootstraps}
        for endpoint in settings.bootstrap_listener:
            if endpoint in opened:
                continue
            own = settings.for_listener(endpoint.name)
            try:
                self.bootstraps.append(BootstrapListener(self._brokers, endpoint, own))
            except OSError as error:
                raise _taken("headgate.bootstrap.listener", endpoint, error) from error

    def close(self) -> None:
        """Close what is open: this worker stops, or another fronts the lowest broker now."""
        while self.bootstraps:
            self.bootstraps.pop().close()
        self.admin_address = None  # its port is the broker's, and closes with it

    def _open_admin(self, endpoint: Endpoint, accept: bool) -> None:
        """
        Open the listener of KIP-546's own calls.

        It belongs to the lowest broker: its calls are charged there, and that broker checks SASL.
        """
        broker = self._brokers[min(self._brokers)]
        settings = self._in_force.settings
        protocol = settings.protocol_of(endpoint.name)
        asked: BrokerListener | None = None
        if protocol.sasl:
            with_sasl = [item.name for item in settings.listener_list if item.protocol.sasl]
            found = (broker.listeners[name] for name in with_sasl if name in broker.listeners)
            asked = next(found, None)
            if asked is None:
                raise GatewayError(
                    f"headgate.admin.listener {endpoint} wants SASL, which a broker must check: "
                    "give a SASL listener in listeners too"
                )
        # Towards the broker it uses the SASL listener's protocol, whatever its own towards clients.
        self._security.add(
            Listener(endpoint.name, protocol, endpoint.address, endpoint.address),
            asked.name if asked else None,
        )
        listener = BrokerListener(
            endpoint.name,
            asked.upstream if asked else None,
            {},
            self._security.parts(endpoint.name),
            plans=admin_plans(),
        )
        try:
            self.admin_address = broker.open(listener, endpoint.address, now_ms())
        except OSError as error:
            raise _taken("headgate.admin.listener", endpoint, error) from error
        if accept:
            listener.acceptor.start()


def _taken(setting: str, endpoint: Endpoint, error: OSError) -> GatewayError:
    return GatewayError(
        f"{setting} can't listen on {endpoint.address}: {error.strerror or error}. Choose another "
        "port, or stop what holds it"
    )


_AVOID_S: Final = 5.0
"""How long a broker that couldn't be reached is passed over."""
_LOOK_MS: Final = 100
"""Wait before the next attempt when no broker has a free slot, or accepting failed."""


class BootstrapListener:
    """
    A port that forwards to any live broker, as the listener it is named after would.

    A connection counts as one of that broker's and listener's: while a rate delays them, or none
    has a free slot, nothing is accepted here either.

    Args:
        brokers: those fronted now.
        endpoint: ``headgate.bootstrap.listener``.
        settings: of the listener it is named after.

    Raises:
        OSError: the port can't be had.
    """

    def __init__(
        self, brokers: Mapping[int, Broker], endpoint: Endpoint, settings: Settings
    ) -> None:
        self._brokers = brokers
        self.endpoint = endpoint
        self.name = endpoint.name
        self._turn = itertools.count()
        self._next: Broker | None = None  # charged for the next connection
        self._waiting: asyncio.TimerHandle | None = None
        self._failures = AcceptFailures()
        self._sock = listen(endpoint.address.host, endpoint.address.port, 128)
        size_buffers(self._sock, settings)
        self._loop = asyncio.get_running_loop()
        self._go_on()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        name = self._sock.getsockname()
        return str(name[0]), int(name[1])

    def _go_on(self) -> None:
        self._waiting = None
        self._loop.add_reader(self._sock.fileno(), self._ready)

    def _wait(self, ms: int) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._waiting = self._loop.call_later(ms / 1000, self._go_on)

    def _ready(self) -> None:
        try:
            self._take()
        except Exception:
            # The port stays readable: without a pause this would be the loop's only business.
            log.exception("a connection couldn't be taken", listener=f"bootstrap {self.name}")
            self._next = None
            if self._waiting is None:
                self._wait(_LOOK_MS)

    def _take(self) -> None:
        if self._next is not None and self._next.clients.ending:
            self._next = None  # it was charged in vain: another gateway fronts it now
        broker = self._next or self._choose()
        if broker is None or not broker.quotas.slot_available(self.name):
            self._next = None
            self._wait(_LOOK_MS)
            return
        if self._next is None:
            self._next = broker
            delay_ms = broker.listeners[self.name].acceptor.rate(now_ms())
            if delay_ms > 0:
                self._wait(delay_ms)
                return
        try:
            sock, peer = accept(self._sock)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # such as out of descriptors: don't spin
            meters = broker.listeners[self.name].meters
            self._failures.note(error, f"bootstrap {self.name}", meters)
            self._wait(_LOOK_MS)
            return
        self._next = None
        try:
            broker.listeners[self.name].acceptor.admit(sock, host_address(peer[0]), now_ms())
        except BaseException:
            sock.close()
            raise

    def _choose(self) -> Broker | None:
        """Return the next broker in turn, passing over those that can't be reached or are full."""
        found = [b for b in self._brokers.values() if self.name in b.listeners]
        alive = [b for b in found if time.monotonic() - b.dialer.failed_at > _AVOID_S] or found
        open_ = [b for b in alive if b.quotas.slot_available(self.name)] or alive
        return open_[next(self._turn) % len(open_)] if open_ else None

    def close(self) -> None:
        """Close the port."""
        if self._waiting is not None:
            self._waiting.cancel()
        else:
            self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
