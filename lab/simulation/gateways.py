"""
Gateways in the simulation: the product's own ``Gateway``, each in a process of a simulated host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headgate.config import Settings
from headgate.gateway import server
from headgate.gateway.usage_journal import UsageJournal
from headgate.quota.table import QuotaTable, TableDelta
from simulation.loop import Host, Process, SimLoop


class HeldName:
    """
    Stands in for ``fleet.worker_name.WorkerName``: a worker's name on a host without a disk.

    A process's name is free when the process has ended, as a lock on a file is.
    """

    def __init__(self, folder: Any, label: str, boot: str | None = None) -> None:
        self.owner = f"{label}/{label}-worker"
        self.number = "worker"

    def take(self, take: Callable[[str], Any]) -> Any:
        """Try something in this worker's name."""
        return take(self.owner)

    def close(self) -> None:
        """Let go of the name."""


class MemoryWriter:
    """
    Stands in for the writer of a usage journal: keeps its events, in order.

    Attributes:
        events: as ``usage.format.Event`` has them, and the host's own time of each, ns.
        told: called with every event.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.events: list[tuple[Any, ...]] = []
        self.told: Callable[[tuple[Any, ...]], None] | None = None
        self.dropped = 0

    @property
    def written(self) -> int:
        """How many events were written."""
        return len(self.events)

    def start(self) -> None:
        """Begin."""

    def append(self, event: tuple[Any, ...]) -> None:
        """Take an event."""
        self.events.append(event)
        if self.told is not None:
            self.told(event)

    def close(self) -> None:
        """End."""


class SimGateway:
    """
    A gateway on a host.

    Args:
        loop: the loop.
        host: where it runs.
        properties: its settings.
        more: what else ``Gateway`` takes: ``store``, ``table``, ``reopen``…

    Attributes:
        process: what it runs in.
        gateway: the product's.
        journal: what it writes down.
        started: it serves.
        failed: why it couldn't start.
    """

    def __init__(
        self, loop: SimLoop, host: Host, properties: Mapping[str, str], **more: Any
    ) -> None:
        self.loop = loop
        self.host = host
        self.process = Process(host, f"gateway@{host.name}")
        self.journal = MemoryWriter(host)
        self.started = False
        self.stopped = False
        self.failed: BaseException | None = None
        self._properties = dict(properties)
        self._more = more
        self._made = False
        self.gateway: server.Gateway
        self.process.spawn(self._start())

    async def _start(self) -> None:
        settings = settings_of(self._properties)
        more = dict(self._more)
        if "journal" not in more:
            more["journal"] = UsageJournal(
                self.journal,  # type: ignore[arg-type]
                settings.quota_window_num,
                settings.quota_window_ms,
            )
        self.gateway = server.Gateway(settings, **more)
        self._made = True
        try:
            await self.gateway.start()
        except Exception as error:
            self.failed = error
            return
        self.started = True

    def requoted(self, table: QuotaTable, delta: TableDelta) -> None:
        """
        Tell it that quotas have changed, as its store does.

        A store is read once and tells every change from then on, also while the gateway starts.
        """
        if not self._made:
            self._more["table"] = table  # which it hasn't read yet
        elif self.process.alive:
            self.process.run(self.gateway.quotas.changed, table, delta)

    def stop(self, drain_ms: int | None = None) -> None:
        """End it in order."""
        self.process.spawn(self._stop(drain_ms))

    async def _stop(self, drain_ms: int | None) -> None:
        await self.gateway.stop(drain_ms)
        self.stopped = True

    def crash(self) -> None:
        """Kill it between two callbacks."""
        self.process.end(crashed=True)

    def address(self, broker_id: int, listener: str = "SASL_PLAINTEXT") -> tuple[str, int]:
        """Return where clients reach a broker through it."""
        return self.gateway.addresses(listener)[broker_id]


_settings: dict[frozenset[tuple[str, str]], Settings] = {}


def settings_of(properties: Mapping[str, str]) -> Settings:
    """Read settings, once for each text: they are frozen."""
    key = frozenset(properties.items())
    found = _settings.get(key)
    if found is None:
        found = _settings[key] = Settings.from_properties(dict(properties))
    return found
