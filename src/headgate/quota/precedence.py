"""
Which quota applies to a request, which entity it comes from, what it overrides.

``PRECEDENCE`` is KIP-55's table as data (eight levels, with users/U/clients/<default>). What Kafka
enforces is a two-step algorithm over it: first the tags (which sensor), then the limit for those
tags. The two differ for the empty client-id; :func:`resolve` gives what is enforced and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headgate.quota.entity import DEFAULT, Default, EntityName, QuotaEntity, quota_id
from headgate.quota.key import PRODUCER_IDS, QuotaKey
from headgate.quota.table import QuotaTable


class Level(NamedTuple):
    """
    One level of precedence.

    Args:
        number: 1 is the most specific.
        user: ``name``, ``default``, or "" where the user isn't part of the entity.
        client: the same for the client-id.
        user_tag: whether the quota-id holds the user.
        client_tag: whether the quota-id holds the client-id.
        shared_by: which clients share one budget, in words.
    """

    number: int
    user: str
    client: str
    user_tag: bool
    client_tag: bool
    shared_by: str

    def entity(self, user: EntityName, client_id: EntityName) -> QuotaEntity | None:
        """Return the entity this level looks up for a request, or None if it can't match."""
        entries: dict[str, EntityName] = {}
        for entity_type, rule, name in (
            ("user", self.user, user),
            ("client-id", self.client, client_id),
        ):
            if rule == "default":
                entries[entity_type] = DEFAULT
            elif rule == "name":
                if isinstance(name, Default) or name == "":
                    return None
                entries[entity_type] = name
        return QuotaEntity(entries)


# KIP-55 "Quota Configuration" and KIP-546 "Background"; ClientQuotaManager.DefaultQuotaCallback.
PRECEDENCE: Final[tuple[Level, ...]] = (
    Level(1, "name", "name", True, True, "exactly that pair"),
    Level(2, "name", "default", True, True, "each client-id of the user its own"),
    Level(3, "name", "", True, False, "all clients of the user without a pair quota"),
    Level(4, "default", "name", True, True, "each user with that client-id its own"),
    Level(5, "default", "default", True, True, "each pair its own"),
    Level(6, "default", "", True, False, "all clients of each user"),
    Level(7, "", "name", False, True, "that client-id of all users"),
    Level(8, "", "default", False, True, "each client-id, across users"),
)

CLIENT_ID_FLAG: Final = 1
USER_FLAG: Final = 2
USER_CLIENT_FLAG: Final = 4
FLAG_OF_SHAPE: Final[dict[str, int]] = {
    "client-id": CLIENT_ID_FLAG,
    "user": USER_FLAG,
    "user+client-id": USER_CLIENT_FLAG,
}


class StaticDefault(NamedTuple):
    """The source of KIP-55's static default; prints ``server.properties``."""

    setting: str = "server.properties"

    def __str__(self) -> str:
        return self.setting


STATIC_DEFAULT: Final = StaticDefault()
Source = QuotaEntity | StaticDefault


class Overridden(NamedTuple):
    """A less specific quota that a more specific one hides."""

    source: Source
    value: float


class EffectiveQuota(NamedTuple):
    """
    What applies to one request for one key.

    Args:
        key: quota type and unit.
        value: the limit; None means unlimited.
        source: the entity the limit was written for; None when unlimited.
        overridden: the other matching quotas, most specific first.
        user_tag: raw user of the quota-id, "" where it isn't part.
        client_tag: client-id of the quota-id, "" where it isn't part.
        note: where Kafka's enforcement departs from plain precedence, in one sentence.
    """

    key: QuotaKey
    value: float | None
    source: Source | None
    overridden: tuple[Overridden, ...]
    user_tag: str
    client_tag: str
    note: str | None = None

    @property
    def tags(self) -> tuple[str, str]:
        """The pair (user, client-id) whose requests share one sensor."""
        return (self.user_tag, self.client_tag)

    @property
    def quota_id(self) -> str:
        """The quota-id (KIP-55 "Quota Identifier"), such as ``user2:clientA``."""
        return quota_id(self.user_tag, self.client_tag)


def flags_of(table: QuotaTable, key: QuotaKey) -> int:
    """
    Return which shapes of entities have the key: 1 client-id, 2 user, 4 user and client-id.

    A finite static default (``quota.producer.default``) sets the client-id flag from the start.

    Source: ClientQuotaManager.quotaTypesEnabled in 4.x, which clears a level's flag when its last
        quota is removed.
    """
    flags = CLIENT_ID_FLAG if key in table.static_defaults else 0
    for shape in table.shapes_for_key(key):
        flags |= FLAG_OF_SHAPE.get(shape, 0)
    return flags


def level_matches(
    quotas: Mapping[QuotaEntity, float], user: EntityName, client_id: EntityName
) -> list[tuple[Level, QuotaEntity, float]]:
    """Return every level of :data:`PRECEDENCE` that has a quota for a request, in order."""
    found = []
    for level in PRECEDENCE:
        entity = level.entity(user, client_id)
        if entity is not None and entity in quotas:
            found.append((level, entity, quotas[entity]))
    return found


def select_tags(
    quotas: Mapping[QuotaEntity, float], flags: int, user: str, client_id: str
) -> tuple[str, str]:
    """
    Step A: return the tags (user, client-id) of the sensor a request is charged to.

    Source: DefaultQuotaCallback.quotaMetricTags.
    """
    if flags in (0, CLIENT_ID_FLAG):
        return ("", client_id)
    if flags == USER_FLAG:
        return (user, "")
    if flags == USER_CLIENT_FLAG:
        return (user, client_id)
    for level in PRECEDENCE[:6]:
        entity = level.entity(user, client_id)
        if entity is not None and entity in quotas:
            return (user, client_id if level.client_tag else "")
    return ("", client_id)


def select_limit(
    quotas: Mapping[QuotaEntity, float], user_tag: str, client_tag: str
) -> QuotaEntity | None:
    """
    Step B: return the entity whose quota bounds the sensor of these tags, or None.

    Source: DefaultQuotaCallback.quotaLimit.
    """
    if user_tag and client_tag:
        numbers: tuple[int, ...] = (1, 2, 4, 5)
    elif user_tag:
        numbers = (3, 6)
    elif client_tag:
        numbers = (7, 8)
    else:
        return None
    for number in numbers:
        entity = PRECEDENCE[number - 1].entity(user_tag, client_tag)
        if entity is not None and entity in quotas:
            return entity
    return None


def resolve(table: QuotaTable, user: str, client_id: str, key: QuotaKey) -> EffectiveQuota:
    """
    Return what applies to a request of one user and client-id, and what it overrides.

    Args:
        table: the quotas.
        user: the principal's name, raw.
        client_id: the client-id the request names; a null one is "".
        key: quota type and unit; each key resolves on its own.

    Source: ClientQuotaManager.DefaultQuotaCallback in Apache Kafka.
    """
    quotas = table.for_key(key)
    if key == PRODUCER_IDS:  # KIP-936: user and default user only
        tags = (user, "")
    else:
        tags = select_tags(quotas, flags_of(table, key), user, client_id)
    source: Source | None = select_limit(quotas, *tags)
    value = quotas[source] if isinstance(source, QuotaEntity) else None
    found = level_matches(quotas, user, client_id)
    others = [Overridden(entity, limit) for _, entity, limit in found if entity != source]
    static = table.static_defaults.get(key)
    if static is not None and client_id:  # the client-id "" has no static default
        if source is None and tags == ("", client_id):
            source, value = STATIC_DEFAULT, static
        else:
            others.append(Overridden(STATIC_DEFAULT, static))
    note = _note(found[0][1] if found else None, source, client_id)
    return EffectiveQuota(key, value, source, tuple(others), tags[0], tags[1], note)


def resolve_entity(table: QuotaTable, entity: QuotaEntity, key: QuotaKey) -> EffectiveQuota:
    """
    Return what applies to an entity that may lack a part or hold a default (KIP-546 describe).

    Args:
        table: the quotas.
        entity: ``{user=a}``, ``{client-id=c}``, both, or ``{ip=…}``. A part that is missing
            matches only levels without it; DEFAULT matches only default levels.
        key: quota type and unit.
    """
    user, client_id, ip = entity.user, entity.client_id, entity.ip
    if ip is not None:
        return resolve_ip(table, ip, key)
    if isinstance(user, str) and isinstance(client_id, str):
        return resolve(table, user, client_id, key)
    quotas = table.for_key(key)
    found = [
        match
        for match in level_matches(quotas, user or "", client_id or "")
        if not (match[0].user and user is None) and not (match[0].client and client_id is None)
    ]
    others = [Overridden(e, v) for _, e, v in found[1:]]
    static = table.static_defaults.get(key)
    source: Source | None = found[0][1] if found else None
    value = found[0][2] if found else None
    if static is not None and client_id is not None:
        if source is None:
            source, value = STATIC_DEFAULT, static
        else:
            others.append(Overridden(STATIC_DEFAULT, static))
    level = found[0][0] if found else None
    user_tag = _tag(user) if level is None or level.user_tag else ""
    client_tag = _tag(client_id) if level is None or level.client_tag else ""
    return EffectiveQuota(key, value, source, tuple(others), user_tag, client_tag)


def resolve_ip(table: QuotaTable, ip: EntityName, key: QuotaKey) -> EffectiveQuota:
    """
    Return what applies to an address: its own quota, else the default ip's.

    Source: ConnectionQuotas.connectionRateForIp.
    """
    quotas = table.for_key(key)
    found: list[QuotaEntity] = []
    for name in dict.fromkeys((ip, DEFAULT)):
        entity = QuotaEntity.of(ip=name)
        if entity in quotas:
            found.append(entity)
    others = tuple(Overridden(entity, quotas[entity]) for entity in found[1:])
    source = found[0] if found else None
    return EffectiveQuota(key, quotas[source] if source else None, source, others, "", "")


def _tag(name: EntityName | None) -> str:
    return "" if name is None else str(name)


def _note(first: QuotaEntity | None, source: Source | None, client_id: str) -> str | None:
    """Say where the two-step algorithm leaves out the level that precedence alone would pick."""
    if first is None or first == source or client_id:
        return None
    enforced = f"{source} is enforced" if source is not None else "nothing is enforced"
    return (
        f"{first} matches by precedence, but Kafka looks the limit up by tags and an empty "
        f"client-id has no client-id tag: {enforced}"
    )


class Resolver:
    """
    Resolve with memory: one answer per (user, client-id, key), for one table.

    Args:
        table: the quotas; build a new Resolver for a new table.
        bound: how many answers are kept, of about 400 bytes each. 200,000 is twice the number of
            entities in the scale tests. When it is reached, all are dropped and it fills again.
    """

    def __init__(self, table: QuotaTable, bound: int = 200_000) -> None:
        self.table = table
        self._bound = bound
        self._known: dict[tuple[str, str, QuotaKey], EffectiveQuota] = {}

    def __call__(self, user: str, client_id: str, key: QuotaKey) -> EffectiveQuota:
        """Return :func:`resolve` of the table, remembered."""
        at = (user, client_id, key)
        answer = self._known.get(at)
        if answer is None:
            if len(self._known) >= self._bound:
                self._known.clear()
            answer = self._known[at] = resolve(self.table, user, client_id, key)
        return answer
