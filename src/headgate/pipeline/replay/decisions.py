"""Hand every request back with its decision: what `replay` writes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from headgate.pipeline import schema
from headgate.pipeline.replay.arrays import is_in
from headgate.pipeline.replay.charges import emptied
from headgate.pipeline.replay.events import Events, Names, events_of
from headgate.pipeline.replay.packed_format import OWN, PackOptions
from headgate.pipeline.replay.sensor_group import SensorGroup
from headgate.quota.entity import quota_id
from headgate.throttle.java import UNLIMITED


class _Open:
    """A bundle whose decisions aren't all taken."""

    def __init__(self, rows: Any, names: Names, head: Any) -> None:
        self.rows = rows
        self.names = names
        self.head = head
        self.throttle = np.zeros(len(head), np.int64)
        self.left = len(head)


class RowSink:
    """
    Hands every request back with its decision, bundle by bundle as each is complete.

    Args:
        options: one plan's.
    """

    def __init__(self, options: PackOptions) -> None:
        self._resolve = options.plans[0].resolver()
        self._open: dict[int, _Open] = {}
        self._bundles = 0

    def plain(self, row: dict[str, Any]) -> Iterator[Any]:
        """Yield the rows that can't be replayed."""
        table = _requests_of(row["rows"])
        names = ("principal", "client_id", "quota_type", "record_ms", *OWN)
        found = [
            self._resolve(principal or "", client_id or "", quota_type, at)[:4]
            if user is None
            else (quota_id(user, client), user, client, quota if quota < UNLIMITED else None)
            for principal, client_id, quota_type, at, user, client, quota in zip(
                *(table[name].to_pylist() for name in names), strict=True
            )
        ]
        of_quota = ("quota_id", "quota_user", "quota_client_id", "quota_bps")
        columns = zip(*found, strict=True)
        yield from _replayed(table, dict(zip(of_quota, map(list, columns), strict=True)), None)

    def events(self, row: dict[str, Any], sensors: SensorGroup) -> Events:
        """Remember the requests of a packed row; return its events."""
        names = Names(row, 1)
        events = events_of(row, names, sensors.numbers, None)
        number = self._bundles
        self._bundles += 1
        self._open[number] = _Open(row["rows"], names, events.head)
        events.origin = (number << 32) + np.arange(len(events), dtype=np.int64)
        return events

    def decide(self, sensors: SensorGroup, events: Events) -> Iterator[Any]:
        """Take decisions; yield the bundles that have all of theirs."""
        throttle = sensors.throttles(events)
        bundle = events.origin >> 32
        order = np.argsort(bundle, kind="stable")
        cuts = np.flatnonzero(np.diff(bundle[order], prepend=-1, append=-1))
        for a, b in pairwise(cuts.tolist()):
            mine = order[a:b]
            number = int(bundle[mine[0]])
            open_ = self._open[number]
            open_.throttle[events.origin[mine] & 0xFFFFFFFF] = throttle[mine]
            open_.left -= b - a
            if not open_.left:
                del self._open[number]
                yield from _decided(open_)

    def close(self, sensors: SensorGroup) -> Iterator[Any]:
        """All of a group's bundles are complete by now."""
        assert not self._open
        return iter(())

    def finish(self) -> Iterator[Any]:
        """Nothing is left."""
        return iter(())


def _decided(bundle: _Open) -> Iterator[Any]:
    """Yield REPLAY batches of a bundle."""
    import pyarrow as pa

    names, head = bundle.names, pa.array(bundle.head)
    tags = [names.tags(at, layer) for at, layer in enumerate(names.layer[:, 0].tolist())]
    limits = names.bounds[:, 0].tolist()
    who = {
        "quota_id": pa.array([quota_id(*each) for each in tags], pa.string()).take(head),
        "quota_user": pa.array([user for user, _ in tags], pa.string()).take(head),
        "quota_client_id": pa.array([client for _, client in tags], pa.string()).take(head),
        "quota_bps": pa.array([v if v < UNLIMITED else None for v in limits], pa.float64()).take(
            head
        ),
    }
    table, throttle = _requests_of(bundle.rows), bundle.throttle
    moved = is_in(table["event"], ("bound",))
    if moved.any():
        # That a limit moved is no request.
        kept = pa.array(~moved)
        table, throttle = table.filter(kept), throttle[~moved]
        who = {name: column.filter(kept) for name, column in who.items()}
    yield from _replayed(table, who, throttle)


def _requests_of(blob: Any) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return reader.read_all()


def _replayed(table: Any, who: dict[str, Any], throttle: Any) -> Iterator[Any]:
    """
    Yield REPLAY batches of some requests.

    Args:
        table: REQUESTS.
        who: the columns that say which quota each was under.
        throttle: decision on each, ms; None: none can be replayed.
    """
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
    extra = who | {
        "logged_throttle_time_ms": told,
        "replayed_throttle_time_ms": ours,
        "replayable": can,
    }
    columns = []
    for f in schema.REPLAY.arrow:
        column = extra[f.name] if f.name in extra else table[f.name]
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        columns.append(column if isinstance(column, pa.Array) else pa.array(column, f.type))
    yield from pa.Table.from_arrays(columns, schema=schema.REPLAY.arrow).to_batches()
