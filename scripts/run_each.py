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
    """Run ``FOLDER/FOLDER_*.py`` in order of name; 1 if one failed or there is none."""
    folder = sys.argv[1]
    programs = sorted((ROOT / folder).glob(f"{folder}_*.py"))
    if not programs:
        print(f"error: there is no {folder}/{folder}_*.py", file=sys.stderr)
        return 1
    failed = []
    for program in programs:
        print(f"--- {program.name}", flush=True)
        started = time.monotonic()
        done = subprocess.run([sys.executable, program], cwd=ROOT, check=False)
        if done.returncode != 0:
            failed.append(program.name)
        state = "done" if done.returncode == 0 else f"FAILED ({done.returncode})"
        print(f"--- {program.name}: {state}, {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        print(f"error: {', '.join(failed)} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
