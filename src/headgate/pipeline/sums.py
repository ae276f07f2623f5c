"""Add decisions up per plan, sensor and client: what `what-if` and `recommend` compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from headgate.pipeline import schema
from headgate.pipeline.lanes import Events, Lane, bounds_of, events_of
from headgate.pipeline.packed import LOGGED

SUMS: Final = schema.Table(
    "sums",
    "One row per (plan number, sensor, principal, client_id) of one task; plan -1 is the log.",
    (
        schema.Column("plan", "int", "number of the plan, -1 = what the log says"),
        schema.Column("quota_type", "string", "quota type"),
        schema.Column("quota_user", "string", "user tag"),
        schema.Column("quota_client_id", "string", "client-id tag"),
        schema.Column("broker_id", "int", "broker"),
        schema.Column("principal", "string", "who"),
        schema.Column("client_id", "string", "who"),
        schema.Column("quota", "double", "limit; infinite = none"),
        schema.Column("requests", "long", "requests"),
        schema.Column("bytes", "long", "bytes charged"),
        schema.Column("throttled_requests", "long", "requests with a throttle time"),
        schema.Column("throttle_time_ms", "long", "throttle time, ms"),
        schema.Column("max_throttle_time_ms", "long", "largest, ms"),
        schema.Column("delayed", "double", "amount of the throttled requests"),
        schema.Column("first_ms", "long", "first request"),
        schema.Column("last_ms", "long", "last request"),
    ),
)
# Rows of one hand-over.
_MOST_ROWS: Final = 100_000
_NAMES: Final = ("quota_user", "quota_client_id", "principal", "client_id")


class SumSink:
    """
    Adds decisions up per plan, sensor and who; nothing per event leaves the worker.

    Args:
        plans: how many plans are replayed side by side.
    """

    def __init__(self, plans: int) -> None:
        from headgate import kernel

        self._kernel = kernel
        self._plans = plans
        self._ready: list[Any] = []
        self._rows = 0
        self._begin()

    def _begin(self) -> None:
        # By name, and by which plans they are under.
        self._groups: dict[tuple[Any, ...], int] = {}
        self._logged = np.empty((0, len(LOGGED)), np.int64)
        self._limits = np.empty((0, self._plans), np.float64)
        self._sums = self._kernel.PlanSums(self._plans)

    def plain(self, row: dict[str, Any]) -> Iterator[Any]:
        """There are none: only `replay` hands rows back."""
        return iter(())

    def events(self, row: dict[str, Any], heads: Any, lane: Lane) -> Events:
        """Count the requests of a packed row; return its events."""
        bounds = bounds_of(heads, self._plans)
        names = [heads[name].to_pylist() for name in _NAMES]
        if self._plans > 1:
            names.append([there.tobytes() for there in ~np.isnan(bounds)])
        groups, known = self._groups, self._groups.setdefault
        group = np.array([known(who, len(groups)) for who in zip(*names, strict=True)], np.int64)
        have = len(self._logged)
        if len(groups) > have:
            room = max(len(groups), 2 * have)
            self._logged = np.concatenate([self._logged, _no_sums(room - have)])
            self._limits = np.resize(self._limits, (room, self._plans))
            self._sums.grow(room)
        # A head occurs twice in a bundle only if its limit moved: hence not by plain indexing.
        logged = heads["sums"].flatten().to_numpy().reshape(-1, len(LOGGED))
        for column in range(4):
            np.add.at(self._logged[:, column], group, logged[:, column])
        for column in (4, 6):
            np.maximum.at(self._logged[:, column], group, logged[:, column])
        np.minimum.at(self._logged[:, 5], group, logged[:, 5])
        self._limits[group] = bounds
        return events_of(row, heads, lane, group, self._plans)

    def decide(self, lane: Lane, events: Events) -> Iterator[Any]:
        """Add decisions up; nothing is complete before the lane is."""
        lane.add_up(events, self._sums)
        return iter(())

    def close(self, lane: Lane) -> Iterator[Any]:
        """Take a lane's end; yield SUMS rows when there are many."""
        self._ready.append(self._batch(lane))
        self._rows += self._ready[-1].num_rows
        self._begin()
        if self._rows >= _MOST_ROWS:
            yield from self.finish()

    def finish(self) -> Iterator[Any]:
        """Yield the SUMS rows that are left."""
        import pyarrow as pa

        ready, self._ready, self._rows = self._ready, [], 0
        if ready:
            yield from pa.Table.from_batches(ready).combine_chunks().to_batches()

    def _batch(self, lane: Lane) -> Any:
        """Return the SUMS rows of a lane."""
        import pyarrow as pa

        limits = self._limits[: len(self._groups)]
        there = ~np.isnan(limits)
        # The log is told by the first plan's quota-ids; once, not for every kind of limit.
        of_plan = [np.flatnonzero(there[:, plan]) for plan in (0, *range(self._plans))]
        if ":" in lane.kind.quota_type:
            of_plan[0] = of_plan[0][:0]
        group = np.concatenate(of_plan)
        plan = np.repeat(np.arange(-1, self._plans), [len(part) for part in of_plan])
        of_log = plan < 0
        at = group, np.maximum(plan, 0)
        logged, given = self._logged[group], self._sums.given[at]
        who = pa.array(group)
        names = list(zip(*self._groups, strict=True)) or [()] * len(_NAMES)
        columns: dict[str, Any] = {
            name: pa.array(values, pa.string()).take(who)
            for name, values in zip(_NAMES, names, strict=False)
        }
        columns |= {
            "plan": pa.array(plan, pa.int32()),
            "quota_type": pa.repeat(pa.scalar(lane.kind.quota_type, pa.string()), len(group)),
            "broker_id": pa.repeat(pa.scalar(lane.kind.broker_id, pa.int32()), len(group)),
            "quota": pa.array(limits[at]),
            "requests": pa.array(logged[:, 0]),
            "bytes": pa.array(logged[:, 1]),
            "throttled_requests": pa.array(np.where(of_log, logged[:, 2], given[:, 0])),
            "throttle_time_ms": pa.array(np.where(of_log, logged[:, 3], given[:, 1])),
            "max_throttle_time_ms": pa.array(np.where(of_log, logged[:, 4], given[:, 2])),
            "delayed": pa.array(np.where(of_log, 0.0, self._sums.delayed[at])),
            "first_ms": pa.array(logged[:, 5]),
            "last_ms": pa.array(logged[:, 6]),
        }
        arrays = [columns[f.name] for f in SUMS.arrow]
        return pa.RecordBatch.from_arrays(arrays, schema=SUMS.arrow)


def _no_sums(count: int) -> Any:
    sums = np.zeros((count, len(LOGGED)), np.int64)
    sums[:, 5] = np.iinfo(np.int64).max
    sums[:, 6] = np.iinfo(np.int64).min
    return sums
