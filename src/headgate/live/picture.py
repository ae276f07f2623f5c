"""
What a broker's quotas, clients and connections are like at one moment; travels as JSON.

Names are raw. A tag is "" where the quota-id doesn't have that part, as in Kafka's metric tags.
Times are epoch ms, rates are per second in the unit of the quota key.
"""

from __future__ import annotations

from typing import Final

import msgspec

FORMAT: Final = 1
"""Grows when a reader of the format before would read something wrong."""


class ClientUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A principal with one client-id that is connected now.

    Attributes:
        principal: its name, raw.
        client_id: as the client claims it.
        connections: how many are open.
        held: how many of them are muted, or wait for their turn to fetch.
        addresses: where they come from, with the number of connections; the most frequent ones.
        other_addresses: how many addresses aren't named.
    """

    principal: str
    client_id: str
    connections: int
    held: int = 0
    addresses: tuple[tuple[str, int], ...] = ()
    other_addresses: int = 0


class QuotaUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    One quota-id under one quota key.

    Attributes:
        key: of the quota, such as ``producer_byte_rate`` (``str`` of a ``QuotaKey``).
        user: the quota-id's user tag.
        client_id: its client-id tag.
        quota: the limit in force at this broker; None: there is none.
        rate: the use, as the sensor has it now.
        split: the part of a cluster-wide quota that this broker has; None: it isn't split.
        held: connections that wait because of it now.
        held_until_ms: when the last of them goes on, if nothing else is charged; 0: none waits.
        held_since_ms: since when some client was throttled without a pause longer than the
            quota's window; 0: none is.
        throttled: how often a client was told to wait.
        throttled_ms: for how long in all.
        window_ms: what the rate is measured over.
        clients: who is charged to it and connected now, the busiest first; bounded.
        other_clients: how many more there are.
    """

    key: str
    user: str
    client_id: str
    quota: float | None = None
    rate: float = 0.0
    split: float | None = None
    held: int = 0
    held_until_ms: int = 0
    held_since_ms: int = 0
    throttled: int = 0
    throttled_ms: int = 0
    window_ms: int = 0
    clients: tuple[ClientUse, ...] = ()
    other_clients: int = 0

    @property
    def limit(self) -> float | None:
        """What the rate is compared with at this broker."""
        return self.quota if self.split is None else self.split

    @property
    def utilisation(self) -> float | None:
        """Rate by limit; None without a limit, or with a limit of 0."""
        return self.rate / self.limit if self.limit else None


class ListenerUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A listener of a broker: its connections, those muted, and whether it accepts."""

    name: str
    address: str = ""
    connections: int = 0
    muted: int = 0
    accept_rate: float = 0.0
    accepting: bool = True


class EffectiveQuotaEntry(msgspec.Struct, frozen=True):
    """A quota as written: the entity's path (``users/alice``; ``server.properties``), its value."""

    entity: str
    value: float


class EffectiveQuotaOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """What applies to the asked principal and client-id for one key; the first entry wins."""

    key: str
    entries: tuple[EffectiveQuotaEntry, ...]
    note: str = ""


class BrokerPicture(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    One broker, as the gateway before it sees it.

    Attributes:
        broker_id: of the upstream broker.
        gateway: the name of the gateway's process.
        ready: why it isn't ready to serve; "": it is.
        enforce: ``headgate.enforce``: ``all``, ``missing`` or ``observe``.
        listeners: of the broker.
        quotas: those held first, then by utilisation, the highest first; bounded.
        other_quotas: how many more quota-ids there are.
        splits_expired: whether cluster-wide quotas are split by numbers that are out of date.
    """

    broker_id: int
    gateway: str = ""
    ready: str = ""
    enforce: str = "all"
    listeners: tuple[ListenerUse, ...] = ()
    quotas: tuple[QuotaUse, ...] = ()
    other_quotas: int = 0
    splits_expired: bool = False


class Picture(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    What was asked for, at one moment.

    Attributes:
        at_ms: when.
        source: who tells: ``gateway`` or ``events``.
        brokers: by id.
        user: the principal asked about; None: everybody.
        client_id: the client-id asked about; None: any.
        effective: what applies to the principal and client-id asked about; empty for everybody.
        version: of the quota table in force.
        format: see ``FORMAT``.
        note: what isn't known, and why; one sentence.
    """

    at_ms: int
    source: str = "gateway"
    brokers: tuple[BrokerPicture, ...] = ()
    user: str | None = None
    client_id: str | None = None
    effective: tuple[EffectiveQuotaOf, ...] = ()
    version: int = 0
    format: int = FORMAT
    note: str = ""


def encode(picture: Picture) -> bytes:
    """Return a picture as JSON."""
    return msgspec.json.encode(picture)


def decode(data: bytes) -> Picture:
    """
    Read a picture.

    Raises:
        ValueError: it isn't one (``msgspec.ValidationError`` is one).
    """
    return msgspec.json.decode(data, type=Picture)


def joined(pictures: tuple[Picture, ...]) -> Picture:
    """Return the pictures of several brokers as one; the earliest time, the first's answers."""
    first = pictures[0]
    brokers = {broker.broker_id: broker for picture in pictures for broker in picture.brokers}
    return msgspec.structs.replace(
        first,
        at_ms=min(picture.at_ms for picture in pictures),
        brokers=tuple(brokers[broker_id] for broker_id in sorted(brokers)),
        note=" ".join(dict.fromkeys(p.note for p in pictures if p.note)),
    )
