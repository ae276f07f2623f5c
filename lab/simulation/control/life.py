"""A life of the control plane: a story happens to gateways, and laws are checked all the while."""

from __future__ import annotations

import gc
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from headgate.clock import now_ms
from headgate.errors import StoreError
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.store_link.guard import accept_store
from headgate.wire import apis
from simulation import doors, fibers
from simulation.control.journals import Journals
from simulation.control.laws import (
    SAMPLE_MS,
    Actives,
    Broken,
    Converged,
    Divided,
    Histories,
    Snapshots,
)
from simulation.control.laws_stream import Streamed
from simulation.control.machines import Fleet, Machine, Run, Shape
from simulation.control.story import LENGTH_MS, Action, Doing, draw
from simulation.control.supervisor import Supervisor
from simulation.loop import PROCESS
from simulation.seed import Seed
from simulation.shrink import fewer
from simulation.stores import FLAVOURS, SQLITE, Contents, Direct, SimStore

QUIET_MS: Final = 45_000.0
"""How long nothing goes wrong at the end, at most: all that waits, waits less."""
CALM_MS: Final = 15_000.0
"""How long at least: by then the last one was told what it has to be told."""
LOOKS_MS: Final = 2_500.0
"""How long everything must stay as it has to end, where that is earlier than at most."""
COLLECT_EVERY: Final = 10
STREAMED: Final = 0.3
"""The share of the others with several brokers in which a stream divides quotas."""
SUPERVISED: Final = 5
"""One seed of eight has workers under a supervisor: those that leave this."""
_PLANS: Final = build_plans()
_PLAN: Final = _PLANS[apis.PRODUCE << 16 | 7]


class Verdict(NamedTuple):
    """How a life went: the law that was broken, or None; and what it touched."""

    seed: int
    broken: str | None
    touched: Counter[str]
    actions: list[Action]
    digest: str


def shape_of(seed: Seed) -> Shape:
    """Draw what a life is made of."""
    rng = seed.stream("kind")
    if seed.number % 8 == SUPERVISED:
        workers = rng.randint(2, 3)
        return Shape(SQLITE, gateways=workers, brokers=workers, supervised=True)
    drawn = Shape(
        rng.choice(FLAVOURS), gateways=rng.choice([1, 2, 2, 3]), brokers=rng.randint(1, 3)
    )
    streamed = seed.stream("streamed").random() < STREAMED and drawn.brokers > 1
    return replace(drawn, streamed=streamed)


class Life:
    """
    One life.

    Args:
        number: of the seed.
        folder: for the machines' disks.
        actions: its story; None: as the seed draws it.
    """

    def __init__(self, number: int, folder: Path, actions: Sequence[Action] | None = None) -> None:
        self.seed = Seed(number)
        shape = shape_of(self.seed)
        self.fleet = Fleet(self.seed, folder, shape)
        self.loop = self.fleet.loop
        self.touched: Counter[str] = Counter({shape.flavour.name: 1})
        drawn = draw(self.seed, shape.gateways, shape.flavour is SQLITE, streamed=shape.streamed)
        self.actions = list(drawn if actions is None else actions)
        self.histories = Histories(self.fleet)
        self.snapshots = Snapshots(self.fleet, self.histories)
        self.actives = Actives(self.fleet)
        self.divided: Divided | Streamed = Divided(self.fleet)
        if shape.streamed:
            self.divided = Streamed(self.fleet, self.fleet.stream)
        self.journals = Journals(self.fleet)
        self.converged = Converged(self.fleet)
        self._doing = Doing(self)
        self._clients = self.seed.stream("clients")
        self._number = 0
        self._boots = self.seed.stream("boots")
        self._quiet = self._ending = False
        self.fleet.on_stop = self._stopping
        for machine in self.fleet.machines:
            machine.disk.on_step = self._disk_step

    # --- from its beginning to its end

    def live(self) -> Verdict:
        """Let it happen; return how it went."""
        with self.fleet.opened():
            broken = None
            try:
                self._begin()
                self._run(LENGTH_MS + CALM_MS)
                while self.loop.now_ms < LENGTH_MS + QUIET_MS and not self._calm():
                    self._run(self.loop.now_ms + LOOKS_MS)
                self._end()
            except Broken as law:
                broken = f"{law} ({self.loop.now_ms / 1000:.2f} s)"
            digest = f"{self.loop.now_ns}/{self.loop._count}/{self._number}"
        return Verdict(self.seed.number, broken, self.touched, self.actions, digest)

    def _run(self, until_ms: float) -> None:
        self.loop.run(until_ms)
        if self.loop.halted is not None:
            raise self.loop.halted

    def _begin(self) -> None:
        self.fleet.home.make()
        self.histories.look()
        self._let_in()
        for machine in self.fleet.machines:
            self.loop.after(self._boots.uniform(1, 1_500), machine.boot)
        for action in self.actions:
            self.loop.after(action.at_ms, self._doing.do, action)
        self.loop.after(SAMPLE_MS, self._sample)
        self.loop.after(500, self._charge)
        self.loop.after(1_000, self._boot_again)
        if self.fleet.shape.supervised:
            self._supervisor = Supervisor(self.fleet)
        if self.fleet.shape.streamed:
            self.loop.after(self._boots.uniform(1, 1_500), self.fleet.stream.begin)
        self.loop.after(LENGTH_MS, self._heal)

    def _heal(self) -> None:
        """Everything is well from now on; who has to be told is told."""
        self._quiet = True
        for machine in self.fleet.machines:
            line, disk = machine.line, machine.disk
            line.cut = line.locked = False
            line.slow_ms, line.loses = 0.0, 0
            disk.room, disk.broken, disk.read_only = None, False, False
            machine.slow_disk_ms, machine.left = 0.0, None
            if machine.past:
                machine.run.process.fuse = None
        self.fleet.stream.heal()
        self.fleet.home.make()
        self.histories.look()
        self.accept()
        for ms in (4_000, 8_000, 12_000):
            self.loop.after(ms, self.accept)

    def _calm(self) -> bool:
        """Whether everything is as it has to end, and still is a while later."""
        try:
            self.converged.check()
            self._run(self.loop.now_ms + LOOKS_MS)
            self.converged.check()
        except Broken:
            if self.loop.halted is not None:
                raise
            return False
        return True

    def _end(self) -> None:
        self.histories.check()
        self.converged.check()
        self._ending = True
        for machine in self.fleet.machines:
            machine.run.stop()
        until_ms = self.loop.now_ms + 40_000
        while self.loop.now_ms < until_ms and any(m.run.alive for m in self.fleet.machines):
            self._run(self.loop.now_ms + 500)
        self.journals.check()
        self.touched["charges kept"] += self.journals.charges
        self.touched["decisions replayed"] += self.journals.replayed
        self.touched["snapshots"] += self.snapshots.seen
        if isinstance(self.divided, Streamed):
            self.touched["streamed splits"] += self.divided.looks
            self.touched["streamed rounds"] += self.divided.whole

    def _boot_again(self) -> None:
        """Start what has ended, after a while, as a supervisor would."""
        if self._ending:
            return
        for machine in self.fleet.machines:
            if machine.past and not machine.run.alive:
                due = self._quiet or self._boots.random() < 0.4
                if due:
                    machine.boot()
        self.loop.after(1_000, self._boot_again)

    # --- again and again

    def _sample(self) -> None:
        if self._ending:
            return
        self.actives.sample()
        self.snapshots.sample()
        if not round(self.loop.now_ms) % 100:
            self.divided.sample()
        self.loop.after(SAMPLE_MS, self._sample)

    def _charge(self) -> None:
        """Clients of every gateway are charged; each charge is another number of bytes."""
        if self._ending:
            return
        for machine in self.fleet.machines:
            run = machine.past[-1] if machine.past else None
            if run is None or not run.started or not run.serves:
                continue
            for broker in sorted(run.active()):
                if self._clients.random() < 0.5:
                    self._number += 1
                    user = self._clients.choice(["alice", "bob", "dave"])
                    size = self._number + 10_000 * self._clients.randrange(1, 30)
                    run.process.run(self._produce, run, broker, user, size)
        self.loop.after(self._clients.uniform(20, 200), self._charge)

    def _produce(self, run: Any, broker: int, user: str, size: int) -> None:
        rules = run.gateway.brokers[broker].rules
        client: Any = SimpleNamespace(
            spent_ns=1000, began_ns=0, asked_ms=0, told=None, repays=0, client_ip="10.2.0.1",
            listener="PLAINTEXT", connection="c1", origins={}, origin_seen={},
            broker_id=broker, hold=None, produce_hold=None, note_debt=lambda *_: None,
        )  # fmt: skip
        context = rules.context(user, "app")
        rules.produce(client, context, _PLAN, size, None, True, now_ms())
        run.charges.append((self.loop.now_ms, size))

    def _disk_step(self, kind: str, path: Path) -> None:
        process = PROCESS.get()
        for machine in self.fleet.machines:
            if not process.name.startswith(f"{machine.name}/"):
                continue
            if not process.alive:
                raise fibers.Killed
            if machine.left is not None:
                machine.left -= 1
                if machine.left <= 0:
                    machine.left = None
                    machine.run.crash()
                    raise fibers.Killed
            if machine.slow_disk_ms and isinstance(fibers.running(), fibers.Fiber):
                fibers.sleep(machine.slow_disk_ms * (20 if kind == "fsync" else 1) / 1000)
                fibers.here().check()
            if kind == "rename" and path.name.startswith(".snapshot-"):
                self._saved(machine, path)

    def _saved(self, machine: Machine, path: Path) -> None:
        if path.read_bytes().startswith(b"{"):
            return  # the acceptance of a store, which is JSON
        try:
            self.snapshots.saved(machine, path)
        except Broken as law:  # on a thread of the product's, which would catch it
            self.loop.halt(law)

    def _stopping(self, run: Run) -> Callable[[], None]:
        place, first = self.fleet.home.place, self.snapshots.begins_to_stop(run)

        def stopped() -> None:
            try:
                self.snapshots.stopped(run, place, first)
            except Broken as law:  # in a task of the gateway's process
                self.loop.halt(law)

        return stopped

    # --- what actions do

    def as_tool(self, work: Callable[[], None]) -> None:
        """Run something as a tool of an administrator, beside all gateways."""
        self.loop.world.run(lambda: fibers.Fiber(work, "tool").begin())

    def tool_store(self) -> SimStore:
        """Open the home as a tool does."""
        return SimStore(self.fleet.home, Direct(), clock_ms=now_ms)

    def put(self, contents: Contents | None) -> None:
        """Have something else in the store's place."""
        self.fleet.home.put(contents)
        self.histories.look()

    def _let_in(self) -> None:
        held = self.fleet.home.contents
        if held is not None:
            self.snapshots.let_in.add(held.identity.id)

    def accept(self) -> None:
        """Tell every gateway to take the store that is there, as the operator's command does."""
        held = self.fleet.home.contents
        if held is None:
            return
        self._let_in()
        for machine in self.fleet.machines:
            self.snapshots.forget(machine)
            self.as_tool(lambda machine=machine: self._accept(machine, held.identity))

    def _accept(self, machine: Machine, identity: Any) -> None:
        try:
            accept_store(machine.settings(), identity)
        except (OSError, StoreError):
            return

    def power_cut(self, machine: Machine) -> None:
        """A host loses its power."""
        self.journals.cut(machine)
        for other in self.fleet.machines:
            if other.host is machine.host:
                if other.past:
                    other.run.crash()
                    other.run.cut = True
                self.snapshots.forget(other)
        machine.disk.power_cut()
        machine.host.boot_ns += 1_000_003
        for other in self.fleet.machines:
            if other.host is machine.host:
                self.snapshots.survived(other)

    def reload(self, machine: Machine, kind: str, number: int) -> None:
        """Have a gateway read its settings again, as SIGHUP does."""
        run = machine.run
        if not (run.alive and run.started and run.gateway is not None):
            return
        before = run.gateway.settings
        machine.more["headgate.drain.timeout.ms"] = str(1_000 + number)
        lines = {**self.fleet.properties(machine), **machine.more}
        if kind == "bad":
            lines["listeners"] = "NONSENSE"
        config = machine.disk.root.parent / f"{machine.name}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        gateway = run.gateway

        async def reloaded() -> None:
            await gateway.reload(config)
            after = gateway.settings
            if kind == "bad" and after is not before:
                self.loop.halt(Broken(f"{machine.name} took settings with a mistake"))
            if kind == "good" and after.drain_timeout_ms != 1_000 + number:
                self.loop.halt(Broken(f"{machine.name} didn't take its settings"))

        run.process.spawn(reloaded())


def live(number: int, actions: Sequence[Action] | None = None) -> Verdict:
    """Live a seed's life."""
    with doors.opened():
        return _live(number, actions)


def live_all(numbers: Iterable[int]) -> Iterator[Verdict]:
    """Live many, with the collector at work only between lives."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        with doors.opened():
            for at, number in enumerate(numbers, 1):
                yield _live(number)
                if not at % COLLECT_EVERY:
                    gc.collect()
    finally:
        if was_on:
            gc.enable()


def _live(number: int, actions: Sequence[Action] | None = None) -> Verdict:
    root = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=root, prefix="headgate-sim-") as folder:
        return Life(number, Path(folder), actions).live()


def law_of(broken: str) -> str:
    """Return which law a sentence says was broken, without names and numbers."""
    return re.sub("gw[0-9]|[0-9]", "", broken.partition(":")[0].partition("(")[0])


def shortest(number: int, actions: Sequence[Action], broken: str) -> list[Action]:
    """Return the shortest story found that breaks the same law; ``doors.opened`` lasts already."""

    def fails(less: Sequence[Action]) -> bool:
        found = _live(number, less).broken
        return found is not None and law_of(found) == law_of(broken)

    return fewer(actions, fails)
