"""
The messages that carry splits of cluster-wide quotas from `headgate splits` to gateways.

Topic ``__headgate_splits`` (compacted). Key: the quota and the broker, as JSON::

    {"broker":1,"entity":{"client-id":"etl","user":"alice"},"key":"producer_byte_rate:bps"}

``entity`` holds the tags of the quota-id, raw; a tag that isn't part of it is left out. Value::

    {"computed_ms":1795261549304,"epoch":7,"quota":1048576.0,"split":262144.0,"valid_ms":15000}

``split`` is that broker's limit in units per second, for ``valid_ms`` from ``computed_ms`` on. It
is a part of ``quota``: a gateway where the quota has changed since takes the same part of the new
one. When the split has expired, the limit is the quota divided by the number of brokers. For
``shares`` it is the rate that a weight gives while capacity is contested; null means that it isn't
contested and no client is limited.

Each round ends with a heartbeat, key ``{"heartbeat":"splits"}``, value as above without ``split``:
it says that splits are computed even while there is nothing to split. One writer at a time: each
has a higher ``epoch`` than all before it, and a reader passes over lower ones (:class:`Fence`).

Source: KIP-546 "Units" (``bps``, ``shares``); docs/howto/cluster-wide-quotas.md.
"""

from __future__ import annotations

import json
from math import inf
from typing import Any, Final, NamedTuple

from headgate.errors import MALFORMED

TOPIC: Final = "__headgate_splits"
MOST_VALID_MS: Final = 3_600_000
"""A split that expires this long before the newest one is removed from the topic."""


class Split(NamedTuple):
    """
    One broker's part of one cluster-wide quota.

    Args:
        user: raw user tag of the quota-id, "" = not part.
        client_id: raw client-id tag, "" = not part.
        key: quota key with its unit, ``producer_byte_rate:bps``.
        broker: broker id.
        split: units per second; infinite: no limit (shares of uncontested capacity).
        epoch: of the writer.
        computed_ms: when it was computed, epoch ms.
        valid_ms: for how long it holds from then on.
        quota: the quota that this is a part of, units per second; None: not known, or a weight.
    """

    user: str
    client_id: str
    key: str
    broker: int
    split: float
    epoch: int
    computed_ms: int
    valid_ms: int
    quota: float | None = None

    @property
    def valid_until_ms(self) -> int:
        """When it expires, epoch ms."""
        return self.computed_ms + self.valid_ms


class Heartbeat(NamedTuple):
    """
    The end of a round: a writer is at work.

    Args:
        epoch: of the writer.
        computed_ms: when the round was computed, epoch ms.
        valid_ms: for how long its splits hold from then on.
    """

    epoch: int
    computed_ms: int
    valid_ms: int

    @property
    def valid_until_ms(self) -> int:
        """When its splits expire, epoch ms."""
        return self.computed_ms + self.valid_ms


def encode(split: Split) -> tuple[bytes, bytes]:
    """Return (key, value) of a message."""
    names = (("user", split.user), ("client-id", split.client_id))
    entity = {name: value for name, value in names if value}
    key = {"broker": split.broker, "entity": entity, "key": split.key}
    value = {
        "computed_ms": split.computed_ms,
        "epoch": split.epoch,
        "split": None if split.split == inf else split.split,
        "valid_ms": split.valid_ms,
        **({} if split.quota is None else {"quota": split.quota}),
    }
    return _dump(key), _dump(value)


def encode_heartbeat(beat: Heartbeat) -> tuple[bytes, bytes]:
    """Return (key, value) of a message."""
    return _dump({"heartbeat": "splits"}), _dump(beat._asdict())


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def decode(key: bytes | None, value: bytes | None) -> Split | Heartbeat | None:
    """Return a message's split or heartbeat; None for a tombstone or anything else."""
    if key is None or value is None:
        return None
    try:
        who, what = json.loads(key), json.loads(value)
        if who.get("heartbeat") == "splits":
            return Heartbeat(int(what["epoch"]), int(what["computed_ms"]), int(what["valid_ms"]))
        entity, quota = who["entity"], what.get("quota")
        split = Split(
            str(entity.get("user", "")),
            str(entity.get("client-id", "")),
            str(who["key"]),
            int(who["broker"]),
            inf if what["split"] is None else float(what["split"]),
            int(what["epoch"]),
            int(what["computed_ms"]),
            int(what["valid_ms"]),
            None if quota is None else float(quota),
        )
    except MALFORMED:
        return None
    if split.quota is not None and not 0 < split.quota < inf:
        return None
    return split if split.split >= 0 else None  # NaN would limit nobody, and spoil every sum


class Fence:
    """Let through only splits of the newest writer seen so far."""

    def __init__(self) -> None:
        self.epoch = 0

    def passes(self, split: Split | Heartbeat) -> bool:
        """Say whether a message counts; a higher epoch shuts out all lower ones from now on."""
        self.epoch = max(self.epoch, split.epoch)
        return split.epoch == self.epoch
