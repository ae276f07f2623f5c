"""
What a broker's quotas, clients and connections are like at one moment; travels as JSON.

Names are raw. A tag is "" where the quota-id doesn't have that part, as in Kafka's metric tags.
Times are epoch ms, rates are per second in the unit of the quota key.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, Literal

import msgspec

from headgate.throttle.java import UNLIMITED

PAUSE_MS: Final = 10_000
"""A quota-id that had no throttle for this long, Kafka's window, isn't throttled any more."""
MOST_CLIENTS: Final = 50
"""Clients named of one quota-id: as many as people read."""
MOST_ADDRESSES: Final = 10
"""Addresses named of one client."""
MOST_BYTES: Final = 16 << 20
"""Bytes of a picture as JSON; the gateway holds one in memory for each request."""
FORMAT: Final = 1
"""Raised when a reader of the previous format would misread a picture."""


class WaitTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    What was true when a wait was told. The use and the quota of this moment may be others.

    Attributes:
        at_ms: when it was told.
        limit: what the use was compared with at the broker; None: not known.
        quota: the quota then; it is more than ``limit`` where the broker had a part of it.
        rate: the use then; None: not known, or a bucket decided.
        owed: what the bucket was overdrawn by, in units; None: not known, or a rate decided.
        told_to: ``client``: its connection was told; ``closed``: one that has closed since was,
            and the next one waits in its place; ``gate``: a fetch waits until the quota-id's last
            one is paid for.
        replaced: the client is charged to another quota-id by now.
    """

    at_ms: int
    limit: float | None = None
    quota: float | None = None
    rate: float | None = None
    owed: float | None = None
    told_to: Literal["client", "closed", "gate"] = "client"
    replaced: bool = False


class QuotaChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A change of a quota while a client waits by it.

    Attributes:
        key: of the quota.
        entity: its path.
        at_ms: when it was made.
        before, after: the values; None: not set.
        who: the principal that made it; "": not known, or not told to the asker.
    """

    key: str
    entity: str
    at_ms: int
    before: float | None = None
    after: float | None = None
    who: str = ""


class ClientUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A principal with one client-id that is connected now.

    Attributes:
        principal: its name, raw.
        client_id: as the client claims it.
        connections: how many are open.
        held: how many of them are muted, or wait for their turn to fetch.
        held_until_ms: when the last of these goes on; 0: none waits.
        addresses: where they come from, with the number of connections; the most frequent ones.
        other_addresses: how many addresses aren't named.
        told: why it waits until ``held_until_ms``; None: it doesn't, or that isn't known.
    """

    principal: str
    client_id: str
    connections: int
    held: int = 0
    held_until_ms: int = 0
    addresses: tuple[tuple[str, int], ...] = ()
    other_addresses: int = 0
    told: WaitTold | None = None


def carried(value: float) -> float:
    """Return a quota as JSON can hold it: an infinite one is Kafka's "no limit", 2^63 - 1."""
    return min(value, UNLIMITED)


class QuotaUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    One quota-id under one quota key.

    Attributes:
        key: of the quota, such as ``producer_byte_rate`` (``str`` of a ``QuotaKey``).
        user: the quota-id's user tag.
        client_id: its client-id tag.
        ip: the address, where connections of one are limited; it has no tags.
        quota: the limit in force at this broker; None: there is none.
        rate: the use, as the sensor has it now.
        split: the part of a cluster-wide quota that this broker has; None: it isn't split.
        held: connections that wait because of it now.
        held_until_ms: when the last of them goes on, if nothing else is charged; 0: none waits.
        held_since_ms: since when some client was throttled without a pause longer than
            ``PAUSE_MS``; 0: none is.
        throttled: how often a client was told to wait.
        throttled_ms: for how long in all.
        window_ms: what the rate is measured over.
        clients: who is charged to it and connected now, the busiest first; bounded.
        other_clients: how many more there are.
        owed: what its bucket is overdrawn by, in units; None: a rate decides, or that isn't known.
        coarse: it is shared with clients that the asker may not see: ``rate`` is rounded up to a
            quarter of the limit, and everything about those clients is left out.
    """

    key: str
    user: str = ""
    client_id: str = ""
    ip: str = ""
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
    owed: float | None = None
    coarse: bool = False

    @property
    def limit(self) -> float | None:
        """What the rate is compared with at this broker."""
        return self.quota if self.split is None else self.split

    @property
    def utilisation(self) -> float | None:
        """Rate by limit; None without a limit, or with a limit of 0."""
        return self.rate / self.limit if self.limit else None


class ListenerUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A listener of a broker.

    Attributes:
        name: of the listener.
        address: where it listens.
        connections: open now.
        muted: how many of them wait.
        accept_rate: connections accepted per second.
        accept_limit: its limit; None: it has none.
        accepting: whether new connections are accepted, perhaps after a delay.
        blocked_since_ms: since when a limit has blocked accepting; 0: it accepts.
    """

    name: str
    address: str = ""
    connections: int = 0
    muted: int = 0
    accept_rate: float = 0.0
    accept_limit: float | None = None
    accepting: bool = True
    blocked_since_ms: int = 0


class EffectiveQuotaEntry(msgspec.Struct, frozen=True):
    """
    A quota: the entity's path (``users/alice``; ``server.properties``), its value (``carried``).
    """

    entity: str
    value: float


class EffectiveQuotaOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    What applies to the asked principal and client-id for one key.

    Attributes:
        key: of the quota.
        entries: every quota that matches, the one that applies first.
        user, client_id: tags of the quota-id that they are charged to.
        unlimited: none of the entries applies.
        note: where Kafka departs from plain precedence, in one sentence.
    """

    key: str
    entries: tuple[EffectiveQuotaEntry, ...]
    user: str = ""
    client_id: str = ""
    unlimited: bool = False
    note: str = ""


class BrokerPicture(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    One broker, as the gateway in front of it sees it.

    Attributes:
        broker_id: of the upstream broker.
        gateway: the name of the gateway's process.
        ready: why it isn't ready to serve; "": it is.
        enforce: ``headgate.enforce``: ``all``, ``missing`` or ``observe``.
        connections: open now, of the principal and client-id asked about; without one, of all.
        accept_rate: connections accepted per second.
        accept_limit: its limit; None: it has none.
        listeners: of the broker.
        quotas: the quota-ids in use: throttled ones first, then by utilisation, the highest first;
            bounded.
        other_quotas: how many more quota-ids there are.
        silent: why the broker doesn't answer the gateway's own questions; "": it does.
        splits_expired: whether cluster-wide quotas are split by numbers that are out of date.
        without_capacity: keys of shares that aren't enforced, because the gateway has no
            ``headgate.capacity`` for them.
    """

    broker_id: int
    gateway: str = ""
    ready: str = ""
    enforce: str = "all"
    connections: int = 0
    accept_rate: float = 0.0
    accept_limit: float | None = None
    listeners: tuple[ListenerUse, ...] = ()
    quotas: tuple[QuotaUse, ...] = ()
    other_quotas: int = 0
    splits_expired: bool = False
    without_capacity: tuple[str, ...] = ()
    silent: str = ""


class Picture(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    What was asked for, at one moment.

    Attributes:
        at_ms: when.
        source: where it comes from: ``gateway`` or ``events``.
        brokers: by id.
        user: the principal asked about; None: everybody.
        client_id: the client-id asked about; None: any.
        exempt: the principal asked about is measured and never throttled
            (``headgate.exempt.principals``).
        effective: what applies to the principal and client-id asked about; empty for everybody.
        version: of the quota table in force.
        format: see ``FORMAT``.
        note: what isn't known, and why; one sentence.
        changes: of the quotas by which the client asked about waits, since the waits were told.
    """

    at_ms: int
    source: str = "gateway"
    brokers: tuple[BrokerPicture, ...] = ()
    user: str | None = None
    client_id: str | None = None
    exempt: bool = False
    effective: tuple[EffectiveQuotaOf, ...] = ()
    version: int = 0
    format: int = FORMAT
    note: str = ""
    changes: tuple[QuotaChange, ...] = ()

    @property
    def without_capacity(self) -> frozenset[str]:
        """Keys of shares that some broker's gateway doesn't enforce, for want of a capacity."""
        return frozenset(key for broker in self.brokers for key in broker.without_capacity)


def encode(picture: Picture) -> bytes:
    """Return a picture as JSON."""
    return msgspec.json.encode(picture)


def encode_steps(picture: Picture) -> Generator[None, None, bytes]:
    """
    Do as ``encode``, step by step.

    Quotas beyond ``MOST_BYTES`` are left out, the last ones first, and counted in ``other_quotas``.
    """
    brokers: list[BrokerPicture] = []
    size = 0
    for broker in picture.brokers:
        told: list[Any] = []
        for use in broker.quotas:
            text = msgspec.json.encode(use)
            size += len(text)
            if size > MOST_BYTES:
                break
            told.append(msgspec.Raw(text))
            yield
        left_out = len(broker.quotas) - len(told)
        brokers.append(
            msgspec.structs.replace(
                broker, quotas=tuple(told), other_quotas=broker.other_quotas + left_out
            )
        )
    return encode(msgspec.structs.replace(picture, brokers=tuple(brokers)))


def decode(data: bytes) -> Picture:
    """
    Read a picture.

    Raises:
        ValueError: it isn't one (``msgspec.ValidationError`` is one).
    """
    return msgspec.json.decode(data, type=Picture)


def joined(pictures: Sequence[Picture], note: str = "") -> Picture:
    """
    Return the pictures of several brokers as one: the earliest time, the fullest answer.

    Args:
        pictures: at least one.
        note: of the whole. A picture's own note is kept only where all pictures have one: what one
            broker doesn't see, another may.
    """
    # A broker that doesn't see a tenant's client tells the tenant about fewer quotas.
    first = max(pictures, key=lambda picture: sum(len(q.entries) for q in picture.effective))
    told = [broker for picture in pictures for broker in picture.brokers]
    # Of a broker that doesn't answer, gateways of others may know no more than that.
    told.sort(key=lambda broker: (broker.connections, len(broker.quotas), broker.gateway))
    brokers = {broker.broker_id: broker for broker in told}
    return msgspec.structs.replace(
        first,
        at_ms=min(picture.at_ms for picture in pictures),
        changes=tuple(dict.fromkeys(c for picture in pictures for c in picture.changes)),
        brokers=tuple(brokers[broker_id] for broker_id in sorted(brokers)),
        note=" ".join(filter(None, (min(picture.note for picture in pictures), note))),
    )
