"""
One upstream broker as its clients see it: its listeners, its rules, its connections.

What it has is in ``front_state``, how connections are taken over in ``taking``.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headgate.gateway.broker.clients import Taking
from headgate.gateway.connection.acceptor import Acceptor, listen
from headgate.gateway.connection.transports import GOODBYE_S
from headgate.metrics.chosen import choose
from headgate.metrics.samples import BrokerView
from headgate.throttle.registry import EXPIRY_PERIOD_MS

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.config.settings import Settings
    from headgate.gateway.broker.listener import BrokerListener
    from headgate.gateway.loop.slices import Work
    from headgate.quota.key import QuotaType

_SLOW_REQUEST_MS: Final = 300_000
"""A request whose bytes trickle in for longer is a slow-loris; at 100 MB it is 350 kB/s."""


class Broker(Taking):
    """
    The gateway's side of one upstream broker.

    Args:
        broker_id: the broker's id.
        settings: of the gateway.
        rules: of this broker.
        meters: of this broker.
        plans: by listener name.
        buffer: the loop's read buffer.
        hangup: the loop's watch.
        answer: answers an ``Ask`` of a link on a listener.
        start_ms: epoch milliseconds.
    """

    # --- listeners --------------------------------------------------------------------------

    def open(self, face: BrokerListener, bind: HostPort, now_ms: int) -> tuple[str, int]:
        """
        Open a listener's port and accept on it.

        Returns:
            Where it listens.

        Raises:
            ValueError: a listener of this name is open already.
            OSError: the port can't be had.
        """
        if face.name in self.acceptors:
            raise ValueError(f"listener {face.name} of broker {self.broker_id} is open already")
        sock = listen(bind.host, bind.port, face.settings.socket_listen_backlog_size)
        self.faces[face.name] = face
        self.quotas.add_listener(face.name, now_ms)
        self.acceptors[face.name] = Acceptor(
            sock,
            face.name,
            self.broker_id,
            self.quotas,
            self.meters.listeners[face.name],
            self.rules.journal,
            lambda client, address: self.accepted(face, client, address),
        )
        return self.acceptors[face.name].address

    def start(self) -> None:
        """Accept on every listener."""
        for acceptor in self.acceptors.values():
            acceptor.start()

    def reload(self, settings: Settings) -> None:
        """Put in force what a reload may change."""
        self.settings = settings
        self.rules.reload(settings)
        self.quotas.observing = settings.enforce == "observe"

    def limits_changed(self, config: Mapping[str, str]) -> None:
        """Put dynamic broker settings in force."""
        self.quotas.configure(config)
        self._slot_freed()

    # --- housekeeping -----------------------------------------------------------------------

    def sweep(self, now_ms: int) -> Work[None]:
        """Close what is idle, slow or never authenticates; free idle sensors; step by step."""
        for link, (listener, _) in list(self.links.items()):
            yield
            if link.closed is not None:
                continue
            settings = self.faces[listener].settings
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
            self.quotas.expire(now_ms)

    def view_steps(self, now_ms: int) -> Work[BrokerView]:
        """Return what the metrics are read from; sums up live connections first, step by step."""
        muted = dict.fromkeys(self.faces, 0)
        queue: defaultdict[QuotaType, int] = defaultdict(int)
        for link, (listener, _) in list(self.links.items()):
            yield
            if link.closed is not None:
                continue  # it was counted when it closed
            meters = self.meters.listeners[listener]
            meters.bytes_in += link.bytes_in
            meters.bytes_out += link.bytes_out
            meters.requests += link.session.requests
            link.bytes_in = link.bytes_out = link.session.requests = 0
            if link.session.throttled_until_ms:
                muted[listener] += 1
                queue[link.session.muted_by] += 1  # type: ignore[index]
        for name, count in muted.items():
            self.meters.listeners[name].muted = count
        self.meters.queue = queue
        rates: dict[tuple[str, str], tuple[float, float | None]] = {
            ("broker", ""): (self.quotas.broker_rate(now_ms), None)
        }
        for name in self.faces:
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
            rates["ip", ip] = (found[ip], float(self.quotas.ip_bound(ip)))
        return BrokerView(self.broker_id, self.rules.managers.by_key, self.meters, rates)

    # --- the end ----------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Take no new connections."""
        for acceptor in self.acceptors.values():
            acceptor.stop_accepting()

    def close_ports(self) -> None:
        """Let go of every port."""
        for acceptor in self.acceptors.values():
            acceptor.close()

    async def drain(self, timeout_ms: int) -> None:
        """Let requests in flight finish, then close; what isn't done in time is cut off."""
        self.ending = True
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
        await asyncio.sleep(0.001 if gone else 0)
        # Those whose TLS handshake isn't over, or whose broker is still being reached.
        opening = list(self._opening)
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening, timeout=GOODBYE_S)
