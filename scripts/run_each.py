"""
Run every program of a folder, one after another: `make bench`, `make fuzz`.

They run with their defaults, on any machine. Where a tool is missing (a JDK, a C compiler, a
browser), a program leaves out what needs it, and says so.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAIN = 'if __name__ == "__main__"'
PARTS = (
    "bench/gateway/peers.py",
    "bench/pipeline/make_events.py",
    "lab/fuzzing/one.py",
    "lab/fuzzing/keep.py",
)
"""Programs that aren't run here: others start them, or they process what a run has found."""
SOAK = ["--minutes", "6", "--expiry-minutes", "0.5", "--csv", ".cache/soak.csv"]
ARGUMENTS = {"bench/gateway/soak.py": SOAK}
"""
Arguments of programs that don't run with their defaults.

A soak takes an hour by default. It expires idle sensors after five minutes, so in a short soak
their number would only grow.
"""


def main() -> int:
    """Run every program (not module) in and below the folder; 1 if one failed or there is none."""
    folder = sys.argv[1]
    found = sorted((ROOT / folder).rglob("*.py"))
    named = [str(path.relative_to(ROOT)) for path in found if MAIN in path.read_text()]
    programs = [name for name in named if name not in PARTS]
    if not programs:
        print(f"error: there is no program in {folder}/", file=sys.stderr)
        return 1
    failed = []
    for program in programs:
        print(f"--- {program}", flush=True)
        started = time.monotonic()
        command = [sys.executable, program, *ARGUMENTS.get(program, ())]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode != 0:
            failed.append(program)
        state = "done" if done.returncode == 0 else f"FAILED ({done.returncode})"
        took = time.monotonic() - started
        print(f"--- {program}: {state}, {took:.0f} s", flush=True)
    if failed:
        print(f"error: {', '.join(failed)} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
