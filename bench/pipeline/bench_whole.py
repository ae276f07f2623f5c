"""
The whole command, from process start to tables: `headgate usage` beside Polars and DuckDB.

    python bench/pipeline/bench_whole.py [--mb 8 1000] [--times 3] [--without duckdb]

Each contestant is a process of its own that reads a broker's log and writes usage by second, hour
and day, with peaks and percentiles. All start, load and compile what they need inside the
measure; CPU-seconds are those of all its processes, to the last. They must agree on requests and
on produced bytes.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from bench_usage import _DUCKDB, make_log

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: a JVM whose parent ended is still counted
_ROLLED = """
  sum(requests) as requests, sum(bytes) as bytes, sum(throttle_ms) as throttle_ms,
  count(*) as active_seconds, max(bytes) as peak_per_s, quantile_cont(bytes, 0.5) as p50_per_s,
  quantile_cont(bytes, 0.95) as p95_per_s, quantile_cont(bytes, 0.99) as p99_per_s
"""


class Took(NamedTuple):
    """What a run cost."""

    cpu_s: float
    wall_s: float


def duckdb_tables(log: str, out: str) -> None:
    import duckdb

    db = duckdb.connect()
    for statement in (_DUCKDB % (log, f"{out}/usage.parquet")).split(";\n"):
        db.execute(statement)
    for name, seconds in (("hour", 3600), ("day", 86400)):
        db.execute(
            f"copy (select principal, client_id, quota_type, second // {seconds} as period, "
            f"{_ROLLED} from '{out}/usage.parquet' group by all) "
            f"to '{out}/{name}.parquet' (format parquet)"
        )


def polars_tables(log: str, out: str) -> None:
    import polars as pl

    header = pl.Struct(
        {"requestApiKeyName": pl.String, "requestApiVersion": pl.Int32, "clientId": pl.String}
    )
    topic = pl.Struct(
        {
            "name": pl.String,
            "partitionData": pl.List(pl.Struct({"recordsSizeInBytes": pl.Int64})),
        }
    )
    line = pl.Struct(
        {
            "requestHeader": header,
            "request": pl.Struct({"transactionalId": pl.String, "topicData": pl.List(topic)}),
            "principal": pl.String,
            "sendTimeMs": pl.Float64,
            "responseQueueTimeMs": pl.Float64,
            "throttleTimeMs": pl.Int64,
        }
    )

    def v(n: pl.Expr) -> pl.Expr:
        """Bytes of a varint."""
        one = (n >= 1 << 7).cast(pl.Int64) + (n >= 1 << 14) + (n >= 1 << 21) + (n >= 1 << 28)
        return one + 1

    def length(text: pl.Expr) -> pl.Expr:
        return text.str.len_bytes().cast(pl.Int64)

    text = pl.col("line")
    j = pl.col("j").struct
    at, size = j.field("requestHeader").struct, pl.element().struct.field("recordsSizeInBytes")
    parts = pl.element().struct.field("partitionData")
    name = length(pl.element().struct.field("name"))
    api = at.field("requestApiKeyName")
    topics = j.field("request").struct.field("topicData")
    transactional = length(j.field("request").struct.field("transactionalId"))
    # From version 13 on a topic has an id of 16 bytes, and no name.
    each = (v(name + 1) + name).fill_null(16) + v(parts.list.len().cast(pl.Int64) + 1) + 1
    each = each + parts.list.eval(5 + v(size + 1) + size).list.sum()
    body = (
        pl.when(transactional.is_null()).then(1).otherwise(v(transactional + 1) + transactional)
        + 7
        + v(topics.list.len().cast(pl.Int64) + 1)
        + topics.list.eval(each).list.sum()
    )
    mutations = ("CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS")
    frame = (
        pl.scan_csv(log, separator="\x01", has_header=False, quote_char=None, new_columns=["line"])
        .with_columns(
            log_ms=text.str.slice(1, 23)
            .str.replace(",", ".", literal=True)
            .str.to_datetime("%Y-%m-%d %H:%M:%S%.3f")
            .dt.epoch("ms"),
            j=text.str.extract(r"(\{.*\})").str.json_decode(line),
        )
        .select(
            principal=j.field("principal"),
            client_id=at.field("clientId"),
            quota_type=pl.when(api == "PRODUCE")
            .then(pl.lit("producer_byte_rate"))
            .when(api == "FETCH")
            .then(pl.lit("consumer_byte_rate"))
            .when(api.is_in(mutations))
            .then(pl.lit("controller_mutation_rate"))
            .otherwise(pl.lit("request_percentage")),
            second=(pl.col("log_ms") - j.field("sendTimeMs") - j.field("responseQueueTimeMs"))
            .floordiv(1000)
            .cast(pl.Int64),
            bytes=pl.when(api == "PRODUCE")
            .then(11 + length(at.field("clientId")) + body)
            .otherwise(0),
            throttle_ms=j.field("throttleTimeMs"),
        )
    )
    keys = ("principal", "client_id", "quota_type")
    usage = (
        frame.group_by(*keys, "second")
        .agg(requests=pl.len(), bytes=pl.sum("bytes"), throttle_ms=pl.sum("throttle_ms"))
        .collect(engine="streaming")
    )
    usage.write_parquet(f"{out}/usage.parquet")
    for table, seconds in (("hour", 3600), ("day", 86400)):
        usage.group_by(*keys, period=pl.col("second") // seconds).agg(
            pl.sum("requests", "bytes", "throttle_ms"),
            active_seconds=pl.len(),
            peak_per_s=pl.max("bytes"),
            p50_per_s=pl.quantile("bytes", 0.5, "linear"),
            p95_per_s=pl.quantile("bytes", 0.95, "linear"),
            p99_per_s=pl.quantile("bytes", 0.99, "linear"),
        ).write_parquet(f"{out}/{table}.parquet")


def cut_to(log: Path, size: int) -> None:
    """Cut a log that is longer behind its last whole line."""
    with log.open("rb+") as file:
        text = file.read(size)
        file.truncate(text.rfind(b"\n") + 1)


def sums_of(name: str, out: str) -> tuple[int, ...]:
    """Return the requests and the produced bytes of a contestant's table."""
    import duckdb

    table = f"{out}/usage/*.parquet" if name == "headgate" else f"{out}/usage.parquet"
    produced = "sum(bytes) filter (quota_type = 'producer_byte_rate')"
    (found,) = duckdb.sql(f"select sum(requests), {produced} from '{table}'").fetchall()
    return tuple(map(int, found))


def run(name: str, log: Path, out: str) -> Took:
    """Run a contestant to its end, and its children to theirs."""
    argv = [sys.executable, __file__, "--one", name, "--log", str(log), "--out", out]
    if name == "headgate":
        argv = [sys.executable, "-m", "headgate.cli.main", "usage", "--requests", str(log)]
        argv += ["--out", out]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr}")
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, nargs="+", default=[8, 1000], help="sizes of logs")
    parser.add_argument("--times", type=int, default=3, help="how often, in turn")
    parser.add_argument("--without", action="append", default=[], help="leave one out")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--log", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        made = {"duckdb": duckdb_tables, "polars": polars_tables}
        made[arguments.one](arguments.log, arguments.out)
        return
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    names = [n for n in ("polars", "duckdb", "headgate") if n not in arguments.without]
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        for megabytes in arguments.mb:
            log = make_log(Path(folder) / "request.log", megabytes / 1000)
            cut_to(log, int(megabytes * 1e6))
            took: dict[str, list[Took]] = {name: [] for name in names}
            sums = set()
            for _ in range(arguments.times):
                for name in names:
                    out = f"{folder}/{name}"
                    Path(out).mkdir()
                    took[name].append(run(name, log, out))
                    sums.add(sums_of(name, out))
                    shutil.rmtree(out)
            if len(sums) > 1:
                sys.exit(f"requests and bytes differ: {sums}")
            size = log.stat().st_size / 1e6
            cpu = {n: statistics.median(t.cpu_s for t in runs) for n, runs in took.items()}
            for name in names:
                wall = statistics.median(t.wall_s for t in took[name])
                ratio = ""
                if name != "headgate" and "headgate" in cpu:
                    ratio = f"headgate / {name} {cpu['headgate'] / cpu[name]:5.2f}"
                print(f"{size:8,.0f} MB  {name:9} {cpu[name]:6.1f} CPU-s {wall:6.1f} s  {ratio}")


if __name__ == "__main__":
    main()
