"""
How the admin client bears 100,000 quota entities in a SQLite store.

    python bench/bench_admin.py [--entities 100000]

Prints one line of JSON: seconds to alter 10,000 entities in one request, to describe all of them
with a fresh client and with a warm one, and milliseconds for what applies to one client (median
and worst of 1,000, warm).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time

from headgate.admin import AdminClient, AlterQuotasEntry, Op, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER


def entity(n: int) -> QuotaEntity:
    """Users and pairs in turn."""
    if n % 2:
        return QuotaEntity.of(user=f"user-{n}")
    return QuotaEntity.of(user=f"user-{n}", client_id=f"client-{n % 100}")


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--entities", type=int, default=100_000)
    count = made.parse_args().entities
    figures: dict[str, float] = {"entities": count}
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:{folder}/quotas.db"
        with AdminClient(store=url) as client:
            times = []
            for start in range(0, count, 10_000):
                entries = [
                    AlterQuotasEntry(entity(n), [Op(PRODUCER, 1000 + n), Op(CONSUMER, 2000 + n)])
                    for n in range(start, min(start + 10_000, count))
                ]
                began = time.perf_counter()
                client.alter_quotas(entries).all().result(600)
                times.append(time.perf_counter() - began)
            figures["alter_10000_s"] = statistics.median(times)
        with AdminClient(store=url) as client:
            for name in ("describe_all_fresh_s", "describe_all_warm_s"):
                began = time.perf_counter()
                found = client.describe_quotas().entities().result(600)
                figures[name] = time.perf_counter() - began
                if len(found) != count:
                    raise SystemExit(f"{len(found)} entities came back, not {count}")
            asked = [
                QuotaEntity.of(user=f"user-{random.randrange(count)}", client_id="client-5")
                for _ in range(1001)
            ]
            took = []
            for one in asked:
                began = time.perf_counter()
                client.describe_effective_quotas([one]).config()[one].result(600)
                took.append((time.perf_counter() - began) * 1000)
            figures["effective_median_ms"] = statistics.median(took[1:])
            figures["effective_worst_ms"] = max(took[1:])
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
