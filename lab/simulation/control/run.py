"""
Live lives of the control plane: `make simulate CONTROL=1`, with `SEEDS=300` or `SEED=17`.

With ``--known`` it also lives the seeds that found a fault, as a stage of ``.ci/run`` does.

A seed that breaks a law is told with the one command that lives it again; a single one is shortened
and printed as a story.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from simulation import doors
from simulation.control.life import Verdict, live, live_all, shortest

PART = 10
"""Lives of one task."""
FAILED = Path(__file__).with_name("failed_seeds.txt")


def known_seeds() -> list[int]:
    """Return every seed that found a fault of the product; the file says which."""
    lines = FAILED.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def replay_command(seed: int) -> str:
    """Return the command that lives a seed again."""
    return f"make simulate CONTROL=1 SEED={seed}"


def one(seed: int) -> int:
    """Live one seed, and print its story as short as it can be if it breaks a law."""
    verdict = live(seed)
    actions = verdict.actions
    if verdict.broken is not None:
        print(f"seed {seed}: {verdict.broken}\nshortening…", flush=True)
        with doors.opened():
            actions = shortest(seed, actions, verdict.broken)
        print(f"the shortest story found, of {len(actions)} actions:")
    for action in actions:
        print(f"  {action}")
    print(f"again: {replay_command(seed)}" if verdict.broken else f"seed {seed}: every law holds")
    return int(verdict.broken is not None)


def _work(seeds: Sequence[int]) -> tuple[list[Verdict], float]:
    began = time.process_time()
    return list(live_all(seeds)), time.process_time() - began


def many(seeds: Sequence[int], processes: int) -> int:
    """Live many seeds, and tell what they touched; 1 if a law was broken."""
    part = min(PART, -(-len(seeds) // processes))
    tasks = [seeds[at : at + part] for at in range(0, len(seeds), part)]
    touched: Counter[str] = Counter()
    lives, cpu_s, broken = 0, 0.0, 0
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for verdicts, spent_s in pool.imap_unordered(_work, tasks):
            cpu_s += spent_s
            for verdict in verdicts:
                lives += 1
                touched.update(verdict.touched)
                if verdict.broken is not None:
                    broken += 1
                    print(f"seed {verdict.seed}: {verdict.broken}")
                    print(f"  again: {replay_command(verdict.seed)}")
            print(f"{lives:>8} of {len(seeds)} lives, {broken} broke a law", flush=True)
    print(f"{lives} lives, {broken} broke a law, {cpu_s / lives:.2f} CPU-seconds each; touched:")
    for what, times in sorted(touched.items()):
        print(f"  {what}: {times}")
    return int(broken > 0)


def main() -> int:
    """Live what the command line asks for; 1 if a law was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many lives")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--known", action="store_true", help="before them all that found a fault")
    parser.add_argument("--seed", type=int, help="live this one only, and print its story")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.seed is not None:
        return one(given.seed)
    known = known_seeds() if given.known else []
    seeds = [*known, *range(given.first, given.first + given.seeds)]
    return many(seeds, max(given.processes, 1))


if __name__ == "__main__":
    sys.exit(main())
