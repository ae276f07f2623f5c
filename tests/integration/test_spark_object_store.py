"""Logs and tables in object storage, through `s3a://`, beside the same in folders."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cli.main import main
from headgate.embedded import spark_env
from headgate.embedded.jars import S3A, ensure_jars
from headgate.pipeline.sources.files import paths
from kit.object_store import Bucket, rows, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DATA = Path(__file__).parents[1] / "data" / "pipeline"
TABLES = ("usage", "usage_hour", "usage_day", "bad_lines")


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with s3_server(tmp_path / "s3", "kafka") as made:
        yield made


def test_tables_in_object_storage_are_those_of_a_folder(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = gzip.decompress((DATA / "precise.log.gz").read_bytes())
    bucket.put("logs/r.log", text)
    (tmp_path / "r.log").write_bytes(text)
    quotas = ["--quotas", str(DATA / "precise.quotas.json"), "--broker-id", "1"]
    settings = {
        "spark.driver.extraClassPath": f"{ensure_jars(S3A)}/*",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    flags = [f"--spark-conf={name}={value}" for name, value in settings.items()]
    here = tmp_path / "here"
    argv = [sys.executable, "-m", "headgate.cli.main", "usage", *quotas, "--master", "local[2]"]
    away = ["--requests", "s3a://kafka/logs", "--out", "s3a://kafka/out", *flags]
    by_day = ["--partition-by", "day"]
    environment = {**os.environ, **spark_env(), **bucket.environment}
    ways = (["--requests", str(tmp_path / "r.log"), "--out", str(here)], away)
    # The second run replaces tables, the third one a day of them.
    for more in (*ways, [*away, *by_day], [*away, *by_day, "--mode", "merge"]):
        done = subprocess.run(
            [*argv, *more], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
    out = bucket.fetch("out", tmp_path / "out")
    assert len(rows(out, "usage")) > 10
    for table in TABLES:
        assert rows(out, table) == rows(here, table), table
    assert len({Path(path).parent for path in paths(out, "usage")}) == 1
    assert len({name.split("/")[1] for name in bucket.objects() if "/run-" in name}) == 2
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    page = tmp_path / "report.html"
    assert main(["report", "--tables", "s3a://kafka/out", "--out", str(page)]) == 0
    assert "s3a://kafka/out" in page.read_text()
