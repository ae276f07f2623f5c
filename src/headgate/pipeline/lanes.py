"""
Bring bundles back into order and feed them to the kernels: a lane is one bundle key's sensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headgate.pipeline.packed import BUCKETS, LANE, heads_schema

# Events that overlapping bundles are put in order by at a time, at least.
ORDER_EVENTS: Final = 1_000_000


@dataclass(frozen=True)
class LaneKind:
    """What a lane's sensors have in common, as PACKED names it."""

    key: str
    quota_type: str
    broker_id: int | None
    num_samples: int
    window_ms: int
    rule: str | None
    max_throttle_ms: int | None
    start_ms: int | None


@dataclass
class Events:
    """
    Events in arrays, by sensor and then in order; and the heads they belong to.

    Attributes:
        head: of each event, indexes the next three.
        sensor: by head, the sensor's number in its lane.
        group: by head, whatever the sink numbers.
        bounds: by head and plan.
        pos: order of each event.
        t: epoch ms of each event.
        amount: of each event.
        op: of each event, the kernel's OP_; None: all recorded.
        origin: of each event, bundle number << 32 | index; None where nobody asks.
    """

    head: Any
    sensor: Any
    group: Any
    bounds: Any
    pos: Any
    t: Any
    amount: Any
    op: Any
    origin: Any

    def __len__(self) -> int:
        return len(self.t)

    def take(self, index: Any) -> Events:
        """Return the events at ``index``."""
        pos = self.pos[index]
        return Events(
            self.head[index],
            self.sensor,
            self.group,
            self.bounds,
            pos,
            pos if self.t is self.pos else self.t[index],
            self.amount[index],
            None if self.op is None else self.op[index],
            None if self.origin is None else self.origin[index],
        )

    @staticmethod
    def join(parts: Sequence[Events]) -> Events:
        """Return several as one, in order; of equal moments the earlier part's come first."""
        if len(parts) == 1:
            return parts[0]
        heads = np.cumsum([0, *(len(p.sensor) for p in parts[:-1])])
        head = np.concatenate([p.head + h for p, h in zip(parts, heads, strict=True)])
        sensor = np.concatenate([p.sensor for p in parts])
        pos = np.concatenate([p.pos for p in parts])
        same = all(p.t is p.pos for p in parts)
        op = None
        if any(p.op is not None for p in parts):
            op = np.concatenate(
                [np.zeros(len(p), np.uint8) if p.op is None else p.op for p in parts]
            )
        events = Events(
            head.astype(np.int32),
            sensor,
            np.concatenate([p.group for p in parts]),
            np.concatenate([p.bounds for p in parts]),
            pos,
            pos if same else np.concatenate([p.t for p in parts]),
            np.concatenate([p.amount for p in parts]),
            op,
            None if parts[0].origin is None else np.concatenate([p.origin for p in parts]),
        )
        return events.take(_order(sensor[head], pos))


def _order(sensor: Any, pos: Any) -> Any:
    """Return the stable order by (sensor, pos) of what consists of a few runs in that order."""
    low = int(pos.min())
    span = int(pos.max()) - low + 1
    if span * (int(sensor.max()) + 1) < 1 << 62:
        return np.argsort(sensor * span + (pos - low), kind="stable")
    return np.lexsort((pos, sensor))


class Lane:
    """
    The sensors of one bundle key, and the events of theirs that wait for later bundles.

    Args:
        kind: tells which kernel, with what windows, and whether throttles are capped.
        plans: how many plans are replayed side by side.
    """

    def __init__(self, kind: LaneKind, plans: int) -> None:
        from headgate import kernel

        self.kind = kind
        self._plans = plans
        self._kernel = kernel
        windows = {
            "num_samples": kind.num_samples,
            "window_ms": kind.window_ms,
            "start_ms": kind.start_ms or 0,
        }
        self._cap = kind.max_throttle_ms
        if self._cap is None and kind.quota_type == "request_percentage":
            # Kafka caps the request quota's throttle at one window (ClientRequestQuotaManager).
            self._cap = kind.window_ms
        rule = kind.rule or ("bucket" if kind.quota_type in BUCKETS else "sampled")
        self._rate = kernel.RateState(0, **windows)
        self._buckets: list[Any] = []
        self._replay: Any = None
        if rule != "sampled":
            make, self._replay = {
                "bucket": (kernel.BucketState, kernel.replay_bucket),
                "paced": (kernel.PacedState, kernel.replay_paced),
            }[rule]
            self._buckets = [make(0, **windows) for _ in range(plans)]
        self._numbers: dict[tuple[str, str], int] = {}
        self._codes = 0  # states in use
        # Which plans a sensor is one of, by number, and its own states by plan once it's parted.
        self._there = np.zeros((0, plans), np.bool_)
        self._code_of = np.zeros(0, np.int64)
        self._parted: dict[int, list[int]] = {}
        self._waiting: list[Events] = []
        self._last = 0
        self._room = ORDER_EVENTS

    def number(self, tags: tuple[str, str]) -> int:
        """Return the number of a sensor."""
        return self._numbers.setdefault(tags, len(self._numbers))

    def feed(self, events: Events, first: int, last: int) -> list[Events]:
        """
        Take a bundle; return what no later one can overtake, in order.

        Args:
            events: of the bundle.
            first: order of its first event; later bundles begin no earlier.
            last: order of its last event.
        """
        ready: list[Events] = []
        if self._waiting and first >= self._last:
            ready = self.rest()
        elif sum(map(len, self._waiting)) > self._room:
            both = Events.join(self._waiting)
            # Of equal moments the earlier bundle's come first.
            done = both.pos <= first
            ready = [both.take(done)]
            self._waiting = [both.take(~done)]
            self._room = max(ORDER_EVENTS, 2 * len(self._waiting[0]))
        self._last = last if not self._waiting else max(self._last, last)
        self._waiting.append(events)
        return ready

    def rest(self) -> list[Events]:
        """Return what still waits: nothing comes after it."""
        waiting, self._waiting = self._waiting, []
        return [Events.join(waiting)] if waiting else []

    def throttles(self, events: Events, plan: int = 0) -> Any:
        """Return the throttle time of each event under one plan, ms; of buckets, or one plan."""
        key, bound = events.sensor[events.head], events.bounds[events.head, plan]
        if self._buckets:
            bucket = self._buckets[plan]
            bucket.grow(len(self._numbers))
            return self._replay(
                bucket,
                key,
                events.t,
                events.amount,
                op=events.op,
                bound=bound,
                cap_ms=self._cap,
            )
        self._rate.grow(len(self._numbers))
        return self._kernel.replay_rate(
            self._rate,
            key,
            events.t,
            events.amount,
            op=events.op,
            bound=bound,
            cap_ms=self._cap,
        )

    def add_up(self, events: Events, sums: Any) -> None:
        """Add all plans' decisions up, in a ``kernel.PlanSums``, by the events' groups."""
        if self._buckets:
            for plan in range(self._plans):
                self._add_plan(events, sums, plan)
            return
        for key, plans in self._passes(events):
            self._kernel.replay_plans(
                self._rate,
                sums,
                events.head,
                events.t,
                events.amount,
                key=key,
                group=events.group,
                bounds=events.bounds,
                plans=plans,
                op=events.op,
                cap_ms=self._cap,
            )

    def _add_plan(self, events: Events, sums: Any, plan: int) -> None:
        """Add one plan's decisions up."""
        there = ~np.isnan(events.bounds[events.head, plan])
        mine = events if there.all() else events.take(there)
        sums.add(plan, mine.group[mine.head], self.throttles(mine, plan), mine.amount)

    def _passes(self, events: Events) -> list[tuple[Any, range]]:
        """
        Say which states the heads have in which passes of the kernel.

        While all who are charged to a sensor are under the same plans, its samples are the same
        for all of these. Once they aren't, it parts: from then on each plan has a state of its own.
        """
        have = len(self._code_of)
        new = len(self._numbers) - have
        if new:
            self._code_of = np.append(self._code_of, np.arange(self._codes, self._codes + new))
            self._codes += new
            self._there = np.append(self._there, np.zeros((new, self._plans), np.bool_), axis=0)
        everywhere = range(self._plans)
        if self._plans == 1:
            self._rate.grow(self._codes)
            return [(self._code_of[events.sensor], everywhere)]
        there = ~np.isnan(events.bounds)
        unseen: Any = np.flatnonzero(events.sensor >= have)
        self._there[events.sensor[unseen]] = there[unseen]
        differ = (self._there[events.sensor] != there).any(axis=1)
        for sensor in np.unique(events.sensor[differ]).tolist():
            if sensor not in self._parted:
                self._part(sensor)
        self._rate.grow(self._codes)
        keys = self._code_of[events.sensor]
        if not self._parted:
            return [(keys, everywhere)]
        parted = np.isin(events.sensor, list(self._parted))
        passes = [(np.where(parted, -1, keys), everywhere)]
        for plan in everywhere:
            own = np.full(len(keys), -1, np.int64)
            for head in np.flatnonzero(parted & there[:, plan]).tolist():
                own[head] = self._parted[int(events.sensor[head])][plan]
            passes.append((own, range(plan, plan + 1)))
        return passes

    def _part(self, sensor: int) -> None:
        """Give each plan its own state of a sensor, as far as it was one of the plan's."""
        codes = list(range(self._codes, self._codes + self._plans))
        self._codes += self._plans
        self._rate.grow(self._codes)
        for plan, code in enumerate(codes):
            if self._there[sensor, plan]:
                self._rate.copy_key(int(self._code_of[sensor]), code)
        self._parted[sensor] = codes


def lane_kind(row: dict[str, Any]) -> LaneKind:
    """Return the kind of a packed row."""
    return LaneKind(row["key"], *(row[name] for name in LANE))


def heads_of(blob: Any, plans: int) -> Any:
    """Return a packed row's heads, as an Arrow batch."""
    import pyarrow as pa

    return pa.ipc.read_record_batch(pa.py_buffer(blob), heads_schema(plans))


def events_of(row: dict[str, Any], heads: Any, lane: Lane, group: Any, plans: int) -> Events:
    """
    Return the events of a packed row.

    Args:
        row: its columns, blobs as buffers.
        heads: its heads.
        lane: where its sensors have their numbers.
        group: number that the sink has for each head; None: it has none.
        plans: how many there are.
    """
    n = row["n"]
    t = np.frombuffer(row["t"], np.uint32 if len(row["t"]) == 4 * n else np.int64)
    t = t.astype(np.int64) + row["t_from"]
    narrow = len(row["amount"]) == 4 * n
    amount = np.frombuffer(row["amount"], np.uint32 if narrow else np.float64)
    tags = zip(heads["quota_user"].to_pylist(), heads["quota_client_id"].to_pylist(), strict=True)
    if row["head"] is None:
        each = heads["events"].to_numpy()
        head = np.repeat(np.arange(len(each), dtype=np.int32), each)
    else:
        head = np.frombuffer(row["head"], np.uint32).astype(np.int32)
    return Events(
        head,
        np.array([lane.number(each) for each in tags], np.int64),
        np.zeros(len(heads), np.int64) if group is None else group,
        bounds_of(heads, plans),
        t if row["pos"] is None else np.frombuffer(row["pos"], np.int64),
        t,
        amount.astype(np.float64),
        None if row["op"] is None else np.frombuffer(row["op"], np.uint8),
        None,
    )


def bounds_of(heads: Any, plans: int) -> Any:
    """Return the limit of each head under each plan."""
    return heads["bounds"].flatten().to_numpy(zero_copy_only=False).reshape(-1, plans)
