"""The archive of Kafka's classes is for one Java and one Kafka, and used only if it's there."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.embedded import class_data
from headgate.embedded.jars import CLIENTS, KAFKA_3, KAFKA_4
from headgate.embedded.java import Java
from headgate.embedded.tools import CONFIGS, tool_command


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java of version 17, an empty cache, and a folder of jars for each Kafka."""
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setattr(class_data, "find_java", lambda: Java(home, 17, "PATH"))
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    for version in (KAFKA_4, KAFKA_3, CLIENTS[0]):
        (tmp_path / version).mkdir()
        (tmp_path / version / "kafka.jar").write_bytes(b"jar")
    monkeypatch.setattr(class_data, "ensure_jars", lambda version: tmp_path / version)
    monkeypatch.setattr("headgate.embedded.tools.find_java", lambda: Java(home, 17, "PATH"))
    monkeypatch.setattr("headgate.embedded.tools.classpath", lambda version: f"{version}/*")
    return tmp_path / KAFKA_4


def test_an_archive_is_used_once_it_is_there(jars: Path) -> None:
    path = class_data.archive(KAFKA_4)
    assert class_data.options(KAFKA_4) == []
    assert not any("cds" in word for word in tool_command(CONFIGS, ()))
    path.touch()
    assert class_data.options(KAFKA_4)[:2] == [f"-XX:SharedArchiveFile={path}", "-Xshare:auto"]
    assert f"-XX:SharedArchiveFile={path}" in tool_command(CONFIGS, ())
    for other in (KAFKA_3, CLIENTS[0]):
        assert class_data.options(other) == []


def test_another_java_or_another_jar_takes_another_archive(jars: Path) -> None:
    before = class_data.archive(KAFKA_4)
    (jars / "kafka.jar").write_bytes(b"another")
    then = class_data.archive(KAFKA_4)
    (jars.parent / "java" / "release").write_text('JAVA_VERSION="21.0.1"\n')
    assert len({before, then, class_data.archive(KAFKA_4)}) == 3


def test_a_path_that_java_would_cut_is_not_given(
    jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(jars.parent / "a cache"))
    class_data.archive(KAFKA_4).touch()
    assert class_data.options(KAFKA_4) == []
