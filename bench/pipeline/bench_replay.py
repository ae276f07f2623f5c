"""
Replay of N events from Parquet: Headgate on Spark beside Polars + the same kernel, in turn.

    python bench/pipeline/make_events.py 12e6 DIR
    python bench/pipeline/bench_replay.py [DIR] [--plans 5 [--apart]] [--only headgate] [--stages]

Both end with throttled seconds and requests per quota-id; the sums must be equal. Neither's own
start is counted (imports, the session, the kernel's loading); it's printed apart.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cpu import tree_cpu, tree_used

QUOTA = 100_000.0


def polars(folder: str) -> dict[str, float]:
    import numpy as np
    import polars as pl

    from headgate.kernel.rate import RateState, replay_rate
    from headgate.pipeline.sources.files import find_files

    warm = RateState(1)
    replay_rate(warm, np.zeros(1, np.int64), np.ones(1), np.ones(1), bound=np.full(1, QUOTA))
    cpu, wall = tree_cpu(), time.perf_counter()
    frame = (
        pl.scan_parquet([path for path, _ in find_files([folder])])
        .select(
            "principal", "broker_id", (pl.col("record_ms") + 0.5).floor().cast(pl.Int64), "amount"
        )
        .with_columns(pl.col("principal").cast(pl.Categorical).to_physical().cast(pl.Int64))
        .with_columns((pl.col("principal") * 4 + pl.col("broker_id")).alias("key"))
        .sort("key", "record_ms", maintain_order=True)
        .collect()
    )
    key = frame["key"].to_numpy()
    state = RateState(int(key.max()) + 1)
    bound = np.full(len(key), QUOTA)
    ms = replay_rate(
        state, key, frame["record_ms"].to_numpy(), frame["amount"].to_numpy(), bound=bound
    )
    out = frame.select("key").with_columns(pl.Series("ms", ms)).group_by("key").agg(pl.sum("ms"))
    return {
        "events": len(ms),
        "throttle_ms": int(out["ms"].sum()),
        "start_s": cpu,
        "cpu_s": tree_cpu() - cpu,
        "wall_s": time.perf_counter() - wall,
        "driver_mb": tree_used()["driver"].peak_mb,
    }


def headgate(folder: str, plans: int, apart: bool, stages: bool) -> dict[str, float]:
    from headgate.embedded import spark_env

    os.environ.update(spark_env())
    from pyspark.sql import functions as F

    from headgate.pipeline.answers.replay import pack_logs, replay_packed
    from headgate.pipeline.answers.what_if import options_of
    from headgate.pipeline.quotas import Quotas
    from headgate.pipeline.session import open_session
    from headgate.pipeline.sources.files import find_files
    from headgate.pipeline.sources.pieces import pieces_of
    from headgate.pipeline.workers.log_reader import ReadOptions
    from headgate.quota.entity import DEFAULT, QuotaEntity
    from headgate.quota.key import PRODUCER
    from headgate.quota.table import QuotaTable

    # Plans that agree on which clients share a quota; with --apart by user, both, or client-id.
    levels = [{"user": DEFAULT}, {"user": DEFAULT, "client_id": DEFAULT}, {"client_id": DEFAULT}]
    shapes = [QuotaEntity.of(**levels[n % 3 if apart else 0]) for n in range(plans)]
    tables = [QuotaTable.of({s: {PRODUCER: QUOTA * (1 + n / 7)}}) for n, s in enumerate(shapes)]
    options = options_of([Quotas.of(t, f"plan-{n}") for n, t in enumerate(tables)])
    with tempfile.NamedTemporaryFile(prefix="headgate-bench-") as log:
        spark = open_session("bench", log=Path(log.name))
    pieces = pieces_of(find_files([folder]))

    def run(part: list) -> tuple[int, int]:
        sums = pack_logs(spark, ReadOptions(tuple(part)), options).transform(replay_packed(options))
        row = sums.where("plan = 0").agg(F.sum("requests"), F.sum("throttle_time_ms")).first()
        return int(row[0]), int(row[1])

    def pack(part: list) -> int:
        packed = pack_logs(spark, ReadOptions(tuple(part)), options)
        return int(packed.agg(F.sum("n")).first()[0])

    first = pieces[: spark.sparkContext.defaultParallelism]
    run(first)  # the session's and the workers' first steps
    more: dict[str, float] = {"start_s": tree_cpu()}
    if stages:
        pack(first)
        cpu, wall = tree_cpu(), time.perf_counter()
        pack(pieces)
        more |= {"pack_cpu_s": tree_cpu() - cpu, "pack_wall_s": time.perf_counter() - wall}
    before, wall = tree_used(), time.perf_counter()
    events, ms = run(pieces)
    wall = time.perf_counter() - wall
    used = tree_used()
    parts = {f"{k}_cpu_s": u.cpu_s - before[k].cpu_s for k, u in used.items()}
    return {
        "events": events,
        "throttle_ms": ms,
        "cpu_s": sum(parts.values()),
        "wall_s": wall,
        **more,
        **parts,
        **{f"{k}_mb": u.peak_mb for k, u in used.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="of make_events.py; 12 million by default")
    parser.add_argument("--plans", type=int, default=1)
    parser.add_argument("--apart", action="store_true", help="plans that disagree on sharers")
    parser.add_argument("--stages", action="store_true", help="also time packing alone")
    parser.add_argument("--one", choices=("polars", "headgate"))
    parser.add_argument("--only", choices=("polars", "headgate"), help="leave the other out")
    arguments = parser.parse_args()
    if arguments.one:
        found = (
            polars(arguments.folder)
            if arguments.one == "polars"
            else headgate(arguments.folder, arguments.plans, arguments.apart, arguments.stages)
        )
        print(json.dumps(found))
        return
    with contextlib.ExitStack() as stack:
        if not arguments.folder:
            arguments.folder = stack.enter_context(tempfile.TemporaryDirectory())
            make = [sys.executable, Path(__file__).parent / "make_events.py", "12e6"]
            subprocess.run([*make, arguments.folder], check=True)
        compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    """Run both, each in a process of its own."""
    results = {}
    for name in (arguments.only,) if arguments.only else ("polars", "headgate"):
        argv = [sys.executable, __file__, arguments.folder, "--one", name]
        argv += ["--plans", str(arguments.plans)]
        argv += [f"--{n}" for n in ("apart", "stages") if getattr(arguments, n)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        results[name] = json.loads(done.stdout.splitlines()[-1])
        r = results[name]
        print(
            f"{name:9} {r['events']:>11,} events  {r['cpu_s']:6.1f} CPU-s  {r['wall_s']:6.1f} s"
            f"  {r['events'] / r['wall_s'] / 1e6:5.2f} M/s  {r['throttle_ms']:,} ms throttled"
        )
        told = [f"start {r['start_s']:.1f} CPU-s (not counted)"]
        told += [f"{k[:-6]} {v:.1f} CPU-s" for k, v in r.items() if k.endswith("_cpu_s")]
        told += [f"{k[:-3]} {v:.0f} MB" for k, v in r.items() if k.endswith("_mb")]
        print("         ", ", ".join(told))
    if arguments.only:
        return
    a, b = results["polars"], results["headgate"]
    if (a["events"], a["throttle_ms"]) != (b["events"], b["throttle_ms"]):
        sys.exit("the two differ")
    print(
        f"headgate at {a['wall_s'] / b['wall_s']:.2f} x of polars + kernel by wall clock, "
        f"{a['cpu_s'] / b['cpu_s']:.2f} x by CPU"
    )


if __name__ == "__main__":
    main()
