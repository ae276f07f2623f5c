"""
Say what is packed: the table of bundles, the options of packing, and a bundle read back as arrays.

A bundle is one row with the events of several sensors, in binary columns. These sensors have the
quota type, the broker (of a journal the gateway's worker, too) and a share of the quota-ids in
common: they are a group. A sensor stays in its group for ever. So all bundles of a group, in order,
hold all events of its sensors.

Several plans may disagree on the quota-id of an event, and then it has several sensors. It is
packed once all the same, under its root: what its sensors have in common under all plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headgate.pipeline.quotas import Quotas
from headgate.pipeline.table import make_table
from headgate.throttle.overrides import Tags

# Types that Kafka (and Headgate like it) keeps by token buckets.
BUCKETS: Final = ("controller_mutation_rate", "producer_ids_rate")
DEFAULT_SAMPLES: Final = 11
DEFAULT_WINDOW_MS: Final = 1000
# Bundles per piece and broker: enough for tasks to share them out, few enough to be large.
SHARES: Final = 16
PACKED: Final = make_table(
    "packed",
    "One row per bundle of events, or a bad line or count (`kind`).",
    ("kind", "string", "chunk, plain (rows that can't be replayed), bad or stat"),
    ("key", "string", "the bundle's key: all rows of a sensor have the same"),
    ("quota_type", "string", "quota type"),
    ("broker_id", "int", "broker"),
    ("worker_id", "string", "gateway worker (journals)"),
    ("num_samples", "int", "quota.window.num"),
    ("window_ms", "int", "a window's length, ms"),
    ("rule", "string", "how the sensors decide; null = as Kafka does for the type"),
    ("max_throttle_ms", "long", "cap of one decision; null = the type's own"),
    ("start_ms", "long", "when the sensors' expiry counts from; null = 0"),
    ("first", "long", "order of the first event: its time, or a journal's seq"),
    ("last", "long", "order of the last event"),
    ("since", "long", "order of the piece's first event, in whatever bundle"),
    ("tie", "long", "order of pieces with the same since: a hash of them"),
    ("n", "int", "events, by root and then in order"),
    ("t_from", "long", "epoch ms that t counts from"),
    ("t", "binary", "uint8 or uint16 ms since the last event; uint32 ms or int64"),
    ("amount", "binary", "uint16 or uint32 per event; float64 where that can't hold it"),
    ("op", "binary", "uint8 per event; null = all charged and checked"),
    ("pos", "binary", "int64 order per event; null = by time"),
    ("head", "binary", "uint16 or uint32 of heads per event; null = heads' events follow"),
    ("heads", "binary", "Arrow batch: the roots, and who is charged to each"),
    ("terms", "binary", "what heads are under each plan: limits, float64, then layers, a byte"),
    ("rows", "binary", "what else requests hold, an Arrow stream; null if not wanted"),
    ("file", "string", "bad, stat: file"),
    ("offset", "long", "bad: byte offset"),
    ("reason", "string", "bad: why"),
    ("line", "string", "bad: its beginning"),
    ("lines", "long", "stat: lines read"),
    ("input_bytes", "long", "stat: bytes read"),
)
# In which order the bundles of a key are replayed.
ORDER: Final = ("key", "first", "since", "tie")
CARRIED: Final = "carried:"
"""What the names of a frame's further columns begin with, on their way through a replay."""
# What the log says about each head.
LOGGED: Final = ("requests", "bytes", "throttled", "told_ms", "max_told_ms", "first_ms", "last_ms")
# Which tags a head's sensor has under a plan: those of its root, those named here of its own
# principal and client-id, or none (the plan doesn't charge it here).
ROOT, USER, CLIENT, BOTH, NOBODY, ABSENT = range(6)
LAYERS: Final = 5
"""Sensors are of one layer each, so that each layer's events are replayed in order."""


def heads_schema() -> Any:
    """
    Return the Arrow schema of ``heads``: a row per root and who is charged there, by root.

    ``events`` says how many there are of it, ``terms`` which of the bundle's terms hold, ``sums``
    what LOGGED names.
    """
    text = ("quota_user", "quota_client_id", "principal", "client_id")
    return pa.schema(
        [pa.field(name, pa.string()) for name in text]
        + [
            pa.field("events", pa.int64()),
            pa.field("terms", pa.int32()),
            pa.field("sums", pa.list_(pa.int64(), len(LOGGED))),
        ]
    )


class GroupKind(NamedTuple):
    """What the sensors of a bundle have in common, as PACKED has it."""

    quota_type: str
    worker_id: str | None
    broker_id: int | None
    num_samples: int
    window_ms: int
    rule: str | None  # how they decide; None = as Kafka does for the type
    max_throttle_ms: int | None
    start_ms: int | None  # when expiry counts from


# What PACKED holds of a group.
GROUP_COLUMNS: Final = GroupKind._fields


class GroupKey(NamedTuple):
    """A group of sensors, whose bundles have the same key."""

    kind: GroupKind
    own: bool  # a journal's own order, not that of time
    share: int  # of the quota-ids

    def __str__(self) -> str:
        return "\x1f".join(map(str, (*self.kind, self.own, self.share)))


@dataclass(frozen=True)
class PackOptions:
    """
    What a replay needs packed.

    Args:
        plans: quotas to replay under; one for `replay`, several for `what-if`.
        rows: keep the requests, to hand them back with the decision (one plan only).
        num_samples: quota.window.num, for logs.
        window_ms: quota.window.size.seconds x 1000, for logs.
        own: a journal's charges keep the limits that were in force, and their exact order.
        capacities: (byte-rate type, units per second of each broker), for plans with shares.
        split_period_ms: headgate.splits.period.ms, for plans with cluster-wide rates.
    """

    plans: tuple[Quotas, ...]
    rows: bool = True
    num_samples: int = DEFAULT_SAMPLES
    window_ms: int = DEFAULT_WINDOW_MS
    own: bool = True
    capacities: tuple[tuple[str, float], ...] = ()
    split_period_ms: int = 5000


Whose = tuple[str | None, str | None]
"""A charge's principal and client-id."""


def tags_of(layer: int, root: Tags, whose: Whose) -> Tags:
    """Return the tags of a charge's sensor in a layer: the other way round."""
    if layer == ROOT:
        return root
    user = whose[0] if layer in (USER, BOTH) else ""
    client_id = whose[1] if layer in (CLIENT, BOTH) else ""
    return user or "", client_id or ""


class Numbers:
    """The numbers of a group's sensors (and roots), and of their users, from 0 on."""

    def __init__(self) -> None:
        self._sensors: dict[tuple[str, str], int] = {}
        self._users: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sensors)

    def sensor(self, tags: tuple[str, str]) -> int:
        """Return the number of a sensor, or of a root, by its user and client-id tags."""
        return self._sensors.setdefault(tags, len(self._sensors))

    def user(self, principal: str) -> int:
        """Return the number of a user."""
        return self._users.setdefault(principal, len(self._users))


@dataclass
class Heads:
    """
    Whose events there are, and which sensors these are charged to.

    Attributes:
        root: by head, the root's number in its group: what events are sorted by first.
        user: by head, the user's number in its group.
        sensor: by head and layer, the sensor's number in its group; -1: none of this layer.
        layer: by head and plan, the layer of the sensor that the plan charges, or ABSENT.
        bounds: by head and plan, the limit; NaN where ABSENT.
        group: by head, the number that the sink has for it.
    """

    root: Any
    user: Any
    sensor: Any
    layer: Any
    bounds: Any
    group: Any

    def __len__(self) -> int:
        return len(self.root)

    def of_plan(self, plan: int) -> Any:
        """Return, for each head, the number of the sensor that a plan charges; -1 if none."""
        layer = self.layer[:, plan]
        there = layer < LAYERS
        return np.where(there, self.sensor[np.arange(len(self)), np.where(there, layer, 0)], -1)

    @staticmethod
    def join(parts: Sequence[Heads]) -> Heads:
        """Return several as one."""
        names = ("root", "user", "sensor", "layer", "bounds", "group")
        return Heads(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))


@dataclass
class Events:
    """
    Events in arrays, by root and then in order.

    Attributes:
        heads: whose they are.
        head: of each event, which of these.
        pos: order of each event.
        t: epoch ms of each event.
        amount: of each event.
        op: of each event, the kernel's OP_; None: all recorded.
        origin: of each event, bundle number << 32 | index; None where nobody asks.
    """

    heads: Heads
    head: Any
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
            self.heads,
            self.head[index],
            pos,
            pos if self.t is self.pos else self.t[index],
            self.amount[index],
            None if self.op is None else self.op[index],
            None if self.origin is None else self.origin[index],
        )

    def by_user(self) -> Events:
        """Return the events by user and then in order: neighbours' sensors are near in memory."""
        from headgate.kernel.grouping import grouped

        user = self.heads.user.astype(np.int32)
        users = int(user.max()) + 1
        _, order, _ = grouped(user[self.head], np.arange(users + 1), np.arange(users), users)
        return self.take(order)

    @staticmethod
    def join(parts: Sequence[Events]) -> Events:
        """Return several as one, in order; of equal moments the earlier part's come first."""
        if len(parts) == 1:
            return parts[0]
        begin = np.cumsum([0, *(len(p.heads) for p in parts[:-1])])
        head = np.concatenate([p.head + at for p, at in zip(parts, begin, strict=True)])
        pos = np.concatenate([p.pos for p in parts])
        same = all(p.t is p.pos for p in parts)
        op = None
        if any(p.op is not None for p in parts):
            op = np.concatenate(
                [np.zeros(len(p), np.uint8) if p.op is None else p.op for p in parts]
            )
        events = Events(
            Heads.join([p.heads for p in parts]),
            head.astype(np.int32),
            pos,
            pos if same else np.concatenate([p.t for p in parts]),
            np.concatenate([p.amount for p in parts]),
            op,
            None if parts[0].origin is None else np.concatenate([p.origin for p in parts]),
        )
        return events.take(_order(events.heads.root[head], pos))


def _order(root: Any, pos: Any) -> Any:
    """Return the stable order by (root, pos) of what consists of a few runs in that order."""
    low = int(pos.min())
    span = int(pos.max()) - low + 1
    if span * (int(root.max()) + 1) < 1 << 62:
        return np.argsort(root * span + (pos - low), kind="stable")
    return np.lexsort((pos, root))


class NamedHeads:
    """
    A packed row's heads by name, and what they're under.

    Args:
        row: its columns, blobs as buffers.
        plans: how many plans there are.

    Attributes:
        batch: the heads, as an Arrow batch.
        roots: (user, client-id) of each head's root.
        whose: (principal, client-id) of each head, None where not known.
        layer: by head and plan, as in Heads.
        bounds: by head and plan, as in Heads.
    """

    def __init__(self, row: dict[str, Any], plans: int) -> None:
        batch = self.batch = pa.ipc.read_record_batch(pa.py_buffer(row["heads"]), heads_schema())
        text = [batch.column(i).to_pylist() for i in range(4)]
        self.roots = list(zip(*text[:2], strict=True))
        self.whose = list(zip(*text[2:], strict=True))
        count = len(row["terms"]) // (9 * plans)
        limits = np.frombuffer(row["terms"], np.float64, count * plans)
        layers = np.frombuffer(row["terms"], np.uint8, offset=limits.nbytes)
        terms = batch["terms"].to_numpy()
        self.layer = layers.reshape(count, plans)[terms]
        self.bounds = limits.reshape(count, plans)[terms]

    def tags(self, head: int, layer: int) -> tuple[str, str]:
        """Return the tags of a head's sensor in a layer."""
        return tags_of(layer, self.roots[head], self.whose[head])


def events_of(row: dict[str, Any], names: NamedHeads, numbers: Numbers, group: Any) -> Events:
    """
    Return the events of a packed row.

    Args:
        row: its columns, blobs as buffers.
        names: its heads.
        numbers: of its sensors.
        group: number that the sink has for each head; None: it has none.
    """
    n = row["n"]
    t = _times(row["t"], n) + row["t_from"]
    amount = np.frombuffer(row["amount"], _WIDTHS.get(len(row["amount"]) // n, np.float64))
    count = len(names.roots)
    if row["head"] is None:
        each = names.batch["events"].to_numpy()
        head = np.repeat(np.arange(count, dtype=np.int32), each)
    else:
        head = np.frombuffer(row["head"], _WIDTHS[len(row["head"]) // n]).astype(np.int32)
    root = np.fromiter(map(numbers.sensor, names.roots), np.int64, count)
    user = np.fromiter(
        (numbers.user(principal or "") for principal, _ in names.whose), np.int64, count
    )
    sensor = np.full((count, LAYERS), -1, np.int64)
    sensor[:, ROOT] = root
    for layer in range(ROOT + 1, LAYERS):
        for at in np.flatnonzero((names.layer == layer).any(axis=1)).tolist():
            sensor[at, layer] = numbers.sensor(names.tags(at, layer))
    return Events(
        Heads(
            root,
            user,
            sensor,
            names.layer,
            names.bounds,
            np.zeros(count, np.int64) if group is None else group,
        ),
        head,
        t if row["pos"] is None else np.frombuffer(row["pos"], np.int64),
        t,
        amount.astype(np.float64),
        None if row["op"] is None else np.frombuffer(row["op"], np.uint8),
        None,
    )


_WIDTHS = {2: np.uint16, 4: np.uint32}


def _times(blob: Any, n: int) -> Any:
    """Return the times of a packed row in ms since where they count from, int64."""
    width = len(blob) // n
    if width < 4:
        return np.cumsum(np.frombuffer(blob, np.uint8 if width == 1 else np.uint16), dtype=np.int64)
    return np.frombuffer(blob, np.uint32 if width == 4 else np.int64).astype(np.int64)
