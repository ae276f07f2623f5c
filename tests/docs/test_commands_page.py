"""
The page of commands: their jobs, and the JSON Schema of each.

``HEADGATE_GOLDEN=write`` writes the schemas again; look at the difference.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from headgate.cli.main import JOBS
from kit.schemas import RESULTS, schema_of

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "commands.md").read_text(encoding="utf-8")


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
