"""
Run every program of a folder, one after another: `make bench`, `make fuzz`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run every program (not module) in and below the folder; 1 if one failed or there is none."""
    folder = sys.argv[1]
    found = sorted((ROOT / folder).rglob("*.py"))
    programs = [path for path in found if 'if __name__ == "__main__"' in path.read_text()]
    if not programs:
        print(f"error: there is no program in {folder}/", file=sys.stderr)
        return 1
    failed = []
    for program in programs:
        print(f"--- {program.relative_to(ROOT)}", flush=True)
        started = time.monotonic()
        done = subprocess.run([sys.executable, program], cwd=ROOT, check=False)
        if done.returncode != 0:
            failed.append(program.name)
        state = "done" if done.returncode == 0 else f"FAILED ({done.returncode})"
        took = time.monotonic() - started
        print(f"--- {program.relative_to(ROOT)}: {state}, {took:.0f} s", flush=True)
    if failed:
        print(f"error: {', '.join(failed)} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
