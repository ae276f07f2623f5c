"""The page on architecture names what exists, its picture is up to date, its examples work."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

from kit.page_examples import ARCHITECTURE as PAGE
from kit.page_examples import ROOT, SOURCE, Example, examples, follow_all
from kit.scripts import program
from kit.source import statements

EXAMPLES = examples()
PACKAGES = sorted(
    path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()
)


def names(text: str) -> list[str]:
    """What stands in backquotes, outside of blocks of code."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    return program("docs/img/architecture.py")


def test_the_picture_is_the_one_that_the_script_draws(drawing: ModuleType) -> None:
    drawn = (ROOT / "docs" / "img" / "architecture.svg").read_text(encoding="utf-8")
    assert drawn == drawing.picture(), "run python docs/img/architecture.py with the SVG's path"


def test_every_package_in_the_picture_exists_and_is_on_the_page(drawing: ModuleType) -> None:
    shown = {step.package for way in drawing.WAYS for step in way.steps if step.package}
    for package in shown:
        assert SOURCE.joinpath(*package.split("."), "__init__.py").exists(), package
    assert {name.split(".")[0] for name in shown} <= set(PACKAGES)
    assert {name for name in shown if name.startswith(("gateway", "pipeline"))} <= set(names(PAGE))


def test_every_file_and_package_on_the_page_exists() -> None:
    found = 0
    for name in names(PAGE):
        if re.fullmatch(r"[a-z_]+(/[a-z_]+)*\.py", name) and name != "__init__.py":
            assert (SOURCE / name).exists() or (ROOT / name).exists(), name
        elif re.fullmatch(r"[a-z_]+([./][a-z_]+)+", name) and name.split(".")[0] in PACKAGES:
            assert SOURCE.joinpath(*re.split(r"[./]", name), "__init__.py").exists(), name
        else:
            continue
        found += 1
    assert found > 30


def test_every_name_that_the_page_finds_in_a_file_is_there() -> None:
    pairs = re.findall(r"`(\w+)`,? (?:in|there, in) `([\w/]+\.py)`", re.sub(r"\s+", " ", PAGE))
    assert len(pairs) >= 6
    for name, file in pairs:
        place = SOURCE / file if (SOURCE / file).exists() else ROOT / file
        tree = ast.parse(place.read_text(encoding="utf-8"))
        made = {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef)}
        made |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        assert name in made, f"{name} in {file}"


def imports(path: Path) -> set[str]:
    """The packages of ours that a file imports."""
    found = set()
    for node in statements(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module == "headgate":
                found.update(alias.name for alias in node.names)
            elif node.module.startswith("headgate."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("headgate."))
    return found


def test_the_table_has_every_package_and_each_imports_only_from_those_above_it() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
    beside = {"testing", "clock"}
    assert beside <= set(names(PAGE))
    assert set(listed) == {"errors", *PACKAGES} - beside
    for at, package in enumerate(listed):
        for path in (SOURCE / package).rglob("*.py"):
            ours = imports(path) & set(PACKAGES)
            assert ours <= {*listed[: at + 1], *beside}, f"{path} imports {ours}"


def test_the_page_has_an_example_for_each_thing_that_is_often_added() -> None:
    assert [example.title for example in EXAMPLES] == [
        "A new quota type",
        "A new API",
        "A new answer of the pipeline",
        "A new store",
    ]
    assert all(example.edits and "assert" in example.check for example in EXAMPLES)


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if not e.needs_spark], ids=lambda e: e.title
)
def test_following_an_example_gives_what_it_says(example: Example, tmp_path: Path) -> None:
    follow_all(example, tmp_path)
