"""Run a program in two processes that hash strings differently."""

from __future__ import annotations

import os
import subprocess
import sys


def told_with_two_hash_seeds(program: str) -> tuple[str, str]:
    """Return what the program prints in each process."""

    def told(seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    return told("1"), told("77")
