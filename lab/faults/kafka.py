"""
A Kafka whose clients can be parted from it, and its brokers not from each other.
"""

from __future__ import annotations

from typing import Any

from faults.injection import Proxy
from headgate.embedded import EmbeddedKafka, free_ports
from headgate.embedded.broker import BrokerProcess

SIDES = ("LEFT", "RIGHT")


class PartedKafka(EmbeddedKafka):
    """
    Brokers with two more listeners each, which are reached through proxies.

    A client stays on the side of its bootstrap servers, for a broker tells it the addresses of the
    listener by which it was asked. Brokers talk to each other directly.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.proxies: dict[tuple[str, int], Proxy] = {}
        self._behind: dict[tuple[str, int], int] = {}

    def settings_of(self, broker: BrokerProcess) -> dict[str, str]:
        settings = super().settings_of(broker)
        for side in SIDES:
            at = side, broker.id
            if at not in self.proxies:
                [self._behind[at]] = free_ports()
                self.proxies[at] = Proxy("127.0.0.1", self._behind[at])
            settings["listeners"] += f",{side}://127.0.0.1:{self._behind[at]}"
            settings["advertised.listeners"] += f",{side}://127.0.0.1:{self.proxies[at].port}"
            settings["listener.security.protocol.map"] += f",{side}:PLAINTEXT"
        return settings

    def side(self, side: str) -> str:
        """Return the bootstrap servers of a side."""
        return ",".join(
            f"127.0.0.1:{proxy.port}" for (name, _), proxy in self.proxies.items() if name == side
        )

    def stop(self, *, kill: bool | None = None) -> None:
        super().stop(kill=kill)
        for proxy in self.proxies.values():
            proxy.close()
        self.proxies.clear()
