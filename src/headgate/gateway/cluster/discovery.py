"""
Which brokers the upstream cluster has, asked on each listener, and which of them have a port here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.log import get_logger

if TYPE_CHECKING:
    from headgate.gateway.cluster.ways import Ways
    from headgate.gateway.kept.current import Current

log = get_logger("headgate.gateway")


class GatewayError(HeadgateError):
    """The gateway can't start; says what, where and the way out."""


class Discovery:
    """
    What is known of the cluster.

    Args:
        in_force: the settings.
        ways: how brokers are asked.

    Attributes:
        clusters: what each listener's upstream said last.
        unexposed: brokers without a port here.
    """

    def __init__(self, in_force: Current, ways: Ways) -> None:
        self._in_force = in_force
        self._ways = ways
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
            security, tls = await self._ways.own(name)
            bootstrap = self._ways.bootstrap(name)
            known = self.clusters.get(name)
            if known is not None:
                bootstrap = [*bootstrap, *known.brokers.values()]
            try:
                self.clusters[name] = await up.discover(
                    bootstrap,
                    security,
                    tls,
                    settings.for_listener(name).upstream_connect_timeout_ms,
                    self._ways.own_setting(name),
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
