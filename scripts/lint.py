"""
Style, format, strict types, import rules and spelling, each to its end: `make lint`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CHECKS = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "--quiet", "."],
    "mypy --strict": ["mypy", "--strict"],
    "import rules": ["lint-imports", "--verbose"],
    "dependencies": ["deptry", "src"],
    "codespell": ["codespell"],
}


def main() -> int:
    """Run every check; 1 if one found something."""
    found = []
    for name, (program, *arguments) in CHECKS.items():
        started = time.monotonic()
        done = subprocess.run(
            [BIN / program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        took = time.monotonic() - started
        if done.returncode != 0:
            found.append(name)
            print(done.stdout + done.stderr)
        print(f"{name:<16} {'ok' if done.returncode == 0 else 'FOUND'}  {took:.1f} s", flush=True)
    print(f"lint: {', '.join(found)} found something" if found else "lint: all clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
