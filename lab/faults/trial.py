"""
One store under faults: eight writers and two watchers, things done to them, and the verdict.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from faults import workload
from faults.checker import check
from faults.injection import Frozen, Mode, Proxy
from faults.workload import Opener, Plan

WRITERS = 8
#: How long nothing at all may happen before a trial is over, seconds.
STANDSTILL_S = 150.0
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["headgate.store.opening", "headgate.store.sqlite.store"])


class Verdict(NamedTuple):
    """What a trial came to: what is wrong, and how many calls ended how."""

    wrong: list[str]
    outcomes: Counter[str]
    faults: Counter[str]


class Trial:
    """
    Writers and watchers over one store.

    Args:
        folder: for logs.
        openers: of writers, which take them in turn, and of watchers.
        clean: opens the store past all faults.
        plan: what writers do; its file is in the folder.
        seed: what chance begins with.
    """

    def __init__(
        self, folder: Path, openers: Sequence[Opener], clean: Opener, plan: Plan, seed: int
    ) -> None:
        self._folder = folder
        self._openers = openers
        self._clean = clean
        self._plan = plan
        self._seed = seed
        self._begun = 0
        self._writers: dict[str, BaseProcess] = {}
        self._logs: list[Path] = []
        self.chance = random.Random(seed)
        self.met: Counter[str] = Counter()

    # --- what may be done to it

    def kill(self) -> str:
        """End a writer as kill -9 does; another one begins in its place."""
        name = self.chance.choice(sorted(self._writers))
        writer = self._writers.pop(name)
        writer.kill()
        writer.join()
        self._begin()
        return "kill"

    def pause(self, longest_s: float) -> str:
        """Have up to three writers stand still for a while, and then go on."""
        names = self.chance.sample(sorted(self._writers), self.chance.randint(1, 3))
        with ExitStack() as frozen:
            for name in names:
                frozen.enter_context(Frozen(self._writers[name].pid or 0))
            time.sleep(self.chance.uniform(0.02, longest_s))
        return "pause"

    def part(self, proxies: Sequence[Proxy], longest_s: float) -> str:
        """Part some writers from their server for a while."""
        modes: list[Mode] = ["drop", "late", "silent", "deaf", "mute"]
        mode = self.chance.choice(modes)
        chosen = self.chance.sample(list(proxies), self.chance.randint(1, len(proxies)))
        for proxy in chosen:
            proxy.set(mode)
        time.sleep(self.chance.uniform(0.02, longest_s))
        for proxy in chosen:
            proxy.set("pass")
        return mode

    # --- the whole

    def run(self, calls: int, faults: Sequence[Callable[[], str]]) -> Verdict:
        """
        Let writers work until this many calls were answered, with the faults spread over that.

        Args:
            calls: of all writers together.
            faults: each is called once, in this order, and says what it was.
        """
        with self._clean() as store:  # type: ignore[attr-defined]
            first = store.home.identify().revision
            watchers = [self._watcher(n) for n in range(2)]
            try:
                for _ in range(WRITERS):
                    self._begin()
                for n, fault in enumerate(faults, 1):
                    self._until(n * calls // (len(faults) + 1))
                    self.met[fault()] += 1
                self._until(calls)
            finally:
                self._plan.stop.touch()
                self._end(self._writers.values())
            operations = workload.operations_of(self._logs)
            audit = workload.audit_of(store, first, self._plan.entities)
            watched = self._watched(lambda found: found == audit.final)
            (self._folder / "done").touch()
            self._end(watchers)
        outcomes = Counter(f"{o.kind} {o.outcome}" for o in operations)
        return Verdict(check(operations, audit, watched), outcomes, self.met)

    def _begin(self) -> None:
        self._begun += 1
        name = f"writer-{self._begun}"
        log = self._folder / name
        opener = self._openers[self._begun % len(self._openers)]
        arguments = (opener, name, self._plan, log, self._seed)
        writer = _processes.Process(target=workload.write, args=arguments, daemon=True)
        writer.start()
        self._writers[name] = writer
        self._logs.append(log)

    def _watcher(self, n: int) -> BaseProcess:
        plan = self._plan._replace(stop=self._folder / "done")
        arguments = (self._openers[n % len(self._openers)], plan, self._folder / f"watch-{n}")
        watcher = _processes.Process(target=workload.watch, args=arguments, daemon=True)
        watcher.start()
        return watcher

    def _answered(self) -> int:
        return sum(log.read_bytes().count(b'"outcome"') for log in self._logs if log.exists())

    def _until(self, calls: int) -> None:
        """Wait until this many calls were answered."""
        last, since = -1, time.monotonic()
        while (answered := self._answered()) < calls:
            if answered != last:
                last, since = answered, time.monotonic()
            if time.monotonic() - since > STANDSTILL_S:
                raise AssertionError(f"no call was answered in {STANDSTILL_S} s, after {answered}")
            dead = [name for name, writer in self._writers.items() if not writer.is_alive()]
            assert not dead, f"{dead} ended too soon"
            time.sleep(0.02)

    def _watched(self, over: Callable[[object], bool]) -> list[list[object]]:
        """Return what watches were told, once the last of it is the end, or after a long while."""
        deadline = time.monotonic() + STANDSTILL_S
        while True:
            logs = [workload.events_of(self._folder / f"watch-{n}") for n in range(2)]
            if all(log and over(log[-1]) for log in logs) or time.monotonic() > deadline:
                return logs  # type: ignore[return-value]
            time.sleep(0.05)

    def _end(self, processes: Sequence[BaseProcess] | object) -> None:
        for process in list(processes):  # type: ignore[call-overload]
            process.join(STANDSTILL_S)
            if process.is_alive():
                process.kill()
                process.join()
                self.met["never came to its end"] += 1
