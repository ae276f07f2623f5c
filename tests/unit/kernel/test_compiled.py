"""Machine code on disk is as new as the sources it was made from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

INNER = """
from headgate.kernel.compiled import compiled

@compiled
def answer():
    return {answer}
"""
OUTER = """
import inner
from headgate.kernel.compiled import compiled

@compiled
def asked():
    return inner.answer()

print(asked())
"""


def test_a_change_in_what_a_function_calls_is_seen(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text(OUTER)
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    for answer in ("7", "18"):
        (tmp_path / "inner.py").write_text(INNER.format(answer=answer))
        done = subprocess.run(
            [sys.executable, "outer.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"{answer}\n"
    assert list((tmp_path / "__pycache__").glob("*.nbi"))
