"""
`hp.recommend` of a log in a stock session, fresh and again: seconds, jobs and tasks.

    python bench/pipeline/recommend.py [--log FILE] [--mb 2] [--jobs] [--conf NAME=VALUE]

Of the log the first --mb MB of text are read; 0 = all of it. The first run pays what a new session
pays: Python workers, their imports and kernels. --jobs tells each job's seconds and tasks.
CPU-seconds are the JVM's, by what its threads do, and those of Python workers; on a loaded machine
they say more than seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from cpu import tree_used

DATA = Path(__file__).parents[2] / "tests" / "data" / "pipeline"
THREADS = {
    "compilers": ("C1 ", "C2 "),
    "calls from Python": ("Thread-",),
    "executors": ("Executor task",),
}
RUNS = ("fresh", "again", "again")


def jobs_of(spark: Any, after: int) -> list[tuple[int, float, int, str]]:
    """Return (number, seconds, tasks run, what for) of jobs whose number is over ``after``."""
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    found = []
    for n in range(jobs.size()):
        job = jobs.apply(n)
        if job.jobId() <= after:
            continue
        begun, ended = job.submissionTime().get().getTime(), job.completionTime().get().getTime()
        found.append((job.jobId(), (ended - begun) / 1000, job.numCompletedTasks(), job.name()))
    return sorted(found)


def cpu_of(stat: Path) -> tuple[str, float]:
    """Return the name of a process or thread, and its CPU-seconds."""
    name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu(spark: Any) -> Counter[str]:
    """Return CPU-seconds so far, by what they were for."""
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    found: Counter[str] = Counter(jvm=cpu_of(Path(f"/proc/{jvm}/stat"))[1])
    for stat in Path(f"/proc/{jvm}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            name, seconds = cpu_of(stat)
            for kind, beginnings in THREADS.items():
                found[kind] += seconds if name.startswith(beginnings) else 0.0
    used = tree_used()
    found["workers"] = used["workers"].cpu_s if "workers" in used else 0.0
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, default=DATA / "public.log.gz")
    parser.add_argument("--quotas", type=Path, default=DATA / "public.quotas.json")
    parser.add_argument("--mb", type=float, default=2, help="of the log's text; 0 = all")
    parser.add_argument("--conf", action="append", default=[], help="a setting: NAME=VALUE")
    parser.add_argument("--jobs", action="store_true", help="tell every job")
    arguments = parser.parse_args()

    from headgate.embedded import spark_env

    os.environ.update(spark_env())
    from pyspark.sql import SparkSession

    import headgate.pipeline as hp

    builder = SparkSession.builder.master("local[*]")
    for setting in arguments.conf:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(1).collect()
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        log = Path(folder) / "request.log"
        opened = gzip.open if arguments.log.suffix == ".gz" else open
        with opened(arguments.log, "rb") as text:
            data = text.read(int(arguments.mb * 1e6) or -1)
        log.write_bytes(data[: data.rindex(b"\n") + 1])
        print(f"{log.stat().st_size / 1e6:.1f} MB, {data.count(10):,} lines")
        last = max((n for n, *_ in jobs_of(spark, -1)), default=-1)
        for run in RUNS:
            begun, before = time.monotonic(), cpu(spark)
            rows = hp.recommend(hp.requests(spark, log, broker_id=1), arguments.quotas).collect()
            took, used = time.monotonic() - begun, cpu(spark)
            jobs = jobs_of(spark, last)
            last = jobs[-1][0]
            print(
                f"{run}: {took:.1f} s, {len(jobs)} jobs ({sum(j[1] for j in jobs):.1f} s), "
                f"{sum(j[2] for j in jobs):,} tasks, {len(rows)} rows"
            )
            spent = (f"{name} {used[name] - before[name]:.1f}" for name in used)
            print(f"    CPU-s: {', '.join(spent)}; load {os.getloadavg()[0]:.0f}")
            if arguments.jobs:
                for number, seconds, tasks, name in jobs:
                    print(f"    {number:4} {seconds:6.2f} s {tasks:5} tasks  {name}")
    spark.stop()


if __name__ == "__main__":
    main()
