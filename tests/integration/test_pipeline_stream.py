"""
A stream that is killed at any moment and started again gives what one batch gives.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import duckdb_oracle
from headgate.cli import pipeline
from headgate.embedded import spark_env
from headgate.pipeline import split_stream
from headgate.pipeline.journal_tail import follow_journals
from headgate.usage.format import Event, Origin
from headgate.usage.writer import JournalWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
LOG, QUOTAS = DATA / "precise.log.gz", DATA / "precise.quotas.json"
Rows = list[tuple[Any, ...]]


def roll(into: Path, pieces: int) -> list[bytes]:
    """Write the log as rolled files, every third compressed, a second apart; return their text."""
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    size = -(-len(lines) // pieces)
    texts = [b"".join(lines[n * size : (n + 1) * size]) for n in range(pieces)]
    into.mkdir()
    for n, text in enumerate(texts):
        name, data = (f"r.{n}.gz", gzip.compress(text)) if n % 3 == 0 else (f"r.{n}", text)
        (into / name).write_bytes(data)
        os.utime(into / name, (1_000_000 + n, 1_000_000 + n))
    return texts


def flags(logs: Path, out: Path, *more: str) -> list[str]:
    base = ["--requests", str(logs), "--out", str(out), "--quotas", str(QUOTAS)]
    return [*base, "--files-per-round", "1", "--master", "local[2]", *more]


def usage(out: Path) -> Rows:
    rows = duckdb.sql(
        "select quota_type, quota_id, quota, second_ms, requests, bytes, throttle_time_ms "
        f"from read_parquet('{out}/usage/*.parquet') where quota_type like '%byte_rate'"
    ).fetchall()
    return sorted(rows, key=str)


def batches(out: Path) -> int:
    """Return how many batches have begun to be written, whole or not."""
    return len(list((out / "_stream" / "usage" / "activity" / "level=0").glob("part=*")))


def versions(out: Path) -> int:
    """Return the time of the newest tables begun to be made, whole or not."""
    tables = out / "_stream" / "usage" / "tables"
    made = [int(p.parent.name) for p in tables.glob("[0-9]*/usage")]
    return max(made, default=0)


def plans(out: Path) -> int:
    """Return how many batches Spark has begun to plan."""
    return len(list((out / "_stream" / "usage" / "checkpoint" / "offsets").glob("[0-9]*")))


@contextmanager
def following(logs: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A stream in a process of its own; kill -9 to it and its JVM at the end of the block."""
    argv = [sys.executable, "-m", "headgate.cli.main", "usage"]
    argv += flags(logs, out, "--follow", "--every", "0")
    process = subprocess.Popen(
        argv,
        env=os.environ | spark_env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
        assert process.poll() is None, "the stream ended before it was killed"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_when(
    process: subprocess.Popen[bytes], out: Path, seen: Callable[[Path], int], rng: random.Random
) -> None:
    """Wait until something has begun that wasn't there, and up to a second more."""
    before = seen(out)
    while seen(out) <= before and process.poll() is None:
        time.sleep(0.05)
    time.sleep(rng.random())


def of_the_first(pieces: list[bytes], folder: Path) -> list[Rows]:
    """Return usage of the first 1, 2, … pieces of the log, by the oracle."""
    out = []
    for n in range(1, len(pieces) + 1):
        log = folder / f"first-{n}.log.gz"
        log.write_bytes(gzip.compress(b"".join(pieces[:n])))
        out.append(duckdb_oracle.usage(log, QUOTAS))
    return out


def killed_and_finished(folder: Path, kills: int, pieces: int, seed: int) -> None:
    """Kill a stream again and again, while it plans, sums or makes tables; then finish."""
    rng = random.Random(seed)
    logs, out = folder / "logs", folder / "out"
    texts = roll(logs, pieces)
    whole = of_the_first(texts, folder)
    for n in range(kills):
        with following(logs, out) as process:
            kill_when(process, out, (batches, versions, plans)[n % 3], rng)
        if (out / "usage").exists():
            # Whoever reads finds the tables of a whole round, whatever was under way.
            assert usage(out) in whole
    assert batches(out) < pieces, "there was nothing left to kill in"
    # The rest in this process, with the session that the other tests use.
    assert pipeline.main_usage(flags(logs, out, "--incremental")) == 0
    assert usage(out) == whole[-1] == duckdb_oracle.usage(LOG, QUOTAS)


def test_two_kills_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    killed_and_finished(tmp_path, 2, 4, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_five_kills_twice_change_nothing(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    killed_and_finished(tmp_path, 5, 20, seed)


def test_storms_of_a_growing_directory_are_those_of_the_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    (logs / "request.log.gz").write_bytes((DATA / "public.log.gz").read_bytes())
    argv = ["--requests", str(logs), "--out", str(out), "--broker-id", "1", "--incremental"]
    assert pipeline.main_storms([*argv, "--connections-per-second", "2"]) == 0
    found = duckdb.sql(f"select * from read_parquet('{out}/storms/*.parquet') order by all")
    rows = [[float(f"{v:.9g}") if isinstance(v, float) else v for v in r] for r in found.fetchall()]
    # What `headgate storms` finds in the whole log (test_spark_logs).
    assert rows == json.loads((DATA / "golden" / "storms.json").read_text())


def test_journals_are_followed_as_they_grow_and_every_round_has_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    origin = Origin("record", "producer_byte_rate:bps", 1, "L", "alice", "", "alice:")
    journal = tmp_path / "journal"
    writer = JournalWriter(journal, "w")
    rounds: list[float] = []

    def write(batch: DataFrame, number: int) -> None:
        rounds.append(sum(row["used"] for row in batch.collect()))

    def append(*amounts: float) -> None:
        for amount in amounts:
            writer.append(tuple(Event(origin, 1000.0, amount, 9.0, 0, 0)))
        assert writer.flush()

    append(7.0)  # there before: old
    frame = follow_journals(spark, [str(journal)])
    query = split_stream.start(frame, write, str(tmp_path / "checkpoint"), 500)
    try:
        until = time.monotonic() + 120
        while len(rounds) < 2 and time.monotonic() < until:  # though nothing is written
            time.sleep(0.05)
        append(1.0, 2.0)
        append(3.0)
        writer.close()
        while sum(rounds) < 6.0 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        query.stop()
    assert sum(rounds) == 6.0
    assert rounds[:2] == [0.0, 0.0]
