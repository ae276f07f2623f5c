"""What a version of Spark lacks is refused, alone; an installed version is never called missing."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import headgate.pipeline as hp
from headgate.cli.main import main
from headgate.errors import ConfigError
from headgate.pipeline import spark_versions as versions
from kit.scripts import ROOT

TOO_OLD = "3.4.4"


def plant(folder: Path, version: str) -> Path:
    """Write a PySpark of a version, as SPARK_HOME has it; return its SPARK_HOME."""
    package = folder / "python" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('it was imported')\n")
    (package / "version.py").write_text(f"__version__: str = '{version}'\n")
    zips = folder / "python" / "lib"
    zips.mkdir()
    (zips / "py4j-0.10.9.7-src.zip").write_bytes(b"")
    return folder


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is looked at before the PySpark that is installed."""
    monkeypatch.setattr(versions, "find_spec", _finder(tmp_path))
    monkeypatch.setattr(versions, "sys", SimpleNamespace(modules={}, path=[]))
    return tmp_path


def _finder(folder: Path) -> object:
    def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.PathFinder.find_spec(name, [str(folder / "python")])

    return find_spec


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("3.5.9", (3, 5)),
        ("3.5.2-amzn-1", (3, 5)),
        ("4.3.0", (4, 3)),
        ("4.1.0.dev1", (4, 1)),
        ("10.12", (10, 12)),
        ("client.5", None),
        ("", None),
    ],
)
def test_a_version_is_read_as_clusters_write_it(text: str, version: tuple[int, int] | None) -> None:
    assert versions.read_version(text) == version


@pytest.mark.parametrize(
    ("version", "lacked"),
    [
        ("3.5.9", {"DATA_SOURCE", "BOUNDED_STREAM", "ARROW_FRAMES"}),
        ("4.0.5", {"BOUNDED_STREAM"}),
        ("4.1.4", {"BOUNDED_STREAM"}),
        ("4.2.0", set()),
        ("4.3.0", set()),
        ("5.0.0", set()),
        ("of my own", set()),
    ],
)
def test_each_version_lacks_what_came_later_and_nothing_else(
    version: str, lacked: set[str]
) -> None:
    names = {n for n, value in vars(versions).items() if isinstance(value, versions.Lacked)}
    assert {getattr(versions, n) for n in names} == set(versions.LACKED)
    assert {n for n in names if versions.lacks(version, getattr(versions, n))} == lacked


def test_a_refusal_says_what_which_since_when_and_what_to_do() -> None:
    for feature in versions.LACKED:
        with pytest.raises(ConfigError) as refused:
            versions.refuse("--asked", "3.5.9", feature)
        since = ".".join(map(str, feature.since))
        assert str(refused.value) == (
            f"--asked: Spark 3.5.9 has no {feature.what}, which came with Spark {since}; "
            f"{feature.instead}"
        )
        versions.refuse("--asked", since, feature)


@pytest.mark.parametrize("version", ["3.5.0", "4.3.0", "4.9.0", "5.1.2", "of my own"])
def test_an_installed_version_is_tried_also_an_unknown_one(planted: Path, version: str) -> None:
    plant(planted, version)
    assert versions.installed() == version
    versions.check("headgate usage")


@pytest.mark.parametrize(
    ("home", "way_out"),
    [(True, "SPARK_HOME names it: unset that"), (False, "Upgrade it")],
)
def test_an_old_version_is_refused_by_its_version(
    planted: Path, monkeypatch: pytest.MonkeyPatch, home: bool, way_out: str
) -> None:
    plant(planted, TOO_OLD)
    monkeypatch.setenv("SPARK_HOME", str(planted if home else planted / "other"))
    with pytest.raises(ConfigError) as refused:
        versions.check("headgate usage")
    assert str(refused.value) == (
        f"the PySpark in {planted}/python/pyspark is {TOO_OLD}, and Headgate needs Spark 3.5 or "
        f"newer. {way_out}, or name another Spark by SPARK_HOME"
    )


def test_a_spark_home_of_another_version_without_a_pyspark_is_refused(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(planted, "4.2.0")
    home = planted / "home"
    (home / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    versions.prepare("headgate usage")
    (home / "jars" / "spark-core_2.13-4.2.0.jar").write_bytes(b"")
    versions.prepare("headgate usage")
    (home / "jars" / "spark-core_2.13-4.2.0.jar").rename(
        home / "jars" / "spark-core_2.12-3.5.2-amzn-1.jar"
    )
    with pytest.raises(ConfigError, match=r"is Spark 3\.5 without a PySpark .* is 4\.2\.0"):
        versions.prepare("headgate usage")


def test_where_there_is_none_it_is_missing(planted: Path) -> None:
    assert versions.installed() is None
    with pytest.raises(ModuleNotFoundError, match="No module named 'pyspark'"):
        versions.check("headgate usage")


def test_a_function_of_the_library_says_what_its_spark_lacks(planted: Path) -> None:
    plant(planted, "3.5.9")
    with pytest.raises(ConfigError, match=r"^headgate\.pipeline\.KafkaRequestLog: Spark 3\.5\.9 "):
        _ = hp.KafkaRequestLog
    assert callable(hp.requests)


def test_a_pyspark_that_is_loaded_counts_wherever_it_comes_from(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers load it out of a zip."""
    plant(planted, "3.5.9")
    monkeypatch.setitem(versions.sys.modules, "pyspark", SimpleNamespace(__version__="4.1.4"))
    assert versions.installed() == "4.1.4"


def test_splits_are_refused_where_streams_cant_be_read(
    planted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(planted, "3.5.9")
    at = ["--kafka-config", "bootstrap.servers=127.0.0.1:1"]
    for words in (
        ["splits", "--topic", "usage", "--quotas", "quotas.yaml", *at],
        ["usage", "--topic", "usage", "--follow", "--out", str(planted / "out"), *at],
    ):
        assert main(words) == 1
        said = capsys.readouterr().err
        assert "Spark 3.5.9 has no data sources in Python, which came with Spark 4.0" in said


def test_the_pyspark_of_spark_home_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = plant(tmp_path / "spark", "3.5.2")
    monkeypatch.setenv("SPARK_HOME", str(home))
    python = str(home / "python")
    path = ["/first", python, "/last"]
    versions.use_spark_home(path)
    assert path == [python, f"{python}/lib/py4j-0.10.9.7-src.zip", "/first", "/last"]
    assert versions.spark_home() == home


def test_a_spark_home_without_a_pyspark_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ["/first"]
    for home in (str(tmp_path), ""):
        monkeypatch.setenv("SPARK_HOME", home)
        versions.use_spark_home(path)
    monkeypatch.delenv("SPARK_HOME")
    versions.use_spark_home(path)
    assert path == ["/first"]


def test_a_command_takes_the_version_of_spark_home(tmp_path: Path) -> None:
    """Not the installed one; and it never says that this PySpark is missing."""
    home = plant(tmp_path / "spark", TOO_OLD)
    log = tmp_path / "request.log"
    log.write_text("a line\n")
    program = "import sys; from headgate.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["usage", "--requests", str(log), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SPARK_HOME": str(home)},
    )
    assert done.returncode == 1
    assert f"{home}/python/pyspark is {TOO_OLD}" in done.stderr
    assert "isn't installed" not in done.stderr


def test_what_is_declared_is_what_is_refused_and_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (declared,) = [
        need for need in project["optional-dependencies"]["pipeline"] if need.startswith("pyspark")
    ]
    major, minor = versions.NEWEST
    oldest = ".".join(map(str, versions.OLDEST))
    assert declared == f"pyspark>={oldest},<{major}.{minor + 1}"


def test_delta_is_named_for_the_spark_that_lacks_it() -> None:
    for version in ("3.5.9", "4.0.5", "4.1.4", "4.2.0"):
        said = versions.way_to("delta", version, "--packages {}", "--jars PATH")
        minor = version.rpartition(".")[0]
        name = "delta-spark_2.12:3.3.2" if minor == "3.5" else f"delta-spark_{minor}_2.13:4.4.0"
        assert f"by --packages io.delta:{name} (for Spark {minor}), or" in said
    said = versions.way_to("delta", "4.3.0", "--packages {}", "--jars PATH")
    assert said.startswith("No Delta for Spark 4.3.0 is known here; if there is one,")
    assert "--packages" not in said
