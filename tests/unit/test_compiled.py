"""The compiled core: used only where it fits its sources, and deciding as they do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from headgate import _compiled
from headgate._compiled import CompiledFinder, fitting_build, key_of

ROOT = Path(__file__).resolve().parents[2]
LAWS = (
    "tests/unit/throttle/test_throttle_manager.py",
    "tests/unit/throttle/test_throttle_sensor.py",
    "tests/unit/throttle/test_throttle_pacing.py",
    "tests/unit/throttle/test_throttle_request.py",
    "tests/unit/throttle/test_spare.py",
    "tests/unit/gateway/test_session.py",
    "tests/unit/gateway/test_session_laws.py",
    "tests/unit/gateway/test_session_sasl.py",
    "tests/unit/gateway/test_mute.py",
    "tests/property/test_throttle_laws.py",
    "tests/golden/test_throttle_golden.py",
)
"""What holds the core to Kafka's figures and to its own laws."""


@pytest.fixture(scope="module")
def built() -> Path:
    """A build of the sources as they are; fails, with the compiler's words, if it can't be made."""
    done = subprocess.run(
        [sys.executable, "scripts/compile_core.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = fitting_build()
    assert found is not None
    return found


def environment(core: str) -> dict[str, str]:
    return {**os.environ, _compiled.VARIABLE: core, "PYTHONPATH": str(ROOT / "src")}


def test_both_cores_decide_alike(built: Path) -> None:
    said = {
        core: subprocess.run(
            [sys.executable, "tests/core_decisions.py"],
            cwd=ROOT,
            env=environment(core),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for core in ("0", "1")
    }
    assert said["0"][0] == "interpreted py"
    assert said["1"][0] == f"compiled {EXTENSION_SUFFIXES[-1].lstrip('.')}"
    assert said["0"][1:] == said["1"][1:]
    decided, throttled = map(int, said["0"][1].split())
    assert decided > 50_000
    assert throttled > 1_000


def test_the_laws_hold_for_the_core_that_other_tests_do_not_use(built: Path) -> None:
    other = "1" if _compiled.status().folder is None else "0"
    # In CI the same examples on each run, as everywhere there; else few, for it is the second time.
    profile = "ci" if os.environ.get("HYPOTHESIS_PROFILE") == "ci" else "dev"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x", *LAWS],
        cwd=ROOT,
        env={**environment(other), "HYPOTHESIS_PROFILE": profile},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


WEAKLY_HELD = """
import enum, importlib
from headgate import _compiled
for name in _compiled.MODULES:
    for cls in vars(importlib.import_module(name)).values():
        if isinstance(cls, type) and cls.__module__ == name and cls.__weakrefoffset__:
            if not issubclass(cls, enum.Enum) and not getattr(cls, "_is_protocol", False):
                print(cls)
"""


def test_no_compiled_class_takes_weak_references_that_it_would_not_clear(built: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WEAKLY_HELD],
        env=environment("1"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""


# --- which one is used


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Two source files, and beside them a build of them."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.py").write_text("A = 1\n")
    (folder / "b.py").write_text("B = 2\n")
    build(tmp_path, ["a.py", "b.py"])
    return folder


def build(tmp_path: Path, files: list[str], mypyc: str = "2.4") -> Path:
    made = tmp_path / "builds" / key_of(files, mypyc, tmp_path / "sources")
    made.mkdir(parents=True)
    (made / _compiled.MANIFEST).write_text(json.dumps({"files": files, "mypyc": mypyc}))
    return made


def test_a_build_fits_the_bytes_it_was_made_from_and_no_others(
    tmp_path: Path, sources: Path
) -> None:
    builds = tmp_path / "builds"
    made = fitting_build(builds, sources)
    assert made is not None
    (sources / "b.py").write_text("B = 3\n")
    assert fitting_build(builds, sources) is None
    newer = build(tmp_path, ["a.py", "b.py"])
    assert fitting_build(builds, sources) == newer != made
    (sources / "b.py").write_text("B = 2\n")
    assert fitting_build(builds, sources) == made
    (sources / "b.py").unlink()
    assert fitting_build(builds, sources) is None


def test_files_that_trade_their_contents_make_another_key(sources: Path) -> None:
    before = key_of(["a.py", "b.py"], "2.4", sources)
    (sources / "a.py").write_text("B = 2\n")
    (sources / "b.py").write_text("A = 1\n")
    assert key_of(["a.py", "b.py"], "2.4", sources) != before


def test_another_compiler_or_python_makes_another_key(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key_of(["a.py"], "2.4", sources)
    assert key_of(["a.py"], "2.5", sources) != before
    monkeypatch.setattr(sys, "version", "3.99")
    assert key_of(["a.py"], "2.4", sources) != before


@pytest.mark.parametrize("manifest", ["", "{", "{}", "[]", '{"files": ["gone.py"], "mypyc": "1"}'])
def test_what_is_no_whole_build_is_passed_over(
    tmp_path: Path, sources: Path, manifest: str
) -> None:
    odd = tmp_path / "builds" / "000"
    odd.mkdir()
    (odd / _compiled.MANIFEST).write_text(manifest)
    (tmp_path / "builds" / "001").mkdir()
    (tmp_path / "builds" / "002").write_text("")
    made = fitting_build(tmp_path / "builds", sources)
    assert made is not None
    assert len(made.name) == 24


def test_without_a_fitting_build_the_sources_are_read_and_it_says_how_to_build(
    tmp_path: Path, sources: Path
) -> None:
    nothing = CompiledFinder(tmp_path / "nowhere", sources, "")
    assert nothing.find_spec("headgate.throttle.sensor") is None
    assert nothing.status().text == (
        "interpreted: the compiled one isn't built (make setup builds it)"
    )
    (sources / "a.py").write_text("A = 5\n")
    stale = CompiledFinder(tmp_path / "builds", sources, "")
    assert stale.find_spec("headgate.throttle.sensor") is None
    assert "was built from other sources (make setup builds it)" in stale.status().text
    elsewhere = CompiledFinder(tmp_path, sources, str(tmp_path / "nowhere"))
    assert "isn't built" in elsewhere.status().text


def test_zero_reads_the_sources_whatever_is_built(tmp_path: Path, sources: Path) -> None:
    finder = CompiledFinder(tmp_path / "builds", sources, "0")
    assert finder.find_spec("headgate.throttle.sensor") is None
    assert finder.status().text == "interpreted (HEADGATE_COMPILED=0)"


def test_one_goes_no_further_without_a_build(tmp_path: Path, sources: Path) -> None:
    finder = CompiledFinder(tmp_path / "nowhere", sources, "1")
    for _ in range(2):
        with pytest.raises(ImportError, match="HEADGATE_COMPILED=1, but the core is interpreted"):
            finder.find_spec("headgate.throttle.sensor")
    assert finder.find_spec("headgate.quota.entity") is None


def test_a_library_that_cannot_be_loaded_leaves_the_sources(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fitting_build(tmp_path / "builds", sources)
    assert made is not None
    (made / (_compiled.LIBRARY + EXTENSION_SUFFIXES[0])).write_bytes(b"no library")
    monkeypatch.delitem(sys.modules, _compiled.LIBRARY, raising=False)
    finder = CompiledFinder(tmp_path / "builds", sources, "")
    monkeypatch.setattr(sys, "meta_path", [finder])
    assert finder.find_spec("headgate.throttle.sensor") is None
    assert finder.status().text.startswith("interpreted: the compiled one can't be loaded (")


def test_the_answer_stays_for_as_long_as_the_process_runs(tmp_path: Path, sources: Path) -> None:
    finder = CompiledFinder(tmp_path / "nowhere", sources, "")
    assert finder.status().folder is None
    shutil.copytree(tmp_path / "builds", tmp_path / "nowhere")
    assert finder.status().folder is None


def test_every_compiled_module_is_there_and_nothing_else_is_looked_for() -> None:
    for name in _compiled.MODULES:
        assert (ROOT / "src" / Path(*name.split("."))).with_suffix(".py").is_file()
    finder = CompiledFinder(Path("nowhere"), Path("nowhere"), "1")
    assert finder.find_spec("headgate.gateway.front") is None


def test_headgate_looks_for_compiled_modules_first() -> None:
    assert sum(isinstance(finder, CompiledFinder) for finder in sys.meta_path) == 1
