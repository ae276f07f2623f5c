"""
How long the server takes for the console's pages at 1,000 tenants and 10,000 quota-ids.

    python bench/bench_console.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kit.console import make_console

ROUNDS = 15
PAGES = (
    "/",
    "/?find=tenant-05",
    "/tenant",
    "/tenant?user=alice",
    "/tenant?user=alice&client-id=app-0",
    "/why?user=alice&client-id=app-0",
)


def main() -> int:
    """Print how long each page takes, with a new picture each time."""
    with tempfile.TemporaryDirectory() as folder:
        console = make_console(Path(folder), 1_000, 10)
        client = console.client("operator")
        client.get("/tenant?user=bob")  # templates are compiled
        print(f"{'page':40} {'CPU ms':>8} {'ms':>8} {'worst ms':>9}   medians of {ROUNDS}")
        for page in PAGES:
            cpu, took = [], []
            for _ in range(ROUNDS):
                del console.app._app.state.watches  # type: ignore[attr-defined] # ask again
                began, cpu_began = time.perf_counter(), time.process_time()
                answer = client.get(page)
                cpu.append((time.process_time() - cpu_began) * 1000)
                took.append((time.perf_counter() - began) * 1000)
                assert answer.status_code == 200
            medians = map(statistics.median, (cpu, took))
            print(f"{page:40} {next(medians):8.0f} {next(medians):8.0f} {max(took):9.0f}")
        console.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
