"""
Replay charges through Kafka's quota arithmetic: packed rows in, decisions out.

Spark brings the packed rows of a sensor together, in order of time; ``ReplayPacked`` views a whole
batch of them as arrays, repairs the order where pieces overlap, and calls the kernel once per
batch and plan, its state carried on. Memory stays constant however skewed the keys are: what is
held back is at most the last piece of one sensor.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headgate.pipeline import schema
from headgate.pipeline.filesplits import Split
from headgate.pipeline.pack import LOGGED, PACKED, PackLogs, PackOptions, PackRequests, emptied
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.worker import ReadPlan
from headgate.quota.entity import quota_id
from headgate.throttle.java import UNLIMITED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKETS: Final = ("controller_mutation_rate", "producer_ids_rate")

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


@dataclass
class Events:
    """Events of one lane in arrays; ``chunk`` numbers the packed row each came from."""

    key: Any
    chunk: Any
    who: Any  # which of the packed row's principals and client-ids
    pos: Any
    t: Any
    amount: Any
    op: Any
    bound: Any  # (plans, events)

    def take(self, index: Any) -> Events:
        """Return the events at ``index`` (an array or a slice)."""
        return Events(
            self.key[index],
            self.chunk[index],
            self.who[index],
            self.pos[index],
            self.t[index],
            self.amount[index],
            None if self.op is None else self.op[index],
            self.bound[:, index],
        )

    @staticmethod
    def join(parts: Sequence[Events]) -> Events:
        """Return several as one, in order."""
        if len(parts) == 1:
            return parts[0]
        ops = None
        if any(p.op is not None for p in parts):
            ops = np.concatenate(
                [np.zeros(len(p.t), np.uint8) if p.op is None else p.op for p in parts]
            )
        one: list[Any] = [
            np.concatenate([getattr(p, name) for p in parts])
            for name in ("key", "chunk", "who", "pos", "t", "amount")
        ]
        key, chunk, who, pos, t, amount = one
        bound = np.concatenate([p.bound for p in parts], axis=1)
        return Events(key, chunk, who, pos, t, amount, ops, bound)


class Lane:
    """
    The sensors of one kind in one task: rate or bucket, with one setting of windows.

    Args:
        kind: (quota type, quota.window.num, a window's length in ms); the type says which kernel,
            and whether throttles are capped.
        plans: how many plans are replayed side by side.
    """

    def __init__(self, kind: tuple[str, int, int], plans: int) -> None:
        from headgate import kernel

        quota_type, num_samples, window_ms = kind
        self._bucket = quota_type in BUCKETS
        # Kafka caps the request quota's throttle at one window (ClientRequestQuotaManager).
        self._cap = window_ms if quota_type == "request_percentage" else None
        make: Any = kernel.BucketState if self._bucket else kernel.RateState
        self._kernel = kernel
        windows = {"num_samples": num_samples, "window_ms": window_ms}
        self._states: list[Any] = [make(0, **windows) for _ in range(plans)]
        self._codes: dict[str, int] = {}
        self._held: Events | None = None

    def code(self, key: str) -> int:
        """Return the dense code of a sensor."""
        return self._codes.setdefault(key, len(self._codes))

    def feed(self, events: Events, last_first: int | None) -> tuple[Events, list[Any]]:
        """
        Replay what can't be overtaken any more; hold the rest.

        Args:
            events: of new packed rows, which come by (sensor, first).
            last_first: ``first`` of the last packed row: later rows of its sensor begin no
                earlier. None at the end: nothing is held.

        Returns:
            The replayed events, and per plan their throttle times, ms.
        """
        if self._held is not None:
            events = Events.join([self._held, events])
            self._held = None
        same = events.key[1:] == events.key[:-1]
        if ((events.pos[1:] < events.pos[:-1]) & same).any():
            events = events.take(np.lexsort((events.pos, events.key)))
        if last_first is not None and len(events.t):
            last = events.key == events.key.max()
            start = int(np.argmax(last))
            cut = start + int(np.searchsorted(events.pos[start:], last_first, side="left"))
            self._held = events.take(slice(cut, None))
            events = events.take(slice(0, cut))
        return events, [self._replay(events, i) for i in range(len(self._states))]

    def _replay(self, events: Events, plan: int) -> Any:
        state = self._states[plan]
        state.grow(len(self._codes))
        bound = events.bound[plan]
        there = ~np.isnan(bound)
        all_there = bool(there.all())
        if not all_there:
            events = events.take(there)
            bound = bound[there]
        if self._bucket:
            throttle = self._kernel.replay_bucket(
                state, events.key, events.t, events.amount, bound=bound, op=events.op
            )
        else:
            throttle = self._kernel.replay_rate(
                state,
                events.key,
                events.t,
                events.amount,
                bound=bound,
                op=events.op,
                cap_ms=self._cap,
            )
        if all_there:
            return throttle
        out = np.full(len(there), -1, np.int64)  # -1: not this plan's sensor
        out[there] = throttle
        return out


@dataclass(frozen=True)
class ReplayPacked:
    """Replay PACKED rows, sorted by (key, first, tie). A ``mapInArrow`` function."""

    options: PackOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield REPLAY rows, or SUMS rows where the options want no rows."""
        sink = _Rows(self.options) if self.options.rows else _Sums(len(self.options.plans))
        lanes: dict[tuple[str, int, int], Lane] = {}
        chunk = 0
        for batch in batches:
            yield from sink.plain(batch)
            for lane_key, rows in _by_lane(batch):
                lane = lanes.get(lane_key)
                if lane is None:
                    lane = lanes[lane_key] = Lane(lane_key, len(self.options.plans))
                events = _events(batch, rows, lane, chunk, len(self.options.plans))
                sink.add(batch, rows, chunk)
                chunk += len(rows)
                yield from sink.done(*lane.feed(events, batch["first"][int(rows[-1])].as_py()))
        for lane in lanes.values():
            yield from sink.done(*lane.feed(_no_events(len(self.options.plans)), None))
        yield from sink.finish()


def _by_lane(batch: Any) -> Iterator[tuple[tuple[str, int, int], list[int]]]:
    """Yield (quota type or kind, samples, window) and the numbers of its chunk rows, in order."""
    kinds = batch["kind"].to_pylist()
    types = batch["quota_type"].to_pylist()
    samples, windows = batch["num_samples"].to_pylist(), batch["window_ms"].to_pylist()
    lanes: dict[tuple[str, int, int], list[int]] = {}
    for i, kind in enumerate(kinds):
        if kind == "chunk":
            lanes.setdefault((types[i], samples[i], windows[i]), []).append(i)
    yield from lanes.items()


def _no_events(plans: int) -> Events:
    ints, floats = np.empty(0, np.int64), np.empty(0, np.float64)
    return Events(ints, ints, ints, ints, ints, floats, None, np.empty((plans, 0), np.float64))


def _view(column: Any, dtype: Any) -> Any:
    """Return the blobs of a binary column as one array, without copying where possible."""
    import pyarrow as pa

    if column.null_count:
        column = column.drop_null()
    if not len(column):
        return np.empty(0, dtype)
    wide = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, offsets, data = column.buffers()
    at = np.frombuffer(offsets, wide)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, np.uint8)[at[0] : at[-1]].view(dtype)


def _events(batch: Any, rows: Sequence[int], lane: Lane, chunk: int, plans: int) -> Events:
    """Return the events of some packed rows."""
    import pyarrow as pa

    part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
    n = part["n"].to_numpy()
    codes = np.array([lane.code(k) for k in part["key"].to_pylist()], np.int64)
    t = _view(part["t"], np.int64)
    pos, op = t, None
    if part["pos"].null_count < len(rows):
        pos = _filled(part["pos"], np.int64, n, t)
    if part["op"].null_count < len(rows):
        op = _filled(part["op"], np.uint8, n, np.zeros(len(t), np.uint8))
    who = np.zeros(len(t), np.int32)
    if part["who"].null_count < len(rows):
        who = _filled(part["who"], np.int32, n, who)
    bounds = _view(part["bound"], np.float64).reshape(-1, plans)
    whos = _lengths(part["bound"]) // (8 * plans)
    start = np.cumsum(whos) - whos
    row = np.repeat(np.arange(len(rows)), n)
    return Events(
        np.repeat(codes, n),
        row + chunk,
        who,
        pos,
        t,
        _view(part["amount"], np.float64),
        op,
        bounds[start[row] + who].T,
    )


def _lengths(column: Any) -> Any:
    """Return the length in bytes of each blob."""
    import pyarrow.compute as pc

    return pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def _filled(column: Any, dtype: Any, n: Any, default: Any) -> Any:
    """Return blobs as one array; where a row has none, the default's values."""
    have = column.is_valid().to_numpy(zero_copy_only=False)
    if have.all():
        return _view(column, dtype)
    out = default.copy()
    out[np.repeat(have, n)] = _view(column, dtype)
    return out


class _Rows:
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


_GROUP: Final = ("key", "quota_type", "quota_user", "quota_client_id", "broker_id")


class _Sums:
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
        sums = _view(part["sums"], np.int64).reshape(len(groups), len(LOGGED))
        for column in range(4):
            np.add.at(self._logged[:, column], groups, sums[:, column])
        np.maximum.at(self._logged[:, 4], groups, sums[:, 4])
        np.minimum.at(self._logged[:, 5], groups, sums[:, 5])
        np.maximum.at(self._logged[:, 6], groups, sums[:, 6])
        self._limits[groups] = _view(part["bound"], np.float64).reshape(-1, self._plans)

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


def pack_logs(
    spark: SparkSession, splits: Sequence[Split], options: PackOptions, *, time_zone: str = "UTC"
) -> DataFrame:
    """Return PACKED rows of logs and journals: parsed and packed in one pass of the workers."""
    from headgate.pipeline.sources import spread

    task = PackLogs(ReadPlan(tuple(splits), time_zone), options)
    return spread(spark, splits).mapInArrow(task, PACKED.struct)


def pack_requests(options: PackOptions) -> Callable[[DataFrame], DataFrame]:
    """Pack a frame of requests: requests -> PACKED."""
    return lambda requests: requests.mapInArrow(PackRequests(options), PACKED.struct)


def replay_packed(options: PackOptions) -> Callable[[DataFrame], DataFrame]:
    """Bring each sensor's packed rows together and replay them: PACKED -> REPLAY or SUMS."""
    from pyspark.sql import functions as F

    def transform(packed: DataFrame) -> DataFrame:
        rows = packed.where(F.col("kind").isin("chunk", "plain"))
        together = rows.repartition("key").sortWithinPartitions("key", "first", "tie")
        struct = schema.REPLAY.struct if options.rows else SUMS.struct
        return together.mapInArrow(ReplayPacked(options), struct)

    return transform


def replay(
    quotas: Quotas, *, num_samples: int = 11, window_ms: int = 1000
) -> Callable[[DataFrame], DataFrame]:
    """
    Say what Kafka's sensor decides for every request: requests -> REPLAY.

    Args:
        quotas: in force; a journal's rows keep their own limits.
        num_samples: quota.window.num of the broker (logs).
        window_ms: quota.window.size.seconds x 1000 of the broker (logs).
    """
    options = PackOptions((quotas,), True, num_samples, window_ms)
    return lambda requests: requests.transform(pack_requests(options)).transform(
        replay_packed(options)
    )


def agreement(replayed: DataFrame) -> DataFrame:
    """
    Compare replayed with logged throttle times, per quota type: REPLAY -> one row per type.

    Returns:
        quota_type, replayable requests, equal_decisions (both throttled, or both not),
        both_throttled, exact and within_1_ms (of those), logged_s, replayed_s (throttled seconds).
    """
    from pyspark.sql import functions as F

    logged, ours = F.col("logged_throttle_time_ms"), F.col("replayed_throttle_time_ms")
    both = (logged > 0) & (ours > 0)

    def count(condition: Any) -> Any:
        return F.count(F.when(condition, 1))

    frame: DataFrame = (
        replayed.where(F.col("replayable"))
        .groupBy("quota_type")
        .agg(
            F.count(F.lit(1)).alias("requests"),
            count((logged > 0) == (ours > 0)).alias("equal_decisions"),
            count(both).alias("both_throttled"),
            count(both & (logged == ours)).alias("exact"),
            count(both & (F.abs(logged - ours) <= 1)).alias("within_1_ms"),
            (F.sum(logged) / 1000.0).alias("logged_s"),
            (F.sum(ours) / 1000.0).alias("replayed_s"),
        )
        .orderBy("quota_type")
    )
    return frame
