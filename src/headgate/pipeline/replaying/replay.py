"""
Replay charges through Kafka's quota arithmetic: packed rows in, decisions out.

Spark brings the bundles of a key together, in order; ``ReplayPacked`` views each as arrays, puts
events in order where bundles overlap, and calls the kernel once per bundle, its state carried on.
Memory stays constant however skewed the keys are: a bundle holds at most what a worker gathers, and
only bundles that overlap in time are held back. What comes out is every request with its decision
(`replay`), or the decisions added up per plan, sensor and client (`what-if`, `recommend`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline import schema
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.charges import is_in, one_chunk, throttled_fetches
from headgate.pipeline.replaying.packed_format import (
    ABSENT,
    CARRIED,
    GROUP_COLUMNS,
    LOGGED,
    PACKED,
    Events,
    GroupKind,
    NamedHeads,
    PackOptions,
    events_of,
    tags_of,
)
from headgate.pipeline.replaying.packer import PackRequests
from headgate.pipeline.replaying.sensor_group import SensorGroup, SharesGroup
from headgate.pipeline.schema import EVENTS
from headgate.pipeline.table import as_array, make_table
from headgate.pipeline.workers.emit import refuse_again
from headgate.quota.entity import quota_id
from headgate.quota.table import QuotaTable
from headgate.throttle.java import UNLIMITED

SUMS: Final = make_table(
    "sums",
    "One row per (plan number, sensor, principal, client_id) of one task; plan -1 is the log.",
    ("plan", "int", "number of the plan, -1 = what the log says"),
    ("quota_type", "string", "quota type"),
    ("quota_user", "string", "user tag"),
    ("quota_client_id", "string", "client-id tag"),
    ("broker_id", "int", "broker"),
    ("principal", "string", "name part of the principal"),
    ("client_id", "string", "client-id"),
    ("quota", "double", "limit; infinite = none"),
    ("requests", "long", "requests"),
    ("bytes", "long", "bytes charged"),
    ("throttled_requests", "long", "requests with a throttle time"),
    ("throttle_time_ms", "long", "throttle time, ms"),
    ("max_throttle_time_ms", "long", "largest, ms"),
    ("delayed", "double", "amount of the throttled requests"),
    ("first_ms", "long", "first request"),
    ("last_ms", "long", "last request"),
    ("withheld", "long", "fetches that a log says were throttled, without bytes"),
    ("withheld_ms", "long", "their throttle time as it says, ms"),
)
# Rows of one hand-over.
_MOST_ROWS: Final = 100_000
# Columns of a packed row that stay where they are, as buffers.
_BLOBS: Final = ("t", "amount", "op", "pos", "head", "heads", "terms", "rows")
_SCALARS: Final = tuple(n for n in PACKED.names if n not in _BLOBS)


@dataclass(frozen=True)
class ReplayPacked:
    """Replay PACKED rows, sorted by ORDER. A ``mapInArrow`` function."""

    options: PackOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield REPLAY rows, or SUMS rows where the options want no rows."""
        plans = len(self.options.plans)
        sink = RowSink(self.options) if self.options.rows else SumSink(plans)
        key, sensors = "", None
        seen: set[str] = set()
        for row in _rows(batches):
            if row["kind"] == "plain":
                yield from sink.plain(row)
                continue
            if sensors is None or row["key"] != key:
                yield from self._closed(sink, sensors)
                key, sensors = row["key"], _sensors_of(row, self.options)
                refuse_again(key, seen)
            events = sink.events(row, sensors)
            for ready in sensors.feed(
                events, row["first"], row["last"], (row["since"], row["tie"])
            ):
                yield from sink.decide(sensors, ready)
        yield from self._closed(sink, sensors)
        yield from sink.finish()

    @staticmethod
    def _closed(sink: RowSink | SumSink, sensors: SensorGroup | None) -> Iterator[Any]:
        if sensors is None:
            return
        for ready in sensors.rest():
            yield from sink.decide(sensors, ready)
        yield from sink.close(sensors)


def _sensors_of(row: dict[str, Any], options: PackOptions) -> SensorGroup:
    """Return the group of a packed row's sensors, which has no events yet."""
    kind, plans = GroupKind(*(row[name] for name in GROUP_COLUMNS)), len(options.plans)
    if kind.quota_type.endswith(":shares") and kind.rule is None:
        capacity = dict(options.capacities)[kind.quota_type.partition(":")[0]]
        return SharesGroup(kind, plans, capacity)
    return SensorGroup(kind, plans)


def _rows(batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """Yield the chunk and plain rows of batches, blobs as buffers (None where null)."""
    for batch in batches:
        scalars = batch.select(list(_SCALARS)).to_pylist()
        columns = [(name, batch[name]) for name in _BLOBS]
        for i, row in enumerate(scalars):
            if row["kind"] in ("chunk", "plain"):
                yield row | {name: column[i].as_buffer() for name, column in columns}


def preload() -> None:
    """Load the kernels, and all else that replaying needs, by replaying one request."""
    request = {
        "record_ms": 0.0,
        "principal": "",
        "client_id": "",
        "bytes_charged": 1,
        "throttle_time_ms": 0,
        "quota_type": "producer_byte_rate",
        "amount": 1.0,
        "is_charged": True,
        "is_request": True,
        "source": "log",
    }
    rows = [pa.array([request.get(f.name)], f.type) for f in schema.REQUESTS.arrow]
    batch = pa.RecordBatch.from_arrays(rows, schema=schema.REQUESTS.arrow)
    options = PackOptions((Quotas.of(QuotaTable()),))
    for _ in ReplayPacked(options)(PackRequests(options)(iter([batch]))):
        pass


class _OpenBundle:
    """A bundle some of whose decisions are missing."""

    def __init__(self, row: dict[str, Any], names: NamedHeads, head: Any) -> None:
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
        self._open: dict[int, _OpenBundle] = {}
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
        names = NamedHeads(row, 1)
        events = events_of(row, names, sensors.numbers, None)
        number = self._bundles
        self._bundles += 1
        self._open[number] = _OpenBundle(row, names, events.head)
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


def _decided(bundle: _OpenBundle) -> Iterator[Any]:
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
        can = ~throttled_fetches(table) & ~is_in(table["event"], ("bound",))
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
        found = found.append_column(name, one_chunk(others[name]))
    yield from found.to_batches()


class SumSink:
    """
    Adds decisions up per plan, sensor and who; nothing per event leaves the worker.

    Args:
        plans: how many plans are replayed side by side.
    """

    def __init__(self, plans: int) -> None:
        self._plans = plans
        self._ready: list[Any] = []
        self._rows = 0
        self._begin()

    def _begin(self) -> None:
        from headgate.kernel.plans import PlanSums

        # By root, by (principal, client-id), and by the layers they have under each plan.
        self._groups: dict[tuple[Any, ...], int] = {}
        self._logged = np.empty((0, len(LOGGED)), np.int64)
        self._limits = np.empty((0, self._plans), np.float64)
        self._layers = np.empty((0, self._plans), np.uint8)
        self._sums = PlanSums(self._plans)
        self._withheld = np.zeros((0, 2), np.int64)

    def plain(self, row: dict[str, Any]) -> Iterator[Any]:
        """Yield nothing: only `replay` hands rows back."""
        return iter(())

    def events(self, row: dict[str, Any], sensors: SensorGroup) -> Events:
        """Count the requests of a packed row; return its events."""
        names = NamedHeads(row, self._plans)
        layers = np.ascontiguousarray(names.layer).view(f"V{self._plans}")[:, 0].tolist()
        groups, known = self._groups, self._groups.setdefault
        whose = zip(names.roots, names.whose, layers, strict=True)
        group = np.array([known(who, len(groups)) for who in whose], np.int64)
        have = len(self._logged)
        if len(groups) > have:
            from headgate.kernel.grouping import no_sums

            room = max(len(groups), 2 * have)
            self._logged = np.concatenate([self._logged, no_sums(room - have)])
            self._limits = np.resize(self._limits, (room, self._plans))
            self._layers = np.resize(self._layers, (room, self._plans))
            self._sums.grow(room)
            self._withheld = np.concatenate([self._withheld, np.zeros((room - have, 2), np.int64)])
        # A head occurs twice in a bundle only if its limit moved: hence not by plain indexing.
        logged = names.batch["sums"].flatten().to_numpy().reshape(-1, len(LOGGED))
        for column in range(4):
            np.add.at(self._logged[:, column], group, logged[:, column])
        if row["worker_id"] is None and sensors.kind.quota_type.startswith("consumer_byte_rate"):
            # A broker answers a throttled fetch empty, and logs what it sent: no bytes.
            np.add.at(self._withheld, group, logged[:, 2:4])
        for column in (4, 6):
            np.maximum.at(self._logged[:, column], group, logged[:, column])
        np.minimum.at(self._logged[:, 5], group, logged[:, 5])
        self._limits[group] = names.bounds
        self._layers[group] = names.layer
        return events_of(row, names, sensors.numbers, group)

    def decide(self, sensors: SensorGroup, events: Events) -> Iterator[Any]:
        """Add decisions up; nothing is complete before the group of sensors is."""
        sensors.add_up(events, self._sums)
        return iter(())

    def close(self, sensors: SensorGroup) -> Iterator[Any]:
        """Take the end of a group of sensors; yield SUMS rows when there are many."""
        self._ready.append(self._batch(sensors))
        self._rows += self._ready[-1].num_rows
        self._begin()
        if self._rows >= _MOST_ROWS:
            yield from self.finish()

    def finish(self) -> Iterator[Any]:
        """Yield the SUMS rows that are left."""
        ready, self._ready, self._rows = self._ready, [], 0
        if ready:
            yield from pa.Table.from_batches(ready).combine_chunks().to_batches()

    def _batch(self, sensors: SensorGroup) -> Any:
        """Return the SUMS rows of a group of sensors."""
        limits, layers = self._limits[: len(self._groups)], self._layers[: len(self._groups)]
        there = layers != ABSENT
        # What the log says goes with the first plan's quota-ids: once, not for every kind of limit.
        of_plan = [np.flatnonzero(there[:, plan]) for plan in (0, *range(self._plans))]
        if ":" in sensors.kind.quota_type:
            of_plan[0] = of_plan[0][:0]
        group = np.concatenate(of_plan)
        plan = np.repeat(np.arange(-1, self._plans), [len(part) for part in of_plan])
        of_log = plan < 0
        at = group, np.maximum(plan, 0)
        logged, given = self._logged[group], self._sums.given[at]
        who = pa.array(group)
        tags = self._tags(group, layers[at])
        columns = {
            "quota_user": pa.array([user for user, _ in tags], pa.string()),
            "quota_client_id": pa.array([client for _, client in tags], pa.string()),
            "principal": pa.array([w[1][0] for w in self._groups], pa.string()).take(who),
            "client_id": pa.array([w[1][1] for w in self._groups], pa.string()).take(who),
            "plan": pa.array(plan),
            "quota_type": pa.repeat(pa.scalar(sensors.kind.quota_type, pa.string()), len(group)),
            "broker_id": pa.repeat(pa.scalar(sensors.kind.broker_id, pa.int32()), len(group)),
            "quota": pa.array(limits[at]),
            "requests": pa.array(logged[:, 0]),
            "bytes": pa.array(logged[:, 1]),
            "throttled_requests": pa.array(np.where(of_log, logged[:, 2], given[:, 0])),
            "throttle_time_ms": pa.array(np.where(of_log, logged[:, 3], given[:, 1])),
            "max_throttle_time_ms": pa.array(np.where(of_log, logged[:, 4], given[:, 2])),
            "delayed": pa.array(np.where(of_log, 0.0, self._sums.delayed[at])),
            "first_ms": pa.array(logged[:, 5]),
            "last_ms": pa.array(logged[:, 6]),
            "withheld": pa.array(self._withheld[group, 0]),
            "withheld_ms": pa.array(self._withheld[group, 1]),
        }
        return SUMS.batch(len(group), columns)

    def _tags(self, group: Any, layer: Any) -> list[tuple[str, str]]:
        """Return the tags of some groups' sensors, each in a layer."""
        heads = list(self._groups)
        if not layer.any():
            return [heads[g][0] for g in group.tolist()]
        return [
            tags_of(n, *heads[g][:2]) for g, n in zip(group.tolist(), layer.tolist(), strict=True)
        ]
