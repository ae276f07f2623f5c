"""What runs in production loads nothing of what tests, lint and docs need besides."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Small ones that rich, structlog and prometheus-client try for themselves.
TRIED = {"attr", "cramjam", "greenlet", "snappy"}
LOADED = "import json, sys, {0}; print(json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"


def pinned(name: str) -> set[str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return {found.replace("_", "-").lower() for found in re.findall(r"(?m)^([\w.-]+)==", text)}


@pytest.mark.parametrize("module", ["headgate.gateway.running", "headgate.cli.serve.serve"])
def test_a_process_that_serves_loads_no_library_of_the_tests(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED.format(module)], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(ran.stdout))
    ours = pinned("dev") - pinned("runtime")
    assert {"hypothesis", "kio", "pytest"} <= ours
    found = packages_distributions()
    strangers = {
        module
        for module in loaded
        for distribution in found.get(module, ())
        if distribution.replace("_", "-").lower() in ours
    }
    assert not strangers - TRIED


def test_the_console_loads_no_library_of_the_pipeline_before_somebody_asks() -> None:
    """With them it takes 92 MB in place of 53."""
    module = "headgate.console.app, headgate.console.serve"
    ran = subprocess.run(
        [sys.executable, "-c", LOADED.format(module)], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "pandas", "pyarrow", "pyspark"} & set(json.loads(ran.stdout))
