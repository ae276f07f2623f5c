"""Plan the gateway's ports: one per broker and listener, none used twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headgate.config.listeners import WILDCARDS, HostPort, Listener


@dataclass(frozen=True, slots=True)
class PortPlan:
    """
    Where each broker is found on each listener; a mapping never changes while the gateway runs.

    Args:
        id_min: id of the broker at the listeners' own ports.
        id_max: greatest id of a broker that is exposed.
        listeners: by upper-case name.
        listed: ports given one by one, by listener name; they replace the counting.
    """

    id_min: int = 1
    id_max: int = 1
    listeners: Mapping[str, Listener] = field(default_factory=dict)
    listed: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def broker_ids(self, listener: str) -> tuple[int, ...]:
        """Return the broker ids that have a port on a listener, in order."""
        if listener in self.listed:
            return tuple(sorted(self.listed[listener]))
        return tuple(range(self.id_min, self.id_max + 1))

    def bind(self, listener: str, broker_id: int) -> HostPort | None:
        """
        Return where broker ``broker_id`` listens; None if it has no port.

        Port 0 stays 0 for every broker: the system chooses.
        """
        address = self.listeners[listener].bind
        return self._moved(listener, broker_id, address.host, address.port, address.port)

    def advertised(self, listener: str, broker_id: int) -> HostPort | None:
        """Return the address clients are told for a broker; None if it has no port."""
        found = self.listeners[listener]
        host = found.advertised.host.replace("{id}", str(broker_id))
        return self._moved(listener, broker_id, host, found.advertised.port, found.bind.port)

    def _moved(
        self, listener: str, broker_id: int, host: str, first: int, bound: int
    ) -> HostPort | None:
        """
        Return a broker's address on a listener.

        Args:
            listener: its name.
            broker_id: the broker's id.
            host: of the address.
            first: the port that the listener has there.
            bound: the port at which it listens itself.
        """
        listed = self.listed.get(listener)
        if listed is not None:
            if broker_id not in listed:
                return None
            port = listed[broker_id]
            # If the advertised port differs from the bound one, each broker's is shifted by as much
            # as its bound port is from the lowest.
            return HostPort(host, port if first == bound else first + port - min(listed.values()))
        if not self.id_min <= broker_id <= self.id_max:
            return None
        return HostPort(host, first + broker_id - self.id_min if first else 0)


def overlaps(uses: Iterable[tuple[str, HostPort]]) -> list[str]:
    """
    Say which ports are needed twice, or are above 65535.

    Args:
        uses: the name of what needs a port, and the address; port 0 never collides.

    Returns:
        One sentence per collision, first use first.
    """
    problems: list[str] = []
    taken: dict[int, list[tuple[str, str]]] = {}
    for what, address in uses:
        if address.port == 0:
            continue
        if address.port > 65535:
            problems.append(f"{what} would need port {address.port}, above 65535")
            continue
        for other, host in taken.setdefault(address.port, []):
            if host == address.host or WILDCARDS & {host, address.host}:
                problems.append(f"port {address.port} is wanted by {other} and by {what}")
                break
        taken[address.port].append((what, address.host))
    return problems
