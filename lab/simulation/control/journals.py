"""What stands in the journals: every charge that has to, once, and decisions that replay."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from headgate.quota.entity import entity_from_path
from headgate.quota.key import QuotaType
from headgate.throttle.manager import ClientQuotaManager
from headgate.usage.reader import read_events
from simulation.control.laws import Broken
from simulation.control.machines import Fleet, Machine, Run

PRODUCE: Final = "producer_byte_rate"
CHARGES: Final = ("record", "norecord")
"""A charge of a quota, and one of nobody's quota."""
COLUMNS: Final = [
    "worker_id", "seq", "kind", "quota_type", "broker_id", "t_ms", "amount", "quota_user",
    "quota_client_id", "throttle_time_ms", "entity", "value", "num_samples", "window_ms",
]  # fmt: skip
LATE_MS: Final = 2_500.0
"""A charge that is older than this when a process is killed has been given to the system."""


class Journals:
    """Every charge that was passed on before a clean stop is there once, and replays."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._synced: dict[str, set[float]] = defaultdict(set)
        self.charges = self.replayed = 0

    def cut(self, machine: Machine) -> None:
        """A power cut is about to come: remember what was on disk for good."""
        for path in machine.disk.durable():
            if path.suffix in (".arrow", ".parquet"):
                self._synced[str(machine.folder)] |= _amounts(read_events(path))

    def check(self) -> None:
        """Read every journal at the end."""
        for folder in sorted({machine.folder for machine in self._fleet.machines}):
            usage = folder / "usage"
            if usage.is_dir():
                self._check(folder, usage)

    def _check(self, folder: Path, usage: Path) -> None:
        table = read_events(usage)
        rows = table.select(COLUMNS).to_pylist()
        workers: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            workers[row["worker_id"]].append(row)
        seen: dict[float, int] = defaultdict(int)
        for worker, events in workers.items():
            seqs = [row["seq"] for row in events]
            if seqs != sorted(set(seqs)):
                raise Broken(f"journal {worker}: numbers are given twice")
            for row in events:
                if row["kind"] in CHARGES and row["quota_type"] == PRODUCE:
                    seen[row["amount"]] += 1
            self._replay(worker, events)
        twice = [amount for amount, count in seen.items() if count > 1]
        if twice:
            raise Broken(f"journal: the charge of {twice[0]} stands there {seen[twice[0]]} times")
        for machine in self._fleet.machines:
            if machine.folder == folder:
                for run in machine.past:
                    self._complete(run, seen)
        lost = self._synced[str(folder)] - seen.keys()
        if lost:
            raise Broken(f"journal: {len(lost)} charges were synced and are gone")

    def _complete(self, run: Run, seen: dict[float, int]) -> None:
        """See that what has to be there is."""
        if run.machine.disk_failed:
            return
        until = math.inf
        if run.cut:
            return
        if run.crashed is not None:
            until = run.crashed - LATE_MS - run.machine.stalled_ms
        for at_ms, size in run.charges:
            if at_ms < until:
                self.charges += 1
                if not seen.get(float(size)):
                    raise Broken(
                        f"journal: {run.process.name} charged {size} at {at_ms:.0f} ms, and it "
                        "isn't there"
                    )

    def _replay(self, worker: str, events: list[dict[str, Any]]) -> None:
        """Decide again what the journal holds, and compare."""
        managers: dict[int, ClientQuotaManager] = {}
        last = None
        for row in events:
            gap = last is not None and row["seq"] != last + 1
            last = row["seq"]
            if gap:
                managers.clear()
            if row["kind"] == "start":
                managers[row["broker_id"]] = ClientQuotaManager(
                    QuotaType.PRODUCER_BYTE_RATE,
                    num_samples=row["num_samples"],
                    window_ms=row["window_ms"],
                    start_ms=int(row["t_ms"]),
                )
            manager = managers.get(row["broker_id"])
            if manager is None or row["quota_type"] != PRODUCE:
                continue
            if row["kind"] == "quota":
                value = None if math.isnan(row["value"]) else row["value"]
                manager.update_quota(entity_from_path(row["entity"]), value, int(row["t_ms"]))
            elif row["kind"] == "record":
                user, client = row["quota_user"], row["quota_client_id"]
                found = manager.record(user, client or "app", row["amount"], int(row["t_ms"]))
                self.replayed += 1
                if found.throttle_time_ms != row["throttle_time_ms"]:
                    raise Broken(f"journal {worker}: {row} replays as {found.throttle_time_ms} ms")


def _amounts(table: Any) -> set[float]:
    return {
        row["amount"]
        for row in table.select(["kind", "quota_type", "amount"]).to_pylist()
        if row["kind"] in CHARGES and row["quota_type"] == PRODUCE
    }
