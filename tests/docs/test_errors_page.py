"""The page of errors has every error that Headgate sends or raises, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from headgate import errors
from headgate.cli import exit_codes
from kit.source import statements

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
# What commands name besides: errors of Python, and of the command line.
PYTHON = {"MODULE_NOT_FOUND_ERROR", "KEYBOARD_INTERRUPT", "COULD_NOT_LOOK", "TWO_PLACES"}
# Not raised on their own: the bases, and the one whose names are Kafka's.
BASES = {"HeadgateError", "ApiError"}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def raised() -> set[str]:
    """The names of all classes of errors, as the sources inherit them."""
    parents: dict[str, set[str]] = {}
    for path in (ROOT / "src" / "headgate").rglob("*.py"):
        for node in statements(path):
            if isinstance(node, ast.ClassDef):
                names = {base.id for base in node.bases if isinstance(base, ast.Name)}
                parents.setdefault(node.name, set()).update(names)
    found = {"HeadgateError"}
    while more := {name for name, bases in parents.items() if bases & found} - found:
        found |= more
    return found


def test_every_code_of_kafkas_is_on_the_page() -> None:
    rows = re.findall(
        r"^\| (-?\d+) \| `(\w+)` \|", section("What clients get from a gateway"), re.M
    )
    assert {name: int(code) for code, name in rows} == {e.name: int(e) for e in errors.KafkaError}


def test_every_name_of_an_object_with_an_error_is_on_the_page() -> None:
    rows = re.findall(r"^\| (`[A-Z_`, ]+`) \| \d", section("What commands say"), re.M)
    shown = {name for row in rows for name in re.findall(r"[A-Z_]+", row)}
    classes = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", n).upper() for n in raised() - BASES}
    assert shown == classes | PYTHON


def test_every_public_class_is_on_the_page() -> None:
    rows = re.findall(r"^\| (`[A-Za-z`, ]+`) \|", section("What Python programs get"), re.M)
    shown = {name for row in rows for name in re.findall(r"\w+", row)}
    public = {
        name
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.HeadgateError)
    }
    assert shown == public - {"HeadgateError"}


@pytest.mark.parametrize(
    "status", [value for name, value in vars(exit_codes).items() if name.isupper()]
)
def test_every_exit_status_is_on_the_page_of_commands(status: int) -> None:
    assert f"\n| {status} | " in COMMANDS
