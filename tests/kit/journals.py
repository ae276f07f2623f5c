"""Usage journals: a small one, for tests of what reads the last hour; a topic, read as a whole."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.usage import topic
from headgate.usage.files import WRITE_OPTIONS, file_name
from headgate.usage.format import SCHEMA, Event, Origin
from headgate.usage.rows import batch_of

Sent = tuple[int, str, str, int]
"""When (epoch ms), user, client-id, bytes."""


def traffic(
    now_ms: int,
    kind: str = "record",
    count: int = 3_000,
    users: tuple[str, ...] = ("alice", "bob", "carol"),
    client_ids: tuple[str, ...] = ("x", "y"),
) -> tuple[list[Sent], list[Event]]:
    """Return produce requests of the last ten minutes, and the events of their charges."""
    rng, at = random.Random(7), now_ms - 600_000
    sent: list[Sent] = []
    for _ in range(count):
        at += rng.choice([0, 5, 90, 300])
        sent.append((at, rng.choice(users), rng.choice(client_ids), rng.randrange(100, 9_000)))
    origins = {
        (who, client): Origin(
            kind, "producer_byte_rate", 1, "L", who, "", None, who, client, "10.0.0.9", "c", 0, 11,
            11, 1000,
        )
        for _, who, client, _ in sent
    }  # fmt: skip
    return sent, [
        Event(origins[who, client], float(t), float(size), 9_000.0, 3, 3, 0, size)
        for t, who, client, size in sent
    ]


def write_journal(folder: Path, events: list[Event], first: int = 1) -> None:
    """Write a closed file of a worker, as old as its last event."""
    path = folder / file_name("w-1", first, ".arrow")
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, SCHEMA, options=WRITE_OPTIONS) as writer,
    ):
        for at in range(0, len(events), 500):
            writer.write_batch(batch_of(events[at : at + 500], "w-1", first + at))
    os.utime(path, (events[-1].t_ms / 1000,) * 2)


def read_topic(name: str, config: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Read a journal's topic to its end; a batch sent twice (unconfirmed) is given once."""
    seen: dict[str, int] = {}
    for message in topic._scan(name, config, 30.0):
        for batch in topic._batches_of(message):
            if not batch.num_rows:
                continue
            worker = batch.column("worker_id")[0].as_py()
            if batch.column("seq")[0].as_py() > seen.get(worker, 0):
                seen[worker] = batch.column("seq")[-1].as_py()
                yield batch
