"""
Measure how fast each layout of a request log is read, beside Kafka's own, in one run.

    python bench/pipeline/scan_layouts.py [--mb 100] [--only TEXT] [--parser]

Of each layout a file is made from the real log in tests/data, repeated, its stamps going on. What
is measured is a worker's reading of it into sums by second, on one core (``ActivityOfLogs``): the
file is in the page cache, the machine code is loaded. Layouts take turns; the best turn counts.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from headgate.pipeline.sources.pieces import pieces_of  # noqa: E402
from headgate.pipeline.workers import log_reader  # noqa: E402
from kit.layouts import LAYOUTS, rewrapped  # noqa: E402

SAMPLE = ROOT / "tests/data/pipeline/public.log.gz"


def make(folder: Path, layout: str, bytes_: int) -> Path:
    """Write a log in a layout."""
    path = folder / f"{list(LAYOUTS).index(layout)}-2026-11-21.log"
    text = b"\n".join(rewrapped(gzip.decompress(SAMPLE.read_bytes()), layout)) + b"\n"
    with path.open("wb") as file:
        while file.tell() < bytes_:
            file.write(text)
    return path


def read(path: Path, *, scan: bool) -> tuple[float, int, int]:
    """Read a file; return (CPU-seconds, requests, bytes charged)."""
    pieces = tuple(pieces_of([(str(path), path.stat().st_size)], broker_id=1))
    begin = time.process_time()
    activity = log_reader.ActivityOfLogs(log_reader.ReadOptions(pieces, scan=scan))
    requests = charged = 0
    batches = [batch for piece in pieces for batch in activity.add(piece)]
    for batch in [*batches, *activity.take()]:
        columns = batch.to_pydict()
        requests += sum(n or 0 for n in columns["requests"])
        charged += sum(n or 0 for n in columns["bytes"])
    return time.process_time() - begin, requests, charged


def main() -> None:
    """Print MB per CPU-second of each layout."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--only", default="", help="layouts whose names contain this, and stock")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--parser", action="store_true", help="line by line, without the scan")
    options = parser.parse_args()
    names = [n for n in LAYOUTS if n == "stock" or options.only.lower() in n.lower()]
    log_reader.preload()
    best: dict[str, tuple[float, int, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: make(Path(folder), name, options.mb * 1_000_000) for name in names}
        sizes = {name: path.stat().st_size / 1e6 for name, path in paths.items()}
        for _ in range(options.turns):
            for name, path in paths.items():
                found = read(path, scan=not options.parser)
                best[name] = min(best.get(name, found), found)
    stock = sizes["stock"] / best["stock"][0]
    print(f"{'layout':40} {'MB/s':>6} {'of stock':>9} {'requests':>9} {'bytes charged':>15}")
    for name, (cpu_s, requests, charged) in best.items():
        speed = sizes[name] / cpu_s
        print(f"{name:40} {speed:6.0f} {speed / stock:9.2f} {requests:9} {charged:15}")


if __name__ == "__main__":
    main()
