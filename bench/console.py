"""
How long the server takes for each page of the console at 1,000 tenants and 10,000 quota-ids.

    python bench/console.py [--rounds N]

The picture of the gateway is canned, so asking a gateway isn't in the figures: what is measured is
reading the quotas from SQLite, cutting, drawing and sending a page, in this process, without a
network. Each page is asked for once before, as a console that runs has drawn it before.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from headgate.console.access.csrf import FIELD, csrf_token  # noqa: E402
from kit.console import Console, asking, make_console  # noqa: E402

CHANGE = {"user": "alice", "client-id": "app-0", "key": "producer_byte_rate", "value": "2MB/s"}
PAGES = [
    ("operator", "GET", "/", {}),
    ("operator", "GET", "/", {"find": "tenant-05"}),
    ("operator", "GET", "/tenant", {}),
    ("operator", "GET", "/tenant", {"user": "alice"}),
    ("tenant", "GET", "/tenant", {"user": "alice"}),
    ("operator", "GET", "/why", {"user": "alice", "client-id": "app-0"}),
    ("tenant", "GET", "/why", {"user": "alice", "client-id": "shared"}),
    ("operator", "GET", "/quotas", {}),
    ("operator", "GET", "/quotas", {"sort": "use", "page": "100"}),
    ("operator", "GET", "/quotas", {"find": "tenant-05", "only": "throttled"}),
    ("tenant", "GET", "/quotas", {}),
    ("operator", "GET", "/quotas/file", {"as": "csv"}),
    ("operator", "GET", "/change", {}),
    ("operator", "POST", "/change/preview", CHANGE),
    ("operator", "GET", "/plan", {}),
    ("operator", "GET", "/raises", {}),
    ("operator", "GET", "/nowhere", {}),
]


async def measure(console: Console, rounds: int) -> None:
    """Print the figures of each page."""
    print("| page | as | median | worst | kB |\n|---|---|---|---|---|")
    for role, method, path, fields in PAGES:
        client = console.client(role, "payments" if role == "tenant" else "")
        cookies = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)
        headers = {"cookie": cookies}
        query = urlencode(fields)
        where, chunks = (f"{path}?{query}" if query else path), (b"",)
        if method == "POST":
            headers["content-type"] = "application/x-www-form-urlencoded"
            body = urlencode({FIELD: csrf_token(client.viewer_key), **fields}).encode()
            where, chunks = path, (body, b"")
        took = []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            answer = await asking(
                console.app, where, method=method, headers=headers, chunks=chunks,
                most_bytes=50_000_000, wait_s=60,
            )  # fmt: skip
            took.append((time.perf_counter() - began) * 1000)
            if answer.status not in (200, 404):
                raise SystemExit(f"{method} {where}: {answer.status}")
            await asyncio.sleep(1.05)  # the picture is asked for again
        median, worst = statistics.median(took[1:]), max(took[1:])
        print(
            f"| `{method} {where}` | {role} | {median:.0f} ms | {worst:.0f} ms | "
            f"{len(answer.body) / 1000:,.0f} |",
            flush=True,
        )


def main() -> int:
    """Measure."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--rounds", type=int, default=5)
    rounds = flags.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        console = make_console(Path(folder), 1_000, 10)
        try:
            asyncio.run(measure(console, rounds))
        finally:
            console.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
