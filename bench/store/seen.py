"""
How soon a store sees what Kafka's own tool changed, and Kafka's clients what a store changed.

    python bench/store/seen.py [zookeeper|kafka …] [--times 10]

Starts its own Kafka (3.9.2 with ZooKeeper, or 4.3.1). The tool's part is timed from its exit, which
is later than the change, so a negative figure means: seen before the tool had ended.
"""

import argparse
import json
import statistics
import threading
import time

from headgate.embedded import EmbeddedKafka
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store

CONFIGS = "kafka.admin.ConfigCommand"
ALICE = QuotaEntity.of(user="alice")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", metavar="zookeeper|kafka")
    parser.add_argument("--times", type=int, default=10)
    args = parser.parse_args()
    for store in args.stores or ("zookeeper", "kafka"):
        measure(store, args.times)


def measure(kind: str, times: int) -> None:
    zookeeper = kind == "zookeeper"
    with EmbeddedKafka(version="3.9.2" if zookeeper else "4.3.1") as kafka:
        place = kafka.zookeeper.address if zookeeper else kafka.bootstrap()
        store, other = open_store(f"{kind}://{place}"), open_store(f"{kind}://{place}")
        seen: dict[float, float] = {}
        changed = threading.Condition()

        def callback(table: object, _delta: object) -> None:
            with changed:
                value = table.get(ALICE, PRODUCER)  # type: ignore[attr-defined]
                seen.setdefault(value or 0.0, time.time())
                changed.notify_all()

        store.watch(callback)
        by_tool, by_headgate = [], []
        for n in range(times):
            value = 1000.0 + n
            kafka.tool(
                CONFIGS, "--alter", "--entity-type", "users", "--entity-name", "alice",
                "--add-config", f"producer_byte_rate={value:.0f}",
            )  # fmt: skip
            done = time.time()
            with changed:
                changed.wait_for(lambda value=value: value in seen, 60)
            by_tool.append(1000 * (seen[value] - done))
        for n in range(times):
            value = 2000.0 + n
            other.alter([QuotaAlteration(ALICE, (Op(PRODUCER, value),))])
            done = time.time()
            with changed:
                changed.wait_for(lambda value=value: value in seen, 60)
            by_headgate.append(1000 * (seen[value] - done))
        store.close()
        other.close()
    figures = {
        "store": kind,
        "after_tool_median_ms": round(statistics.median(by_tool), 1),
        "after_tool_max_ms": round(max(by_tool), 1),
        "after_headgate_median_ms": round(statistics.median(by_headgate), 1),
        "after_headgate_max_ms": round(max(by_headgate), 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
