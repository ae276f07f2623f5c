"""
What grows with the data: `headgate usage` of 1, 4 and 16 times the log, CPU per byte and memory.

    python bench/pipeline/growth.py [--mb 256] [--times 3] [--of usage replay]
        [--only here|sail|cluster]

Each run is a whole command, from its start to its last table. The start that every run has is
measured with a log of a few lines, and taken off. Sizes take turns, and the medians so far are
printed after each turn. It is done on one machine, by Spark and by Sail (inside the driver's
Python), and on a standalone cluster of two workers on loopback, where the driver's JVM holds
nothing but the driver. Memory is the largest resident set that a process had: the driver's Python,
its JVM, the executors' JVMs (on one machine, in the driver's), the Python workers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from bench_usage import make_log
from bench_whole import QUOTAS_FILE, cut_to
from cpu import Took, run_whole

from kit.spark_machines import standalone

FACTORS = (1, 4, 16)
HERE, SAIL, CLUSTER = "one machine", "Sail", "two workers"
FIRST_MB = {HERE: 256.0, SAIL: 256.0, CLUSTER: 64.0}
"""The less a byte costs, the more of them it takes to tell them from the start."""
KINDS = {
    "driver": "driver's Python",
    "jvm": "driver's JVM",
    "executors": "executor's JVM",
    "workers": "Python worker",
}
FEW_BYTES = 20_000
"""A log of so few lines takes nothing but the start."""


@contextlib.contextmanager
def masters(only: str | None, folder: Path) -> Iterator[dict[str, list[str]]]:
    """Give the flags for each way to run it: on this machine, and on two workers."""
    with contextlib.ExitStack() as stack:
        ways: dict[str, list[str]] = {}
        if only in (None, "here"):
            ways[HERE] = []
        if only in (None, "here", "sail"):
            ways[SAIL] = ["--engine", "sail"]
        if only in (None, "cluster"):
            path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
            cluster = stack.enter_context(standalone(folder / "machines", path, memory="2g"))
            settings = {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false",
                "spark.executor.memory": "1g",
                "spark.sql.shuffle.partitions": "6",  # three times the cores, as the docs say
            }
            flags = [f"--spark-conf={name}={value}" for name, value in settings.items()]
            ways[CLUSTER] = ["--master", cluster.master, *flags]
        yield ways


def run(command: str, log: Path, flags: list[str]) -> Took:
    """Run a command over a log."""
    argv = [sys.executable, "-m", "headgate.cli.main", command, "--requests", str(log)]
    quotas = log.parent / "quotas.yaml"
    quotas.write_text(QUOTAS_FILE)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as out:
        argv += ["--quotas", str(quotas), "--out", f"{out}/tables", *flags]
        return run_whole(argv, os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"})


def tell(command: str, way: str, took: dict[Path, list[Took]]) -> None:
    """Print CPU-seconds per GB, beside those of the largest log, and memory."""
    logs = list(took)
    cpu = {log: statistics.median(t.cpu_s for t in runs) for log, runs in took.items()}
    size = {log: log.stat().st_size for log in logs}
    per_gb = {log: (cpu[log] - cpu[logs[0]]) / (size[log] / 1e9) for log in logs}
    for log in logs:
        words = f"{per_gb[log]:6.2f} a GB, x {per_gb[log] / per_gb[logs[-1]]:4.2f}"
        peaks = "  ".join(
            f"{name} {statistics.median(t.by_kind[kind] for t in took[log]):.1f} CPU-s "
            f"{statistics.median(t.peak_mb[kind] for t in took[log]):.0f} MB"
            for kind, name in KINDS.items()
            if all(kind in t.peak_mb for t in took[log])
        )
        wall = statistics.median(t.wall_s for t in took[log])
        print(
            f"{command:7} {way:12} {size[log] / 1e6:8,.1f} MB  {cpu[log]:6.2f} CPU-s {wall:6.1f} s"
            f"  {words if log != logs[0] else 'start':26}  {peaks}",
            flush=True,
        )


def logs_of(folder: Path, first_mb: float) -> list[Path]:
    """Make logs of a few lines, and of 1, 4 and 16 times a size."""
    sizes = [FEW_BYTES, *(int(first_mb * 1e6 * factor) for factor in FACTORS)]
    logs = [folder / f"{size}.log" for size in sizes]
    for log, size in zip(logs, sizes, strict=True):
        if not log.exists():
            cut_to(make_log(log, size / 1e9), size)
    return logs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, help="the smallest log")
    parser.add_argument("--times", type=int, default=3, help="how often, in turn")
    parser.add_argument("--of", nargs="+", default=["usage"], help="commands")
    parser.add_argument("--logs", type=Path, help="a folder that keeps the logs for another run")
    parser.add_argument("--only", choices=("here", "sail", "cluster"), help="a part")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="headgate-bench-")
        folder = arguments.logs or Path(stack.enter_context(made))
        with masters(arguments.only, folder) as ways:
            logs = {way: logs_of(folder, arguments.mb or FIRST_MB[way]) for way in ways}
            for command in arguments.of:
                took: dict[str, dict[Path, list[Took]]]
                took = {way: {log: [] for log in logs[way]} for way in ways}
                for way, flags in ways.items():
                    run(command, logs[way][1], flags)  # each machine makes its machine code once
                for turn in range(1, arguments.times + 1):
                    for way, flags in ways.items():
                        for log in logs[way]:
                            took[way][log].append(run(command, log, flags))
                    for way in ways:
                        tell(command, way, took[way])
                    print(f"turn {turn}, load of the last minute {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
