"""
The journal's columns, and what an event is.

An event is what differs each time (``Event``) and an ``Origin``, which holds what many events
share: who, through which listener, charged to which quota. ``rows`` packs events and makes columns.

Times are epoch milliseconds exactly as the quota manager used them, so that a replay of the events
gives the same throttle times to the millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import pyarrow as pa

from headgate.quota.key import KEYS

#: start: managers began empty. quota: a limit came or went. record: a charge with a decision.
#: norecord: a decision without a charge. unrecord: a charge taken back. expire: a sensor is gone.
#: connection: a connection was accepted. strict: checked, then charged unless refused (tokens were
#: below zero). told: the throttle that a request was told, from decisions written before, and
#: ``amount``: how many ms before it was charged; it charges nobody. bound: the limit of a pacing
#: bucket changed. producer_id: a broker gave out a producer id (InitProducerId), which charges
#: nobody. held: a fetch waited for its quota-id's turn, ``amount`` ms; it charges nobody. New words
#: go to the end.
KINDS: Final = (
    "start",
    "quota",
    "record",
    "norecord",
    "unrecord",
    "expire",
    "connection",
    "strict",
    "told",
    "bound",
    "producer_id",
    "held",
)
#: How a sensor decides. sampled: Kafka's rate over windows. bucket: Kafka's token bucket of
#: num_samples x window_ms. paced: a bucket whose bound may move (smooth pacing, splits, shares).
RULES: Final = ("sampled", "bucket", "paced")
#: Released spellings: ``producer_byte_rate`` is per broker, the others name their unit.
QUOTA_TYPES: Final = tuple(dict.fromkeys([*(key.name for key in KEYS), ""]))

_WORD: Final = pa.dictionary(pa.int8(), pa.string())

#: A row is one event of one worker. Null where a column doesn't apply.
SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),  # 1, 2, 3 … per worker; a gap is a loss
        pa.field("worker_id", pa.string(), nullable=False),
        pa.field("broker_id", pa.int32()),
        pa.field("listener", pa.string()),
        pa.field("kind", _WORD, nullable=False),
        pa.field("quota_type", _WORD),
        pa.field("t_ms", pa.float64(), nullable=False),  # epoch ms; a whole number
        # Bytes, percent or a count; of a refused one, what was asked for. held, told: ms.
        pa.field("amount", pa.float64()),
        pa.field("quota_user", pa.string()),  # the sensor's tags, raw; "" = not part
        pa.field("quota_client_id", pa.string()),
        pa.field("quota_id", pa.string()),  # "<sanitised user>:<client-id>"
        pa.field("bound", pa.float64()),  # the limit in force; infinite = none
        pa.field("principal", pa.string()),  # name part
        pa.field("client_id", pa.string()),
        pa.field("client_ip", pa.string()),
        pa.field("api_key", pa.int16()),
        pa.field("api_version", pa.int16()),
        pa.field("connection", pa.string()),
        pa.field("throttle_time_ms", pa.int64()),  # this manager's decision
        pa.field("told_throttle_time_ms", pa.int64()),  # told; of a charge, how long it mutes
        pa.field("upstream_throttle_time_ms", pa.int64()),  # what the broker told us
        # Request or response size. Mutations: only a request's first event has it.
        pa.field("bytes", pa.int64()),
        pa.field("handler_ms", pa.float64()),
        pa.field("producer_ids", pa.int32()),
        pa.field("num_samples", pa.int32()),  # the sensor's own; with window_ms a bucket's burst
        pa.field("window_ms", pa.int64()),
        pa.field("value", pa.float64()),  # kind=quota, bound: the new value; NaN = removed
        pa.field("entity", pa.string()),  # kind=quota: KIP-55 path, "users/alice"
        pa.field("rule", _WORD),  # how the sensor decides
        pa.field("max_throttle_ms", pa.int64()),  # cap of one decision; null = none
    ],
    metadata={b"headgate.journal": b"1"},
)


@dataclass(slots=True, eq=False)
class Origin:
    """
    What many events share. Make one per (kind, quota, client, API) and keep it.

    Attributes are columns of ``SCHEMA``; None where a column doesn't apply. ``index`` and ``token``
    belong to the rows it was last used in.
    """

    kind: str
    quota_type: str | None = None
    broker_id: int | None = None
    listener: str | None = None
    quota_user: str | None = None
    quota_client_id: str | None = None
    quota_id: str | None = None
    principal: str | None = None
    client_id: str | None = None
    client_ip: str | None = None
    connection: str | None = None
    api_key: int | None = None
    api_version: int | None = None
    num_samples: int | None = None
    window_ms: int | None = None
    entity: str | None = None
    value: float | None = None
    rule: str | None = None
    max_throttle_ms: int | None = None
    index: int = -1
    token: object = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} isn't a kind of event; there are {', '.join(KINDS)}")
        if self.quota_type is not None and self.quota_type not in QUOTA_TYPES:
            raise ValueError(f"{self.quota_type!r} isn't a quota type")
        if self.rule is not None and self.rule not in RULES:
            raise ValueError(f"{self.rule!r} isn't a rule; there are {', '.join(RULES)}")


class Event(NamedTuple):
    """
    What differs from event to event. A plain tuple in this order may be used as well.

    Attributes:
        origin: the rest of the columns.
        t_ms: when the charge was made, epoch ms.
        amount: bytes, percent or a count; of held and told, ms.
        bound: the limit in force; infinite where there is none.
        throttle_time_ms: this manager's decision.
        told_throttle_time_ms: what the client was told; of a charge, how long it is muted.
        upstream_throttle_time_ms: what the broker told.
        bytes: size of the request or response.
        handler_ms: the gateway's own time.
        producer_ids: producer ids in the request.
    """

    origin: Origin
    t_ms: float
    amount: float | None = None
    bound: float | None = None
    throttle_time_ms: int | None = None
    told_throttle_time_ms: int | None = None
    upstream_throttle_time_ms: int | None = None
    bytes: int | None = None
    handler_ms: float | None = None
    producer_ids: int | None = None


ORIGIN_COLUMNS: Final = tuple(f.name for f in fields(Origin) if f.name not in ("index", "token"))
WORDS: Final = {"kind": KINDS, "quota_type": QUOTA_TYPES, "rule": RULES}
WORD_INDEX: Final = {name: {w: n for n, w in enumerate(words)} for name, words in WORDS.items()}
