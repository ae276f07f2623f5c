"""
Live many lives and tell what was found: `make simulate SEEDS=300`, `make simulate SEED=17`.

A seed that breaks a law is told with the one command that lives it again, shortened, and printed as
a story. In the end it says how fast it went, and what share of deeds, laws and branches it touched.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulation import deeds, doors
from simulation.life import LAWS, Life, Outcome
from simulation.shrink import shrink
from simulation.story import Story, draw
from simulation.trace import traced

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ("gateway/session", "gateway/charging", "gateway/connection")
COLLECT_EVERY = 10
KNOWN_FIRST = 48
"""So many first lives are lived with those that found a fault."""
FAILED = Path(__file__).with_name("failed_seeds.txt")
NO_THROTTLE = "decisions that don't"


@dataclass
class Tally:
    """What many lives came to."""

    lives: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    simulated_s: float = 0.0
    broken: list[tuple[int, str, str, float]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    peaks: dict[str, float] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count a life."""
        self.lives += 1
        self.simulated_s += outcome.story.length_ms / 1000
        self.counts.update(outcome.counts)
        for what, value in outcome.peaks.items():
            self.peaks[what] = max(self.peaks.get(what, 0.0), value)
        if outcome.broken[0]:
            self.broken.append((outcome.story.seed, *outcome.broken, outcome.at_ms))

    def merge(self, other: Tally) -> None:
        """Add what another process counted."""
        self.lives += other.lives
        self.cpu_s += other.cpu_s
        self.simulated_s += other.simulated_s
        self.broken += other.broken
        self.counts.update(other.counts)
        for what, value in other.peaks.items():
            self.peaks[what] = max(self.peaks.get(what, 0.0), value)


def live(story: Story) -> Outcome:
    """Live one story; ``doors.opened`` lasts already."""
    return Life(story).live()


def live_all(seeds: Iterable[int]) -> Iterator[Outcome]:
    """Live many, with the collector at work only between lives."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        with doors.opened():
            for at, seed in enumerate(seeds):
                yield live(draw(seed))
                if at % COLLECT_EVERY == COLLECT_EVERY - 1:
                    gc.collect()
    finally:
        if was_on:
            gc.enable()


def known_seeds() -> list[int]:
    """Return the first seeds, and every seed that found a fault of the product."""
    lines = FAILED.read_text(encoding="utf-8").splitlines()
    failed = [int(line.split()[0]) for line in lines if line and not line.startswith("#")]
    return [*range(KNOWN_FIRST), *(seed for seed in failed if seed >= KNOWN_FIRST)]


def shortest(story: Story, law: str, most: int = 300) -> tuple[Story, int]:
    """Return the shortest story that breaks the same law; ``doors.opened`` lasts already."""
    return shrink(story, lambda candidate: live(candidate).broken[0] == law, most)


def _work(task: Sequence[int]) -> Tally:
    """Live some seeds, in a process of their own."""
    tally, began = Tally(), time.process_time()
    for outcome in live_all(task):
        tally.add(outcome)
    tally.cpu_s = time.process_time() - began
    return tally


def many(seeds: Sequence[int], processes: int) -> Tally:
    """Live seeds in ``processes``, and tell how far it is."""
    tally, began, count = Tally(), time.monotonic(), len(seeds)
    size = max(min(count // (processes * 4), 250), 1)
    tasks = [seeds[at : at + size] for at in range(0, count, size)]
    if processes == 1:
        parts: Iterable[Tally] = map(_work, tasks)
    else:
        pool = multiprocessing.get_context("spawn").Pool(processes)
        parts = pool.imap_unordered(_work, tasks)
    for part in parts:
        tally.merge(part)
        passed = time.monotonic() - began
        print(
            f"{tally.lives:>8} of {count} lives, {tally.lives / passed:.1f} a second, "
            f"{len(tally.broken)} broke a law",
            flush=True,
        )
    tally.seconds = time.monotonic() - began
    return tally


def tell(tally: Tally) -> list[str]:
    """Return the figures as lines."""
    every = [*deeds.CLIENTS, *deeds.BROKERS, *deeds.WORLD]
    done = [name for name in every if tally.counts[f"deed {name}"]]
    lines = [
        f"{tally.lives} lives of {tally.simulated_s / max(tally.lives, 1):.0f} simulated seconds "
        f"each in {tally.seconds:.0f} s: {tally.lives / max(tally.seconds, 1e-9):.1f} a second, "
        f"{tally.cpu_s / max(tally.lives, 1):.3f} CPU-seconds each",
        f"deeds and faults touched: {len(done)} of {len(every)}"
        + (
            f"; never: {', '.join(sorted(set(every) - set(done)))}"
            if len(done) < len(every)
            else ""
        ),
        f"laws: {len(LAWS) + 3} checked at every step, {len({b[1] for b in tally.broken})} broken",
        f"decisions: {tally.counts['decisions that throttle']} that throttle, "
        f"{tally.counts[NO_THROTTLE]} that don't; "
        f"{tally.counts['acknowledged']} batches acknowledged, "
        f"{tally.counts['connections']} connections",
    ]
    lines += [f"most {what}: {value:.0f}" for what, value in sorted(tally.peaks.items())]
    return lines


def branches(seeds: Iterable[int]) -> list[str]:
    """Say what share of branches some lives take, by room; coverage slows them several times."""
    import coverage

    measured = coverage.Coverage(
        branch=True,
        data_file=None,
        include=[str(ROOT / "src/headgate" / room / "*") for room in MEASURED],
    )
    # Functions that are loaded already are measured as well: coverage watches frames.
    measured.start()
    for _ in live_all(seeds):
        pass
    measured.stop()
    lines = []
    for room in MEASURED:
        lines_all = lines_hit = branches_all = branches_hit = 0
        for path in sorted((ROOT / "src/headgate" / room).glob("*.py")):
            numbers: Any = measured._analyze(str(path)).numbers
            lines_all += numbers.n_statements
            lines_hit += numbers.n_executed
            branches_all += numbers.n_branches
            branches_hit += numbers.n_executed_branches
        lines.append(
            f"{room}: {branches_hit} of {branches_all} branches "
            f"({100 * branches_hit / branches_all:.0f} %), {lines_hit} of {lines_all} lines"
        )
    return lines


def planted(at: int) -> tuple[str, str, int]:
    """Plant a fault (by its place in ``PLANTS``); return its name, the law that finds it, lives."""
    import pytest

    from simulation.plants import FOUND_AT, MOST_LIVES, PLANTS

    plant, _ = PLANTS[at]
    first = FOUND_AT.get(plant.__name__, 0)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for lives, outcome in enumerate(live_all(range(first, first + MOST_LIVES)), 1):
            if outcome.broken[0]:
                return plant.__name__, outcome.broken[0], lives
    return plant.__name__, "", MOST_LIVES


def plants_by_law(processes: int) -> list[str]:
    """Plant every fault, and return a table: each law, and which faults it finds first."""
    from simulation.plants import PLANTS

    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        found = pool.map(planted, range(len(PLANTS)), chunksize=1)
    lines = ["| law | planted faults it finds | which |", "|---|---|---|"]
    for law in sorted({*(law.name for law in LAWS), *(law for _, law, _ in found if law)}):
        names = [f"{name} ({lives})" for name, its, lives in found if its == law]
        lines.append(f"| {law} | {len(names)} | {', '.join(names) or 'none'} |")
    missed = [name for name, law, _ in found if not law]
    return [*lines, f"found by no law: {', '.join(missed) or 'none'}"]


def replay_command(seed: int) -> str:
    """Return the command that lives a seed again."""
    return f"make simulate SEED={seed}"


def one(seed: int, *, short: bool = True, trace: bool = False) -> int:
    """Live one seed again, and print its story as short as it can be if it fails."""
    gc.disable()
    with doors.opened():
        story = draw(seed)
        outcome = live(story)
        if not outcome.broken[0]:
            print("\n".join(story.lines()))
            print(f"seed {seed}: every law holds; fingerprint {outcome.digest}")
            return 0
        law, what = outcome.broken
        print(f"seed {seed} breaks '{law}' at {outcome.at_ms / 1000:.3f} s: {what}")
        if short:
            print("shortening…", flush=True)
            story, lives = shortest(story, law)
            print(f"the shortest story, after {lives} lives:")
        outcome, seen = traced(story)
        print("\n".join(story.lines()))
        print(f"      {outcome.at_ms / 1000:9.3f} s  '{outcome.broken[0]}': {outcome.broken[1]}")
        if trace:
            print("\n".join(seen))
        print(f"again: {replay_command(seed)}")
    return 1


def first_of_commit() -> int:
    """Return a seed that the commit's id decides; where there is no git, the sources."""
    told = ""
    if shutil.which("git") is not None:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        told = asked.stdout.strip() if not asked.returncode else ""
    if not told:
        sources = sorted((ROOT / "src").rglob("*.py"))
        told = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return int(told[:7], 16) * 1_000


def main() -> int:
    """Live what the command line asks for; 1 if a law was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many lives")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--of-commit", action="store_true", help="the first seed is decided by the commit's id"
    )
    parser.add_argument(
        "--known", action="store_true", help="before them the first ones, and all that found faults"
    )
    parser.add_argument(
        "--plants", action="store_true", help="plant faults; say which law finds how many of them"
    )
    parser.add_argument("--seed", type=int, help="live this one only, and print its story")
    parser.add_argument("--trace", action="store_true", help="of --seed, print what its law saw")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--branches", type=int, default=0, metavar="N",
                        help="measure branches over N lives")  # fmt: skip
    parser.add_argument("--write", type=Path, help="write the figures to this file as well")
    given = parser.parse_args()
    if given.plants:
        print("\n".join(plants_by_law(max(given.processes, 1))))
        return 0
    if given.seed is not None:
        return one(given.seed, trace=given.trace)
    first = first_of_commit() if given.of_commit else given.first
    known = known_seeds() if given.known else []
    tally = many([*known, *range(first, first + given.seeds)], max(given.processes, 1))
    lines = tell(tally)
    if given.branches:
        lines += branches(range(first, first + given.branches))
    print("\n".join(lines))
    if given.write is not None:
        given.write.write_text("\n".join(f"- {line}" for line in lines) + "\n")
    for seed, law, what, at_ms in tally.broken[:20]:
        print(f"seed {seed} breaks '{law}' at {at_ms / 1000:.3f} s: {what}")
        print(f"  again: {replay_command(seed)}")
    for seed, *_ in tally.broken[:1]:
        one(seed)
    return 1 if tally.broken else 0


if __name__ == "__main__":
    sys.exit(main())
