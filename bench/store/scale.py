"""
How a store bears 100,000 quota entities: reading all, altering 10,000, time until a watch sees it.

    python bench/store/scale.py [URL] [--entities 100000] [--alter 10000]

Without a URL on a SQLite of its own. Prints one line of JSON. The watch is in another process, as a
gateway's is. On an empty store only.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, QuotaKey
from headgate.quota.precedence import Resolver
from headgate.store import open_store

WATCHER = """
import sys, threading, time
from headgate.store import open_store
store = open_store(sys.argv[1])
def seen(table, delta):
    print(time.time(), len(delta.changes), flush=True)
store.watch(seen)
threading.Event().wait()
"""


def entity(i: int) -> QuotaEntity:
    """Users, client-ids and pairs in turn."""
    match i % 4:
        case 0:
            return QuotaEntity.of(user=f"user-{i}")
        case 1:
            return QuotaEntity.of(client_id=f"client {i}")
        case 2:
            return QuotaEntity.of(user=f"user-{i}", client_id=f"client {i}")
    return QuotaEntity.of(user=f"CN=user {i},O=*", client_id=DEFAULT)


def asked(first: int, count: int, value: float, key: QuotaKey = PRODUCER) -> list[QuotaAlteration]:
    return [QuotaAlteration(entity(i), (Op(key, value + i),)) for i in range(first, first + count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--alter", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(args.url or f"sqlite:{folder}/scale.db", args)


def measure(url: str, args: argparse.Namespace) -> None:
    figures: dict[str, object] = {"store": url.partition(":")[0], "entities": args.entities}

    store = open_store(url)
    began = time.perf_counter()
    for first in range(0, args.entities, args.alter):
        for result in store.alter(asked(first, min(args.alter, args.entities - first), 1.0)):
            assert result.error is None, result
    figures["fill_s"] = time.perf_counter() - began

    cold = open_store(url)
    began = time.perf_counter()
    table = cold.snapshot()
    figures["describe_all_cold_s"] = time.perf_counter() - began
    assert len(table) == args.entities
    began = time.perf_counter()
    table = cold.snapshot()
    rows = [(e, dict(v)) for e, v in table.entities.items()]
    figures["describe_all_warm_s"] = time.perf_counter() - began
    assert len(rows) == args.entities
    times = []
    resolver = Resolver(cold.snapshot())
    resolver("user", "client", PRODUCER)
    for i in range(0, args.entities, max(1, args.entities // 200)):
        began = time.perf_counter()
        if cold.snapshot() is not resolver.table:
            resolver = Resolver(cold.snapshot())
        resolver(f"user-{i}", f"client {i}", PRODUCER)
        times.append(time.perf_counter() - began)
    figures["effective_one_median_ms"] = 1000 * statistics.median(times)
    figures["effective_one_max_ms"] = 1000 * max(times)
    cold.close()

    watcher = subprocess.Popen(
        [sys.executable, "-c", WATCHER, url], stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    assert int(watcher.stdout.readline().split()[1]) == args.entities
    delays = []
    for n in range(10):
        store.alter(asked(n, 1, 1_000_000.0))
        done = time.time()
        t, changes = watcher.stdout.readline().split()
        assert int(changes) == 1
        delays.append(float(t) - done)
    figures["watch_one_median_ms"] = 1000 * statistics.median(delays)
    figures["watch_one_max_ms"] = 1000 * max(delays)

    began = time.perf_counter()
    results = store.alter(asked(0, args.alter, 5.0, CONSUMER))
    figures["alter_many_s"] = time.perf_counter() - began
    done = time.time()
    assert all(r.error is None for r in results)
    left = args.alter
    while left:
        t, changes = watcher.stdout.readline().split()
        left -= int(changes)
    figures["watch_many_after_ack_ms"] = 1000 * (float(t) - done)
    figures["altered"] = args.alter
    watcher.kill()
    watcher.wait()
    store.close()
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}))


if __name__ == "__main__":
    main()
