"""Hand every request back with its decision: what `replay` writes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline import schema
from headgate.pipeline.replaying.arrays import is_in, joined
from headgate.pipeline.replaying.charges import emptied
from headgate.pipeline.replaying.events import Events, Names, events_of
from headgate.pipeline.replaying.packed_format import CARRIED, PackOptions
from headgate.pipeline.replaying.sensor_group import SensorGroup
from headgate.pipeline.schema import EVENTS
from headgate.pipeline.table import as_array
from headgate.quota.entity import quota_id
from headgate.throttle.java import UNLIMITED


class _Open:
    """A bundle some of whose decisions are missing."""

    def __init__(self, row: dict[str, Any], names: Names, head: Any) -> None:
        self.row = row
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
        names = ("principal", "client_id", "quota_type", "record_ms", "event", "recorded")
        nothing = [None] * table.num_rows
        given = [
            table[name].to_pylist() if name in table.column_names else nothing for name in names
        ]
        found = [self._quota_of(*cells) for cells in zip(*given, strict=True)]
        of_quota = ("quota_id", "quota_user", "quota_client_id", "quota_bps")
        columns = zip(*found, strict=True)
        yield from _replayed(table, dict(zip(of_quota, map(list, columns), strict=True)), None)

    def _quota_of(
        self,
        principal: str | None,
        client_id: str | None,
        quota_type: str | None,
        at_ms: float,
        event: str | None,
        recorded: dict[str, Any] | None,
    ) -> tuple[Any, ...]:
        """Return the quota-id, its tags and the limit of a row that can't be replayed."""
        if event in EVENTS:
            return None, None, None, None
        if recorded is None or recorded["quota_user"] is None:
            return self._resolve(principal or "", client_id or "", quota_type or "", at_ms)[:4]
        user, client, quota = (recorded[n] for n in ("quota_user", "quota_client_id", "quota"))
        limited = quota is not None and quota < UNLIMITED
        return quota_id(user, client), user, client, quota if limited else None

    def events(self, row: dict[str, Any], sensors: SensorGroup) -> Events:
        """Remember the requests of a packed row; return its events."""
        names = Names(row, 1)
        events = events_of(row, names, sensors.numbers, None)
        number = self._bundles
        self._bundles += 1
        self._open[number] = _Open(row, names, events.head)
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
        """Yield nothing: all of a group's bundles are complete by now."""
        assert not self._open
        return iter(())

    def finish(self) -> Iterator[Any]:
        """Yield nothing: every bundle was handed over."""
        return iter(())


def _decided(bundle: _Open) -> Iterator[Any]:
    """Yield REPLAY batches of a bundle."""
    names, head, row = bundle.names, pa.array(bundle.head), bundle.row
    tags = [names.tags(at, layer) for at, layer in enumerate(names.layer[:, 0].tolist())]
    limits = names.bounds[:, 0].tolist()
    alike = {"quota_type": pa.string(), "broker_id": pa.int32()}
    who = {name: pa.repeat(pa.scalar(row[name], of), len(head)) for name, of in alike.items()}
    who |= {name: names.batch[name].take(head) for name in ("principal", "client_id")}
    who |= {
        "quota_id": pa.array([quota_id(*each) for each in tags], pa.string()).take(head),
        "quota_user": pa.array([user for user, _ in tags], pa.string()).take(head),
        "quota_client_id": pa.array([client for _, client in tags], pa.string()).take(head),
        "quota_bps": pa.array([v if v < UNLIMITED else None for v in limits], pa.float64()).take(
            head
        ),
    }
    yield from _replayed(_requests_of(row["rows"]), who, bundle.throttle)


def _requests_of(blob: Any) -> Any:
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return reader.read_all()


def _replayed(table: Any, who: dict[str, Any], throttle: Any) -> Iterator[Any]:
    """
    Yield REPLAY batches of some requests.

    Args:
        table: REQUESTS; columns that it lacks, and ``who`` too, are null. Its further columns
            follow those of REPLAY.
        who: the columns that say who asked, and which quota each was under.
        throttle: decision on each, ms; None: none can be replayed.
    """
    n, have = table.num_rows, set(table.column_names)
    columns = {
        f.name: as_array(table[f.name], f.type) if f.name in have else pa.nulls(n, f.type)
        for f in schema.REQUESTS.arrow
        if f.name not in who
    }
    columns |= {name: pa.array(column) for name, column in who.items()}
    others = {name: table[name] for name in table.column_names if name.startswith(CARRIED)}
    table = pa.table(columns)
    can = np.zeros(n, np.bool_)
    if throttle is not None:  # that a limit moved isn't a request
        can = ~emptied(table) & ~is_in(table["event"], ("bound",))
    ours = pa.nulls(n, pa.int64()) if throttle is None else pa.array(throttle, mask=~can)
    columns |= {
        "logged_throttle_time_ms": pc.coalesce(
            columns["decided_throttle_time_ms"], columns["throttle_time_ms"]
        ),
        "replayed_throttle_time_ms": ours,
        "replayable": pa.array(can),
    }
    found = schema.REPLAY.table(n, columns)
    for name in sorted(others, key=lambda each: int(each.removeprefix(CARRIED))):
        found = found.append_column(name, joined(others[name]))
    yield from found.to_batches()
