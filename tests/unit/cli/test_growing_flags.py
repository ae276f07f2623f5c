"""Flags of the pipeline's commands that follow a growing input."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli.main import load
from headgate.cli.pipeline import stream
from headgate.errors import ConfigError

main_usage = load("usage")


@pytest.mark.parametrize("growing", ["--incremental", "--follow"])
def test_sparks_settings_are_passed_on(
    growing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []

    def start(command: str, arguments: object, console: object, config: dict[str, str]) -> None:
        given.append(config)
        raise ConfigError("no Spark here")

    monkeypatch.setattr(stream, "start", start)
    words = ["--requests", str(tmp_path), "--out", str(tmp_path / "out"), growing]
    assert main_usage([*words, "--spark-conf", "a=b=c", "--spark-conf", "d=e"]) == 1
    assert given == [{"a": "b=c", "d": "e"}]


def test_settings_that_are_none_are_refused_all_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--requests", str(tmp_path), "--out", str(tmp_path / "out"), "--incremental"]
    assert main_usage([*words, "--spark-conf", "a", "--spark-conf", "b"]) == 2
    told = capsys.readouterr().err
    assert "--spark-conf a: write NAME=VALUE" in told
    assert "--spark-conf b: write NAME=VALUE" in told
