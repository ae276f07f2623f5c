"""
Live lives of the control plane: `make simulate CONTROL=1`, with `SEEDS=300` or `SEED=17`.

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

from simulation import doors
from simulation.control.life import Verdict, live, live_all, shortest

PART = 10
"""Lives of one task."""


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


def _work(seeds: range) -> tuple[list[Verdict], float]:
    began = time.process_time()
    return list(live_all(seeds)), time.process_time() - began


def many(first: int, count: int, processes: int) -> int:
    """Live many seeds, and tell what they touched; 1 if a law was broken."""
    end = first + count
    tasks = [range(at, min(at + PART, end)) for at in range(first, end, PART)]
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
            print(f"{lives:>8} of {count} lives, {broken} broke a law", flush=True)
    print(f"{lives} lives, {broken} broke a law, {cpu_s / lives:.2f} CPU-seconds each; touched:")
    for what, times in sorted(touched.items()):
        print(f"  {what}: {times}")
    return int(broken > 0)


def main() -> int:
    """Live what the command line asks for; 1 if a law was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many lives")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="live this one only, and print its story")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.seed is not None:
        return one(given.seed)
    return many(given.first, given.seeds, max(given.processes, 1))


if __name__ == "__main__":
    sys.exit(main())
