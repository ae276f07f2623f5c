"""The examples run as they are, on a store of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(name: str, place: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), place],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_basics(tmp_path: Path) -> None:
    lines = run("admin_basics.py", f"sqlite:{tmp_path}/q.db")
    assert "set {user=alice, client-id=etl}" in lines
    assert "  hides 1e+07 from {user=alice}" in lines
    assert lines[-1].startswith("refused: INVALID_REQUEST: ")


def test_async(tmp_path: Path) -> None:
    lines = run("admin_async.py", f"sqlite:{tmp_path}/q.db")
    assert lines == ["100 tenants have a quota, 0 were refused", "100 entities in all"]
