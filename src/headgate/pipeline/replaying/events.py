"""
Events of a group of sensors in arrays: read from bundles, divided, and joined in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.pipeline.replaying.packed_format import LAYERS, ROOT, heads_schema, tags_of


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


class Names:
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


def events_of(row: dict[str, Any], names: Names, numbers: Numbers, group: Any) -> Events:
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
