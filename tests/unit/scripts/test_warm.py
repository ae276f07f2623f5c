"""What `make setup` makes ready for Spark and Kafka: once, and not again where it can't be had."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import headgate
from headgate.embedded import class_data as kafka_classes
from headgate.pipeline import session
from headgate.pipeline.workers import log_reader as reading
from kit.scripts import script


@pytest.fixture
def warm() -> ModuleType:
    return script("warm")


@pytest.fixture
def written(warm: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    found: list[Path] = []
    monkeypatch.setattr(reading, "preload", lambda: None)
    monkeypatch.setattr("headgate.embedded.java.spark_env", dict)
    monkeypatch.setattr(session, "class_archive", lambda: tmp_path / "spark-classes-1.jsa")
    monkeypatch.setattr(kafka_classes, "archive", lambda version: tmp_path / f"{version}.jsa")
    monkeypatch.setattr(warm, "_write_archive", found.append)
    monkeypatch.setattr(warm, "_write_kafka_archive", lambda _, path: found.append(path))
    monkeypatch.setattr("compileall.compile_dir", lambda folder, quiet: found.append(folder))
    return found


def test_the_archive_of_classes_is_written_where_there_is_none(
    warm: ModuleType, written: list[Path], tmp_path: Path
) -> None:
    assert warm.main() == 0
    names = "spark-classes-1.jsa", "4.3.1.jsa", "3.9.2.jsa"
    assert written == [Path(headgate.__file__).parent, *(tmp_path / name for name in names)]


@pytest.mark.parametrize("end", ["jsa", "none"])
def test_it_is_not_written_again_where_it_is_there_or_was_refused(
    warm: ModuleType, written: list[Path], tmp_path: Path, end: str
) -> None:
    for name in ("spark-classes-1", "4.3.1", "3.9.2"):
        (tmp_path / f"{name}.{end}").touch()
    assert warm.main() == 0
    assert written == [Path(headgate.__file__).parent]
