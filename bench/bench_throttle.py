"""
Decisions per second of Kafka's ClientQuotaManager, our manager and our kernel, over one trace.

Kafka's figure needs a JDK (javac) and the embedded Kafka's jars (fetched when missing). CPU seconds
count, not wall-clock: the machine is shared. All three must throttle the same events by the same
milliseconds.
Prints a table; ``--write`` also puts it into bench/throttle.md.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headgate.embedded.jars import classpath
from headgate.kernel.codes import OP_BOUND
from headgate.kernel.rate import RateState, replay_rate
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.pacing import PacedQuotaManager

HERE = Path(__file__).parent
START_MS = 1_700_000_000_000
USER = QuotaEntity.of(user=DEFAULT)


@dataclass(frozen=True)
class Trace:
    """Zipf-distributed events of many quota-ids, in order of time."""

    ids: int
    user: np.ndarray
    t_ms: np.ndarray
    amount: np.ndarray
    quota: float

    @classmethod
    def make(cls, ids: int, events: int, per_s: int) -> Trace:
        """Make a trace whose default user quota throttles about half of the events."""
        rng = np.random.default_rng(7)
        weights = 1 / np.arange(1, ids + 1) ** 1.1
        weights /= weights.sum()
        user = rng.choice(ids, size=events, p=weights).astype(np.int64)
        t_ms = START_MS + np.arange(events, dtype=np.int64) * 1000 // per_s
        amount = rng.integers(100, 20_000, events)
        # The quota that the heaviest half of the traffic exceeds.
        rates = np.sort(weights)[::-1] * per_s * amount.mean()
        half = np.searchsorted(np.cumsum(rates), rates.sum() / 2)
        return cls(ids, user, t_ms, amount, float(round(rates[half] * 0.8)))

    def write(self, path: Path) -> None:
        """Write it as the Java harness reads it."""
        rows = np.empty(len(self.user), np.dtype([("u", ">i4"), ("t", ">i8"), ("v", ">i4")]))
        rows["u"], rows["t"], rows["v"] = self.user, self.t_ms, self.amount
        head = np.array([len(self.user), self.ids], ">i4")
        path.write_bytes(head.tobytes() + rows.tobytes())


@dataclass(frozen=True)
class Figure:
    """One contestant's figure: events per CPU second, and what it decided."""

    per_s: float
    throttled: int
    sum_ms: int


def java(trace: Trace, passes: int = 8) -> Figure:
    """Run Kafka's classes; the median of the second half of the passes, when the JIT is warm."""
    with tempfile.TemporaryDirectory() as folder:
        source = HERE / "throttle" / "ClientQuotaBench.java"
        subprocess.run(["javac", "-cp", classpath(), "-d", folder, source], check=True)
        file = Path(folder) / "trace"
        trace.write(file)
        told = subprocess.run(
            [
                *("java", "-Xmx2g", "-cp", f"{classpath()}:{folder}", "ClientQuotaBench"),
                *(str(word) for word in (file, trace.quota, passes)),
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    rows = [[int(word) for word in line.split()] for line in told.splitlines() if line[0].isdigit()]
    cpu = statistics.median(row[0] for row in rows[passes // 2 :])
    return Figure(len(trace.user) / cpu * 1e9, rows[-1][2], rows[-1][3])


def manager(trace: Trace, kind: str, passes: int = 3) -> Figure:
    """Run our manager, one call per event; the median pass, less the loop around it."""
    names = [f"user{i}" for i in range(trace.ids)]
    users = [names[i] for i in trace.user.tolist()]
    t_ms, amounts = trace.t_ms.tolist(), trace.amount.tolist()
    seconds = []
    for _ in range(passes):
        made: ClientQuotaManager | PacedQuotaManager = (
            ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=START_MS)
            if kind == "sampled"
            else PacedQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=START_MS)
        )
        made.update_quota(USER, trace.quota, START_MS)
        record = made.record
        throttled = total = 0
        begun = time.process_time()
        for user, now, amount in zip(users, t_ms, amounts, strict=True):
            ms = record(user, "client", amount, now)[0]
            if ms > 0:
                throttled += 1
                total += ms
        seconds.append(time.process_time() - begun)
    return Figure(len(users) / statistics.median(seconds), throttled, total)


def kernel(trace: Trace, passes: int = 5) -> Figure:
    """Run our kernel over the whole trace at once, in order of time; the median pass."""
    amount = trace.amount.astype(np.float64)
    seconds = []
    for _ in range(passes):
        state = RateState(trace.ids, start_ms=START_MS)
        ids = np.arange(trace.ids)
        quotas = np.full(trace.ids, trace.quota)
        # What sets the quotas has the kernel compiled, or read from the cache.
        replay_rate(state, ids, ids, quotas, op=np.full(trace.ids, OP_BOUND))
        begun = time.process_time()
        ms = replay_rate(state, trace.user, trace.t_ms, amount)
        seconds.append(time.process_time() - begun)
    throttled = ms[ms > 0]
    return Figure(len(amount) / statistics.median(seconds), len(throttled), int(throttled.sum()))


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help="put the table into bench/throttle.md")
    options = parser.parse_args()
    if not shutil.which("javac"):
        print("no JDK (javac isn't on PATH): Kafka's own figure, and so the ratios, are missing")
        for ids in (1_000, 10_000):
            trace = Trace.make(ids, options.events, 20_000)
            ours = {"manager": manager(trace, "sampled"), "kernel": kernel(trace)}
            for name, figure in ours.items():
                print(f"{ids:,} quota-ids, {name}: {figure.per_s / 1e6:.2f} million decisions/s")
        return
    rows = []
    for ids, per_s in ((1_000, 20_000), (10_000, 20_000), (10_000, 200_000)):
        trace = Trace.make(ids, options.events, per_s)
        theirs = java(trace)
        ours = {"manager": manager(trace, "sampled"), "kernel": kernel(trace)}
        for name, figure in ours.items():
            if (figure.throttled, figure.sum_ms) != (theirs.throttled, theirs.sum_ms):
                sys.exit(f"{name} decided otherwise than Kafka: {figure} against {theirs}")
        smooth = manager(trace, "smooth", passes=1)
        rows.append(
            f"| {ids:,} | {per_s:,} | {theirs.throttled / options.events:.0%} "
            f"| {theirs.per_s / 1e6:.2f} "
            f"| {ours['manager'].per_s / 1e6:.2f} (x {ours['manager'].per_s / theirs.per_s:.2f}) "
            f"| {1e6 / ours['manager'].per_s:.2f} "
            f"| {smooth.per_s / 1e6:.2f} "
            f"| {ours['kernel'].per_s / 1e6:.1f} (x {ours['kernel'].per_s / theirs.per_s:.0f}) |"
        )
        print(rows[-1], flush=True)
    table = "\n".join(
        [
            "| quota-ids | events/s of the trace | throttled | Kafka 4.3.1, one Java thread | our "
            "manager | us a decision | smooth pacing | our kernel |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
        ]
    )
    print(f"\nmillion decisions per CPU second\n\n{table}")
    if options.write:
        page = HERE / "throttle.md"
        begin, end = "<!-- throttle: begin -->\n", "<!-- throttle: end -->"
        text = page.read_text("utf-8")
        at, to = text.index(begin) + len(begin), text.index(end)
        page.write_text(f"{text[:at]}{table}\n{text[to:]}", "utf-8")


if __name__ == "__main__":
    main()
