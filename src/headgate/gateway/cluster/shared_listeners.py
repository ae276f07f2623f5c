"""
The listeners that aren't one broker's: the admin listener, and ports that lead to any live broker.

The worker that fronts the lowest broker opens them; a standby does so when it takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.clock import now_ms
from headgate.config.listeners import Listener
from headgate.gateway.broker.bootstrap import BootstrapListener
from headgate.gateway.broker.listener import BrokerListener
from headgate.gateway.cluster.discovery import GatewayError
from headgate.gateway.own_answers.admin_plans import admin_plans

if TYPE_CHECKING:
    from headgate.config.listeners import Endpoint
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.cluster.discovery import Discovery
    from headgate.gateway.cluster.ways import Ways
    from headgate.gateway.kept.current import Current


class SharedListeners:
    """
    The admin listener and bootstrap listeners of one gateway.

    Args:
        in_force: the settings.
        brokers: those fronted now.
        discovery: knows which broker is the lowest.
        ways: makes what the admin listener needs.

    Attributes:
        admin_address: where KIP-546's own calls are answered; None: nowhere.
        bootstraps: ports that lead to any live broker.
    """

    def __init__(
        self, in_force: Current, brokers: Mapping[int, Broker], discovery: Discovery, ways: Ways
    ) -> None:
        self._in_force = in_force
        self._brokers = brokers
        self._discovery = discovery
        self._ways = ways
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
        self._ways.add(
            Listener(endpoint.name, protocol, endpoint.address, endpoint.address),
            asked.name if asked else None,
        )
        listener = BrokerListener(
            endpoint.name,
            asked.upstream if asked else None,
            {},
            self._ways.parts(endpoint.name),
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
