"""What is installed is enough: extras name what is imported, commands say which one they miss."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from headgate.cli.extras import DISTRIBUTION, EXTRAS, missing
from headgate.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Import names whose distributions are called otherwise; the rest is found by its metadata.
DISTRIBUTIONS = {
    name: {distribution.lower().replace("_", "-") for distribution in found}
    for name, found in packages_distributions().items()
}
# What others bring: numba its compiler, jinja2 its escaped texts, uvicorn its parser of HTTP.
BROUGHT = {
    "anyio": "starlette",
    "h11": "uvicorn",
    "llvmlite": "numba",
    "markupsafe": "jinja2",
    "py4j": "pyspark",
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
# Commands that the base install runs whole.
BASE = {"completion", "monitoring", "why"}
KAFKA = ["--store", "kafka://127.0.0.1:9"]
LOG = ["--requests", "requests.log", "--out", "out"]
RUNS = {
    "serve": (["--config", "serve.properties"], "gateway"),
    "demo": ([], "all"),
    "export": (KAFKA, "admin"),
    "plan": ([*KAFKA, "quotas.yaml"], "admin"),
    "apply": ([*KAFKA, "quotas.yaml"], "admin"),
    "history": (KAFKA, "admin"),
    "store": (["show", *KAFKA], "admin"),
    "undo": (["0123456789ab", *KAFKA], "admin"),
    "doctor": (KAFKA, "admin"),
    "requests": (LOG, "pipeline"),
    "usage": ([*LOG, "--quotas", "quotas.yaml"], "pipeline"),
    "effective": ([*LOG, "--quotas", "quotas.yaml"], "pipeline"),
    "replay": ([*LOG, "--quotas", "quotas.yaml"], "pipeline"),
    "what-if": ([*LOG, "--plan", "quotas.yaml"], "pipeline"),
    "recommend": ([*LOG, "--quotas", "quotas.yaml"], "pipeline"),
    "chargeback": ([*LOG, "--quotas", "quotas.yaml", "--prices", "prices.yaml"], "pipeline"),
    "storms": (LOG, "pipeline"),
    "splits": (
        [
            "--topic",
            "usage",
            "--kafka-config",
            "bootstrap.servers=127.0.0.1:9",
            "--quotas",
            "quotas.yaml",
        ],
        "pipeline",
    ),
    "report": (["--tables", "out"], "pipeline"),
    "console": (KAFKA, "console"),
    "kafka-quotas": ([*KAFKA, "--list"], "admin"),
    "kafka-configs": ([*KAFKA, "--describe", "--entity-type", "users"], "admin"),
}


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


def test_every_package_that_is_imported_is_listed() -> None:
    listed = names(PROJECT["dependencies"]).union(
        *(names(PROJECT["optional-dependencies"][extra]) for extra in EXTRAS)
    )
    for path in sorted((ROOT / "src" / "headgate").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            else:
                continue
            for package in {module.partition(".")[0] for module in modules}:
                if package == "headgate" or package in sys.stdlib_module_names:
                    continue
                package = BROUGHT.get(package, package)
                assert DISTRIBUTIONS[package] & listed, f"{path.name} imports {package}"


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in BASE])
def test_a_command_says_in_one_line_which_extra_it_misses(command: str, tmp_path: Path) -> None:
    (tmp_path / "quotas.yaml").write_text("quotas: []\n")
    (tmp_path / "prices.yaml").write_text("currency: EUR\n")
    (tmp_path / "requests.log").write_text("")
    (tmp_path / "out" / "usage").mkdir(parents=True)
    (tmp_path / "out" / "usage" / "part.parquet").touch()
    (tmp_path / "serve.properties").write_text(
        "listeners=PLAINTEXT://127.0.0.1:19092\nheadgate.upstream=embedded\n"
    )
    arguments, extra = RUNS[command]
    done = subprocess.run(
        [sys.executable, "-c", BARE, command, *arguments],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"isn't installed: pip install '{DISTRIBUTION}[{extra}]'"), line
    assert not done.stdout


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
