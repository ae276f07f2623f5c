"""
How long ``headgate --help`` takes to its first line, beside Python's own start.

``python bench/cli_start.py [--rounds N]``; run it alone on the machine. Every round starts each
program once, so that a slow moment of the machine meets all of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from statistics import median

HEADGATE = [sys.executable, "-m", "headgate.cli.main"]
PROGRAMS = {
    "python -c 'print()'": [sys.executable, "-c", "print()"],
    "headgate --help": [*HEADGATE, "--help"],
    "headgate plan --help": [*HEADGATE, "plan", "--help"],
    "headgate kafka-quotas --help": [*HEADGATE, "kafka-quotas", "--help"],
    "headgate usage --help": [*HEADGATE, "usage", "--help"],
}


def first_line_ms(command: list[str]) -> float:
    """Return the milliseconds until a program has printed its first line."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        took = time.perf_counter() - began
        process.stdout.read()
    return took * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds):
        for name, command in PROGRAMS.items():
            taken[name].append(first_line_ms(command))
    python = median(taken["python -c 'print()'"])
    for name, each in taken.items():
        print(
            f"{name:30} median {median(each):6.1f} ms, {min(each):6.1f} at best, "
            f"{median(each) / python:4.1f} times Python's start"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
