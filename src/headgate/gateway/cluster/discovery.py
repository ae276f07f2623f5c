"""
Which brokers the upstream cluster has, asked on each listener; which of them have a port here; and
whether each broker that is fronted answers.

For the latter the gateway asks each broker a question of its own, again and again, and waits for
the answer for a bounded time. A broker may hang, out of memory for example: its ports stay open,
and clients wait without an answer. Nothing else of the gateway notices, since it doesn't know how
long an answer may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.errors import HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.log import get_logger

if TYPE_CHECKING:
    from headgate.gateway.background import Tasks
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.cluster.listener_security import ListenerSecurity
    from headgate.gateway.store_link.in_force import InForceNow

log = get_logger("headgate.gateway")


class GatewayError(HeadgateError):
    """The gateway can't start; says what, where and the way out."""


class Discovery:
    """
    What is known of the cluster.

    Args:
        in_force: the settings.
        security: how brokers are asked.

    Attributes:
        clusters: what each listener's upstream said last.
        unexposed: brokers without a port here.
    """

    def __init__(self, in_force: InForceNow, security: ListenerSecurity) -> None:
        self._in_force = in_force
        self._security = security
        self.clusters: dict[str, up.Cluster] = {}
        self.unexposed: set[int] = set()

    async def look(self, *, first: bool) -> None:
        """
        Ask each listener's upstream for its brokers.

        Raises:
            GatewayError: one doesn't answer, the first time.
            ConfigError: what the settings name can't be used.
        """
        settings = self._in_force.settings
        for listener in settings.listener_list:
            name = listener.name
            security, tls = await self._security.own(name)
            bootstrap = self._security.bootstrap(name)
            known = self.clusters.get(name)
            if known is not None:
                bootstrap = [*bootstrap, *known.brokers.values()]
            try:
                self.clusters[name] = await up.discover(
                    bootstrap,
                    security,
                    tls,
                    settings.for_listener(name).upstream_connect_timeout_ms,
                    self._security.own_setting(name),
                )
            except up.UpstreamError as error:
                if first:
                    raise GatewayError(
                        f"the upstream of listener {name} doesn't answer: {error}. Is "
                        "the cluster up, and is headgate.upstream (or "
                        f"listener.name.{name.lower()}.headgate.upstream) right?"
                    ) from error
                log.warning("upstream doesn't answer", listener=name, error=str(error))

    def broker_ids(self) -> list[int]:
        """Return the brokers of the cluster, in order."""
        return sorted({b for cluster in self.clusters.values() for b in cluster.brokers})

    def exposed(self) -> list[int]:
        """Return the brokers of the cluster that have a port here, whichever worker fronts them."""
        return list(filter(self.has_port, self.broker_ids()))

    def has_port(self, broker_id: int) -> bool:
        """Whether a broker has a port here; says so once when it hasn't."""
        settings = self._in_force.settings
        if any(settings.ports.bind(item.name, broker_id) for item in settings.listener_list):
            return True
        if broker_id not in self.unexposed:
            self.unexposed.add(broker_id)
            log.warning(
                "a broker has no port here and stays unexposed; widen headgate.broker.id.min "
                "and headgate.broker.id.max, or list it in headgate.broker.ports",
                broker=broker_id,
            )
        return False


ASK_S: Final = 10.0
"""Seconds from one round of questions to the next."""


def silent_lines(brokers: Mapping[int, Broker]) -> list[str]:
    """Return a line for each broker that doesn't answer."""
    found = sorted((broker_id, broker.silent) for broker_id, broker in brokers.items())
    return [f"broker {broker_id} doesn't answer: {why}" for broker_id, why in found if why]


@dataclass(frozen=True)
class Answering:
    """
    The questions to the brokers; ``Broker.silent`` says what became of the last one.

    Args:
        in_force: the settings; ``headgate.upstream.connect.timeout.ms`` is how long to wait.
        brokers: those fronted now.
        security: how they are asked.
    """

    in_force: InForceNow
    brokers: Mapping[int, Broker]
    security: ListenerSecurity

    async def keep(self, tasks: Tasks) -> None:
        """Ask for as long as the gateway runs; ``tasks`` write down what goes wrong."""
        while True:
            await asyncio.sleep(ASK_S)
            try:
                await self.ask()
            except Exception as error:
                tasks.log_failure("asking the brokers", error)

    async def ask(self) -> None:
        """Ask every broker once, all at the same time."""
        asked = list(self.brokers.items())
        found = await asyncio.gather(*(self._ask(broker) for _, broker in asked))
        for (broker_id, broker), why in zip(asked, found, strict=True):
            if why and not broker.silent:
                log.error("a broker doesn't answer the gateway", broker=broker_id, error=why)
            elif broker.silent and not why:
                log.info("a broker answers again", broker=broker_id)
            broker.silent = why

    async def _ask(self, broker: Broker) -> str:
        """
        Ask a broker where its clients' connections go; return why it doesn't answer, or "".

        The cluster soon stops naming one that hangs. Its clients wait all the same.
        """
        there = ((name, item.upstream) for name, item in broker.listeners.items())
        listener, where = next(((n, at) for n, at in there if at is not None), ("", None))
        if where is None:
            return ""
        try:
            security, tls = await self.security.own(listener)
            timeout_ms = self.in_force.settings.for_listener(listener).upstream_connect_timeout_ms
            setting = self.security.own_setting(listener)
            await up.answers(where, security, tls, timeout_ms, setting)
        except HeadgateError as error:
            return str(error)
        return ""
