"""
The brokers that this gateway fronts: their leases taken, one port opened for each listener.

A port never changes its broker. A gateway that can't get a broker's lease stands by, and takes over
when the lease is free.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from headgate.clock import now_ms
from headgate.errors import HeadgateError
from headgate.gateway.broker.dialing import BrokerListener
from headgate.gateway.cluster.discovery import GatewayError
from headgate.gateway.log import get_logger
from headgate.gateway.session.rewrite import Addresses

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.gateway.background import BackgroundWork
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.cluster.discovery import Discovery
    from headgate.gateway.cluster.listener_security import ListenerSecurity
    from headgate.gateway.cluster.shared_listeners import SharedListeners
    from headgate.gateway.fleet.leases import Leases
    from headgate.gateway.store_link.in_force import InForceNow

log = get_logger("headgate.gateway")

_PORT_AGAIN_S: Final = 0.2
_SAY_AGAIN_S: Final = 60.0


class Ports:
    """
    Brokers and their ports.

    Args:
        in_force: the settings.
        brokers: those fronted, by id; filled here.
        discovery: knows which brokers there are.
        security: makes what a listener needs.
        shared: the listeners that aren't one broker's.
        make: makes a broker that is fronted from now on.
        work: the gateway's own tasks and slices; a standby waits in a task.
        only: front these brokers only (a worker's share); None: all.
        on_unknown: called when an answer names a broker that isn't known here.
        on_change: called when the fronted brokers may have changed.

    Attributes:
        books: by listener, the brokers' addresses that its clients are given.
        leases: of this worker; None: there is no store to keep any.
        standing_by: brokers whose lease is waited for.
        started: ports accept as soon as they are open.
    """

    def __init__(
        self,
        in_force: InForceNow,
        brokers: dict[int, Broker],
        discovery: Discovery,
        security: ListenerSecurity,
        shared: SharedListeners,
        make: Callable[[int], Awaitable[Broker]],
        work: BackgroundWork,
        only: frozenset[int] | None,
        on_unknown: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self._in_force = in_force
        self._brokers = brokers
        self._discovery = discovery
        self._security = security
        self._shared = shared
        self._make = make
        self._tasks = work.tasks
        self._slices = work.slices
        self._only = only
        self._on_unknown = on_unknown
        self._on_change = on_change
        self.books = {item.name: Addresses() for item in in_force.settings.listener_list}
        self.leases: Leases | None = None
        self.standing_by: set[int] = set()
        self.started = False
        self._ended = False

    def start(self) -> None:
        """Accept on every port, and on those to come."""
        self.started = True
        for broker in self._brokers.values():
            broker.start()

    def end(self) -> None:
        """Stand by for no broker from now on: this worker stops."""
        self._ended = True

    async def open_new(self) -> None:
        """
        Open the ports of brokers that have none yet.

        Raises:
            HeadgateError: a port can't be had, or the store can't be asked, before the start.
        """
        for name, cluster in self._discovery.clusters.items():
            self.books[name].any_controller = cluster.kraft
        for broker_id in self._discovery.broker_ids():
            try:
                await self._open_new(broker_id)
            except HeadgateError as error:
                if not self.started:
                    raise
                # The other brokers, and the worker that stands by for this one, go on.
                log.error("a broker can't be fronted", broker=broker_id, error=str(error))
                if self.leases is not None and broker_id not in self._brokers:
                    await self.leases.give_up(broker_id)
        await self._count_brokers()
        self._on_change()

    async def _open_new(self, broker_id: int) -> None:
        if self._only is not None and broker_id not in self._only:
            self._expose_elsewhere(broker_id)
        elif broker_id in self._brokers:
            await self._open(broker_id, self.leases)
        elif self._discovery.has_port(broker_id) and broker_id not in self.standing_by:
            if self.leases is None or await self.leases.take(broker_id):
                await self._open(broker_id, self.leases)
            else:
                self._expose_elsewhere(broker_id)
                self._stand_by(broker_id, self.leases)

    def _expose_elsewhere(self, broker_id: int) -> None:
        """Tell clients the address of a broker that another worker fronts."""
        for name, book in self.books.items():
            told = self._in_force.settings.ports.advertised(name, broker_id)
            if told is not None and told.port:
                book[broker_id] = (told.host or "127.0.0.1", told.port)

    async def take_leases(self, leases: Leases) -> None:
        """Take the leases of brokers fronted without one; stop where another worker has it."""
        self.leases = leases
        for broker_id in list(self._brokers):
            while broker_id in self._brokers and broker_id not in leases.epochs:
                try:
                    if not await leases.take(broker_id):
                        self.lost(broker_id)
                except Exception as error:
                    # Try again after any error: without the lease another may front it as well.
                    self._tasks.log_failure("taking leases", error)
                    await asyncio.sleep(_PORT_AGAIN_S)

    # --- standing by ------------------------------------------------------------------------

    def _stand_by(self, broker_id: int, leases: Leases) -> None:
        """Wait for a broker's lease, and say so."""
        log.info("standing by: another worker fronts the broker", broker=broker_id,
                 lease=leases.name_of(broker_id))  # fmt: skip
        self.standing_by.add(broker_id)
        self._tasks.spawn(self.take_over(broker_id, leases))

    async def take_over(self, broker_id: int, leases: Leases) -> None:
        """Wait for a broker's lease, then front it."""
        say_at = 0.0
        while True:
            if broker_id not in leases.epochs:  # not yet, or lost while its ports weren't free
                await leases.wait_for(broker_id)
                log.warning("taking over", broker=broker_id)
            try:
                await self._open(broker_id, leases)  # or its ports that weren't free before
                if broker_id not in self._brokers:
                    continue
                self._shared.open(accept=self.started)
                break
            except (HeadgateError, OSError) as error:
                # The ports of a worker that was just killed may linger for a moment; one that
                # hangs holds them until it goes on or is killed.
                if time.monotonic() >= say_at:
                    say_at = time.monotonic() + _SAY_AGAIN_S
                    log.warning("can't take over yet", broker=broker_id, error=str(error))
                await asyncio.sleep(_PORT_AGAIN_S)
        self.standing_by.discard(broker_id)
        await self._count_brokers()
        self._on_change()

    def lost(self, broker_id: int) -> None:
        """Stop fronting a broker whose lease another worker has; stand by for it."""
        broker = self._brokers.pop(broker_id, None)
        if broker is not None:
            broker.stop_accepting()
            if broker_id == min(self._discovery.exposed(), default=None):
                self._shared.close()
            self._tasks.spawn(broker.drain(0))
        if self.leases is not None and not self._ended and broker_id not in self.standing_by:
            self._stand_by(broker_id, self.leases)
        self._on_change()

    # --- ports ------------------------------------------------------------------------------

    async def _open(self, broker_id: int, leases: Leases | None) -> None:
        """Front a broker unless its lease is lost meanwhile, or follow it to a new address."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            held = None if leases is None else leases.epochs.get(broker_id)
            if leases is not None and held is None:
                return  # lost again before this
            broker = await self._make(broker_id)
            if leases is not None and leases.epochs.get(broker_id) != held:
                return  # ``lost`` stands by for it
            self._brokers[broker_id] = broker
        try:
            for name, cluster in self._discovery.clusters.items():
                where = cluster.brokers.get(broker_id)
                if where is None:
                    continue
                listener = broker.listeners.get(name)
                if listener is None:
                    self._open_listener(broker, name, where)
                    continue
                if listener.upstream != where:
                    log.info("broker moved", broker=broker_id, listener=name, to=str(where))
                listener.upstream = where
        except (HeadgateError, OSError):
            if not any(item.acceptor.started for item in broker.listeners.values()):
                del self._brokers[broker_id]
                broker.close_ports()
            raise

    def _open_listener(self, broker: Broker, name: str, where: HostPort) -> None:
        ports = self._in_force.settings.ports
        bind = ports.bind(name, broker.broker_id)
        told = ports.advertised(name, broker.broker_id)
        if bind is None or told is None:
            return
        book = self.books[name]
        listener = BrokerListener(name, where, book, self._security.parts(name), self._on_unknown)
        try:
            _, port = broker.open(listener, bind, now_ms())
        except OSError as error:
            raise GatewayError(
                f"listener {name} of broker {broker.broker_id} can't listen on {bind}: "
                f"{error.strerror or error}. Choose other ports in listeners, or stop what holds it"
            ) from error
        book[broker.broker_id] = (told.host or bind.host or "127.0.0.1", told.port or port)
        if self.started:
            listener.acceptor.start()

    async def _count_brokers(self) -> None:
        """Tell managers how many brokers share a cluster-wide quota."""
        count = len(self._discovery.broker_ids())
        for broker in list(self._brokers.values()):
            await self._slices.run(broker.rules.managers.sharing_among(count, now_ms))
