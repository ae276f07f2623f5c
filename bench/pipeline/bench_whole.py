"""
The whole command, from process start to tables: `headgate usage` and `replay` beside their peers.

    python bench/pipeline/bench_whole.py [--mb 8 1000] [--of usage replay] [--events 4e6] [--hot]
        [--times 3] [--without duckdb]

Usage: each contestant is a process of its own that reads a broker's log and writes usage by second,
hour and day, with peaks and percentiles. Replay: each reads the log, or a table of produce
requests, and writes a row per request with a decision on each; Polars leaves the decisions to our
kernel. With --hot also a table whose users are alike, and one where one makes 90 %, both of one
broker.

Headgate runs on Spark, and on Sail (``--engine sail``).

All start, load and compile what they need inside the measure; CPU-seconds are those of all their
processes. They must agree on produce requests and bytes, or on requests and throttle time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
from bench_usage import _DUCKDB, make_log
from cpu import Took, run_whole

from headgate.pipeline.sources.files import find_files, paths

if TYPE_CHECKING:
    import polars as pl

QUOTA = 100_000.0
QUOTAS_FILE = f"quotas: [{{entity: {{user: null}}, producer_byte_rate: {QUOTA}}}]\n"
LONGEST_LINE = 1 << 20
_ROLLED = """
  sum(requests) as requests, sum(bytes) as bytes, sum(throttle_ms) as throttle_ms,
  count(*) as active_seconds, max(bytes) as peak_per_s, quantile_cont(bytes, 0.5) as p50_per_s,
  quantile_cont(bytes, 0.95) as p95_per_s, quantile_cont(bytes, 0.99) as p99_per_s
"""


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


def polars_requests(log: str) -> pl.LazyFrame:
    """Return a row per line: who, what for, when, bytes produced, throttle told."""
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
    return (
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
            record_ms=pl.col("log_ms") - j.field("sendTimeMs") - j.field("responseQueueTimeMs"),
            bytes=pl.when(api == "PRODUCE")
            .then(11 + length(at.field("clientId")) + body)
            .otherwise(0),
            throttle_ms=j.field("throttleTimeMs"),
        )
    )


def polars_tables(log: str, out: str) -> None:
    import polars as pl

    second = pl.col("record_ms").floordiv(1000).cast(pl.Int64)
    frame = polars_requests(log).with_columns(second=second)
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
        begin = max(0, size - LONGEST_LINE)
        file.seek(begin)
        file.truncate(begin + file.read(size - begin).rfind(b"\n") + 1)


def polars_replay(source: str, out: str) -> None:
    import numpy as np
    import polars as pl

    from headgate.kernel.rate import RateState, replay_rate

    if Path(source).is_file():
        rows = polars_requests(source).with_columns(
            broker_id=0, amount=pl.col("bytes").cast(pl.Float64), throttle_time_ms="throttle_ms"
        )
    else:
        rows = pl.scan_parquet([path for path, _ in find_files([source])])
    user = pl.col("principal")
    frame = (
        rows.with_columns(
            key=user.cast(pl.Categorical).to_physical().cast(pl.Int64) * 4 + pl.col("broker_id"),
            at=(pl.col("record_ms") + 0.5).floor().cast(pl.Int64),
            is_produced=pl.col("quota_type") == "producer_byte_rate",
        )
        .sort("is_produced", "key", "at", maintain_order=True)
        .collect()
    )
    produced = frame.filter(pl.col("is_produced"))
    key = produced["key"].to_numpy()
    state = RateState(int(key.max()) + 1)
    decided = replay_rate(
        state,
        key,
        produced["at"].to_numpy(),
        produced["amount"].to_numpy(),
        bound=np.full(len(key), QUOTA),
    )
    others = np.zeros(len(frame) - len(produced), decided.dtype)
    frame.drop("key", "at").with_columns(
        quota_id=pl.concat_str(user.cast(pl.String), pl.lit(":")),
        quota_user=user,
        quota_client_id=pl.lit(""),
        quota_bps=pl.lit(QUOTA),
        logged_throttle_time_ms=pl.col("throttle_time_ms"),
        replayed_throttle_time_ms=pl.Series(np.concatenate([others, decided])),
        replayable="is_produced",
    ).write_parquet(f"{out}/replay.parquet", compression="snappy")


def usage_sums(name: str, out: str) -> tuple[int, ...]:
    """Return the produce requests and bytes of a contestant's table."""
    import duckdb

    table = paths(out, "usage") if name in OURS else [f"{out}/usage.parquet"]
    found = duckdb.sql(
        f"select sum(requests), sum(bytes) from read_parquet({table}) "
        "where quota_type = 'producer_byte_rate'"
    )
    return tuple(map(int, found.fetchall()[0]))


def replay_sums(name: str, out: str) -> tuple[int, ...]:
    """Return the produce requests and the throttle time of a contestant's table."""
    import duckdb

    table = paths(out, "replay") if name in OURS else [f"{out}/replay.parquet"]
    found = duckdb.sql(
        f"select count(*), sum(replayed_throttle_time_ms) from read_parquet({table}) "
        "where quota_type = 'producer_byte_rate'"
    )
    return tuple(map(int, found.fetchall()[0]))


OURS = {"headgate": [], "sail": ["--engine", "sail"]}
"""Flags of our commands, by the engine's name here."""
CONTESTANTS = {
    "usage": {"polars": polars_tables, "duckdb": duckdb_tables, **dict.fromkeys(OURS)},
    "replay": {"polars": polars_replay, **dict.fromkeys(OURS)},
}
SUMS = {"usage": usage_sums, "replay": replay_sums}


def argv_of(what: str, name: str, source: Path, out: str) -> list[str]:
    """Return the command that is a contestant."""
    if name not in OURS:
        return [sys.executable, __file__, "--one", what, name, str(source), out]
    argv = [sys.executable, "-m", "headgate.cli.main", what, "--requests", str(source)]
    quotas = source.parent / "quotas.yaml"
    if what == "replay":
        quotas.write_text(QUOTAS_FILE)
        argv += ["--quotas", str(quotas)]
    return [*argv, *OURS[name], "--out", out]


def compare(what: str, source: Path, words: str, names: list[str], times: int) -> None:
    """Run all in turn, several times; print the medians and the ratios."""
    took: dict[str, list[Took]] = {name: [] for name in names}
    sums = set()
    for _ in range(times):
        for name in names:
            with tempfile.TemporaryDirectory(prefix="headgate-bench-") as out:
                took[name].append(run_whole(argv_of(what, name, source, out)))
                sums.add(SUMS[what](name, out))
    if len(sums) > 1:
        sys.exit(f"{what} of {words} differs: {sums}")
    cpu = {n: statistics.median(t.cpu_s for t in runs) for n, runs in took.items()}
    for name in names:
        wall = statistics.median(t.wall_s for t in took[name])
        ratios = [f"{n} / {name} {cpu[n] / cpu[name]:.2f}" for n in OURS if n in cpu and n != name]
        print(
            f"{what} {words:>18} {name:9} {cpu[name]:6.1f} CPU-s {wall:6.1f} s ",
            ", ".join(ratios),
            flush=True,
        )
    print(f"load of the last minute {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, nargs="*", default=[8, 1000], help="sizes of logs")
    parser.add_argument("--events", type=float, nargs="*", default=[4e6], help="of replays")
    parser.add_argument("--of", nargs="+", default=["usage", "replay"], help="logs' commands")
    parser.add_argument("--hot", action="store_true", help="also replay a user with 90 %%")
    parser.add_argument("--times", type=int, default=3, help="how often, in turn")
    parser.add_argument("--without", action="append", default=[], help="leave one out")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        what, name, source, out = arguments.one
        made = CONTESTANTS[what][name]
        assert made is not None
        made(source, out)
        return
    names = {w: [n for n in c if n not in arguments.without] for w, c in CONTESTANTS.items()}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as made_in:
        folder = Path(made_in)
        for megabytes in arguments.mb:
            log = make_log(folder / "request.log", megabytes / 1000)
            cut_to(log, int(megabytes * 1e6))
            for what in arguments.of:
                compare(what, log, f"{megabytes:,.0f} MB", names[what], arguments.times)
            log.unlink()
        for count in arguments.events:
            for flags in ([], ["--even"], ["--hot", "0.9"]) if arguments.hot else ([],):
                events = folder / "events"
                make = [sys.executable, str(Path(__file__).parent / "make_events.py"), str(count)]
                subprocess.run([*make, str(events), *flags], check=True)
                words = f"{count / 1e6:g} M {''.join(flags[:1]).strip('-') or 'Zipf'}"
                compare("replay", events, words, names["replay"], arguments.times)
                shutil.rmtree(events)


if __name__ == "__main__":
    main()
