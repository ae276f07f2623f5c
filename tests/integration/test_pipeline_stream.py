"""
A stream that is killed at any moment and started again gives what one batch gives.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
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

from headgate.cli import exit_codes
from headgate.cli.main import load
from headgate.embedded import spark_env
from headgate.pipeline.sources.files import paths
from headgate.pipeline.sources.journal_tail import follow_journals
from headgate.pipeline.splits import split_stream
from headgate.pipeline.tables.pointer import POINTER
from headgate.usage.format import Event, Origin
from headgate.usage.writer import JournalWriter
from kit import duckdb_oracle

main_usage = load("usage")
main_replay = load("replay")
main_storms = load("storms")
main_what_if = load("what-if")
main_recommend = load("recommend")

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
        f"from read_parquet({paths(out, 'usage')}) where quota_type like '%byte_rate'"
    ).fetchall()
    return sorted(rows, key=str)


def table(out: Path, name: str, what: str = "*") -> Rows:
    found = duckdb.sql(f"select {what} from read_parquet({paths(out, name)})")
    return sorted(found.fetchall(), key=str)


def files(out: Path, name: str) -> Rows:
    """Return how many requests of each file a table holds."""
    found = duckdb.sql(f"select file, count(*) from read_parquet({paths(out, name)}) group by 1")
    return sorted(found.fetchall())


class Followed:
    """
    What a command's stream leaves on the disk.

    Args:
        out: its directory.
        command: as it is called.
        part: a part that every round writes.
        made: the last table that a round makes.
    """

    def __init__(self, out: Path, command: str, part: str, made: str) -> None:
        self.out = out
        self.command = command
        self._stream = out / "_stream" / command
        self._part = part
        self._made = made

    def batches(self) -> int:
        """Return how many batches have begun to be written, whole or not."""
        return len(list((self._stream / self._part / "level=0").glob("part=*")))

    def versions(self) -> int:
        """Return the time of the newest tables begun to be made, whole or not."""
        made = self.out.glob(f"run-*/{self._made}")
        return max((p.stat().st_ctime_ns for p in made), default=0)

    @contextmanager
    def following(self, argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        """A stream in a process of its own; kill -9 to it and its JVM at the end of the block."""
        process = subprocess.Popen(
            [sys.executable, "-m", "headgate.cli.main", self.command, *argv],
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

    def killed(self, argv: list[str], seen: Callable[[], int], rng: random.Random) -> None:
        """Kill it when something has begun that wasn't there, or up to a second later."""
        with self.following([*argv, "--follow", "--every", "0"]) as process:
            before = seen()
            while seen() <= before and process.poll() is None:
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
    """Kill `usage` again and again, while it plans, sums or makes tables; then finish."""
    rng = random.Random(seed)
    logs, out = folder / "logs", folder / "out"
    texts = roll(logs, pieces)
    whole = of_the_first(texts, folder)
    stream = Followed(out, "usage", "activity", "usage")
    for n in range(kills):
        stream.killed(flags(logs, out), (stream.batches, stream.versions)[n % 2], rng)
        if (out / POINTER).exists():
            # A reader finds the tables of one whole round, whatever was under way.
            assert usage(out) in whole
    assert stream.batches() < pieces, "there was nothing left to kill in"
    # The rest in this process, with the session that the other tests use.
    assert main_usage(flags(logs, out, "--incremental")) == 0
    assert usage(out) == whole[-1] == duckdb_oracle.usage(LOG, QUOTAS)


def test_a_brokers_own_folder_is_followed_while_it_writes_and_rolls(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The active file grows, is renamed on the hour, and compressed: every request counts once."""
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    active = logs / "kafka-request.log"
    rolled = logs / "kafka-request.log.2026-01-01-10"

    def write(begin: int, end: int) -> None:
        with active.open("ab") as file:
            file.write(b"".join(lines[begin:end])[: None if end < 2500 else -1])

    def run() -> None:
        argv = ["--requests", str(active) + "*", "--out", str(out), "--quotas", str(QUOTAS)]
        assert main_usage([*argv, "--incremental"]) == 0

    write(0, 500)
    run()
    write(500, 900)
    active.rename(rolled)
    write(900, 1200)
    run()
    rolled.with_name(rolled.name + ".gz").write_bytes(gzip.compress(rolled.read_bytes()))
    rolled.unlink()
    write(1200, len(lines))
    os.utime(active, (1_000_000, 1_000_000))  # its last line has no newline: it's at rest
    run()
    assert usage(out) == duckdb_oracle.usage(LOG, QUOTAS)
    assert table(out, "bad_lines") == []


@pytest.mark.parametrize("lost", ["commit", "part"])
def test_a_round_that_wasnt_committed_is_written_again_of_files_renamed_since(
    spark: SparkSession, tmp_path: Path, lost: str
) -> None:
    """As a kill leaves it: the tables made, or the part begun, and the round not committed."""
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    log = logs / "request.log"
    kept = out / "_stream" / "usage"
    argv = [*flags(logs, out), "--incremental"]

    def part(number: int) -> Path:
        return kept / "activity" / "level=0" / f"part={number}"

    for end in (1000, 2000):
        log.write_bytes(b"".join(lines[:end]) + b'garbled {"requestHeader\n' * (end == 2000))
        assert main_usage(argv) == 0
    for path in (kept / "checkpoint" / "commits").glob("*1*"):
        path.unlink()
    if lost == "part":
        shutil.rmtree(part(1))
    (logs / "request.log.1.gz").write_bytes(
        gzip.compress(log.read_bytes() + b"".join(lines[2000:]))
    )
    log.unlink()
    assert main_usage(argv) == 0
    assert usage(out) == duckdb_oracle.usage(LOG, QUOTAS)
    assert len(table(out, "bad_lines")) == 1
    assert part(2).exists()
    made = paths(out, "usage")
    assert main_usage(argv) == 0  # nothing is new: the same tables, and no round
    assert usage(out) == duckdb_oracle.usage(LOG, QUOTAS)
    assert (paths(out, "usage") != made, part(3).exists()) == (True, False)


def test_an_earlier_versions_state_is_refused_and_the_tables_stay(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    roll(logs, 1)
    commits = out / "_stream" / "usage" / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    (commits / "0").touch()
    assert main_usage([*flags(logs, out), "--incremental"]) == 1
    said = " ".join(capfd.readouterr().err.split())
    assert "is of an earlier version of Headgate" in said
    assert "start again with another --out" in said
    assert not (out / POINTER).exists()


def test_a_stream_ends_when_it_is_told_to_and_leaves_whole_tables(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    whole = of_the_first(roll(logs, 4), tmp_path)
    argv = [*flags(logs, out), "--follow", "--every", "600"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli.main", "usage", *argv],
        env=os.environ | spark_env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (out / POINTER).exists() and process.poll() is None:
            time.sleep(0.05)
        process.terminate()  # in the middle of the second round, or before it
        _, said = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    assert "round 0: tables are made, in" in said
    assert usage(out) in whole


def test_a_kill_changes_nothing_in_usage(spark: SparkSession, tmp_path: Path) -> None:
    killed_and_finished(tmp_path, 1, 6, 1)


@pytest.mark.slow
def test_a_kill_changes_nothing_in_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    replay_killed_and_finished(tmp_path, 1, 6, 1)


def replay_killed_and_finished(folder: Path, kills: int, pieces: int, seed: int) -> None:
    """Kill `replay` again and again; every row is then as one replay of the whole decides it."""
    rng = random.Random(seed)
    logs, out, whole = folder / "logs", folder / "out", folder / "whole"
    texts = roll(logs, pieces)
    (logs / "r.0.gz").write_bytes(gzip.compress(texts[0] + b'cut off {"isForwarded":\n'))
    os.utime(logs / "r.0.gz", (1_000_000, 1_000_000))
    assert main_replay(flags(logs, whole)) == 0
    of_all = files(whole, "replay")
    stream = Followed(out, "replay", "requests", "replay")
    for n in range(kills):
        stream.killed(flags(logs, out), (stream.versions, stream.batches)[n % 2], rng)
        if (out / POINTER).exists():
            there = files(out, "replay")
            assert there == [f for f in of_all if f in there]
            assert len(there) in range(1, pieces + 1)
    assert stream.batches() < pieces, "there was nothing left to kill in"
    assert main_replay(flags(logs, out, "--incremental")) == 0
    for name in ("replay", "bad_lines"):
        assert table(out, name) == table(whole, name)
    assert len(table(out, "bad_lines")) == 1
    throttled = table(whole, "replay", "sum((replayed_throttle_time_ms > 0)::int)")
    assert throttled[0][0] > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_five_kills_twice_change_nothing(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    killed_and_finished(tmp_path, 5, 20, seed)


@pytest.mark.slow
def test_five_kills_change_nothing_in_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    replay_killed_and_finished(tmp_path, 5, 20, 4)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["what-if", "recommend"])
def test_two_kills_change_nothing_in_other_plans(
    spark: SparkSession, tmp_path: Path, command: str
) -> None:
    rng = random.Random(5)
    logs, out, whole = tmp_path / "logs", tmp_path / "out", tmp_path / "whole"
    roll(logs, 8)
    name = command.replace("-", "_")
    more: list[str] = []
    if command == "what-if":
        plan = tmp_path / "strict.yaml"
        plan.write_text(
            "quotas:\n"
            "  - entity: {user: null}\n"
            "    producer_byte_rate: 20000\n"
            "    producer_byte_rate:bps: 30000\n"
            "    producer_byte_rate:shares: 3\n"
        )
        more = ["--plan", str(plan), "--capacity-producer-byte-rate", "60000"]
    main = {"what-if": main_what_if, "recommend": main_recommend}[command]
    assert main([*flags(logs, whole), *more]) == 0
    stream = Followed(out, command, "requests", name)
    for seen in (stream.batches, stream.versions):
        stream.killed([*flags(logs, out), *more], seen, rng)
    assert stream.batches() < 8, "there was nothing left to kill in"
    assert main([*flags(logs, out, "--incremental"), *more]) == 0
    assert table(out, name) == table(whole, name)
    if command == "what-if":
        kinds = table(whole, name, "distinct quota_type")
        assert {"producer_byte_rate:bps", "producer_byte_rate:shares"} <= {k for (k,) in kinds}


def test_storms_of_a_growing_directory_are_those_of_the_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    (logs / "request.log.gz").write_bytes((DATA / "public.log.gz").read_bytes())
    argv = ["--requests", str(logs), "--out", str(out), "--broker-id", "1", "--incremental"]
    assert main_storms([*argv, "--connections-per-second", "2"]) == exit_codes.FOUND
    columns = "columns(lambda c: c <> 'day' and not ends_with(c, '_at'))"
    found = duckdb.sql(f"select {columns} from read_parquet({paths(out, 'storms')}) order by all")
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
