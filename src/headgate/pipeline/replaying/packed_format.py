"""
Say what is packed: the table of bundles, its options, and the root of a charge.

A bundle is one row with the events of several sensors, in binary columns. These sensors have the
quota type, the broker (of a journal the gateway's worker, too) and a share of the quota-ids in
common: they are a group. A sensor stays in its group for ever. So all bundles of a group, in order,
hold all events of its sensors.

Several plans may disagree on the quota-id of an event, and then it has several sensors. It is
packed once all the same, under its root: what its sensors have in common under all plans.

Where all plans agree on a charge's quota-id, its root is its sensor. Where they don't, every sensor
that any plan limits must find all its charges under one root. That root is the user where quotas
are of users and of users' client-ids. It is the client-id where they are of client-ids and of
users' client-ids. It is the whole broker where one plan limits users and another limits client-ids
across users. A sensor that no plan limits never throttles, so its charges may be anywhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline.quotas import Quotas, key_of
from headgate.pipeline.table import make_table
from headgate.quota.key import PRODUCER_IDS
from headgate.throttle.overrides import (
    CLIENT_ID_FLAG,
    USER_CLIENT_ID_FLAG,
    USER_FLAG,
    Tags,
    flag_of,
)

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


class Rooted(NamedTuple):
    """A root (or a sensor that is its own): its bundle, and its tags as Kafka has them."""

    bundle: GroupKey
    quota_user: str
    quota_client_id: str


class Terms(NamedTuple):
    """What a charge is under, by plan: the layer of its sensor, and the limit there."""

    layers: bytes
    limits: tuple[float, ...]  # NaN where ABSENT, infinite: none


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


class Root(Enum):
    """What charges are packed under."""

    SENSOR = "the sensor itself"
    USER = "the user"
    CLIENT = "the client-id"
    PAIR = "the user and the client-id"
    ALL = "all there are"

    def tags(self, user: str, client_id: str, sensor: Tags) -> Tags:
        """
        Return a charge's root.

        Args:
            user: its principal.
            client_id: its own.
            sensor: tags of its sensor, if all plans agree.
        """
        if self is Root.SENSOR:
            return sensor
        return (
            user if self in (Root.USER, Root.PAIR) else "",
            client_id if self in (Root.CLIENT, Root.PAIR) else "",
        )


def root_of(plans: Sequence[Quotas], quota_type: str) -> Root:
    """
    Return what charges of a type are packed under.

    Args:
        plans: all that charge the type.
        quota_type: ``producer_byte_rate``, or with a unit that Kafka doesn't have.
    """
    key = key_of(quota_type)
    entities = [
        (
            p.starts_ms,
            tuple((frozenset(t.for_key(key)), key in t.static_defaults) for t in p.tables),
        )
        for p in plans
    ]
    if all(e == entities[0] for e in entities):
        return Root.SENSOR
    if key == PRODUCER_IDS:
        return Root.USER
    levels = {flag_of(e.user, e.client_id) for _, tables in entities for t, _ in tables for e in t}
    if any(static for _, tables in entities for _, static in tables):
        levels.add(CLIENT_ID_FLAG)
    if {USER_FLAG, CLIENT_ID_FLAG} <= levels:
        return Root.ALL
    if USER_FLAG in levels:
        return Root.USER
    if CLIENT_ID_FLAG in levels or USER_CLIENT_ID_FLAG not in levels:
        return Root.CLIENT
    return Root.PAIR


def layer_of(tags: Tags, root: Tags) -> int:
    """Return the layer of a charge's sensor: how its tags follow from the charge and its root."""
    if tags == root:
        return ROOT
    user, client_id = tags
    if user:
        return BOTH if client_id else USER
    return CLIENT if client_id else NOBODY


def tags_of(layer: int, root: Tags, whose: Whose) -> Tags:
    """Return the tags of a charge's sensor in a layer: the other way round."""
    if layer == ROOT:
        return root
    user = whose[0] if layer in (USER, BOTH) else ""
    client_id = whose[1] if layer in (CLIENT, BOTH) else ""
    return user or "", client_id or ""


# Whole numbers that span no more than this are their own codes.
_NARROW: Final = 64


def codes_of(column: Any) -> tuple[Any, list[Any]]:
    """Return (code per row, what each code stands for); None is a value like others."""
    column = joined(column)
    if column.null_count == len(column):
        return np.zeros(len(column), np.int32), [None]
    if not column.null_count and pa.types.is_integer(column.type):
        values = column.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < _NARROW:
            return values - low, list(range(low, high + 1))
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    names = column.dictionary.to_pylist()
    if not column.indices.null_count:
        return column.indices.to_numpy(zero_copy_only=False), names
    codes = pc.fill_null(column.indices, len(names)).to_numpy(zero_copy_only=False)
    return codes, [*names, None]


def joined(column: Any) -> Any:
    """Return a column in one piece, with one dictionary."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks()


def is_in(column: Any, values: tuple[str, ...]) -> Any:
    """Say which rows hold one of ``values``, as a NumPy array."""
    codes, names = codes_of(column)
    hits = np.array([name in values for name in names], np.bool_)
    if hits.all() or not hits.any():
        return np.full(len(codes), bool(len(hits) and hits[0]))
    return hits[codes]


def array_of(column: Any, null: Any = None) -> Any:
    """Return a column as a NumPy array; nulls become ``null``."""
    column = joined(column)
    if null is not None and column.null_count == len(column):
        return np.full(len(column), null)
    if null is not None and column.null_count:
        column = pc.fill_null(column, null)
    return column.to_numpy(zero_copy_only=False)


def valid(column: Any) -> Any:
    """Say which rows aren't null, as a NumPy array."""
    return pc.is_valid(joined(column)).to_numpy(zero_copy_only=False)


def blobs(values: Any, starts: Any, ends: Any) -> Any:
    """Divide an array into one binary per group, without copying."""
    size = values.dtype.itemsize
    offsets = (np.append(starts, ends[-1:]) * size).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(starts), buffers)


def file_hash(path: str, content: bytes = b"") -> int:
    """Return a number for a file's name, and some of what's in it; the same everywhere."""
    return zlib.crc32(content, zlib.crc32(path.encode()))
