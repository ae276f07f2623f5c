"""Tables of Delta by Spark's own writers, at a path and in a catalog; Iceberg is refused here."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.cli.main import main
from headgate.embedded import spark_env
from headgate.embedded.jars import DELTA, ensure_jars
from kit import lake_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"


@pytest.mark.slow
def test_commands_write_delta_at_a_path_and_in_a_catalog(tmp_path: Path) -> None:
    log = tmp_path / "request.log"
    log.write_bytes(gzip.decompress((DATA / "precise.log.gz").read_bytes()))
    jars = ",".join(map(str, ensure_jars(DELTA).glob("*.jar")))
    command = [sys.executable, lake_runs.__file__, "delta", jars, str(log)]
    command += [str(DATA / "precise.quotas.json"), str(tmp_path), "spark_catalog.default"]
    # Delta's log is read in this many tasks.
    settings = {"spark.databricks.delta.snapshotPartitions": "1"}
    settings |= {"spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    done = subprocess.run(
        [*command, *(f"{name}={value}" for name, value in settings.items())],
        cwd=tmp_path,
        env={**os.environ, **spark_env()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=5_000,  # it takes two minutes, and on a busy machine many times that
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(said[0] in "03" for said in found["said"]), found["said"]
    for number in (0, 1):
        first, both, merged = (found[f"{number} {way}"] for way in ("overwrite", "append", "merge"))
        [[[today, half]], _] = first
        whole = both[0][1][1]
        assert both[0] == [[today, half], ["2031-01-02", whole]]
        assert merged[0] == [[today, whole], ["2031-01-02", whole]]
        assert half < whole
        assert [day for _, day in (first, both, merged)] == [
            seconds for seconds, _ in (first, both, merged)
        ]
        assert found[f"{number} report"].startswith("0 ")
        assert (tmp_path / f"{number}.html").stat().st_size > 100_000
    # No run's folder is left beside the tables, nor in the catalog's own folder.
    assert found["runs"] == []
    assert found["summary"] == ["storms", "usage"]
    assert found["left"] == ["bad_lines", "storms", "summary", "usage", "usage_day", "usage_hour"]
    assert (
        "bad_lines is a table of Delta, which Spark reads: add --format delta"
        in (found["plain report"])
    )
    assert found["written"] == [found["rows"]] * 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--format", "iceberg"], "--format iceberg: no release of Iceberg runs on Spark 4.2"),
        (["--format", "delta", "--engine", "sail"], "--engine sail writes Parquet"),
    ],
)
def test_a_format_that_cant_be_written_is_refused_before_the_reading(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(gzip.decompress((DATA / "precise.log.gz").read_bytes()))
    argv = ["usage", "--requests", str(log), "--out", str(tmp_path / "out"), *flags]
    assert main(argv) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_tables_of_an_earlier_version_are_read_and_not_written_beside(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, out, old = tmp_path / "a.log", tmp_path / "out", tmp_path / "old"
    log.write_bytes(gzip.decompress((DATA / "precise.log.gz").read_bytes()))
    argv = ["usage", "--requests", str(log), "--out"]
    assert main([*argv, str(out)]) == 0
    [run] = out.glob("run-*")
    run.rename(old)  # as an earlier version left its tables
    page = tmp_path / "page.html"
    assert main(["report", "--tables", str(old), "--out", str(page)]) == 0
    capfd.readouterr()
    assert main([*argv, str(old)]) == 1
    said = capfd.readouterr().err
    assert "bad_lines, summary, usage, usage_day, usage_hour lie there without a run" in said
    assert not list(old.glob("run-*"))
