"""
Check golden files through the array kernel instead of the managers.

``PYTHONPATH=tests python -m kit.golden_kernel FILE…`` prints what ``headgate.testing.golden``
prints. It takes files of kind ``client_quota`` and ``stat``.

A file's events become arrays: quota-ids become codes, ops become op codes, and everything between
two changes of a stat's settings is one batch, split into uneven pieces so that carried-over state
is tried too. Answers are taken apart again and compared as :mod:`headgate.testing.golden` does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headgate.kernel.bucket import BucketState, replay_bucket
from headgate.kernel.codes import (
    OP_BOUND,
    OP_MEASURE,
    OP_NO_CHECK,
    OP_RECORD,
    OP_STRICT,
    OP_TOUCH,
    OP_UNRECORD,
)
from headgate.kernel.rate import RateState, replay_rate
from headgate.quota.sanitizer import sanitize
from headgate.testing.golden import (
    Answer,
    Event,
    describe,
    entity_of,
    main,
    number,
    read_golden,
    rules_of,
    same,
    window_ms_of,
)
from headgate.throttle.java import to_int32
from headgate.throttle.overrides import Overrides
from headgate.throttle.request import PERCENT_PER_NS

_PIECES = (1, 7, 64, 1000, 3)
"""Lengths of the pieces a batch is split into, in turn."""
_OPS = {"rec": OP_RECORD, "norec": OP_NO_CHECK, "unrec": OP_UNRECORD, "max": OP_TOUCH}


class _Columns:
    """The columns of a batch being gathered."""

    def __init__(self) -> None:
        self.key: list[int] = []
        self.t_ms: list[int] = []
        self.amount: list[float] = []
        self.bound: list[float] = []
        self.op: list[int] = []

    def add(self, key: int, t_ms: int, amount: float, bound: float, op: int) -> int:
        """Append one event; return its row."""
        self.key.append(key)
        self.t_ms.append(t_ms)
        self.amount.append(amount)
        self.bound.append(bound)
        self.op.append(op)
        return len(self.key) - 1

    def replay(self, replay: Callable[..., tuple[Any, ...]]) -> tuple[Any, ...]:
        """Call a kernel piece by piece; return its outputs joined."""
        outputs: list[tuple[Any, ...]] = []
        at = turn = 0
        while at < len(self.key):
            end = at + _PIECES[turn % len(_PIECES)]
            outputs.append(
                replay(
                    np.array(self.key[at:end], np.int32),
                    np.array(self.t_ms[at:end], np.int64),
                    np.array(self.amount[at:end], np.float64),
                    op=np.array(self.op[at:end], np.uint8),
                    bound=np.array(self.bound[at:end], np.float64),
                )
            )
            at, turn = end, turn + 1
        return tuple(np.concatenate(column) for column in zip(*outputs, strict=True))


class _Named:
    """Quota-ids of a trace: which code an event's tags have, what bounds them."""

    def __init__(self, header: Event) -> None:
        self.num_samples = int(header["num_samples"])
        self.window_ms = window_ms_of(header)
        self.overrides = Overrides(rules_of(header))
        self.codes: dict[tuple[str, str], int] = {}

    def update(self, event: Event) -> Answer:
        """Change a quota."""
        self.overrides.update(entity_of(event["entity"]), number(event["value"]))
        return {"flags": self.overrides.flags}

    def resolve(self, event: Event) -> tuple[int, tuple[str, str], float]:
        """Return an event's key code, tags and bound."""
        tags = self.overrides.tags(event["u"], event["c"])
        code = self.codes.setdefault(tags, len(self.codes))
        return code, tags, self.overrides.bound(tags)


Compare = Callable[[tuple[Any, ...]], Answer]


def _client_quota(header: Event, events: list[Event]) -> list[Answer]:
    named = _Named(header)
    columns = _Columns()
    pending: list[Answer | Compare] = []
    mutation = header["type"] == "controller_mutation"
    for event in events:
        if event["op"] == "quota":
            pending.append(named.update(event))
            continue
        pending.append(_charge(event, named, columns, mutation))
    settings: dict[str, Any] = {
        "num_samples": int(header["num_samples"]),
        "window_ms": window_ms_of(header),
        "start_ms": int(header["start_ms"]),
    }
    if mutation:
        buckets = BucketState(len(named.codes), **settings)
        outputs = columns.replay(lambda *a, **k: replay_bucket(buckets, *a, details=True, **k))
    else:
        rates = RateState(len(named.codes), **settings)
        cap = window_ms_of(header) if header["type"] == "request" else None
        outputs = columns.replay(
            lambda *a, **k: replay_rate(rates, *a, cap_ms=cap, rates=True, **k)
        )
    return [part if isinstance(part, dict) else part(outputs) for part in pending]


def _charge(event: Event, named: _Named, columns: _Columns, mutation: bool) -> Answer | Compare:
    """Append an event's rows; return its answer, or what makes it from the outputs."""
    op, now = event["op"], event["t"]
    code, tags, bound = named.resolve(event)
    enabled = named.overrides.flags != 0
    fixed: Answer = {"tu": None, "tc": None}
    if not enabled and op != "unrec":
        answers: dict[str, Answer] = {
            "rec": {"ms": 0},
            "max": {"max": 1.7976931348623157e308},
        }
        fixed |= answers.get(op, {})
        if op in ("strict", "permissive"):
            fixed |= {"ms": 0, "exceeded": False, "rejected": [False] * len(event["vs"])}
        return fixed
    fixed |= {"tu": sanitize(tags[0]), "tc": tags[1]}
    fixed["q"] = bound
    amounts = event.get("vs", [event.get("v", 0)])
    if "ns" in event:
        amounts = [event["ns"] * PERCENT_PER_NS]
    code_of = OP_STRICT if mutation and op in ("rec", "strict") else _OPS.get(op, OP_RECORD)
    rows = []
    if op == "max":
        limit = named.overrides.limit(tags)
        fixed["max"] = (
            1.7976931348623157e308
            if limit is None
            else (limit * (named.num_samples - 1) * (named.window_ms / 1000.0))
        )
    if op != "measure":
        rows = [columns.add(code, now, number(a), bound, code_of) for a in amounts]
        if op in ("strict", "permissive") and not rows:
            rows = [columns.add(code, now, 0, bound, OP_TOUCH)]
    measured = op == "measure" or event.get("m")
    measure = columns.add(code, now, 0, bound, OP_MEASURE) if measured else None

    def answer(outputs: tuple[Any, ...]) -> Answer:
        made = dict(fixed)
        ms, value, third = outputs
        if op == "rec":
            made["ms"] = to_int32(int(ms[rows[0]]))
        if op in ("strict", "permissive"):
            made["rejected"] = [bool(third[row]) for row in rows][: len(amounts)]
            felt = [int(ms[row]) for row in rows if ms[row] > 0]
            made["ms"] = to_int32(max(0, felt[-1] if felt else 0))
            made["exceeded"] = op == "strict" and bool(felt)
        if measure is not None:
            absent = value[measure] != value[measure] if mutation else not third[measure]
            if absent:
                del made["q"]
                return made
            made["rate"] = float(value[measure])
            if not mutation:
                made["win"] = int(third[measure])
        return made

    return answer


def _stat(header: Event, events: list[Event]) -> list[Answer]:
    samples, window = int(header["num_samples"]), window_ms_of(header)
    bucket = header["stat"] == "token_bucket"
    bound = number(header.get("quota", float("inf")))
    state: Any = (BucketState if bucket else RateState)(1, num_samples=samples, window_ms=window)
    answers: list[Answer] = []
    columns = _Columns()
    rows: list[int | None] = []

    def flush() -> None:
        if columns.key:
            if bucket:
                _, value, win = columns.replay(
                    lambda *a, **k: replay_bucket(state, *a, details=True, **k)
                )
            else:
                _, value, win = columns.replay(
                    lambda *a, **k: replay_rate(state, *a, rates=True, **k)
                )
        for row in rows:
            answer: Answer = {}
            if row is not None:
                answer["value"] = float(value[row])
                if not bucket:
                    answer["win"] = int(win[row])
            answers.append(answer)
        rows.clear()

    # A bare stat exists from the start; a sensor's bucket is made by its first event.
    columns.add(0, events[0]["t"] if events else 0, 0, bound, OP_TOUCH)
    for event in events:
        if event["op"] == "config":
            rows.append(None)
            flush()
            columns = _Columns()
            state.num_samples = event.get("num_samples", state.num_samples)
            state.window_ms = event.get("window_ms", state.window_ms)
            bound = number(event.get("quota", bound))
            columns.add(0, event["t"], bound, bound, OP_BOUND)
            continue
        if event["op"] == "rec":
            charge = OP_NO_CHECK
            columns.add(0, event["t"], number(event["v"]), bound, charge)
        if event.get("m") is False:
            rows.append(None)
        else:
            rows.append(columns.add(0, event["t"], 0, bound, OP_MEASURE))
    flush()
    return answers


def check_kernel(
    path: Path, shown: int = 3, tell: Callable[[str], None] = print
) -> tuple[int, int]:
    """
    Check one ``client_quota`` or ``stat`` file through the kernel.

    Returns:
        Events checked, and how many differ.
    """
    header, stream = read_golden(path)
    events = list(stream)
    theirs = [event.pop("o") for event in events]
    ours = {"client_quota": _client_quota, "stat": _stat}[header["kind"]](header, events)
    differ = 0
    for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if not same(one, other):
            differ += 1
            if differ <= shown:
                tell(describe(i + 1, events[i], other, one))
    return len(events), differ


if __name__ == "__main__":
    raise SystemExit(main(checker=check_kernel))
