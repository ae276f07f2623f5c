"""
The pages about commands: their jobs, the JSON Schema of each, and every flag.

``HEADGATE_GOLDEN=write`` writes the schemas again; look at the difference.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cli.completion import parser_of
from headgate.cli.main import COMMANDS, JOBS
from kit.schemas import RESULTS, schema_of

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "commands.md").read_text(encoding="utf-8")
PAGES = [page.read_text(encoding="utf-8") for page in REFERENCE.parent.rglob("*.md")]


@pytest.mark.parametrize("job", JOBS)
def test_commands_stand_under_the_job_that_help_gives_them(job: str) -> None:
    section = PAGE.partition(f"\n## {job}\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(?:headgate )?([\w-]+)", section, re.M)) == JOBS[job].keys()


@pytest.mark.parametrize("name", RESULTS)
def test_the_schema_of_each_command_is_the_one_of_its_results(name: str) -> None:
    file = REFERENCE / "json" / f"{name}.json"
    text = json.dumps(schema_of(name), indent=2) + "\n"
    if os.environ.get("HEADGATE_GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text
    assert f"(json/{name}.json)" in PAGE


def test_no_schema_is_left_over() -> None:
    assert {file.stem for file in (REFERENCE / "json").iterdir()} == RESULTS.keys()


def flags_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The long flags that a parser shows in its help, those of its actions too."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from flags_of(each)
        elif action.help != argparse.SUPPRESS:
            yield from (flag for flag in action.option_strings if flag.startswith("--"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_stands_on_a_page_that_names_its_command(name: str) -> None:
    commands = parser_of("headgate")._subparsers
    assert commands is not None
    parser = commands._group_actions[0].choices[name]
    shown = name if name.startswith("kafka-") else f"headgate {name}"
    about = "\n".join(page for page in PAGES if re.search(rf"\b{shown}\b", page))
    flags = set(flags_of(parser)) - {"--help"}
    assert flags
    assert {flag for flag in flags if not re.search(rf"{flag}(?![\w-])", about)} == set()
