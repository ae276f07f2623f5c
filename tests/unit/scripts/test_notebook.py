"""`make notebook` fails where a cell fails, or draws nothing where it should."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PLOTLY = "application/vnd.plotly.v1+json"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "scripts" / "notebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cell(source: str, *tags: str) -> dict[str, Any]:
    return {"cell_type": "code", "id": "a", "metadata": {"tags": list(tags)}, "source": source,
            "execution_count": None, "outputs": []}  # fmt: skip


def write(folder: Path, name: str, *cells: dict[str, Any]) -> None:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {"cells": list(cells), "metadata": {"kernelspec": kernel}, "nbformat": 4,
               "nbformat_minor": 5}  # fmt: skip
    (folder / name).write_text(json.dumps(content))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ("1 / 0", 1, "ZeroDivisionError"),
        ("1", 1, "1 cells should draw, 0 pictures are there"),
        ("import plotly.express as px; px.line(x=[], y=[])", 1, "0 pictures are there"),
        ("import plotly.express as px; px.line(x=[1, 2], y=[1, 2])", 0, ""),
    ],
)
def test_a_cell_that_fails_or_draws_nothing_is_an_error(
    source: str, status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "a.ipynb", cell(source, "picture"))
    assert script().main(tmp_path, tmp_path / "out") == status
    assert words in capsys.readouterr().err
    if not status:
        assert "plotly" in (tmp_path / "out" / "a.html").read_text()


def test_the_example_keeps_no_output_and_asks_what_the_library_has() -> None:
    """Cells are run by `make notebook`; here only what it would take seconds to find out there."""
    import headgate.pipeline as hp

    cells = json.loads((ROOT / "examples" / "request_log.ipynb").read_text())["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert all(not c.get("outputs") and not c.get("execution_count") for c in cells)
    asked = {name for name in hp.__all__ if f"hp.{name}" in "\n".join(code)}
    assert asked >= {"requests", "usage", "effective", "what_if", "demand", "recommend"}
    assert asked >= {"chargeback", "focus"}
