"""
Every command on Sail: its tables are Spark's, to the last digit, and what it can't do is refused.

Spark's rows are those of the library, which the commands are made of.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest

import headgate.pipeline as hp
from headgate.cli.main import main
from headgate.pipeline.answers.storms import Thresholds
from headgate.pipeline.sources.files import paths
from headgate.pipeline.tables.pointer import POINTER, parse_pointer
from kit.journals import traffic, write_journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
INPUTS = ("log", "journal")
QUOTAS = str(DATA / "public.quotas.json")
COMMANDS: dict[str, list[str]] = {
    "usage": ["--quotas", QUOTAS],
    "requests": [],
    "replay": ["--quotas", QUOTAS],
    "what-if": ["--quotas", QUOTAS, "--plan", QUOTAS, "--closed-loop"],
    "storms": ["--connections-per-second", "1"],
    "effective": ["--quotas", QUOTAS],
    "chargeback": ["--quotas", QUOTAS],
    "recommend": ["--quotas", QUOTAS],
}
# Runs commands one after the other; a process that has a session of Spark's can't have Sail's.
PROGRAM = """
import json, sys
from headgate.cli.main import main
from headgate.pipeline.sources.files import paths
for line in json.loads(sys.argv[1]):
    status = main(line)
    assert status in (0, 3), (status, line)  # 3: storms were found
"""

DAYS = """
import json, sys
import headgate.pipeline as hp
from headgate.pipeline.sail import open_sail
used = hp.read_table(open_sail({}), sys.argv[1], "usage")
assert used.select("day").schema["day"].metadata["comment"]
print(json.dumps({str(row["day"]): row["count"] for row in used.groupBy("day").count().collect()}))
"""


def answer(requests: DataFrame, table: str) -> DataFrame:
    """Return the rows of a command's table, as the library gives them on Spark."""
    plans = {"public.quotas": QUOTAS, "public.quotas-2": QUOTAS}
    answers: dict[str, Callable[[DataFrame], DataFrame]] = {
        "usage": partial(hp.usage, quotas=QUOTAS),
        "usage_hour": partial(hp.usage, quotas=QUOTAS, by="hour"),
        "usage_day": partial(hp.usage, quotas=QUOTAS, by="day"),
        "replay": partial(hp.replay, quotas=QUOTAS),
        "what_if": partial(hp.what_if, plans={"public.quotas-2": QUOTAS}, in_force=QUOTAS),
        "demand": partial(hp.demand, plans=plans),
        "storms": partial(hp.storms, thresholds=Thresholds(connections_per_s=1)),
        "effective": partial(hp.effective, quotas=QUOTAS),
        "chargeback": partial(hp.chargeback, quotas=QUOTAS),
        "recommend": partial(hp.recommend, quotas=QUOTAS),
    }
    return answers[table](requests) if table in answers else requests


def rows(table: Any) -> list[str]:
    """Return an Arrow table's rows, each as text to the last digit, in one order."""
    return sorted(map(repr, table.to_pylist()))


def ask(*lines: list[str]) -> None:
    """Run commands, in a process that has no session of Spark's."""
    asked = [sys.executable, "-c", PROGRAM, json.dumps(lines)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A log of many clients and limits, and a journal of a gateway's."""
    folder = tmp_path_factory.mktemp("journal")
    write_journal(folder, traffic(1_790_000_000_000)[1])
    return {"log": str(DATA / "public.log.gz"), "journal": str(folder)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, str]) -> Path:
    """Where Sail wrote the tables of all commands."""
    made = tmp_path_factory.mktemp("sail")
    lines = [
        [
            *(command, "--requests", inputs[name], "--broker-id", "1", *flags),
            *("--out", f"{made}/{name}", "--engine", "sail", "--quiet"),
        ]
        for name in INPUTS
        for command, flags in COMMANDS.items()
    ]
    by_topic = ["usage", "--by-topic", *COMMANDS["usage"], "--broker-id", "1"]
    sail = ["--engine", "sail", "--quiet"]
    lines += [
        [*by_topic, "--requests", inputs[name], "--out", f"{made}/{name}-topics", *sail]
        for name in INPUTS
    ]
    ask(*lines)
    return made


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize(
    "table",
    [
        *("usage", "usage_hour", "usage_day", "requests", "replay", "what_if", "demand"),
        *("storms", "effective", "chargeback", "recommend"),
    ],
)
def test_a_table_is_sparks_to_the_last_digit(
    spark: SparkSession, inputs: dict[str, str], folder: Path, table: str, name: str
) -> None:
    here = hp.requests(spark, inputs[name], broker_id=1)
    found = pyarrow.dataset.dataset(paths(folder / name, table), format="parquet").to_table()
    wanted = answer(here, table).toArrow()
    assert found.column_names == wanted.column_names
    assert rows(found) == rows(wanted)


@pytest.mark.parametrize("name", INPUTS)
def test_usage_by_topic_is_sparks(
    spark: SparkSession, inputs: dict[str, str], folder: Path, name: str
) -> None:
    requests = hp.requests(spark, inputs[name], broker_id=1, topics=True).persist()
    for by, suffix in (("second", ""), ("hour", "_hour"), ("day", "_day")):
        for table, by_topic in (("usage", False), ("usage_by_topic", True)):
            files = paths(folder / f"{name}-topics", f"{table}{suffix}")
            found = pyarrow.dataset.dataset(files, format="parquet").to_table()
            wanted = hp.usage(requests, QUOTAS, by=by, by_topic=by_topic).toArrow()
            assert found.column_names == wanted.column_names
            assert rows(found) == rows(wanted) != []
    requests.unpersist()


def read_parts(out: Path) -> list[str]:
    """Return the parts that the pointer names, those of the run before the last too."""
    found = parse_pointer((out / POINTER).read_bytes(), str(out))
    return [*(part for parts in found.tables.values() for part in parts), *found.before]


def count(out: Path) -> int:
    return pyarrow.dataset.dataset(paths(out, "usage"), format="parquet").count_rows()


def test_a_second_run_replaces_or_adds_to_the_first(
    inputs: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    asked = ["usage", "--requests", inputs["log"], "--broker-id", "1", *COMMANDS["usage"]]
    sail = [*asked, "--engine", "sail", "--out", str(tmp_path)]
    ask(sail, sail)
    once = count(tmp_path)
    assert once == count(folder / "log") > 100
    assert all(f.name.startswith("part-") for f in map(Path, paths(tmp_path, "usage")))
    ask([*sail, "--mode", "append"])
    assert count(tmp_path) == 2 * once
    by_day = [*sail[:-1], f"{tmp_path}/days", "--partition-by", "day"]
    ask(by_day, [*by_day, "--mode", "merge"])
    assert count(tmp_path / "days") == once
    asked_days = [sys.executable, "-c", DAYS, f"{tmp_path}/days"]
    done = subprocess.run(asked_days, capture_output=True, text=True, timeout=500, check=False)
    named = {Path(path).parent.name for path in paths(tmp_path / "days", "usage")}
    assert {f"day={day}" for day in json.loads(done.stdout)} == named, done.stderr[-4000:]
    assert sum(json.loads(done.stdout).values()) == once
    assert main([*asked, "--out", str(tmp_path)]) == 0
    assert count(tmp_path) == once


@pytest.mark.parametrize("name", INPUTS)
def test_nothing_is_left_beside_the_tables(folder: Path, name: str) -> None:
    named = {part.partition("/")[0] for part in read_parts(folder / name)}
    there = {path.name for path in (folder / name).iterdir()}
    assert there == named | {POINTER}
    inside = [path.name for run in named for path in (folder / name / run).iterdir()]
    assert not [file for file in inside if file[0] in "._"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--master", "local[2]"], "--engine sail and --master: give one of them"),
        (["--remote", "sc://h:1"], "--engine sail and --remote: give one of them"),
        (["--incremental"], "--engine sail: --incremental and --follow need"),
        (["--out", "s3a://bucket/tables"], "--engine sail: give --out a directory"),
        (["--format", "delta"], "--engine sail writes Parquet"),
    ],
)
def test_what_sail_cant_do_is_refused(
    flags: list[str],
    words: str,
    inputs: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--requests", inputs["log"], "--out", str(tmp_path)]
    assert main(["usage", *given, "--engine", "sail", *flags]) in {1, 2}
    assert words in capsys.readouterr().err
