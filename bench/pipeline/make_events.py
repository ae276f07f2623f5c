"""
Write a table ``requests`` of N produce requests: Zipf-distributed users, in order of time.

    python bench/pipeline/make_events.py 12e6 DIR [--hot SHARE | --even]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

USERS, BROKERS, RATE = 10_000, 3, 20_000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", type=float)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hot", type=float, default=None, help="share of the events of one user")
    parser.add_argument("--even", action="store_true", help="all users alike, on one broker")
    arguments = parser.parse_args()
    one_broker = arguments.even or arguments.hot is not None
    arguments.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    total, per_file, at = int(arguments.events), 1_000_000, 1.7e12
    names = np.array([f"user-{i}" for i in range(USERS)])
    weights = 1.0 / np.arange(1, USERS + 1) ** (0.0 if arguments.even else 1.1)
    if arguments.hot is not None:
        weights[1:] *= (1 - arguments.hot) / weights[1:].sum()
        weights[0] = arguments.hot
    weights /= weights.sum()
    for n, start in enumerate(range(0, total, per_file)):
        size = min(per_file, total - start)
        t = at + np.cumsum(rng.exponential(1000.0 / RATE, size))
        at = float(t[-1])
        user = rng.choice(USERS, size, p=weights)
        amount = rng.integers(100, 20_000, size)
        brokers = np.zeros(size, np.int32) if one_broker else rng.integers(0, BROKERS, size)
        table = pa.table(
            {
                "record_ms": t,
                "broker_id": brokers.astype(np.int32),
                "principal": pa.DictionaryArray.from_arrays(user.astype(np.int32), names),
                "client_id": pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), ["app"]),
                "bytes_charged": amount,
                "bytes_exact": np.ones(size, bool),
                "throttle_time_ms": np.zeros(size, np.int64),
                "quota_type": pa.DictionaryArray.from_arrays(
                    np.zeros(size, np.int32), ["producer_byte_rate"]
                ),
                "amount": amount.astype(np.float64),
                "is_charged": np.ones(size, bool),
                "is_request": np.ones(size, bool),
                "source": pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), ["log"]),
                "seq": np.arange(start, start + size),
                "file": pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), ["made"]),
            }
        )
        pq.write_table(table, arguments.out / f"part-{n:05}.parquet", row_group_size=per_file)


if __name__ == "__main__":
    main()
