"""
Run kafka-python's own tests at a real broker and through a gateway, and tell what differs.

    .venv/bin/python scripts/peer_suite.py [--kafka 3.9.2] [--keep DIR] [TEST…]

Prints a table and each difference; 1 if there is one or a test failed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "lab"))

from peers import suite  # noqa: E402


def main() -> int:
    """Run both sides and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", help="ids within the suite; all by default")
    parser.add_argument("--keep", type=Path, help="an empty folder for output and logs")
    parser.add_argument("--kafka", choices=suite.VERSIONS, default=suite.VERSIONS[0])
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-peer-")))
        folder.mkdir(parents=True, exist_ok=True)
        direct, through = suite.both(
            folder,
            options.kafka,
            options.tests,
            lambda text: print(text, file=sys.stderr, flush=True),
        )
    print(
        f"{suite.PACKAGE} {suite.pinned()[0]}, its own integration tests, Kafka {options.kafka}\n"
    )
    print(suite.table(direct, through))
    for name, before, after in suite.differences(direct, through):
        print(f"\ndiffers: {name}: {before} at the broker, {after} through the gateway")
        print((through.get(name) or direct[name]).text[-3_000:])
    for name in sorted(n for n, o in direct.items() if o.result == through[n].result == "skipped"):
        print(f"\nskipped on both sides: {name}: {direct[name].text.strip()}")
    bad = {name for side in (direct, through) for name, o in side.items() if o.bad}
    for name in sorted(bad):
        print(f"\nfailed: {name}")
    return 1 if bad or suite.differences(direct, through) else 0


if __name__ == "__main__":
    sys.exit(main())
