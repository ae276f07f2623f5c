"""
Listeners that aren't one broker's: the admin listener, and ports that lead to any live broker.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Final

from headgate.clock import now_ms
from headgate.gateway.charging.plans import NO_FIELD, Kind, Plan
from headgate.gateway.connection.acceptor import accept, listen, pending
from headgate.gateway.log import get_logger
from headgate.gateway.own_answers.draft_answers import ADMIN_APIS
from headgate.throttle.connection import host_address
from headgate.wire import apis
from headgate.wire.messages import draft

if TYPE_CHECKING:
    from headgate.config.listeners import Endpoint
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.gateway_state import GatewayState

log = get_logger("headgate.gateway")

_AVOID_S: Final = 5.0
"""How long a broker that couldn't be reached is passed over."""
_BATCH: Final = 32
_LOOK_MS: Final = 100
"""How often it is looked for a slot, where no broker has one."""
DRAFT_NAMES: Final = {
    draft.DESCRIBE_QUOTAS: "DescribeQuotas",
    draft.DESCRIBE_EFFECTIVE_QUOTAS: "DescribeEffectiveQuotas",
    draft.ALTER_QUOTAS: "AlterQuotas",
}
"""What KIP-546's draft calls these keys, on the admin listener alone; Kafka gave two of them other
names, and 50 to another API."""


def admin_plans() -> dict[int, Plan]:
    """Return how the admin listener handles its six APIs; whatever else is refused."""
    plans: dict[int, Plan] = {}
    for key in ADMIN_APIS:
        api = apis.API[key]
        if key in (apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE):
            kind, newest = Kind.SASL, api.max_version
        elif key == apis.API_VERSIONS:
            kind, newest = Kind.OWN_VERSIONS, 64
        else:
            kind, newest = Kind.DRAFT, 0
        throttle_at = 8 if kind is Kind.DRAFT else NO_FIELD
        for version in range(newest + 1):
            plans[key << 16 | version] = Plan(
                key, version, kind, True, True, False, throttle_at, DRAFT_NAMES.get(key, api.name)
            )
    return plans


class BootstrapListener:
    """
    A port that forwards to any live broker, as the listener it is named after would.

    A connection counts as one of that broker's and listener's: while a rate delays them, or none
    has a free slot, nothing is accepted here either.

    Args:
        gateway: whose brokers.
        endpoint: ``headgate.bootstrap.listener``.

    Raises:
        OSError: the port can't be had.
    """

    def __init__(self, gateway: GatewayState, endpoint: Endpoint) -> None:
        self._gateway = gateway
        self.endpoint = endpoint
        self.name = endpoint.name
        self._turn = itertools.count()
        self._next: Broker | None = None  # charged for the next connection
        self._waiting: asyncio.TimerHandle | None = None
        self._sock = listen(endpoint.address.host, endpoint.address.port, 128)
        self._pending = pending(self._sock)
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
        if self._next is not None and self._next.ending:
            self._next = None  # charged in vain: another fronts that broker now
        for _ in range(_BATCH):
            front = self._next or self._choose()
            if front is None or not front.quotas.slot_available(self.name):
                self._next = None
                self._wait(_LOOK_MS)
                return
            if self._next is None:
                self._next = front
                delay_ms = front.acceptors[self.name].rate(now_ms())
                if delay_ms > 0:
                    self._wait(delay_ms)
                    return
            try:
                sock, peer = accept(self._sock)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # such as out of descriptors: don't spin
                front.meters.listeners[self.name].closed[f"accept-{error.errno}"] += 1
                self._wait(_LOOK_MS)
                return
            self._next = None
            try:
                front.acceptors[self.name].admit(sock, host_address(str(peer[0])))
            except BaseException:
                sock.close()
                raise
            if not self._pending.poll(0):
                return

    def _choose(self) -> Broker | None:
        """Return the next broker in turn, passing over those that can't be reached or are full."""
        fronts = [f for f in self._gateway.brokers.values() if self.name in f.acceptors]
        alive = [f for f in fronts if time.monotonic() - f.failed_at > _AVOID_S] or fronts
        open_ = [f for f in alive if f.quotas.slot_available(self.name)] or alive
        return open_[next(self._turn) % len(open_)] if open_ else None

    def close(self) -> None:
        """Close the port."""
        if self._waiting is not None:
            self._waiting.cancel()
        else:
            self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
