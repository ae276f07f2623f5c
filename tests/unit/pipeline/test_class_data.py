"""The archive of Java classes is for one Java and one Spark, and asked for only if it's there."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.pipeline import session


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java of version 17, and an empty cache."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("java")
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    return home


def test_an_archive_is_used_once_it_is_there(java: Path) -> None:
    path = session.class_archive()
    assert path is not None
    assert session.class_options() == []
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert session.class_options()[:2] == [f"-XX:SharedArchiveFile={path}", "-Xshare:auto"]


def test_another_java_takes_another_archive(java: Path) -> None:
    before = session.class_archive()
    (java / "release").write_text('JAVA_VERSION="21.0.1"\n')
    assert session.class_archive() not in (before, None)


def test_a_java_that_is_too_old_or_unknown_takes_none(
    java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (java / "release").write_text('JAVA_VERSION="11.0.1"\n')
    assert session.class_archive() is None
    monkeypatch.setenv("JAVA_HOME", str(java / "nowhere"))
    assert session.class_archive() is None
    monkeypatch.delenv("JAVA_HOME")
    assert session.class_options() == []
