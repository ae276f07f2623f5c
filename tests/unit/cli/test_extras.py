"""What is installed is enough: extras name what is imported, commands say which one they miss."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from headgate.cli.extras import DISTRIBUTION, EXTRAS, missing
from headgate.cli.main import COMMANDS
from kit.scripts import ROOT, script

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Import names whose distributions are called otherwise; the rest is found by its metadata.
DISTRIBUTIONS = {
    name: {distribution.lower().replace("_", "-") for distribution in found}
    for name, found in packages_distributions().items()
}
# Runs a command where nothing but the base install can be imported.
BARE = f"""
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(frozenset().union(*EXTRAS.values()))!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Nothing())
from headgate.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
# A command line of each command that needs an extra: the first in the table.
RUNS = {case.command: case for case in reversed(script("package_commands").CASES) if case.extra}


def names(requirements: list[str]) -> set[str]:
    """The distributions that requirements name."""
    return {re.split(r"[<=>\[;! ]", text)[0].lower() for text in requirements}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_table_of_extras_is_pyprojects(extra: str) -> None:
    listed = names(PROJECT["optional-dependencies"][extra])
    known = {found for package in EXTRAS[extra] for found in DISTRIBUTIONS[package]}
    assert known == listed


def test_all_is_all_extras_under_the_distributions_own_name() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    (everything,) = PROJECT["optional-dependencies"]["all"]
    name, _, extras = everything.rstrip("]").partition("[")
    assert (name, set(extras.split(","))) == (DISTRIBUTION, set(EXTRAS))


@pytest.mark.parametrize("command", RUNS)
def test_a_command_says_in_one_line_which_extra_it_misses(command: str, tmp_path: Path) -> None:
    (tmp_path / "usage").mkdir()
    (tmp_path / "usage" / "part.parquet").touch()
    files = {
        "quotas": "quotas: []\n",
        "prices": "currency: EUR\n",
        "log": "",
        "gateway": "listeners=PLAINTEXT://127.0.0.1:19092\nheadgate.upstream=embedded\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    places = {name: str(tmp_path / name) for name in files}
    places |= {"out": str(tmp_path), "tables": str(tmp_path), "kafka": "127.0.0.1:9"}
    places["sqlite"] = f"sqlite:{tmp_path / 'quotas.db'}"
    case = RUNS[command]
    done = subprocess.run(
        [sys.executable, "-c", BARE, command, *case.words(places)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"isn't installed: pip install '{DISTRIBUTION}[{case.extra}]'"), line
    assert not done.stdout


def test_a_job_without_spark_names_the_extra_also_where_all_else_is_there(tmp_path: Path) -> None:
    """Of a console's environment, say: it has pyarrow, numpy and numba, and no pyspark."""
    gone = re.sub(r"in \[.*?\]:", "in ['pyspark']:", BARE)
    assert gone != BARE
    (tmp_path / "quotas").write_text("quotas: []\n")
    (tmp_path / "log").write_text("a line\n")
    words = ["--requests", "log", "--quotas", "quotas", "--broker-id", "1", "--out", "tables"]
    done = subprocess.run(
        [sys.executable, "-c", gone, "usage", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    way_out = f"pip install '{DISTRIBUTION}[pipeline]'"
    assert done.stderr == f"headgate usage: pyspark isn't installed: {way_out}\n"


def test_completion_needs_no_extra_and_names_all_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE, "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    )
    (offered,) = re.findall(r"_headgate_subparsers=\((.*)\)", done.stdout)
    assert {name.strip("'") for name in offered.split()} == COMMANDS.keys()


def test_a_module_that_no_extra_brings_is_not_explained_away() -> None:
    assert missing("headgate usage", "headgate.gone") is None
