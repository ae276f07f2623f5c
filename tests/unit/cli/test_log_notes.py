"""What a command says about its logs, and when it says that every line was read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.cli.pipeline.reading import keep_notes, print_bad_lines, print_notes
from headgate.pipeline.run import RunFigure
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.sources.quality import Quality

LOST = Quality(requests=400, seen=300, expected=600, gapped=9)
COARSE = Quality(requests=40, coarse=40, grain_ms=1000.0)


def run_of(found: Quality, kind: str = "log") -> Any:
    """Return a run in which no line was bad."""
    run = SimpleNamespace(figures=[RunFigure("bad_lines", 0.0, None, "lines", "")])
    run.figure = lambda name, value=None, **more: run.figures.append(
        RunFigure(name, value, more.get("text"), more["unit"], more["note"])
    )
    return SimpleNamespace(notes=found.notes(), run=run, pieces=[FilePiece("x", 0, 1, kind)])


def said(on: Any, capsys: pytest.CaptureFixture[str]) -> str:
    print_notes(on)
    print_bad_lines(on)
    return capsys.readouterr().out


def test_all_was_read_only_where_nothing_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(run_of(Quality(requests=9)), capsys) == "Every line was read.\n"
    lossy = said(run_of(LOST), capsys)
    assert lossy.startswith("About 50% of these connections' requests aren't in the log")
    assert lossy.endswith("Every line that the log holds was read; some requests have none.\n")
    assert "Every line was read" not in said(run_of(Quality(), "requests"), capsys)


def test_what_is_said_is_kept_as_figures() -> None:
    on = run_of(COARSE)
    keep_notes(on)
    (figure,) = [f for f in on.run.figures if f.name == "log_resolution_ms"]
    assert (figure.value, figure.unit) == (1000.0, "ms")
    assert "too coarse to replay" in figure.note
