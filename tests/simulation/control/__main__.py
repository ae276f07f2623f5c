"""
Live lives of the control plane, and tell what broke a law as the shortest story found.

    PYTHONPATH=tests .venv/bin/python -m simulation.control 51
    PYTHONPATH=tests .venv/bin/python -m simulation.control 0 300
"""

from __future__ import annotations

import sys
from collections import Counter

from simulation.control.life import Verdict, live, shrink


def tell(verdict: Verdict) -> None:
    """Print how a life was broken: by which law, and the shortest story that does it."""
    print(f"seed {verdict.seed}: {verdict.broken}")
    actions, broken = shrink(verdict.seed, verdict.actions)
    print(f"the shortest story found, of {len(actions)} actions: {broken}")
    for action in actions:
        print(f"  {action}")
    print(f"again: PYTHONPATH=tests .venv/bin/python -m simulation.control {verdict.seed}")


def main(first: int, end: int) -> int:
    """Live the lives of some seeds; return how many broke a law."""
    touched: Counter[str] = Counter()
    broken = 0
    for seed in range(first, end):
        verdict = live(seed)
        touched += verdict.touched
        if verdict.broken is not None:
            broken += 1
            tell(verdict)
    print(f"{end - first} lives, {broken} broke a law; touched:")
    for what, count in sorted(touched.items()):
        print(f"  {what}: {count}")
    return broken


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:3]] or [0, 10]
    sys.exit(min(main(numbers[0], numbers[1] if len(numbers) > 1 else numbers[0] + 1), 1))
