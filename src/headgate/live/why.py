"""
Why a principal with a client-id waits, or how much room it has: one sentence, and its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from headgate.live import saying
from headgate.live.picture import (
    BrokerPicture,
    ClientUse,
    EffectiveQuotaEntry,
    EffectiveQuotaOf,
    Picture,
    QuotaChange,
    QuotaUse,
    WaitTold,
)
from headgate.live.saying import VERBS, allowed, debt, doer, rate_of, source_of, waiting
from headgate.quota.human import human
from headgate.quota.key import CONNECTION, KEYS, QuotaKey, QuotaType
from headgate.quota.precedence import PRECEDENCE
from headgate.words import duration, moment

State = Literal["held", "over", "free", "unlimited", "exempt", "unenforced"]
"""
``over``: none of its connections waits now, but what it sends next will wait.

``unenforced``: quotas apply, but the gateway throttles by none of them (``headgate.enforce``).
"""


NEARLY: Final = 0.9
"""From this share of its limit on an address counts as limited: refusals aren't in its rate."""
MOST_NAMED: Final = 5
"""Other clients of a quota-id that the sentence about them names."""


class QuotaWhy(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    One quota that a client is charged to, at the broker where it is used most.

    Attributes:
        key: of the quota.
        broker_id: of the broker; -1: nothing was charged to it at any.
        user, client_id: the quota-id's tags.
        entries: the quotas that match, as written; the one that applies first.
        use: the quota-id at that broker; None: nothing was charged to it there.
        held: how many connections of the client asked about wait because of it.
        wait_ms: for how much longer.
        told: what was true when that was told; None: not known, or nobody waits.
        change: the change of the quota since then, if the gateway knows it.
        enforced: whether the gateway throttles by it.
        note: where Kafka departs from plain precedence.
    """

    key: str
    broker_id: int
    user: str
    client_id: str
    entries: tuple[EffectiveQuotaEntry, ...] = ()
    use: QuotaUse | None = None
    held: int = 0
    wait_ms: int = 0
    told: WaitTold | None = None
    change: QuotaChange | None = None
    enforced: bool = True
    note: str = ""

    @property
    def limit(self) -> float | None:
        """What the rate is compared with at the broker; None: nothing."""
        if self.use is not None:
            return self.use.limit
        return self.entries[0].value if self.entries else None

    @property
    def headroom(self) -> float | None:
        """What is left of the limit, per second; below 0: it is over."""
        if self.limit is None:
            return None
        return self.limit - (0.0 if self.use is None else self.use.rate)

    @property
    def over(self) -> bool:
        """Whether what is charged next is throttled."""
        if self.use is not None and self.use.owed is not None:
            return self.use.owed > 0  # a bucket forgives a burst sooner than the rate does
        return self.headroom is not None and self.headroom < 0

    @property
    def outlived(self) -> bool:
        """Whether a connection waits by a quota that was changed since, or is gone."""
        if self.told is None or self.use is None:
            return False
        return self.told.replaced or self.told.quota != self.use.quota


class Why(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The answer.

    Attributes:
        user, client_id: the client asked about.
        at_ms: when, epoch ms.
        state: the answer in a word.
        sentence: the answer.
        because: why that quota applies and not another.
        others: the other clients of the quota-id.
        since: since when it is throttled, and how much.
        free: what frees it, or would have.
        connecting: what keeps new connections out, and which brokers don't answer: a sentence each.
        note: what isn't known, and why.
        quotas: every quota that it is charged to, the one that decides first.
    """

    user: str
    client_id: str | None
    at_ms: int
    state: State
    sentence: str
    because: str = ""
    others: str = ""
    since: str = ""
    free: str = ""
    connecting: tuple[str, ...] = ()
    note: str = ""
    quotas: tuple[QuotaWhy, ...] = ()


class Rung(NamedTuple):
    """A level of KIP-55's precedence: its number, the entity, the value if one is set."""

    number: int
    entity: str
    value: float | None
    applies: bool


def why(picture: Picture, user: str, client_id: str | None, key: str | None = None) -> Why:
    """
    Say why a client waits, or what room it has.

    Args:
        picture: asked for with this user and client-id.
        user: the principal's name, raw.
        client_id: its client-id; None: any of them.
        key: only this quota key, as ``QuotaKey.name`` spells it.
    """
    quotas = sorted(_quotas(picture, user, client_id, key), key=_weight, reverse=True)
    name = user if client_id is None else f"{user}/{client_id}"
    connecting = tuple(_connecting(picture))
    if not quotas:
        limited = "by that quota" if key else "by a quota"
        state: State = "exempt" if picture.exempt else "unlimited"
        sentence = f"{name} isn't limited {limited}."
        if picture.exempt:
            sentence = _exempt(name)
        return Why(
            user, client_id, picture.at_ms, state, sentence, connecting=connecting,
            note=picture.note,
        )  # fmt: skip
    first = quotas[0]
    state = _state(picture, quotas)
    return Why(
        user,
        client_id,
        picture.at_ms,
        state,
        _sentence(name, first, state, picture),
        _because(first),
        _others(first, user, client_id),
        _since(first, picture.at_ms),
        _free(first, state),
        connecting,
        picture.note,
        tuple(quotas),
    )


def ladder(quota: QuotaWhy, user: str, client_id: str | None) -> tuple[Rung, ...]:
    """
    Return KIP-55's precedence for a quota, the most specific level first.

    Args:
        quota: of an answer.
        user: the principal that was asked about.
        client_id: its client-id, if one was.
    """
    values = {entry.entity: entry.value for entry in quota.entries}
    limited = quota.use is None or quota.use.quota is not None
    applies = quota.entries[0].entity if quota.entries and limited else ""
    rungs = []
    for level in PRECEDENCE:
        entity = level.entity(user, client_id or "")
        if entity is not None:
            path = entity.path
            rungs.append(Rung(level.number, path, values.pop(path, None), path == applies))
    rungs.extend(Rung(len(PRECEDENCE) + 1, path, v, path == applies) for path, v in values.items())
    return tuple(rungs)


# --- which quotas


def _quotas(
    picture: Picture, user: str, client_id: str | None, key: str | None
) -> Iterator[QuotaWhy]:
    """Yield each quota-id that the client is charged to, at the broker where it weighs most."""
    effective = {quota.key: quota for quota in picture.effective}
    found: dict[tuple[str, str, str], QuotaWhy] = {}
    for broker in picture.brokers:
        for use in broker.quotas:
            if use.ip or (key is not None and use.key != key):
                continue
            made = _quota(picture, broker, use, effective.get(use.key), user, client_id)
            at = (use.key, use.user, use.client_id)
            counts = made.limit is not None or made.held
            if counts and (at not in found or _weight(made) > _weight(found[at])):
                found[at] = made
    yield from found.values()
    told = {quota.key for quota in found.values()}
    for quota in picture.effective:  # nobody was charged to it
        if quota.key not in told and key in (None, quota.key) and not quota.unlimited:
            yield QuotaWhy(
                quota.key, -1, quota.user, quota.client_id, quota.entries, note=quota.note,
                enforced=not picture.brokers  # of a past moment, without charges
                or any(_enforced(broker, quota.key) for broker in picture.brokers),
            )  # fmt: skip


def _quota(
    picture: Picture,
    broker: BrokerPicture,
    use: QuotaUse,
    effective: EffectiveQuotaOf | None,
    user: str,
    client_id: str | None,
) -> QuotaWhy:
    own = [client for client in use.clients if _is(client, user, client_id)]
    # Without a client-id, ``effective`` is about the user alone, not about its pairs' quota-ids.
    if effective is not None and (effective.user, effective.client_id) != (use.user, use.client_id):
        effective = None
    last = max(own, key=lambda client: (client.held_until_ms, client.held), default=None)
    until_ms = 0 if last is None else last.held_until_ms
    held = sum(client.held for client in own)
    told = last.told if last is not None and held else None
    return QuotaWhy(
        use.key,
        broker.broker_id,
        use.user,
        use.client_id,
        effective.entries if effective is not None else (),
        use,
        held,
        max(until_ms - picture.at_ms, 0) if held else 0,
        told,
        None if told is None else _change(picture, use, told),
        _enforced(broker, use.key) and not picture.exempt,
        effective.note if effective is not None else "",
    )


def _change(picture: Picture, use: QuotaUse, told: WaitTold) -> QuotaChange | None:
    """Return the change since a wait was told that made the quota what it is, if it is known."""
    if told.quota == use.quota:
        return None
    since = [c for c in picture.changes if c.key == use.key and c.at_ms >= told.at_ms]
    made = [change for change in since if change.after == use.quota]
    removed = [change for change in since if change.after is None]  # and a default applies
    return next(reversed(made or removed), None)


def outlived(
    brokers: Iterable[BrokerPicture], user: str, client_id: str | None
) -> tuple[ClientUse, str, int] | None:
    """
    Return the client that waits longest by a quota that was changed since; None: there is none.

    Args:
        brokers: as pictured for the user.
        user: the principal asked about, raw.
        client_id: its client-id; None: any.

    Returns:
        The client, the quota's key, and when the wait was told, epoch ms.
    """
    waits = [
        (client, use.key, client.told.at_ms)
        for broker in brokers
        for use in broker.quotas
        for client in use.clients
        if _is(client, user, client_id)
        and client.held
        and client.told is not None
        and client.told.quota != use.quota
    ]
    return max(waits, key=lambda wait: wait[0].held_until_ms, default=None)


def _is(client: ClientUse, user: str, client_id: str | None) -> bool:
    return client.principal == user and client_id in (None, client.client_id)


def _enforced(broker: BrokerPicture, key: str) -> bool:
    """Whether the gateway throttles by a key; see ``headgate.enforce``."""
    spec = KEYS.get(QuotaKey.parse(key))
    beyond_kafka = spec is not None and not spec.in_kafka
    return broker.enforce == "all" or (broker.enforce == "missing" and beyond_kafka)


def _weight(quota: QuotaWhy) -> tuple[bool, int, bool, float]:
    """Sort key, greatest for the quota that decides: the longest wait, then the fullest."""
    full = quota.use.utilisation if quota.use is not None else None
    return bool(quota.held), quota.wait_ms, quota.enforced, full or 0.0


def _state(picture: Picture, quotas: list[QuotaWhy]) -> State:
    if picture.exempt:
        return "exempt"
    if quotas[0].held:
        return "held"
    if not any(quota.enforced for quota in quotas):
        return "unenforced"
    return "over" if quotas[0].over else "free"


# --- in words


def _exempt(name: str) -> str:
    return f"{name} is exempt (headgate.exempt.principals): it is measured and never throttled."


def _sentence(name: str, quota: QuotaWhy, state: State, picture: Picture) -> str:
    if state == "exempt":
        return _exempt(name)
    use = quota.use
    where = f" at broker {quota.broker_id}" if len(picture.brokers) > 1 and use is not None else ""
    if state == "held":
        return f"{name} {waiting(quota, where, picture.at_ms)}."
    key = QuotaKey.parse(quota.key)
    allows = f"{source_of(quota)} allows {allowed(quota)}"
    verb = VERBS[QuotaType(key.type)]
    does = f"{doer(quota)} {verb.now}"
    rate = "nothing" if use is None or not use.rate else rate_of(quota, use.rate)
    if use is not None and use.coarse:
        rate = f"up to {rate_of(quota, use.rate)}"
    if state == "over":
        used = f"{does} {rate}"
        if use is not None and use.owed:
            used = f"{doer(quota)} owes {debt(quota, use.owed)}"
        elif use is not None and not use.coarse:
            used = saying.beyond(quota, f"{does} ", use.rate, quota.limit)
        return f"{name} waits with what it sends next{where}, because {allows} and {used}."
    if state == "unenforced":
        return f"{name} isn't throttled by the gateway, though {allows}{where}; {does} {rate}."
    left = quota.headroom or 0.0
    if left < 0:  # a bucket has forgiven what is still in the rate
        return f"{name} isn't held{where}: {allows}, and {doer(quota)} owes nothing."
    room = f"{rate_of(quota, left)} are left" if left else "nothing is left"
    return f"{name} isn't held{where}: {allows}, {does} {rate}, and {room}."


def _because(quota: QuotaWhy) -> str:
    if not quota.entries:
        return quota.note
    first, *rest = quota.entries
    text = f"{first.entity} is the most specific quota of {quota.key} that matches"
    if rest:
        key = QuotaKey.parse(quota.key)
        hidden = ", ".join(f"{entry.entity} ({human(key, entry.value)})" for entry in rest)
        text += f"; it overrides {hidden}"
    if quota.use is not None and quota.use.split is not None:
        text += f"; this broker's part of it is {rate_of(quota, quota.use.split)} now"
    return f"{text}." + (f" {quota.note}." if quota.note else "")


def _others(quota: QuotaWhy, user: str, client_id: str | None) -> str:
    use = quota.use
    if use is None:
        return "Nothing has been charged to the quota-id."
    if use.coarse:
        return "Others may share the quota-id: how full it is, is told by quarters."
    others = [client for client in use.clients if not _is(client, user, client_id)]
    if not others:
        return "Nobody else is charged to the quota-id now."
    named = [
        f"{client.principal}/{client.client_id} ({client.connections} connected"
        + (f", {client.held} held)" if client.held else ")")
        for client in others[:MOST_NAMED]
    ]
    more = len(others) - len(named) + use.other_clients
    return f"The quota-id is shared with {', '.join(named)}" + (
        f" and {more} more." if more else "."
    )


def _since(quota: QuotaWhy, at_ms: int) -> str:
    use = quota.use
    if use is None or not use.held_since_ms:
        return ""
    return (
        f"The quota-id has been throttled since {moment(use.held_since_ms)}, "
        f"for {duration(at_ms - use.held_since_ms)}; in all it was told to wait {use.throttled} "
        f"time{'s' if use.throttled != 1 else ''}, {duration(use.throttled_ms)} together."
    )


def _free(quota: QuotaWhy, state: State) -> str:
    use, limit = quota.use, quota.limit
    if use is None or state in ("exempt", "unenforced"):
        return ""
    if limit is None or (quota.told is not None and quota.told.replaced):  # it limits nobody now
        return f"It goes on in {duration(quota.wait_ms)}." if quota.wait_ms else ""
    stays = f"it stays free at {rate_of(quota, limit)} or less"
    if state == "free":
        return f"{stays[0].upper()}{stays[1:]}."
    parts = [f"It goes on in {duration(quota.wait_ms)}"] if quota.wait_ms else []
    parts.append(stays if parts else f"{stays[0].upper()}{stays[1:]}")
    rate = max(use.rate, (quota.told and quota.told.rate) or 0.0)
    if rate > limit and not use.coarse:
        parts.append(f"what it sent needs a quota of {rate_of(quota, rate)}")
    return "; ".join(parts) + "."


def _connecting(picture: Picture) -> Iterator[str]:
    for broker in picture.brokers:
        at = f"at broker {broker.broker_id}"
        if broker.silent:
            yield (
                f"Broker {broker.broker_id} doesn't answer ({broker.silent}): clients wait for it, "
                "and not for a quota."
            )
        for use in broker.quotas:
            if use.ip and (use.utilisation or (1.0 if use.quota == 0 else 0.0)) >= NEARLY:
                yield (
                    f"New connections from {use.ip} are limited to "
                    f"{human(CONNECTION, use.quota)} {at}; there are {use.rate:.3g}/s."
                )
        for listener in broker.listeners:
            if listener.blocked_since_ms:
                waits = duration(picture.at_ms - listener.blocked_since_ms)
                yield f"Listener {listener.name} has accepted nobody for {waits} {at}."
