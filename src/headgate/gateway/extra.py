"""
Listeners that aren't one broker's: the admin listener, and ports that lead to any live broker.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from typing import TYPE_CHECKING, Final

from headgate.gateway.acceptor import listen
from headgate.gateway.draft_answers import ADMIN_APIS
from headgate.gateway.plans import NO_FIELD, Kind, Plan
from headgate.throttle.connection import Outcome, host_address
from headgate.wire import apis
from headgate.wire.messages import draft

if TYPE_CHECKING:
    from headgate.config.listeners import Endpoint
    from headgate.gateway.front import BrokerFront
    from headgate.gateway.gateway_state import GatewayState

_AVOID_S: Final = 5.0
"""How long a broker that couldn't be reached is passed over."""
_BATCH: Final = 32
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

    Args:
        gateway: whose brokers.
        endpoint: ``headgate.bootstrap.listener``.

    Raises:
        OSError: the port can't be had.
    """

    def __init__(self, gateway: GatewayState, endpoint: Endpoint) -> None:
        self._gateway = gateway
        self.name = endpoint.name
        self._turn = itertools.count()
        self._sock = listen(endpoint.address.host, endpoint.address.port, 128)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._sock.fileno(), self._ready)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        name = self._sock.getsockname()
        return str(name[0]), int(name[1])

    def _ready(self) -> None:
        for _ in range(_BATCH):
            try:
                sock, peer = self._sock.accept()
            except OSError:
                return
            sock.setblocking(False)
            front = self._choose()
            if front is None or not self._admit(front, sock, host_address(str(peer[0]))):
                sock.close()

    def _choose(self) -> BrokerFront | None:
        """Return the next broker in turn, passing over those that can't be reached."""
        fronts = [f for f in self._gateway.fronts.values() if self.name in f.faces]
        alive = [f for f in fronts if time.monotonic() - f.failed_at > _AVOID_S] or fronts
        return alive[next(self._turn) % len(alive)] if alive else None

    def _admit(self, front: BrokerFront, sock: socket.socket, address: str) -> bool:
        """Count the connection as one of the broker's listener."""
        now_ms = time.time_ns() // 1_000_000
        meters = front.meters.listeners[self.name]
        if not front.quotas.slot_available(self.name):
            meters.closed["max-connections"] += 1
            return False
        front.quotas.reserve(self.name, now_ms)
        outcome, _ = front.quotas.admit(self.name, address, now_ms)
        if outcome is Outcome.THROTTLED:
            meters.closed["ip-connection-rate"] += 1
            return False
        if outcome is Outcome.TOO_MANY:
            front.quotas.release(self.name, address)
            meters.closed["max-connections-per-ip"] += 1
            return False
        meters.accepted += 1
        front.accepted(front.faces[self.name], sock, address)
        return True

    def close(self) -> None:
        """Close the port."""
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
