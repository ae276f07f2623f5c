"""Add decisions up per plan, sensor and client: what `what-if` and `recommend` compare."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from headgate.pipeline import schema
from headgate.pipeline.arrays import view
from headgate.pipeline.lanes import Events
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

_GROUP: Final = ("key", "quota_type", "quota_user", "quota_client_id", "broker_id")


class SumSink:
    """Adds decisions up per plan, sensor and who; nothing per event leaves the worker."""

    def __init__(self, plans: int) -> None:
        self._plans = plans
        self._groups: dict[tuple[Any, ...], int] = {}
        self._group_of = array("q")  # by packed row and its who
        self._start_of = array("q")  # by packed row: where its whos start in _group_of
        # What the log says, as pack.LOGGED names it.
        self._logged = np.empty((0, len(LOGGED)), np.int64)
        # What each plan gives: throttled, ms, max ms; and the amount of throttled requests.
        self._given = np.empty((0, plans, 3), np.int64)
        self._delayed = np.empty((0, plans), np.float64)
        self._limits = np.empty((0, plans), np.float64)

    def plain(self, batch: Any) -> Iterator[Any]:
        """There are none: only `replay` hands rows back."""
        return iter(())

    def add(self, batch: Any, rows: Sequence[int], chunk: int) -> None:
        """Count the requests of some packed rows."""
        import pyarrow as pa

        part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
        sensors = zip(*(part[n].to_pylist() for n in _GROUP), strict=True)
        new: list[int] = []
        for sensor, whos in zip(sensors, part["whos"].to_pylist(), strict=True):
            self._start_of.append(len(self._group_of) + len(new))
            found = _whos(whos)
            for principal, client_id in found:
                who = (principal, client_id, *sensor)
                new.append(self._groups.setdefault(who, len(self._groups)))
        self._group_of.extend(new)
        if len(self._groups) > len(self._logged):
            room, before = 2 * len(self._groups), len(self._logged)
            self._logged = _grown(self._logged, room)
            self._logged[before:, 5] = np.iinfo(np.int64).max
            self._given, self._delayed = _grown(self._given, room), _grown(self._delayed, room)
            self._limits = _grown(self._limits, room)
        groups = np.array(new, np.int64)
        sums = view(part["sums"], np.int64).reshape(len(groups), len(LOGGED))
        for column in range(4):
            np.add.at(self._logged[:, column], groups, sums[:, column])
        np.maximum.at(self._logged[:, 4], groups, sums[:, 4])
        np.minimum.at(self._logged[:, 5], groups, sums[:, 5])
        np.maximum.at(self._logged[:, 6], groups, sums[:, 6])
        self._limits[groups] = view(part["bound"], np.float64).reshape(-1, self._plans)

    def done(self, events: Events, throttles: list[Any]) -> Iterator[Any]:
        """Add decisions up."""
        starts = np.frombuffer(self._start_of, np.int64)
        groups = np.frombuffer(self._group_of, np.int64)[starts[events.chunk] + events.who]
        for plan, throttle in enumerate(throttles):
            hit = np.flatnonzero(throttle > 0)
            if not len(hit):
                continue
            at, ms = groups[hit], throttle[hit]
            room = len(self._given)
            self._given[:, plan, 0] += np.bincount(at, minlength=room)
            np.add.at(self._given[:, plan, 1], at, ms)
            np.maximum.at(self._given[:, plan, 2], at, ms)
            self._delayed[:, plan] += np.bincount(at, events.amount[hit], minlength=room)
        return iter(())

    def finish(self) -> Iterator[Any]:
        """Yield SUMS rows."""
        import pyarrow as pa

        rows = []
        for who, group in self._groups.items():
            requests, bytes_, throttled, told, most, first, last = self._logged[group].tolist()
            name: dict[str, Any] = dict(zip(("principal", "client_id", *_GROUP), who, strict=True))
            del name["key"]
            name |= {"requests": requests, "bytes": bytes_, "first_ms": first, "last_ms": last}
            limits = self._limits[group].tolist()
            if limits[0] == limits[0]:  # the log is told by the first plan's quota-ids
                rows.append(
                    name
                    | {"plan": -1, "quota": limits[0], "throttled_requests": throttled}
                    | {"throttle_time_ms": told, "max_throttle_time_ms": most, "delayed": 0.0}
                )
            for plan, limit in enumerate(limits):
                if limit == limit:
                    count, ms, top = self._given[group, plan].tolist()
                    rows.append(
                        name
                        | {"plan": plan, "quota": limit, "throttled_requests": count}
                        | {"throttle_time_ms": ms, "max_throttle_time_ms": top}
                        | {"delayed": float(self._delayed[group, plan])}
                    )
        if rows:
            yield from pa.Table.from_pylist(rows, schema=SUMS.arrow).to_batches()


@lru_cache(maxsize=1 << 17)
def _whos(text: str) -> tuple[tuple[str | None, str | None], ...]:
    """Return the (principal, client-id) pairs of a packed row."""
    return tuple((principal, client_id) for principal, client_id in json.loads(text))


def _grown(array: Any, room: int) -> Any:
    """Return an array with at least ``room`` rows, new ones zero."""
    out = np.zeros((room, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out
