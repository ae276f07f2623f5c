"""
Compare managers and kernel with Kafka's own classes over random traces, for FUZZ_SECONDS (60).

Each round Kafka 4.3.1 writes traces with its answers (golden/RandomTraces.java, run from the
embedded Kafka's jars), which the golden checker then reads. A trace that differs is kept in
``out/fuzz``. Needs a JDK; without one it says so and does nothing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "lab")]

from headgate.embedded.jars import classpath  # noqa: E402
from headgate.testing.golden import check, read_golden  # noqa: E402
from kit.golden_kernel import check_kernel  # noqa: E402

FOUND = ROOT / "out" / "fuzz"
PER_ROUND = 60
CHANGES_SHAPE = {"num_samples", "window_ms"}


def for_kernel(path: Path) -> bool:
    """Whether the kernel can play a trace: it has no connections, and rates keep their shape."""
    header, events = read_golden(path)
    if header["kind"] == "connection":
        return False
    return header.get("stat") != "rate" or not any(
        event["op"] == "config" and CHANGES_SHAPE & event.keys() for event in events
    )


def main() -> int:
    """Fuzz; 1 if a trace differs."""
    if not shutil.which("javac"):
        print("fuzz_golden needs a JDK (javac on PATH) to ask Kafka's classes; nothing was done")
        return 0
    until = time.monotonic() + int(os.environ.get("FUZZ_SECONDS", "60"))
    seed = random.SystemRandom().randrange(10**9)
    traces = events = differ = 0
    with tempfile.TemporaryDirectory(prefix="headgate-golden-") as name:
        folder = Path(name)
        source = Path(__file__).parent / "golden" / "RandomTraces.java"
        subprocess.run(["javac", "-cp", classpath(), "-d", folder, source], check=True)
        while time.monotonic() < until and not differ:
            words = (str(folder), str(seed), str(PER_ROUND))
            subprocess.run(
                ["java", "-cp", f"{classpath()}:{folder}", "RandomTraces", *words],
                check=True,
                stderr=subprocess.DEVNULL,
            )
            for path in sorted(folder.glob("*.jsonl")):
                checks = [check, check_kernel] if for_kernel(path) else [check]
                for checker in checks:
                    count, wrong = checker(path)
                    events += count
                    differ += wrong
                    if wrong:
                        FOUND.mkdir(parents=True, exist_ok=True)
                        kept = shutil.copy(path, FOUND / f"golden-{path.name}")
                        print(json.dumps({"kept": str(kept), "by": checker.__name__}))
                traces += 1
                path.unlink()
            seed += PER_ROUND
    print(f"{traces} traces, {events} events, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
