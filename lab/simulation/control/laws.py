"""The laws of the control plane, checked by code that shares nothing with the product's rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.quota.entity import QuotaEntity
from headgate.quota.file import read_quotas_file
from headgate.quota.key import QuotaKey
from simulation.control.machines import Fleet, Machine, Run

Values = dict[tuple[QuotaEntity, QuotaKey], float]
SAMPLE_MS: Final = 20.0
WAKE_MS: Final = 60.0
"""How long a process that stood still may take to see that its lease is somebody else's."""
SPLIT_SLACK: Final = 1.001
LEAST: Final = 1.021
"""Under a supervisor: what a broker gets at least isn't kept back."""
ROUNDS_MS: Final = 5_500.0
"""Two rounds of a supervisor, of which one waits for a worker that is gone."""


class Broken(Exception):
    """A law was broken; says which, when and how."""


class Change:
    """
    A change of quotas that somebody asked for.

    Args:
        tag: the tool's name in the history; no other change has it.
        wanted: values by entity and key; None: cleared.
        from_: position of the history when it was asked.
    """

    def __init__(
        self, tag: str, wanted: Mapping[QuotaEntity, Mapping[QuotaKey, float | None]], from_: int
    ) -> None:
        self.tag = tag
        self.wanted = wanted
        self.from_ = from_
        self.place = 0
        self.until = -1
        self.acknowledged: set[QuotaEntity] = set()


class Histories:
    """
    History and values have one order; what was acknowledged is in both, whole.

    The history is replayed from nothing by a plain dictionary after every transaction.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.home = fleet.home
        self._committed = fleet.home.committed
        fleet.home.committed = self._after  # type: ignore[method-assign]
        self._place = -1
        self._read = 0
        self._values: Values = {}
        self.states: list[Values] = [{}]
        self.ever: dict[str, list[Values]] = defaultdict(lambda: [{}])
        self.changes: list[Change] = []

    def _after(self) -> None:
        self._committed()
        try:
            self.look()
        except Broken as law:  # on a thread of the product's, which would catch it
            self._fleet.loop.halt(law)

    def look(self) -> None:
        """Replay what is new."""
        held = self.home.contents
        if held is None:
            return
        if self._place != self.home.place:
            self._place, self._read, self._values = self.home.place, 0, {}
            self.states = [{}]
        for entry in held.log[self._read :]:
            at = (entry.entity, entry.key)
            if self._values.get(at) != entry.before:
                raise Broken(f"history: {entry} doesn't follow {self._values.get(at)}")
            if entry.after is None:
                self._values.pop(at, None)
            else:
                self._values[at] = entry.after
            self.states.append(dict(self._values))
        self._read = len(held.log)
        now = flat(held.table)
        if now != self._values:
            raise Broken(f"history and values differ: {now} and {self._values}")
        if not self.ever[held.identity.id] or self.ever[held.identity.id][-1] != now:
            self.ever[held.identity.id].append(now)

    def asked(
        self, tag: str, wanted: Mapping[QuotaEntity, Mapping[QuotaKey, float | None]]
    ) -> Change:
        """A change is on its way."""
        self.look()
        change = Change(tag, wanted, self._read)
        change.place = self.home.place
        self.changes.append(change)
        return change

    def answered(self, change: Change, acknowledged: set[QuotaEntity]) -> None:
        """Its answer is there."""
        change.until = self._read
        change.acknowledged = acknowledged

    def check(self) -> None:
        """See to every change, at the end."""
        held = self.home.contents
        if held is None:
            return
        for change in self.changes:
            if change.place != self.home.place:
                continue  # what somebody put in the store's place needn't have it
            for entity, ops in change.wanted.items():
                self._check(change, entity, ops, held.log)

    def _check(
        self,
        change: Change,
        entity: QuotaEntity,
        ops: Mapping[QuotaKey, float | None],
        log: list[Any],
    ) -> None:
        mine = [n for n, e in enumerate(log) if e.tool == change.tag and e.entity == entity]
        if mine:
            if any(log[n].entity == entity and log[n].tool != change.tag
                   for n in range(mine[0], mine[-1])):  # fmt: skip
                raise Broken(f"half applied: {change.tag} of {entity} has others between")
            after = self.states[mine[-1] + 1]
            if any(after.get((entity, key)) != value for key, value in ops.items()):
                raise Broken(f"half applied: {change.tag} of {entity} left {after}")
        elif entity in change.acknowledged:
            until = change.until if change.until >= 0 else len(self.states) - 1
            for state in self.states[change.from_ : until + 1]:
                if all(state.get((entity, key)) == value for key, value in ops.items()):
                    return  # nothing had to be changed
            raise Broken(f"lost: {change.tag} of {entity} was acknowledged and isn't there")


def flat(table: Any) -> Values:
    """Return a table as a plain dictionary."""
    return {(e, k): v for e, values in table.entities.items() for k, v in values.items()}


class Actives:
    """Never two active gateways for one broker."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._since: dict[int, float] = {}

    def sample(self) -> None:
        """Look who is active now."""
        now = self._fleet.loop.now_ms
        fronted: dict[int, list[Run]] = defaultdict(list)
        for machine in self._fleet.machines:
            if machine.past and machine.run.gateway is not None:
                for broker in machine.run.gateway.brokers:
                    fronted[broker].append(machine.run)
        for broker in range(1, self._fleet.shape.brokers + 1):
            runs = fronted[broker]
            if len(runs) > 1:
                active = [run for run in runs if broker in run.active()]
                runs = [run for run in active if not self._excused(run, active)]
            if len(runs) < 2:
                self._since.pop(broker, None)
                continue
            since = self._since.setdefault(broker, now)
            if now - since > WAKE_MS:
                names = ", ".join(run.machine.name for run in runs)
                raise Broken(f"two active gateways for broker {broker}: {names}")

    def _excused(self, run: Run, others: list[Run]) -> bool:
        """Whether a gateway can't know of the others: the store was gone before they waited."""
        if run.gateway is not None and run.gateway.ports.leases is None:
            return True  # it was started without the store, and has the last known quotas
        asks_ms = self._fleet.loop.now_ms - self._fleet.shape.ttl_ms / 2  # it has asked since
        gone_ms = max((ms for ms in run.machine.line.heard_ms if ms < asks_ms), default=-1.0)
        return all(
            other is run or max(other.began_ms, other.machine.woke_ms) > gone_ms - 100
            for other in others
        )


class Snapshots:
    """What is kept on disk was in force: of a store that was let in, never older than before."""

    def __init__(self, fleet: Fleet, histories: Histories) -> None:
        self._fleet = fleet
        self._histories = histories
        self.let_in: set[str] = set()
        self._last: dict[str, tuple[str, int]] = {}
        self._looked: dict[str, Any] = {}
        self._kept: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.seen = 0

    def saved(self, machine: Machine, path: Path) -> None:
        """A snapshot is about to get its name."""
        file = read_quotas_file(path)
        note: Any = file.note
        if note is None:
            return
        self.seen += 1
        who, revision = str(note["store"]), int(note["revision"])
        if who not in self.let_in:
            raise Broken(f"snapshot: {machine.name} keeps store {who}, which nobody let in")
        if flat(file.table) not in self._histories.ever[who]:
            raise Broken(f"snapshot: {machine.name} keeps quotas that never were: {file.table}")
        before = self._last.get(machine.name)
        if before is not None and before[0] == who and revision < before[1]:
            raise Broken(f"snapshot: {machine.name} goes back from {before} to {revision}")
        self._last[machine.name] = (who, revision)
        self._kept[machine.name].add((who, revision))

    def survived(self, machine: Machine) -> None:
        """A power cut is over: the snapshot is whole, one that was kept before."""
        path = Path(machine.settings().store_snapshot)
        if not path.exists():
            if len(self._kept[machine.name]) > 1:
                raise Broken(f"snapshot: {machine.name} has lost it with the power")
            return
        try:
            note: Any = read_quotas_file(path).note
        except HeadgateError as error:
            raise Broken(f"snapshot: {machine.name} has a torn one: {error}") from error
        found = (str(note["store"]), int(note["revision"]))
        if found not in self._kept[machine.name]:
            raise Broken(f"snapshot: {machine.name} has {found}, which it never kept")

    def begins_to_stop(self, run: Run) -> int | None:
        """Return how far the history is that its last snapshot has to hold; None: it can't."""
        machine, held = run.machine, self._histories.home.contents
        line = machine.line
        if (
            held is None
            or line.cut
            or line.locked
            or line.slow_ms
            or machine.disk_failed
            or machine.slow_disk_ms
            or run.gateway is None
            or run.gateway.store_link.trouble() is not None
            or not run.started
        ):
            return None
        return len(self._histories.ever[held.identity.id]) - 1

    def stopped(self, run: Run, place: int, first: int | None) -> None:
        """A gateway has ended in order: what was in the store then is in its snapshot."""
        held = self._histories.home.contents
        if first is None or self._histories.home.place != place or held is None:
            return
        if self.begins_to_stop(run) is None:
            return
        table = flat(read_quotas_file(Path(run.machine.settings().store_snapshot)).table)
        if table not in self._histories.ever[held.identity.id][first:]:
            raise Broken(f"snapshot: {run.machine.name} ended with an older one: {table}")

    def forget(self, machine: Machine) -> None:
        """Somebody accepted another store, or the machine lost what it hadn't synced."""
        self._last.pop(machine.name, None)

    def sample(self) -> None:
        """See that what is in force was in the store once."""
        for machine in self._fleet.machines:
            if not machine.past or not machine.run.alive or machine.run.gateway is None:
                continue
            table = machine.run.gateway.table
            if self._looked.get(machine.name) is table:
                continue
            self._looked[machine.name] = table
            now = flat(table)
            if not any(now in self._histories.ever[who] for who in self.let_in):
                raise Broken(f"{machine.name} has quotas in force that never were: {now}")


class Divided:
    """
    Splits of cluster-wide quotas never come to more than what was divided.

    Under a supervisor that is so after a round or two: a worker that was just started has its equal
    part, which the others may have had.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._since: dict[Any, float] = {}
        self.most = 0.0

    def sample(self) -> None:
        """Add up what brokers may let through now."""
        machines = [
            machine
            for machine in self._fleet.machines
            if machine.past and machine.run.alive and machine.run.gateway is not None
        ]
        for some in [machines] if self._fleet.shape.supervised else [[one] for one in machines]:
            self._add_up(some)

    def _add_up(self, machines: list[Machine]) -> None:
        managers = [
            (broker.rules.managers.produce_bps, machine.host.wall_ns() // 1_000_000)
            for machine in machines
            if machine.run.gateway is not None
            for broker in machine.run.gateway.brokers.values()
        ]
        if len(managers) < 2:
            return
        now = self._fleet.loop.now_ms
        over = set()
        for tags in {tags for manager, _ in managers for tags in manager._assigned}:
            quotas = [manager.quota(tags) for manager, _ in managers]
            total = sum(manager.split(tags, wall) for manager, wall in managers)
            if max(quotas) < 1e18 and min(quotas) == max(quotas):
                self.most = max(self.most, total / quotas[0])
                slack = LEAST if self._fleet.shape.supervised else SPLIT_SLACK
                if total > quotas[0] * slack:
                    over.add((machines[0].name, tags))
                    since = self._since.setdefault((machines[0].name, tags), now)
                    if not self._fleet.shape.supervised or now - since > ROUNDS_MS:
                        raise Broken(f"splits of {tags} come to {total}, quota {quotas[0]}")
        for key in [key for key in self._since if key not in over and key[0] == machines[0].name]:
            del self._since[key]


class Converged:
    """When nothing goes wrong any more, everybody ends on the final value, and at rest."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def check(self) -> None:
        """Look at the end of a quiet time."""
        held = self._fleet.home.contents
        assert held is not None
        wanted = flat(held.table)
        fronted: dict[int, int] = defaultdict(int)
        for machine in self._fleet.machines:
            run = machine.run
            if not run.alive or run.gateway is None or not run.started:
                raise Broken(f"{machine.name} didn't come up: {run.failed!r}")
            gateway = run.gateway
            for name, table in (("in force", gateway.table), ("coming", gateway.in_force.coming)):
                if flat(table) != wanted:
                    raise Broken(f"{machine.name}: {name} is {flat(table)}, not {wanted}")
            for broker in run.active():
                fronted[broker] += 1
            if dict(gateway.broker_configs) != held.brokers:
                raise Broken(f"{machine.name}: settings of brokers {gateway.broker_configs}")
            why = gateway.not_ready()
            if why not in (None, "standing by"):
                raise Broken(f"{machine.name} isn't ready: {why}")
            self._brokers(machine, wanted)
            self._snapshot(machine, wanted)
            tasks = len(gateway.work.tasks._tasks)
            if tasks > 12 + self._fleet.shape.brokers:
                raise Broken(f"{machine.name} has {tasks} tasks at rest")
            if run.process.failures:
                raise Broken(f"{machine.name}: callbacks failed: {run.process.failures[:2]}")
        missing = {b for b in range(1, self._fleet.shape.brokers + 1) if fronted[b] != 1}
        if missing:
            raise Broken(f"brokers {sorted(missing)} are fronted by {dict(fronted)} gateways")
        fibers = sum(len(m.host.memory.get("fibers", ())) for m in self._fleet.machines)
        if fibers > 60 * len(self._fleet.machines):
            raise Broken(f"{fibers} threads at rest")

    def _brokers(self, machine: Machine, wanted: Values) -> None:
        """What judges clients has the final values."""
        gateway = machine.run.gateway
        assert gateway is not None
        for broker in gateway.brokers.values():
            for (entity, key), value in wanted.items():
                manager: Any = broker.rules.managers.by_key.get(key)
                user, client = entity.user, entity.client_id
                if manager is None or not isinstance(user, str) or client is not None:
                    continue
                tags = (user, "")
                found = manager.quota(tags) if hasattr(manager, "quota") else manager.bound(tags)
                if found != value:
                    raise Broken(f"{machine.name} judges {entity} by {key} {found}, not {value}")

    def _snapshot(self, machine: Machine, wanted: Values) -> None:
        path = Path(machine.settings().store_snapshot)
        file = read_quotas_file(path)
        note: Any = file.note
        held = self._fleet.home.contents
        if flat(file.table) != wanted:
            raise Broken(f"{machine.name} keeps {flat(file.table)}, not {wanted}")
        if held is None or note is None or note["store"] != held.identity.id:
            raise Broken(f"{machine.name} keeps quotas of {note}")
