"""make package: two builds are compared, each command has a case, the bill has all pins."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from headgate.cli.extras import EXTRAS
from headgate.cli.main import COMMANDS
from kit.scripts import ROOT, script

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DECLARED = {
    "": PROJECT["dependencies"],
    **{name: PROJECT["optional-dependencies"][name] for name in EXTRAS},
}
PINNED = dict(
    re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / "runtime.txt").read_text(), re.M)
)


@pytest.fixture(scope="module")
def building() -> ModuleType:
    return script("package_build")


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    return script("build_hook")


# --- the commands -----------------------------------------------------------------------------


def test_every_command_has_a_case_and_every_case_a_command() -> None:
    cases = script("package_commands").CASES
    assert {case.command for case in cases} == set(COMMANDS)
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(?:headgate )?([a-z-]+)", page, re.M)
    assert {case.command for case in cases} == set(rows)


def test_every_extra_has_a_case_that_needs_it() -> None:
    cases = script("package_commands").CASES
    # [embedded] has its Kafka; [sail] adds an engine to commands of [pipeline].
    assert {"", *EXTRAS, "all"} - {case.extra for case in cases} == {"embedded", "sail"}


# --- two builds -------------------------------------------------------------------------------


def wheel(path: Path, *members: tuple[str, str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


def test_two_builds_that_differ_are_told_by_the_member(
    building: ModuleType, tmp_path: Path
) -> None:
    one = wheel(tmp_path / "1" / "x.whl", ("a", "A"), ("b", "B"))
    building.compare([one], [wheel(tmp_path / "2" / "x.whl", ("a", "A"), ("b", "B"))])
    for name, members, said in (
        ("3", [("a", "A"), ("b", "C")], r"two builds: b$"),
        ("4", [("a", "A")], r"two builds: b$"),
        ("5", [("b", "B"), ("a", "A")], "order of its members"),
    ):
        with pytest.raises(building.Failed, match=said):
            building.compare([one], [wheel(tmp_path / name / "x.whl", *members)])
    with pytest.raises(building.Failed, match="one build gives"):
        building.compare([one], [])


@pytest.mark.parametrize("name", [".cache/x", "src/a.pyc", ".venv/x", "out/x", ".env.local"])
def test_what_is_private_is_refused_in_an_sdist(
    building: ModuleType, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "x.tar.gz"
    for members in (("x-1/src/a.py", "x-1/docs/output.md"), ("x-1/src/a.py", f"x-1/{name}")):
        with tarfile.open(path, "w:gz") as archive:
            for member in members:
                archive.addfile(tarfile.TarInfo(member), io.BytesIO())
        if name in members[1]:
            with pytest.raises(building.Failed, match=re.escape(name)):
                building.refuse_private(path)
        else:
            building.refuse_private(path)


# --- which build, and what it's made of -------------------------------------------------------


def test_a_clean_checkout_is_marked_with_its_commit_and_a_changed_one_is_not(
    hook: ModuleType, tmp_path: Path
) -> None:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        done = subprocess.run(
            ["git", *identity, *words],
            cwd=tmp_path,
            env={"GIT_COMMITTER_DATE": "2026-11-23T00:30:00+0200", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    (tmp_path / "a").write_text("a")
    assert hook.mark(tmp_path) is None
    git("init", "-q")
    git("add", "a")
    git("commit", "-qm", "Begin")
    commit = git("rev-parse", "HEAD")
    assert hook.mark(tmp_path) == {"commit": commit, "date": "2026-11-22"}  # in UTC
    inside = tmp_path / "inside"
    inside.mkdir()
    assert hook.mark(inside) is None  # of another project's checkout
    (tmp_path / "b").touch()
    assert hook.mark(tmp_path) is None
    told = {"commit": "c" * 40, "date": "2026-01-02"}
    (inside / "build.json").write_text(json.dumps(told))
    assert hook.mark(inside) == told  # an unpacked sdist brings its own


def test_the_bill_has_every_pin_and_every_jar_and_is_the_same_each_time(hook: ModuleType) -> None:
    bill = hook.bill(ROOT, "1.2.3")
    assert bill == hook.bill(ROOT, "1.2.3")
    assert bill["serialNumber"] != hook.bill(ROOT, "1.2.4")["serialNumber"]
    by_kind: dict[str, dict[str, dict[str, object]]] = {"pypi": {}, "maven": {}}
    for part in bill["components"]:
        by_kind[part["purl"].split("/")[0].removeprefix("pkg:")][part["purl"]] = part
    assert by_kind["pypi"].keys() == {f"pkg:pypi/{n}@{v}" for n, v in PINNED.items()}
    jars = "\n".join(
        path.read_text() for path in (ROOT / "src/headgate/embedded/pins").glob("kafka-*.txt")
    )
    hashes = set(re.findall(r"^([0-9a-f]{64}) ", jars, re.M))
    assert {part["hashes"][0]["content"] for part in by_kind["maven"].values()} == hashes  # type: ignore[index]
    direct = {Requirement(text).name.lower() for wanted in DECLARED.values() for text in wanted}
    (root,) = bill["dependencies"]
    named = {ref.removeprefix("pkg:pypi/").partition("@")[0] for ref in root["dependsOn"]}
    assert named == direct


# --- bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", DECLARED)
def test_every_declared_package_has_both_bounds_and_its_pin_lies_between(part: str) -> None:
    assert DECLARED[part]
    for text in DECLARED[part]:
        need = Requirement(text)
        signs = {one.operator for one in need.specifier}
        assert signs == {">=", "<"}, text
        assert need.specifier.contains(PINNED[need.name.lower()]), text


def test_a_package_has_the_same_bounds_in_each_extra() -> None:
    """But those that a cluster's Spark brings begin lower in `pipeline`, and end as elsewhere."""
    brought = {"pyspark", "pyarrow", "numpy"}
    bounds: dict[str, set[str]] = {}
    ends: dict[str, set[str]] = {}
    for part, wanted in DECLARED.items():
        for text in wanted:
            need = Requirement(text)
            (end,) = (one.version for one in need.specifier if one.operator == "<")
            ends.setdefault(need.name, set()).add(end)
            if need.name in brought and part in {"pipeline", "embedded"}:
                continue
            bounds.setdefault(need.name, set()).add(str(need.specifier))
    assert {name: found for name, found in bounds.items() if len(found) > 1} == {}
    assert {name: found for name, found in ends.items() if len(found) > 1} == {}


def test_the_index_page_leads_to_no_file_that_is_not_there(hook: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = hook.index_page(readme)
    targets = re.findall(r"\]\(([^)]*)\)", page)
    assert all(target.startswith(("https://", "http://", "#")) for target in targets), targets
    assert "![" not in page
    assert "Tutorial (`docs/tutorial.md`)" in page
    kept = [line for line in readme.splitlines() if "](" not in line and line]
    assert [line for line in page.splitlines() if line in kept] == kept


def test_links_to_other_sites_stay_on_the_index_page(hook: ModuleType) -> None:
    text = "![picture](docs/a.png)\n\n[a](https://example.org/a) and [b](docs/b.md), [c](#c)\n"
    page = "[a](https://example.org/a) and b (`docs/b.md`), [c](#c)\n"
    assert hook.index_page(text) == page
