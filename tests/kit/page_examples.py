"""
Follow the worked examples of a page: put their lines into a copy of the package, run their checks.

A block ``python file=FILE after="…"`` (or ``before``) goes after the one line of FILE that holds
this text. ``python file=FILE new`` is a whole file. ``python check`` is run in a process of its
own; ``python check spark`` gets a Java for Spark.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headgate"
ARCHITECTURE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


class Edit(NamedTuple):
    """Lines that an example puts into a file: after or before a line, or all of a new file."""

    file: str
    where: str
    anchor: str
    lines: str


class Example(NamedTuple):
    """A worked example of the page: what it writes, and what then holds."""

    title: str
    edits: list[Edit]
    check: str
    needs_spark: bool


def examples(page: str = ARCHITECTURE) -> list[Example]:
    """Return the examples of a page, one for each heading of the third level."""
    found = []
    for section in page.split("\n### ")[1:]:
        edits, check, needs_spark = [], "", False
        for info, code in re.findall(r"^ *```python (.+?)\n(.*?)^ *```$", section, re.M | re.S):
            lines = textwrap.dedent(code)
            if info.startswith("check"):
                check, needs_spark = lines, info == "check spark"
                continue
            told = re.fullmatch(r'file=(\S+) (new|after|before)(?:="(.*)")?', info)
            assert told is not None, info
            # The block stands in a list, three blanks in; further ones are the code's own.
            lines = "".join(line[3:] if line.strip() else "\n" for line in code.splitlines(True))
            edits.append(Edit(told[1], told[2], told[3] or "", lines))
        found.append(Example(section.splitlines()[0], edits, check, needs_spark))
    return found


def follow(edit: Edit, package: Path) -> None:
    """Do what an example says."""
    path = package / edit.file
    if edit.where == "new":
        assert not path.exists(), path
        path.parent.mkdir(exist_ok=True)
        path.write_text(edit.lines, encoding="utf-8")
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    at = [n for n, line in enumerate(lines) if edit.anchor in line]
    assert len(at) == 1, f"{edit.anchor!r} is on {len(at)} lines of {edit.file}"
    lines.insert(at[0] + (edit.where == "after"), edit.lines)
    path.write_text("".join(lines), encoding="utf-8")


def follow_all(example: Example, folder: Path) -> None:
    """
    Follow an example in a copy of the package, made in ``folder``; its check must hold.

    The check is run in ``folder``, by a process of its own.
    """
    package = folder / "headgate"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in example.edits:
        follow(edit, package)
    before = f"import headgate\nassert headgate.__file__.startswith({str(folder)!r})\n"
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    if example.needs_spark:
        from headgate.embedded import spark_env

        environment |= spark_env()
    done = subprocess.run(
        [sys.executable, "-c", before + example.check],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
