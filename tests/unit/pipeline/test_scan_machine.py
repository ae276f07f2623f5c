"""The scan's machine code is made once, kept, and linked again without Numba."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headgate.pipeline.logs.scan import arguments as to
from headgate.pipeline.logs.scan import machine

NOTHING = """
import sys
from datetime import UTC
from headgate.pipeline.logs.scan.scanner import LineScanner
LineScanner(UTC)
print("numba" in sys.modules)
"""


def test_a_second_process_links_it_without_numba() -> None:
    machine.load()  # makes it, the first time
    done = subprocess.run(
        [sys.executable, "-c", NOTHING], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_where_it_cannot_be_kept_it_works_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine.load()
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "file" / "no folder"))
    monkeypatch.setattr(machine, "_made", lambda: None)
    by_numba = machine.load.__wrapped__()
    assert by_numba is not made
    for enter in (made, by_numba):
        numbers = np.zeros(to.ALL, np.int64)
        numbers[to.STEP] = to.ADD_UP
        numbers[to.COUNT] = 7
        assert enter(numbers.ctypes.data) == 7
