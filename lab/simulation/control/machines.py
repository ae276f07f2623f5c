"""Several gateways on simulated machines: their disks, their lines to the store, their lives."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.cli.serve import serve
from headgate.clock import now_ms
from headgate.config import Settings, load_settings
from headgate.config.listeners import HostPort
from headgate.errors import StoreError
from headgate.gateway import periodic_work, server
from headgate.gateway import upstream as up
from headgate.gateway.fleet import worker_name
from headgate.gateway.splits import streamed
from headgate.usage import reader
from simulation import fibers
from simulation.control.stream import Stream
from simulation.disk import Disk, Disks
from simulation.loop import PROCESS, Host, Process
from simulation.network import Network
from simulation.seed import Seed
from simulation.stores import SQLITE, Flavour, Home, SimStore

CLUSTER: Final = "simulated-cluster"


@dataclass(frozen=True)
class Shape:
    """
    What a life is made of.

    Args:
        flavour: of the store.
        gateways: how many.
        brokers: how many the cluster has.
        ttl_ms: of leases.
        properties: more settings of all gateways.
        supervised: each gateway is the worker of one broker, all on one host, under a supervisor.
        streamed: a stream divides cluster-wide quotas.
    """

    flavour: Flavour = SQLITE
    gateways: int = 2
    brokers: int = 2
    ttl_ms: int = 3_000
    properties: tuple[tuple[str, str], ...] = ()
    supervised: bool = False
    streamed: bool = False


class StoreLine:
    """
    A machine's line to the home of quotas: how long a call takes, and how it fails.

    Attributes:
        cut: nothing gets through, either way.
        slow_ms: more that each call takes.
        locked: somebody holds the home's lock, or it can't be written.
        loses: answers to changes that are lost from now on.
        heard_ms: when calls about leases were answered lately, simulated ms.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.cut = False
        self.slow_ms = 0.0
        self.locked = False
        self.loses = 0
        self.heard_ms: deque[float] = deque(maxlen=300)

    def before(self, kind: str) -> None:
        """See ``stores.Line``."""
        fibers.sleep((self._rng.uniform(0.2, 3.0) + self.slow_ms) / 1000)
        self._pass()
        if self.locked and kind in ("alter", "lease", "audit", "make"):
            fibers.sleep(self._rng.uniform(0.5, 4.0))
            if self.locked:
                raise StoreError("another process holds its lock", retriable=True)

    def after(self, kind: str) -> None:
        """See ``stores.Line``."""
        fibers.sleep(self._rng.uniform(0.1, 2.0) / 1000)
        self._pass()
        if kind == "lease":
            self.heard_ms.append(PROCESS.get().loop.now_ms)
        if self.loses and kind == "alter":
            self.loses -= 1
            raise StoreError("the connection was lost before the answer", retriable=True)

    def _pass(self) -> None:
        if self.cut:
            fibers.sleep(self._rng.uniform(0.05, 6.0))
            if self.cut:
                raise StoreError("it can't be reached", retriable=True)


class Run:
    """
    One run of a gateway, from its start to its end.

    Attributes:
        gateway: the product's; None until its store was asked.
        process: what it runs in.
        failed: why it couldn't start.
        stopped: it ended in order, at this simulated time, ms.
        crashed: it was killed, then.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.process = Process(machine.host, f"{machine.name}/{next(machine.runs)}")
        self.gateway: server.Gateway | None = None
        self.failed: BaseException | None = None
        self.started = False
        self.stopped: float | None = None
        self.crashed: float | None = None
        self.began_ms = self.process.loop.now_ms
        self.cut = self.stopping = False
        self.charges: list[tuple[float, int]] = []
        self.process.on_end.append(self._ended)
        self.process.spawn(self._start())

    def _ended(self, crashed: bool) -> None:
        """The process is no more, however it ended."""
        if crashed:
            self.crashed = self.process.loop.now_ms
        self.machine.disk.release(self.process)
        self.machine.fleet.let_go(self.process)

    async def _start(self) -> None:
        settings = self.machine.settings()
        loop = self.process.loop
        try:
            store = await loop.run_in_executor(None, serve.store_of, settings)
            only = self.machine.fleet.only(self.machine)
            self.gateway = server.Gateway(
                settings,
                store,
                reopen=lambda: serve.open_own_store(settings),
                only_brokers=only,
                supervised=only is not None,
            )
            await self.gateway.start()
        except Exception as error:
            self.failed = error
            self.process.end(crashed=True)
            return
        self.started = True

    @property
    def alive(self) -> bool:
        """Whether the process lives."""
        return self.process.alive

    def stop(self) -> None:
        """End it as SIGTERM does."""
        if self.alive and self.gateway is not None and not self.stopping:
            self.stopping = True
            self.process.spawn(self._stop(self.gateway))

    async def _stop(self, gateway: server.Gateway) -> None:
        told = self.machine.fleet.on_stop(self)
        await gateway.stop()
        told()
        self.stopped = self.process.loop.now_ms
        if gateway.store is not None:
            await self.process.loop.run_in_executor(None, gateway.store.close)
        self.process.end(crashed=False)

    def crash(self) -> None:
        """Kill it, between two callbacks or within a call of the operating system."""
        self.process.end(crashed=True)

    @property
    def serves(self) -> bool:
        """Whether it could answer a client now: it lives and isn't standing still."""
        return self.alive and self.process.frozen_until_ns <= self.process.loop.now_ns

    def active(self) -> set[int]:
        """Return the brokers whose ports accept here."""
        if not self.serves or self.gateway is None:
            return set()
        return {
            broker_id
            for broker_id, broker in self.gateway.brokers.items()
            if any(item.acceptor.accepting for item in broker.listeners.values())
        }


class Machine:
    """
    A host with one gateway at a time, a disk and a line to the store.

    Attributes:
        run: the latest.
        past: all runs, the latest included.
        more: settings beside the fleet's.
        disk_failed: a write may have failed.
        stalled_ms: how long it stood still, or its disk was slow, altogether.
        woke_ms: when it went on last after it had stood still, or had no line to the store, for
            longer than a lease lasts.
        slow_disk_ms: how long each change of the disk takes now.
        left: changes of the disk until the gateway is killed; None: any number.
    """

    def __init__(self, fleet: Fleet, name: str, host: Host, disk: Disk) -> None:
        self.fleet = fleet
        self.name = name
        self.host = host
        self.disk = disk
        self.runs = itertools.count(1)
        self.line = StoreLine(fleet.seed.stream("line", name))
        self.past: list[Run] = []
        self.more: dict[str, str] = {}
        self.disk_failed = False
        self.stalled_ms = self.woke_ms = 0.0
        self.slow_disk_ms = 0.0
        self.left: int | None = None
        self._given: dict[str, str] = {}
        self._settings: Settings

    @property
    def folder(self) -> Path:
        """Where the gateway keeps everything."""
        return self.disk.root / "data"

    @property
    def run(self) -> Run:
        """The latest run."""
        return self.past[-1]

    def settings(self) -> Settings:
        """Return what its settings file says."""
        given = {**self.fleet.properties(self), **self.more}
        if given != self._given:
            self._given, self._settings = given, Settings.from_properties(given)
        return self._settings

    def boot(self) -> None:
        """Start a gateway, unless one lives."""
        if not self.past or not self.run.alive:
            self.past.append(Run(self))


class Fleet:
    """
    All of a life: a home of quotas, machines with gateways, and their clients.

    Args:
        seed: of the life.
        folder: an empty folder for the machines' disks.
        shape: its store, gateways and brokers.

    Attributes:
        home: where quotas are kept.
        machines: in order.
        loop: the one loop.
        stream: that divides cluster-wide quotas, in lives that have one.
        on_stop: called when a gateway begins to end in order; what it returns, when it has.
    """

    def __init__(self, seed: Seed, folder: Path, shape: Shape) -> None:
        self.seed = seed
        self.shape = shape
        self.loop = fibers.FiberLoop(seed)
        self.network = Network(self.loop)
        self.disks = Disks()
        rng = seed.stream("shape")
        self.ids = seed.stream("ids")
        self.home = Home(shape.flavour, lambda: self.ids.randbytes(8).hex())
        self.home.announce = self._announce
        self._news = seed.stream("announcements")
        self.stream = Stream(self)
        self.machines: list[Machine] = []
        self.on_stop: Callable[[Run], Callable[[], None]] = lambda run: lambda: None
        shared = shape.flavour is SQLITE
        for number in range(shape.gateways):
            name = f"gw{number + 1}"
            if shared and number:
                host, disk = self.machines[0].host, self.machines[0].disk
            else:
                offset = (
                    0
                    if shared
                    else rng.choice([0, rng.randint(-400, 400), rng.randint(-(10**7), 10**7)])
                )
                host = Host(self.loop, f"host{number + 1}", f"10.1.0.{number + 1}", offset)
                root = folder / host.name
                root.mkdir(parents=True)
                disk = self.disks.add(Disk(root, seed.stream("disk", name), PROCESS.get))
            self.machines.append(Machine(self, name, host, disk))

    def _announce(self, store: SimStore) -> None:
        """Tell a store of a change, a little later."""
        self.loop.after(self._news.uniform(0.5, 40.0), self._poke, store)

    def _poke(self, store: SimStore) -> None:
        line = store.home._line
        if not (isinstance(line, StoreLine) and line.cut):
            self.loop.world.run(store.poke)

    def let_go(self, process: Process) -> None:
        """A process has died: its stores hear of nothing any more."""
        for store in list(self.home.stores):
            if getattr(store, "process", None) is process:
                self.home.stores.remove(store)

    def properties(self, machine: Machine) -> dict[str, str]:
        """Return a machine's settings."""
        data = machine.disk.root / "data"
        scheme = self.shape.flavour.name
        store = {"sqlite": f"sqlite:{data}/quotas.db"}.get(scheme, f"{scheme}://store:1")
        return {
            "headgate.upstream": "10.9.0.1:9092",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": str(self.shape.brokers),
            "listeners": "PLAINTEXT://:19092",
            "advertised.listeners": f"PLAINTEXT://{machine.host.address}:19092",
            "headgate.store": store,
            "headgate.store.snapshot": f"{data}/snapshot-{machine.name}.json",
            "headgate.data.dir": str(data),
            "headgate.usage": f"files:{data}/usage",
            "headgate.lease.ttl.ms": str(self.shape.ttl_ms),
            "headgate.splits.period.ms": "1000",
            "headgate.splits": "stream" if self.shape.streamed else "local",
            "headgate.worker.id": machine.name,
            "headgate.usage.roll.bytes": "65536",
            **dict(self.shape.properties),
        }

    def only(self, machine: Machine) -> frozenset[int] | None:
        """Return the broker that a machine's worker fronts; None: it isn't one's."""
        broker = self.machines.index(machine) + 1
        return frozenset({broker}) if self.shape.supervised else None

    def open_store(self, url: str, settings: Any = None, *, create: bool = True) -> SimStore:
        """Open the home from the process that asks; see ``headgate.store.open_store``."""
        process = PROCESS.get()
        machine = next(m for m in self.machines if process.name.startswith(f"{m.name}/"))
        store = SimStore(self.home, machine.line, create=create, clock_ms=now_ms)
        store.process = process  # type: ignore[attr-defined]
        return store

    async def discover(self, *_: Any) -> up.Cluster:
        """Say which brokers there are, in the cluster's place."""
        brokers = {n + 1: HostPort("10.9.0.1", 9093 + n) for n in range(self.shape.brokers)}
        return up.Cluster(CLUSTER, brokers, 1, True)

    async def answers(self, *_: Any) -> None:
        """Answer the gateway's own question in the brokers' place."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Lead the product into this life while this lasts; ``doors.opened`` lasts already."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(_led(self))
            stack.enter_context(self.disks)
            yield
            self.close()

    def close(self) -> None:
        """The life is over."""
        self.loop.world.end(crashed=True)
        for machine in self.machines:
            for run in machine.past:
                run.process.end(crashed=True)
                machine.disk.release(run.process)
            fibers.bury(machine.host)
        fibers.bury(self.loop.world.host)
        self.loop.close()


def _compact(directory: Path) -> tuple[int, str | None]:
    """Compact in this process: what the product does in one of its own."""
    damaged: list[Any] = []
    reader.compact(directory, lambda *found: damaged.append(found))
    return len(damaged), None


@contextlib.contextmanager
def _led(fleet: Fleet) -> Iterator[None]:
    """Lead threads, files' owners, the store and the cluster into a life."""
    places: list[tuple[Any, str, Any]] = [
        (server, "WorkerName", worker_name.WorkerName),
        (server, "load_settings", load_settings),
        (worker_name, "boot_id", lambda: str(PROCESS.get().host.boot_ns)),
        (periodic_work, "_compact_beside", _compact),
        (up, "discover", fleet.discover),
        (up, "answers", fleet.answers),
        (__import__("headgate.store", fromlist=["x"]), "open_store", fleet.open_store),
        (streamed, "Consumer", fleet.stream.consumer),
        *fibers.places(),
    ]
    before = [(holder, name, getattr(holder, name)) for holder, name, _ in places]
    for holder, name, inside in places:
        setattr(holder, name, inside)
    try:
        yield
    finally:
        for holder, name, outside in before:
            setattr(holder, name, outside)
