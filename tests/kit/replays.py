"""Pieces of made traffic, packed and replayed as Spark does it, without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st

from headgate.pipeline.replaying import packer, sensor_group
from headgate.pipeline.replaying.packed_format import ORDER, PackOptions
from headgate.pipeline.replaying.replay import ReplayPacked
from headgate.pipeline.schema import REQUESTS

WORLDS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    seed=st.integers(0, 10**6),
    hot=st.sampled_from([0.0, 0.9, 1.0]),
    gathered=st.sampled_from([5, 40, 1000]),
    ordered=st.sampled_from([0, 30, 1000]),
    rows_per_batch=st.integers(1, 5),
)


@contextmanager
def small(gathered: int, ordered: int) -> Iterator[None]:
    """Let workers gather and put in order so few events that bundles are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packer, "GATHER_EVENTS", gathered)
        patch.setattr(sensor_group, "ORDER_EVENTS", ordered)
        patch.setattr(sensor_group, "MANY_HEADS", 3)
        yield


def replayed(
    pieces: list[list[dict[str, Any]]], options: PackOptions, rows_per_batch: int
) -> list[dict[str, Any]]:
    """Pack each piece in a task of its own, bring bundles together as Spark does, and replay."""
    packed: list[pa.RecordBatch] = []
    for piece in pieces:
        batch = pa.RecordBatch.from_pylist(piece, schema=REQUESTS.arrow)
        parts = [batch.slice(at, 7) for at in range(0, batch.num_rows, 7)]
        packed += packer.PackRequests(options)(iter(parts))
    table = pa.Table.from_batches(packed)
    table = table.filter(pc.is_in(table["kind"], pa.array(["chunk", "plain"])))
    keys = [(name, "ascending") for name in ORDER]
    batches = table.sort_by(keys).combine_chunks().to_batches(max_chunksize=rows_per_batch)
    found: list[dict[str, Any]] = []
    for batch in ReplayPacked(options)(iter(batches)):
        found += batch.to_pylist()
    return found


def overlapping(rng: random.Random, rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Deal charges to pieces that overlap in time, some out of order, in no order."""
    count = rng.randrange(1, 6)
    blur = rng.choice([0, 10, len(rows)])
    pieces: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for i, row in enumerate(rows):
        near = min(max(i + rng.randint(-blur, blur), 0), len(rows) - 1)
        pieces[near * count // len(rows)].append(row)
    for piece in pieces:
        if rng.random() < 0.3:
            rng.shuffle(piece)
    rng.shuffle(pieces)
    return [piece for piece in pieces if piece]
