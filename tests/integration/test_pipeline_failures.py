"""A batch run that fails or is killed: a plain error, and the older tables stay."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from headgate.cli.main import load
from headgate.embedded import spark_env
from headgate.pipeline.sources.files import paths

main_usage = load("usage")
main_replay = load("replay")
main_recommend = load("recommend")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LOG = Path(__file__).parents[1] / "data" / "pipeline" / "public.log.gz"
TEXT = gzip.decompress(LOG.read_bytes())


def flags(logs: Path, out: Path) -> list[str]:
    return ["--requests", str(logs), "--out", str(out)]


def counts(out: Path) -> list[int]:
    """Return the requests that each of usage's tables holds, and the summary."""
    names = ("usage", "usage_hour", "usage_day")
    found = [f"select sum(requests) from read_parquet({paths(out, n)})" for n in names]
    found.append(f"select value from read_parquet({paths(out, 'summary')}) where name = 'requests'")
    return [int(duckdb.sql(sql).fetchall()[0][0]) for sql in found]


def test_a_worker_that_cant_read_a_file_fails_the_run_and_the_tables_stay(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    (logs / "a.log").write_bytes(TEXT)
    assert main_usage(flags(logs, out)) == 0
    before = counts(out)
    # The driver has this file open; to a worker the name means nothing.
    with (logs / "a.log").open("rb") as file:
        (logs / "b.log").symlink_to(f"/proc/self/fd/{file.fileno()}")
        (tmp_path / "elsewhere").mkdir()
        (logs / "b.log").rename(tmp_path / "elsewhere" / "b.log")
        capfd.readouterr()
        assert main_usage(flags(tmp_path / "elsewhere", out)) == 1
    said = capfd.readouterr().err
    line = next(line for line in said.splitlines() if line.startswith("headgate usage: "))
    assert line.startswith(f"headgate usage: {tmp_path}/elsewhere/b.log can't be read: ")
    assert line.endswith("; no table was changed")
    assert counts(out) == before
    assert len(list(out.glob("run-*"))) == 1


def test_a_log_without_a_request_is_an_error_unless_told_otherwise(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, out = tmp_path / "server.log", tmp_path / "out"
    log.write_bytes(TEXT[: 1 << 20])
    assert main_usage(flags(log, out)) == 0
    before = counts(out)
    log.write_bytes(b"[2026-11-22 10:00:00,000] INFO started (kafka.server.KafkaServer)\n" * 5)
    for command in (main_usage, main_replay, main_recommend):
        capfd.readouterr()
        assert command(flags(log, out)) == 1
        said = capfd.readouterr()
        assert "none of its lines is a request; is it the file of kafka.request.log" in said.err
        assert "not a request line" in said.out
        assert counts(out) == before
    assert main_usage([*flags(log, out), "--allow-empty"]) == 0
    assert duckdb.sql(f"from read_parquet({paths(out, 'usage')})").fetchall() == []
    assert duckdb.sql(f"from read_parquet({paths(out, 'bad_lines')})").count("*").fetchall() == [
        (5,)
    ]


def test_an_out_that_spark_cant_reach_is_told_before_the_reading(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_bytes(TEXT[: 1 << 20])
    for out, words in (
        ("s3a://bucket/x", "hadoop-aws"),
        ("hdfs:///x", "HADOOP_CONF_DIR"),
        ("nosuch://x", "give a directory"),
    ):
        assert main_usage(["--requests", str(tmp_path / "a.log"), "--out", out]) == 1
        said = capfd.readouterr().err
        assert f"headgate usage: --out {out}: " in said
        assert words in said
        assert "reading and adding up" not in said


def test_tables_of_a_uri_are_replaced_together_as_well(spark: SparkSession, tmp_path: Path) -> None:
    log, out = tmp_path / "a.log", tmp_path / "out"
    log.write_bytes(TEXT[: 1 << 20])
    for _ in range(2):
        assert main_usage(["--requests", str(log), "--out", f"file://{out}"]) == 0
        assert len(set(counts(out))) == 1
        (out / "notes.txt").write_text("mine")
    assert (out / "notes.txt").exists()
    assert sorted(len(list(run.glob("usage*"))) for run in out.glob("run-*")) == [3, 3]


@pytest.mark.slow
def test_a_killed_run_leaves_one_runs_tables(tmp_path: Path) -> None:
    """Kill -9 at moments all over the time that tables are written."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    (logs / "a.log").write_bytes(TEXT)
    argv = [
        sys.executable,
        "-m",
        "headgate.cli.main",
        "usage",
        *flags(logs, out),
        "--copies",
        "count",
    ]
    env = os.environ | spark_env()
    subprocess.run(argv, env=env, check=True, capture_output=True)
    one = counts(out)
    (logs / "b.log").write_bytes(TEXT.replace(b"alice", b"carol"))
    for delay in (0.0, 0.7, 1.5, 2.5):
        before = {p.name for p in out.iterdir()}
        process = subprocess.Popen(
            argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        while {p.name for p in out.iterdir()} <= before and process.poll() is None:
            time.sleep(0.02)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert counts(out) in (one, [2 * n for n in one])
    subprocess.run(argv, env=env, check=True, capture_output=True)
    assert counts(out) == [2 * n for n in one]
    assert len(list(out.glob("run-*"))) == 2  # the last, and the one before for its readers
