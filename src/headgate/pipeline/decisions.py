"""Hand every request back with its decision: what `replay` writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from headgate.pipeline import schema
from headgate.pipeline.charges import emptied
from headgate.pipeline.lanes import Events
from headgate.pipeline.packed import PackOptions
from headgate.quota.entity import quota_id
from headgate.throttle.java import UNLIMITED


class RowSink:
    """Hands every request back with its decision, piece by piece as each is complete."""

    # Requests, throttle times so far, and how many of them, by chunk number.
    _open: dict[int, tuple[dict[str, Any], Any, int]]

    def __init__(self, options: PackOptions) -> None:
        self._resolve = options.plans[0].resolver()
        self._open = {}

    def plain(self, batch: Any) -> Iterator[Any]:
        """Yield the rows that can't be replayed."""
        for i in np.flatnonzero([k == "plain" for k in batch["kind"].to_pylist()]):
            table = _requests_of(batch["rows"][int(i)])
            found = [
                self._resolve(p or "", c or "", q, at)
                for p, c, q, at in zip(
                    *(
                        table[name].to_pylist()
                        for name in ("principal", "client_id", "quota_type", "record_ms")
                    ),
                    strict=True,
                )
            ]
            yield from _replayed(
                table,
                [f.quota_id for f in found],
                [f.quota_user for f in found],
                [f.quota_client_id for f in found],
                [f.quota for f in found],
                None,
            )

    def add(self, batch: Any, rows: Sequence[int], chunk: int) -> None:
        """Remember the requests of some packed rows."""
        names = ("quota_user", "quota_client_id", "bound", "who", "rows", "n")
        for number, i in enumerate(rows):
            row = {name: batch[name][i] for name in names}
            n = row["n"].as_py()
            self._open[chunk + number] = (row, np.zeros(n, np.int64), 0)

    def done(self, events: Events, throttles: list[Any]) -> Iterator[Any]:
        """Take decisions; yield the pieces that have all of theirs."""
        order = np.argsort(events.chunk, kind="stable")
        chunks, throttle = events.chunk[order], throttles[0][order]
        cuts: list[int] = np.flatnonzero(np.diff(chunks, prepend=-1, append=-1)).tolist()
        for a, b in pairwise(cuts):
            number = int(chunks[a])
            row, out, filled = self._open[number]
            # A piece's own events are in order, and are replayed in it.
            out[filled : filled + b - a] = throttle[a:b]
            filled += int(b - a)
            self._open[number] = (row, out, filled)
            if filled == len(out):
                del self._open[number]
                yield from self._piece(row, out)

    @staticmethod
    def _piece(row: dict[str, Any], throttle: Any) -> Iterator[Any]:
        user, client = row["quota_user"].as_py(), row["quota_client_id"].as_py()
        bounds = np.frombuffer(row["bound"].as_buffer(), np.float64)
        n = len(throttle)
        who = np.zeros(n, np.int32)
        if row["who"].is_valid:
            who = np.frombuffer(row["who"].as_buffer(), np.int32)
        limits = bounds[who]
        yield from _replayed(
            _requests_of(row["rows"]),
            [quota_id(user, client)] * n,
            [user] * n,
            [client] * n,
            [v if v < UNLIMITED else None for v in limits.tolist()],
            throttle,
        )

    def finish(self) -> Iterator[Any]:
        """All pieces are complete by now."""
        assert not self._open
        return iter(())


def _requests_of(blob: Any) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(blob.as_buffer()) as reader:
        return reader.read_all()


def _replayed(
    table: Any,
    ids: list[str],
    users: list[str],
    clients: list[str],
    limits: list[float | None],
    throttle: Any,
) -> Iterator[Any]:
    """Yield REPLAY batches of some requests."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n = table.num_rows
    told = pc.coalesce(table["decided_throttle_time_ms"], table["throttle_time_ms"])
    if throttle is None:
        can = pa.repeat(pa.scalar(False), n)
        ours = pa.nulls(n, pa.int64())
    else:
        can = pa.array(~emptied(table))
        ours = pc.if_else(can, pa.array(throttle), None)
    extra = {
        "quota_id": ids,
        "quota_user": users,
        "quota_client_id": clients,
        "quota_bps": limits,
        "logged_throttle_time_ms": told,
        "replayed_throttle_time_ms": ours,
        "replayable": can,
    }
    columns = []
    for f in schema.REPLAY.arrow:
        column = extra[f.name] if f.name in extra else table[f.name]
        columns.append(
            column.combine_chunks()
            if isinstance(column, pa.ChunkedArray)
            else pa.array(column, f.type)
        )
    yield from pa.Table.from_arrays(columns, schema=schema.REPLAY.arrow).to_batches()
