"""
What the gateway's side of one broker has: listeners, rules, connections, and why those closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headgate.gateway.connection.refusals import Refusals
from headgate.gateway.log import get_logger, tells_all
from headgate.gateway.loop.log_limit import LogLimit
from headgate.throttle.connection import ConnectionQuotas, host_address
from headgate.throttle.registry import EXPIRY_PERIOD_MS

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.broker.listener import BrokerListener
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.charging.plans import Plan
    from headgate.gateway.connection.acceptor import Acceptor
    from headgate.gateway.connection.hangup import HangupWatch
    from headgate.gateway.connection.link import Link
    from headgate.gateway.connection.transports import ReadBuffer
    from headgate.gateway.session.commands import Ask
    from headgate.gateway.session.session import Session
    from headgate.metrics.meters import Meters

log = get_logger("headgate.gateway")


def _left_out(count: int, fields: Mapping[str, Any]) -> None:
    log.warning("connections closed; not every one is logged", left_out=count, **fields)


class FrontState:
    """
    What a broker's front has; the arguments are ``Broker``'s.

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

    def __init__(
        self,
        broker_id: int,
        settings: Settings,
        rules: Enforcement,
        meters: Meters,
        plans: Mapping[int, Plan],
        buffer: ReadBuffer,
        hangup: HangupWatch,
        answer: Callable[[Any, BrokerListener, Link, Ask], None],
        start_ms: int,
        address: Callable[[str], str | None] = host_address,
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.rules = rules
        self.meters = meters
        self.plans = dict(plans)
        self._buffer = buffer
        self._hangup = hangup
        self._answer = answer
        self.refusals = Refusals(settings.connection_failed_authentication_delay_ms)
        self.faces: dict[str, BrokerListener] = {}
        self.acceptors: dict[str, Acceptor] = {}
        self.links: dict[Link, tuple[str, str]] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._numbers = 0
        self._expire_ms = start_ms + EXPIRY_PERIOD_MS
        self.ending = False  # it drains: another may front the broker already
        self.failed_at = float("-inf")  # when the broker couldn't be reached, monotonic seconds
        self.closes = LogLimit(_left_out)  # which of them are logged
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

    def _slot_freed(self) -> None:
        for acceptor in self.acceptors.values():
            acceptor.slot_freed()

    def count_close(
        self,
        listener: str,
        reason: str,
        client: str,
        detail: str,
        session: Session | None = None,
    ) -> None:
        """Count a close, and log it unless many of its kind were logged this minute."""
        self.meters.listeners[listener].closed[reason] += 1
        ordinary = reason in ("client-gone", "drained")
        if ordinary and not tells_all():
            return
        whose = {}
        if session is not None:
            whose["connection"] = session.connection
            whose["principal"] = f"User:{session.identity.principal}"
        if ordinary:
            log.debug("connection closed", reason=reason, client=client, **whose)
            return
        if self.closes.passes(reason, reason=reason, broker=self.broker_id):
            log.warning(
                "connection closed",
                reason=reason,
                listener=listener,
                broker=self.broker_id,
                client=client,
                **whose,
                detail=detail,
            )
