"""
Feed events to the kernels in order: a lane is the sensors of one kind in one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headgate.pipeline.arrays import filled, lengths, view

BUCKETS: Final = ("controller_mutation_rate", "producer_ids_rate")


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


def by_lane(batch: Any) -> Iterator[tuple[tuple[str, int, int], list[int]]]:
    """Yield (quota type or kind, samples, window) and the numbers of its chunk rows, in order."""
    kinds = batch["kind"].to_pylist()
    types = batch["quota_type"].to_pylist()
    samples, windows = batch["num_samples"].to_pylist(), batch["window_ms"].to_pylist()
    lanes: dict[tuple[str, int, int], list[int]] = {}
    for i, kind in enumerate(kinds):
        if kind == "chunk":
            lanes.setdefault((types[i], samples[i], windows[i]), []).append(i)
    yield from lanes.items()


def no_events(plans: int) -> Events:
    """Return no events: what ends a lane."""
    ints, floats = np.empty(0, np.int64), np.empty(0, np.float64)
    return Events(ints, ints, ints, ints, ints, floats, None, np.empty((plans, 0), np.float64))


def events_of(batch: Any, rows: Sequence[int], lane: Lane, chunk: int, plans: int) -> Events:
    """Return the events of some packed rows."""
    import pyarrow as pa

    part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
    n = part["n"].to_numpy()
    codes = np.array([lane.code(k) for k in part["key"].to_pylist()], np.int64)
    t = view(part["t"], np.int64)
    pos, op = t, None
    if part["pos"].null_count < len(rows):
        pos = filled(part["pos"], np.int64, n, t)
    if part["op"].null_count < len(rows):
        op = filled(part["op"], np.uint8, n, np.zeros(len(t), np.uint8))
    who = np.zeros(len(t), np.int32)
    if part["who"].null_count < len(rows):
        who = filled(part["who"], np.int32, n, who)
    bounds = view(part["bound"], np.float64).reshape(-1, plans)
    whos = lengths(part["bound"]) // (8 * plans)
    start = np.cumsum(whos) - whos
    row = np.repeat(np.arange(len(rows)), n)
    return Events(
        np.repeat(codes, n),
        row + chunk,
        who,
        pos,
        t,
        view(part["amount"], np.float64),
        op,
        bounds[start[row] + who].T,
    )
