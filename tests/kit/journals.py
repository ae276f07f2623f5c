"""Usage journals: a small one, for tests of what reads the last hour; a topic, read as a whole."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.manager import ClientQuotaManager
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


def application(
    user: str, client_id: str, rate: float, limit: float, begin_ms: int, seconds: int,
    tags: tuple[str, str] | None = None, manager: ClientQuotaManager | None = None,
) -> list[Event]:  # fmt: skip
    """
    Return the charges of an application that makes bytes at a rate and sends them when it may.

    Args:
        user: its principal.
        client_id: its client-id.
        rate: bytes that it makes in a second.
        limit: of its quota-id, bytes per second.
        begin_ms: when it begins, epoch ms.
        seconds: how long it is watched.
        tags: of its quota-id; by default user and client-id.
        manager: decides; by default one of its own, with this limit.
    """
    whose = tags or (user, client_id)
    if manager is None:
        manager = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE)
        of = {"user": whose[0]} | ({"client-id": whose[1]} if whose[1] else {})
        manager.load({QuotaEntity(of): limit}, begin_ms)
    origin = Origin(
        "record", "producer_byte_rate", 1, "L", *whose, None, user, client_id, "10.0.0.9",
        client_id, 0, 11, 11, 1000,
    )  # fmt: skip
    found: list[Event] = []
    at, sent = float(begin_ms), 0.0
    while at < begin_ms + seconds * 1000:
        made = rate * (at - begin_ms) / 1000 - sent
        if made < rate / 20:  # it sends twenty times a second, if it may
            at += (rate / 20 - made) / rate * 1000
            continue
        size = min(made, 100_000.0)
        sent += size
        wait = max(manager.record(user, client_id, size, round(at)).throttle_time_ms, 0)
        found.append(Event(origin, at, size, limit, wait, wait, 0, round(size)))
        at += wait + 4.0
    return found


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
