"""
One upstream broker as its clients see it: its listeners, its rules, its clients' connections.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.gateway.broker.clients import Clients
from headgate.gateway.broker.dialing import Dialer
from headgate.gateway.charging.charges import TYPES
from headgate.gateway.charging.clients import others_of
from headgate.gateway.connection.acceptor import Acceptor, listen, size_buffers
from headgate.gateway.connection.hosts import BrokerHosts
from headgate.gateway.connection.refusals import Refusals
from headgate.gateway.connection.transports import GOODBYE_S
from headgate.gateway.log import get_logger
from headgate.metrics.chosen import choose
from headgate.metrics.samples import BrokerView
from headgate.steps import one_by_one
from headgate.throttle.connection import ConnectionQuotas, host_address
from headgate.throttle.java import INT_MAX
from headgate.throttle.registry import EXPIRY_PERIOD_MS

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.config.settings import Settings
    from headgate.gateway.broker.dialing import BrokerListener, ListenerParts
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.gateway.connection.link import HangupWatch, Link
    from headgate.gateway.connection.pool import ReadBuffer
    from headgate.gateway.session.commands import Ask
    from headgate.gateway.session.rewrite import Rewrite
    from headgate.metrics.meters import Meters
    from headgate.quota.key import QuotaType
    from headgate.steps import Work

log = get_logger("headgate.gateway")

_SLOW_REQUEST_MS: Final = 300_000
"""A request whose bytes trickle in for longer is a slow-loris; at 100 MB it is 350 kB/s."""
_CLOCK_SET_MS: Final = 1_000
"""The wall clock was set if it jumped by this much; less is a clock that runs slow or fast."""


class Broker:
    """
    The gateway's side of one upstream broker.

    Args:
        broker_id: the broker's id.
        settings: of the gateway.
        rules: of this broker.
        meters: of this broker.
        plans: how each API is handled (``plans.build_plans``).
        buffer: the loop's read buffer.
        hangup: the loop's watch.
        answer: answers an ``Ask`` of a link of this broker, or does its ``Rewrite``.
        start_ms: now, epoch milliseconds.
        address: returns the address of a host that a connection limit names; None: not known yet.
        hosts: knows the addresses of brokers' hosts.

    Attributes:
        listeners: by name, those whose ports are open.
        quotas: limit its clients' connections (KIP-612).
        clients: its clients' connections.
        links: ``clients.links``.
        silent: why the broker didn't answer the gateway's own question; "": it did.
    """

    def __init__(
        self,
        broker_id: int,
        settings: Settings,
        rules: Enforcement,
        meters: Meters,
        plans: Mapping[int, RequestPlan],
        buffer: ReadBuffer,
        hangup: HangupWatch,
        answer: Callable[[Broker, Link, Ask | Rewrite], None],
        start_ms: int,
        address: Callable[[str], str | None] = host_address,
        hosts: BrokerHosts | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.rules = rules
        self.meters = meters
        self._hangup = hangup
        self.silent = ""
        self.refusals = Refusals(settings.connection_failed_authentication_delay_ms)
        self.listeners: dict[str, BrokerListener] = {}
        self._expire_ms = start_ms + EXPIRY_PERIOD_MS
        self._skew_ms: int | None = None  # by which the links' times were set last
        self.quotas = ConnectionQuotas(
            (),
            settings.inter_broker_listener_name,
            {},
            num_samples=settings.quota_window_num,
            window_ms=settings.quota_window_ms,
            start_ms=start_ms,
            resolve=lambda host: address(host) or host,
        )
        self.quotas.observing = settings.enforce == "observe"
        self.dialer = Dialer(broker_id, meters, hosts or BrokerHosts())
        self.clients = Clients(
            broker_id,
            rules,
            meters,
            dict(plans),
            self.quotas,
            self.dialer,
            self.listeners,
            buffer,
            hangup,
            self.refusals,
            partial(answer, self),
        )
        self.links = self.clients.links

    # --- listeners --------------------------------------------------------------------------

    def open(self, listener: BrokerListener, bind: HostPort, now_ms: int) -> tuple[str, int]:
        """
        Open a listener's port; ``start`` accepts on it.

        Returns:
            Where it listens.

        Raises:
            ValueError: a listener of this name is open already.
            OSError: the port can't be had.
        """
        if listener.name in self.listeners:
            raise ValueError(f"listener {listener.name} of broker {self.broker_id} is open already")
        sock = listen(bind.host, bind.port, listener.settings.socket_listen_backlog_size)
        size_buffers(sock, listener.settings)
        self.quotas.add_listener(listener.name, now_ms)
        listener.meters = self.meters.listeners[listener.name]
        listener.acceptor = Acceptor(
            sock,
            listener.name,
            self.broker_id,
            self.quotas,
            listener.meters,
            self.rules.journal,
            partial(self.clients.accepted, listener),
        )
        self.listeners[listener.name] = listener
        return listener.acceptor.address

    def start(self) -> None:
        """Accept on every listener."""
        for listener in self.listeners.values():
            listener.acceptor.start()

    def reload(self, settings: Settings, parts: Mapping[str, ListenerParts]) -> None:
        """
        Put in force what a reload may change.

        Args:
            settings: of the gateway.
            parts: by listener, what is made from its settings.
        """
        self.settings = settings
        self.rules.reload(settings)
        self.quotas.observing = settings.enforce == "observe"
        for name, listener in self.listeners.items():
            listener.take(parts[name])

    def limits_changed(self, config: Mapping[str, str]) -> None:
        """Put dynamic broker settings in force."""
        self.quotas.configure(config)
        self.clients.slot_freed()

    # --- housekeeping -----------------------------------------------------------------------

    def sweep(self, now_ms: int, skew_ms: int) -> Work[None]:
        """
        Close what is idle, slow or never authenticates; free idle sensors; step by step.

        Args:
            now_ms: the wall clock, by which links say when something came, epoch ms.
            skew_ms: how far it is ahead of a clock that is never set. Kafka times connections by
                such a clock (``Selector.IdleExpiryManager``), so setting the wall clock ends none.
        """
        if self._skew_ms is None:
            self._skew_ms = skew_ms
        set_by_ms = skew_ms - self._skew_ms
        was_set = abs(set_by_ms) >= _CLOCK_SET_MS
        if was_set:
            self._skew_ms = skew_ms
        for link in one_by_one(self.links):
            yield
            if link.closed is not None:
                continue
            if was_set:
                link.clock_set(set_by_ms, now_ms)
            if link.broker.full:
                self._hangup.found_full(link, link.client.transport)
            settings = link.listener.settings
            session = link.session
            idle_ms = settings.connections_max_idle_ms
            if idle_ms >= 0 and now_ms - session.last_ms > idle_ms:
                link.close("idle", f"nothing for {idle_ms} ms")
            elif (
                not session.identity.authenticated
                and now_ms - link.opened_ms > settings.handshake_timeout_ms
            ):
                link.close("handshake-timeout", "not authenticated in time")
            elif session.partial_since_ms and now_ms - session.partial_since_ms > _SLOW_REQUEST_MS:
                link.close("slow-request", "a request that doesn't end")
        if now_ms >= self._expire_ms:
            self._expire_ms = now_ms + EXPIRY_PERIOD_MS
            yield from self.rules.expire(now_ms)
            for principal in self.rules.contexts.client_ids.newly_crowded():
                log.warning(
                    "a principal uses more client-ids than are charged separately; those beyond "
                    "are charged as one (headgate.quota.client.ids)",
                    broker=self.broker_id, principal=principal, charged_as=others_of(principal),
                    most=self.settings.quota_client_ids,
                )  # fmt: skip
            for _ in self.quotas.expiring(now_ms):
                yield

    def view_steps(self, now_ms: int) -> Work[BrokerView]:
        """Return what the metrics are read from; sums up live connections first, step by step."""
        muted = dict.fromkeys(self.listeners, 0)
        queue: defaultdict[QuotaType, int] = defaultdict(int)
        for link in one_by_one(self.links):
            yield
            if link.closed is not None:
                continue  # it was counted when it closed
            self.clients.count_traffic(link)
            session = link.session
            queued_at = None if session.debts is None else session.debts.waits_at
            if session.throttled_until_ms or queued_at is not None:
                muted[link.listener.name] += 1
                if queued_at is not None:
                    queue[TYPES[queued_at.quota_type]] += 1
                elif session.muted_by is not None:
                    queue[TYPES[session.muted_by.key]] += 1
        for name, count in muted.items():
            self.meters.listeners[name].muted = count
        self.meters.queue = queue
        rates: dict[tuple[str, str], tuple[float, float | None]] = {
            ("broker", ""): (self.quotas.broker_rate(now_ms), None)
        }
        for name in self.listeners:
            rates["listener", name] = (self.quotas.listener_rate(name, now_ms), None)
        found: dict[str, float] = {}
        for ip, rate in self.quotas.ip_rates(now_ms):
            found[ip] = rate
            yield
        busiest = yield from choose(
            (((ip, ""), (False, 0.0, rate), False) for ip, rate in found.items()),
            self.settings.metrics_quota_ids,
            (),
        )
        for ip, _ in busiest:
            bound = self.quotas.ip_bound(ip)
            rates["ip", ip] = (found.pop(ip), None if bound == INT_MAX else float(bound))
        managers, others = self.rules.managers.by_key, (len(found), sum(found.values()))
        return BrokerView(self.broker_id, managers, self.meters, rates, other_addresses=others)

    # --- the end ----------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Take no new connections."""
        for listener in self.listeners.values():
            listener.acceptor.stop_accepting()

    def close_ports(self) -> None:
        """Let go of every port."""
        for listener in self.listeners.values():
            listener.acceptor.close()

    async def drain(self, timeout_ms: int) -> None:
        """Let requests in flight finish, then close; what isn't done in time is cut off."""
        self.clients.ending = True
        self.close_ports()
        deadline = time.monotonic() + timeout_ms / 1000
        gone = list(self.links)
        while self.links:
            late = time.monotonic() >= deadline
            for link in list(self.links):
                if late or link.session.at_rest:
                    link.close("drained" if link.session.at_rest else "drain-timeout")
            if self.links:
                await asyncio.sleep(0.01)
        if gone and timeout_ms:
            await asyncio.sleep(GOODBYE_S)
        for link in gone:
            link.client.abort()  # one that never reads would keep its socket for good
        leaving = list(self.clients.leaving)
        for side in leaving:
            side.abort()
        await asyncio.sleep(0.001 if gone or leaving else 0)
        # Connections in their TLS handshake, or on their way to the broker.
        opening = list(self.clients.opening)
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening, timeout=GOODBYE_S)
