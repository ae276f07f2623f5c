"""Stories of the control plane: who does what when, drawn from a seed; and how each is done."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from headgate.errors import StoreError
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_BPS, PRODUCER_IDS, REQUEST, QuotaKey
from simulation.control import stream
from simulation.seed import Seed, weighted

LENGTH_MS: Final = 60_000.0
"""A life's part in which things go wrong."""
ENTITIES: Final = (
    QuotaEntity.of(user="alice"),
    QuotaEntity.of(user="bob"),
    QuotaEntity.of(user="carol", client_id="etl"),
    QuotaEntity.of(user=DEFAULT),
)
KEYS: Final = (PRODUCER, PRODUCER_BPS, REQUEST, PRODUCER_IDS)


class Action(NamedTuple):
    """One thing that happens: when, to which machine, what, and how."""

    at_ms: float
    machine: int
    what: str
    how: tuple[Any, ...] = ()

    def __str__(self) -> str:
        """Return it as a story tells it."""
        how = " ".join(_told(one) for one in self.how)
        return f"{self.at_ms / 1000:7.2f} s  gw{self.machine + 1}  {self.what} {how}".rstrip()


def _told(one: Any) -> str:
    """Return an argument in words; changes of an entity as its path and values."""
    if not isinstance(one, tuple):
        return str(one)
    entity, ops = one
    return f"{entity.path}[{', '.join(f'{key.name}={value}' for key, value in ops)}]"


def _wanted(rng: random.Random) -> tuple[Any, ...]:
    """Draw one call's changes: up to three entities, up to three keys each."""
    return tuple(
        (
            entity,
            tuple(
                (key, rng.choice([None, *(float(rng.randrange(1, 40)) for _ in range(4))]))
                for key in rng.sample(KEYS, rng.randint(1, 3))
            ),
        )
        for entity in rng.sample(ENTITIES, rng.choice([1, 1, 1, 2, 3]))
    )


def draw(seed: Seed, machines: int, sqlite: bool, *, streamed: bool = False) -> list[Action]:
    """Draw a life's actions, in order of time."""
    rng = seed.stream("story")
    actions = []
    for _ in range(rng.randint(20, 60)):
        at, machine = rng.uniform(3_000, LENGTH_MS), rng.randrange(machines)
        what = rng.choice(["alter", "alter", "alter", "direct"])
        actions.append(Action(at, machine, what, _wanted(rng)))
    brief = lambda: rng.choice([rng.uniform(50, 2_000), rng.uniform(1_000, 15_000)])  # noqa: E731
    kinds: list[tuple[float, str]] = [
        (3, "crash"), (1, "power cut"), (2, "stop"), (2, "freeze"), (2, "clock step"),
        (2, "disk full"), (1, "disk broken"), (1, "disk read-only"), (2, "slow disk"),
        (3, "crash at step"), (2, "fuse"), (1, "backup"), (0.7, "restore"), (0.5, "replace"),
        (0.5, "empty"), (0.7, "accept"), (1.5, "locked"), (1.5, "slow"), (1, "lost answer"),
        (1.5, "reload"), (1, "broker setting"), (0 if sqlite else 5, "cut"),
    ]  # fmt: skip
    for _ in range(rng.choice([0, 2, 4, 8, 14])):
        at, machine = rng.uniform(3_000, LENGTH_MS), rng.randrange(machines)
        what = weighted(rng, kinds)
        how: tuple[Any, ...] = ()
        if what in ("cut", "locked", "slow", "disk full", "disk broken", "disk read-only",
                    "slow disk", "freeze"):  # fmt: skip
            how = (round(brief()),)
        elif what == "clock step":
            how = (rng.choice([-1, 1]) * rng.choice([20, 100, 60_000, 3_600_000]),)
        elif what in ("crash at step", "fuse"):
            how = (rng.randint(1, 40),)
        elif what == "broker setting":
            how = (rng.choice(["1", ""]), rng.choice([None, "5", "9"]))
        elif what == "reload":
            how = (rng.choice(["good", "good", "bad"]), rng.randint(1, 9))
        actions.append(Action(at, machine, what, how))
    if streamed:
        more = seed.stream("story", "stream")
        for _ in range(more.choice([0, 1, 3, 6])):
            at, machine = more.uniform(3_000, LENGTH_MS), more.randrange(machines)
            how = (weighted(more, stream.FAULTS), more.choice([300, 2_000, 8_000, 100_000]))
            actions.append(Action(at, machine, "streaming", how))
    return sorted(actions, key=lambda action: action.at_ms)


class Doing:
    """
    Does a story's actions.

    Args:
        life: it happens in.
    """

    def __init__(self, life: Any) -> None:
        self.life = life
        self.fleet = life.fleet
        self.backups: list[Any] = []
        self._number = 0

    def do(self, action: Action) -> None:
        """Do one."""
        machine = self.fleet.machines[action.machine]
        name = "_" + action.what.replace(" ", "_").replace("-", "_")
        self.life.touched[action.what] += 1
        getattr(self, name)(machine, *action.how)

    def _later(self, ms: float, what: Callable[..., Any], *args: Any) -> None:
        self.fleet.loop.after(ms, what, *args)

    # --- changes of quotas

    def _alter(self, machine: Any, *wanted: Any) -> None:
        run = machine.run
        if run.alive and run.started:
            self._number += 1
            run.process.spawn(self._through(run, f"admin {self._number}", wanted))

    async def _through(self, run: Any, tag: str, wanted: Any) -> None:
        """Ask a gateway, as an administrator's tool does."""
        change = self.life.histories.asked(tag, _dictionary(wanted))
        results = await run.gateway.answers.support.alter(
            _alterations(wanted), validate_only=False, who="User:ops", tool=tag
        )
        done = {result.entity for result in results if result.error is None}
        self.life.histories.answered(change, done)
        self.life.touched["acknowledged" if done else "refused"] += 1

    def _direct(self, machine: Any, *wanted: Any) -> None:
        self._number += 1
        tag = f"tool {self._number}"

        def work() -> None:
            change = self.life.histories.asked(tag, _dictionary(wanted))
            try:
                store = self.life.tool_store()
                results = store.alter(_alterations(wanted), who="User:root", tool=tag)
            except StoreError:
                return
            done = {result.entity for result in results if result.error is None}
            self.life.histories.answered(change, done)
            store.close()

        self.life.as_tool(work)

    def _broker_setting(self, machine: Any, broker: str, value: str | None) -> None:
        def work() -> None:
            try:
                store = self.life.tool_store()
                store.broker_settings.alter(broker, {"max.connections": value}, who="User:root")
            except StoreError:
                return
            store.close()

        self.life.as_tool(work)

    def _streaming(self, machine: Any, what: str, number: int) -> None:
        self.life.touched[what] += 1
        stream.do(self.fleet.stream, what, machine.host.name, number)

    # --- lives of processes

    def _crash(self, machine: Any) -> None:
        machine.run.crash()

    def _fuse(self, machine: Any, count: int) -> None:
        machine.run.process.fuse = count

    def _stop(self, machine: Any) -> None:
        machine.run.stop()

    def _freeze(self, machine: Any, ms: float) -> None:
        machine.run.process.freeze(ms)
        self._away(machine, ms)
        machine.stalled_ms += ms

    def _away(self, machine: Any, ms: float) -> None:
        """It can't wait for anybody's lease meanwhile."""
        if ms > self.fleet.shape.ttl_ms:
            machine.woke_ms = self.fleet.loop.now_ms + ms

    def _power_cut(self, machine: Any) -> None:
        self.life.power_cut(machine)

    def _crash_at_step(self, machine: Any, count: int) -> None:
        machine.left = count

    def _clock_step(self, machine: Any, ms: int) -> None:
        machine.host.step(ms)

    def _reload(self, machine: Any, kind: str, number: int) -> None:
        self.life.reload(machine, kind, number)

    # --- disks

    def _disk_full(self, machine: Any, ms: float) -> None:
        machine.disk.room = 500
        self._disk(machine, ms, "room", None)

    def _disk_broken(self, machine: Any, ms: float) -> None:
        machine.disk.broken = True
        self._disk(machine, ms, "broken", False)

    def _disk_read_only(self, machine: Any, ms: float) -> None:
        machine.disk.read_only = True
        self._disk(machine, ms, "read_only", False)

    def _disk(self, machine: Any, ms: float, what: str, well: Any) -> None:
        for other in self.fleet.machines:
            if other.disk is machine.disk:
                other.disk_failed = True
        self._later(ms, setattr, machine.disk, what, well)

    def _slow_disk(self, machine: Any, ms: float) -> None:
        machine.slow_disk_ms = 40.0
        for other in self.fleet.machines:
            if other.disk is machine.disk:
                other.stalled_ms += ms + 8_000
        self._later(ms, setattr, machine, "slow_disk_ms", 0.0)

    # --- the store

    def _cut(self, machine: Any, ms: float) -> None:
        machine.line.cut = True
        self._away(machine, ms)
        self._later(ms, setattr, machine.line, "cut", False)

    def _locked(self, machine: Any, ms: float) -> None:
        for one in self.fleet.machines:
            one.line.locked = True
            self._later(ms, setattr, one.line, "locked", False)

    def _slow(self, machine: Any, ms: float) -> None:
        machine.line.slow_ms = 700.0
        self._later(ms, setattr, machine.line, "slow_ms", 0.0)

    def _lost_answer(self, machine: Any) -> None:
        machine.line.loses += 1

    def _backup(self, machine: Any) -> None:
        self.backups.append(self.fleet.home.backup())

    def _restore(self, machine: Any) -> None:
        if self.backups:
            self.life.put(self.backups[-1])

    def _replace(self, machine: Any) -> None:
        self.life.put(None)
        self.fleet.home.make()
        self.life.histories.look()

    def _empty(self, machine: Any) -> None:
        self.life.put(None)

    def _accept(self, machine: Any) -> None:
        self.life.accept()


def _dictionary(wanted: Any) -> dict[QuotaEntity, dict[QuotaKey, float | None]]:
    return {entity: dict(ops) for entity, ops in wanted}


def _alterations(wanted: Any) -> list[QuotaAlteration]:
    return [QuotaAlteration(e, tuple(Op(k, v) for k, v in ops)) for e, ops in wanted]
