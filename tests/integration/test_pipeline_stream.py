"""
A stream that is killed at any moment and started again gives what one batch gives.
"""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_oracle
from headgate.embedded import spark_env

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
LOG, QUOTAS = DATA / "precise.log.gz", DATA / "precise.quotas.json"
BYTES = """
select quota_type, quota_id, quota, second_ms, requests, bytes, throttle_time_ms
from read_parquet('{}/usage/*.parquet') where quota_type like '%byte_rate'
"""


def roll(into: Path, pieces: int) -> None:
    """Write the log as rolled files, every third compressed."""
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    size = -(-len(lines) // pieces)
    for n in range(pieces):
        text = b"".join(lines[n * size : (n + 1) * size])
        name, data = (f"r.{n}.gz", gzip.compress(text)) if n % 3 == 0 else (f"r.{n}", text)
        (into / name).write_bytes(data)


def command(logs: Path, out: Path, *flags: str) -> list[str]:
    base = [sys.executable, "-m", "headgate.cli.main", "usage", "--requests", str(logs)]
    base += ["--out", str(out), "--quotas", str(QUOTAS), "--files-per-round", "1"]
    return [*base, "--master", "local[2]", *flags]


def begun(out: Path) -> int:
    """Return how many batches' directories are there, whole or not."""
    return len(list((out / "_stream" / "activity").glob("batch=*")))


def kill_in_the_middle(argv: list[str], out: Path, rng: random.Random) -> int:
    """Start a stream, kill -9 it and its JVM while it writes; return batches begun."""
    before = begun(out)
    process = subprocess.Popen(
        argv,
        env=os.environ | spark_env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while begun(out) <= before and process.poll() is None:
            time.sleep(0.05)
        assert process.poll() is None, "the stream ended before it was killed"
        time.sleep(rng.random())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return begun(out)


def killed_and_finished(tmp_path: Path, kills: int, seed: int) -> list[tuple[Any, ...]]:
    rng = random.Random(seed)
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    roll(logs, kills * 4)
    for _ in range(kills):
        assert kill_in_the_middle(command(logs, out, "--follow", "--every", "0"), out, rng) > 0
    done = subprocess.run(
        command(logs, out, "--incremental"),
        env=os.environ | spark_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows: list[tuple[Any, ...]] = duckdb.sql(BYTES.format(out)).fetchall()
    return sorted(rows, key=str)


def test_two_kills_change_nothing(tmp_path: Path) -> None:
    assert killed_and_finished(tmp_path, 2, 1) == duckdb_oracle.usage(LOG, QUOTAS)


@pytest.mark.slow
def test_ten_kills_change_nothing(tmp_path: Path) -> None:
    assert killed_and_finished(tmp_path, 10, 2) == duckdb_oracle.usage(LOG, QUOTAS)
