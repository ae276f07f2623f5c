"""
Say what is packed: the table of bundles, and the options of packing.

A bundle is one row with the events of several sensors, in binary columns. These sensors have the
quota type, the broker (of a journal the gateway's worker, too) and a share of the quota-ids in
common: they are a group. A sensor stays in its group for ever. So all bundles of a group, in order,
hold all events of its sensors.

Several plans may disagree on the quota-id of an event, and then it has several sensors. It is
packed once all the same, under its root. The root is coarse enough for all its sensors: it is the
user where quotas are of users and of users' client-ids, and a whole broker where users and
client-ids across all users have quotas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headgate.pipeline.quotas import Quotas
from headgate.pipeline.table import make_table

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
