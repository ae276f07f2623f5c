"""
The library beside the commands: `hp.usage`, `hp.replay`, `hp.what_if` of one log, in turn.

    python bench/pipeline/bench_library.py [--mb 500] [--times 3] [--of usage replay what-if]

Each run is a process, from its start to its last table. The start that every run has is measured
with a log of a few lines, and taken off. The library's session is opened as the commands open
theirs, so that what differs is what is done with the log; `--plain` opens one by SparkSession's
builder alone. Library and command must give the same rows: figures to nine digits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from bench_usage import make_log
from bench_whole import cut_to
from cpu import Took, run_whole

from headgate.pipeline.sources.files import paths

ROOT = Path(__file__).parents[2]
QUOTAS = "quotas: [{entity: {user: null}, producer_byte_rate: %d}]\n"
RATES = {"quotas": 100_000, "tight": 50_000, "wide": 200_000}
FEW_BYTES = 20_000
"""A log of so few lines takes nothing but the start."""
TABLES = {
    "usage": ("usage", "usage_hour", "usage_day"),
    "replay": ("replay",),
    "what-if": ("what_if",),
}


def library(what: str, log: str, out: str, plain: bool) -> None:
    """Make a command's tables by the library, as its page says."""
    from headgate.embedded import spark_env

    os.environ.update(spark_env())
    import headgate.pipeline as hp

    if plain:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[*]").getOrCreate()
    else:
        from headgate.pipeline.session import open_session

        spark = open_session("bench", log=Path(out) / "spark.log")
    folder = Path(log).parent
    plan = {name: str(folder / f"{name}.yaml") for name in RATES}
    requests = hp.requests(spark, log, broker_id=1)
    if what == "replay":
        hp.write(hp.replay(requests, plan["quotas"]), f"{out}/replay", by_day=False)
    elif what == "what-if":
        tried = {name: plan[name] for name in ("tight", "wide")}
        found = hp.what_if(requests, tried, in_force=plan["quotas"])
        hp.write(found, f"{out}/what_if", by_day=False)
    else:
        for table, by in zip(TABLES["usage"], ("second", "hour", "day"), strict=True):
            hp.write(hp.usage(requests, plan["quotas"], by=by), f"{out}/{table}", by_day=False)
    spark.stop()


def argv_of(who: str, what: str, log: Path, out: str) -> list[str]:
    """Return the command that makes the tables."""
    if who != "command":
        return [sys.executable, __file__, "--one", who, what, str(log), out]
    argv = [sys.executable, "-m", "headgate.cli.main", what, "--requests", str(log)]
    argv += ["--broker-id", "1", "--quotas", str(log.parent / "quotas.yaml"), "--out", out]
    if what == "what-if":
        argv += [f"--plan={log.parent / name}.yaml" for name in ("tight", "wide")]
    return argv


def digest(out: str, what: str) -> tuple[object, ...]:
    """Return the rows' number and a sum over their texts, doubles to nine digits, by table."""
    import duckdb

    found: list[object] = []
    for table in TABLES[what]:
        source = f"read_parquet({paths(out, table)})"
        columns = duckdb.sql(f"describe select * from {source}").fetchall()
        texts = [
            f"printf('%.9g', \"{name}\")" if kind == "DOUBLE" else f'"{name}"::varchar'
            for name, kind, *_ in sorted(columns)
            if name != "plan"  # the first is called after its file, or in_force
        ]
        whole = " || '|' || ".join(f"coalesce({text}, '-')" for text in texts)
        sums = f"count(*), sum(hash({whole})::hugeint)::varchar"
        found += duckdb.sql(f"select {sums} from {source}").fetchall()
    return tuple(found)


def compare(what: str, logs: list[Path], names: list[str], times: int) -> None:
    """Run all in turn, several times; print the medians and the ratios."""
    took: dict[tuple[str, Path], list[Took]] = {(n, log): [] for n in names for log in logs}
    for log in logs:
        digests = set()
        for _ in range(times):
            for name in names:
                with tempfile.TemporaryDirectory(prefix="headgate-bench-") as out:
                    took[name, log].append(run_whole(argv_of(name, what, log, out)))
                    digests.add(digest(out, what))
        if len(digests) > 1:
            sys.exit(f"{what} of {log.stat().st_size / 1e6:.1f} MB differs: {digests}")
    cpu = {key: statistics.median(t.cpu_s for t in runs) for key, runs in took.items()}
    own = {name: cpu[name, logs[1]] - cpu[name, logs[0]] for name in names}
    for name in names:
        wall = statistics.median(t.wall_s for t in took[name, logs[1]])
        ratio = f"library / command {own[name] / own['command']:4.2f}" if name != "command" else ""
        print(
            f"{what:8} {logs[1].stat().st_size / 1e6:8,.0f} MB {name:8} start "
            f"{cpu[name, logs[0]]:5.1f} CPU-s, the rest {own[name]:6.2f} CPU-s, in all "
            f"{wall:5.1f} s  {ratio}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=500, help="size of the log")
    parser.add_argument("--times", type=int, default=3, help="how often, in turn")
    parser.add_argument("--of", nargs="+", default=list(TABLES), help="commands")
    parser.add_argument("--plain", action="store_true", help="also a session of no settings")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        who, what, log, out = arguments.one
        library(what, log, out, who == "plain")
        return
    subprocess.run([sys.executable, ROOT / "scripts" / "warm.py"], check=True)
    names = ["command", "library", *(["plain"] if arguments.plain else [])]
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as made_in:
        folder = Path(made_in)
        for name, rate in RATES.items():
            (folder / f"{name}.yaml").write_text(QUOTAS % rate)
        logs = [folder / "few.log", folder / "request.log"]
        for log, size in zip(logs, (FEW_BYTES, int(arguments.mb * 1e6)), strict=True):
            make_log(log, size / 1e9)
            cut_to(log, size)
        for what in arguments.of:
            compare(what, logs, names, arguments.times)
    print(f"load of the last minute: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
