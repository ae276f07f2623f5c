"""
Feed every target, one after another, round by round: `make fuzz`.

``FUZZ_SECONDS`` is a target's time in a round (20): half by chance, half watched by atheris where
it can be installed. ``--until 21:10`` goes round after round. What was done is kept in
``out/fuzz``: a run that was ended goes on with what it had found, and ``--report`` sums it up.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "out" / "fuzz" / "runs.jsonl"
ONE = Path(__file__).with_name("one.py")
GUIDED = importlib.util.find_spec("atheris") is not None
LONGEST_S = 3600
"""The time that a target was given is CPU time, of which a busy machine has little."""
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "lab")]


def main() -> int:
    """Feed; 1 where a fault was found."""
    from fuzzing.table import TABLE

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"{', '.join(TABLE)}; all by default")
    parser.add_argument("--until", metavar="HH:MM", help="round after round until then, today")
    parser.add_argument("--report", action="store_true", help="only print what was done so far")
    arguments = parser.parse_args()
    if arguments.report:
        return report()
    names = arguments.targets or list(TABLE)
    until = datetime.datetime.now().astimezone()
    if arguments.until:
        until = datetime.datetime.combine(
            until.date(), datetime.time.fromisoformat(arguments.until), until.tzinfo
        )
    while True:
        for name in names:
            feed(name)
            if arguments.until and datetime.datetime.now().astimezone() >= until:
                return report()
        if not arguments.until:
            return report()
        random.shuffle(names)


def feed(name: str) -> None:
    """Feed a target, by chance and guided."""
    seconds = float(os.environ.get("FUZZ_SECONDS", "20")) / (2 if GUIDED else 1)
    for flags in ((), ("--guided",)) if GUIDED else ((),):
        words = [sys.executable, str(ONE), name, "--seconds", str(seconds), *flags]
        try:
            subprocess.run(
                words, check=False, timeout=seconds + LONGEST_S, stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"{name}: an input never ended", flush=True)
            with RUNS.open("a") as out:
                line = {"target": name, "how": "hung", "inputs": 0, "seconds": LONGEST_S}
                out.write(json.dumps({**line, "faults": ["hung"], "commit": ""}) + "\n")


def report() -> int:
    """Print what was done; 1 where a fault was found."""
    inputs: Counter[tuple[str, str]] = Counter()
    seconds: Counter[str] = Counter()
    faults: dict[str, set[str]] = {}
    commits: dict[str, None] = {}
    for line in RUNS.read_text().splitlines():
        row = json.loads(line)
        inputs[row["target"], row["how"]] += row["inputs"]
        seconds[row["target"]] += row["seconds"]
        faults.setdefault(row["target"], set()).update(row["faults"])
        commits[row["commit"]] = None
    print("| target | by chance | guided | seconds | faults |\n|---|---|---|---|---|")
    for name in seconds:
        found = len(faults[name]) or "none"
        one, other = inputs[name, "chance"], inputs[name, "guided"]
        print(f"| {name} | {one:,} | {other:,} | {seconds[name]:,.0f} | {found} |")
    print(f"| all | {sum(inputs.values()):,} in all | | {sum(seconds.values()):,.0f} | |")
    print(f"of {', '.join(filter(None, commits))}")
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
