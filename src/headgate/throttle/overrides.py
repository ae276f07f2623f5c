"""
The quotas of one type inside a manager: which tags a request gets, which bound those tags have.

Kafka decides in two steps, and the steps don't always agree (an empty client-id is tagged by one
level and bounded by another). Step A picks the tags from the levels in use, step B the bound from
the tags alone. ``headgate.quota.precedence`` explains the same for people; this is the form a
manager can change quota by quota.

Source: DefaultQuotaCallback in kafka.server.ClientQuotaManager (3.9) and
org.apache.kafka.server.quota.ClientQuotaManager (4.x).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.throttle.java import UNLIMITED

CLIENT_ID_FLAG: Final = 1
USER_FLAG: Final = 2
USER_CLIENT_ID_FLAG: Final = 4

Tags = tuple[str, str]
"""(user, client-id), raw names; "" where the name isn't part of the quota-id."""
_Pair = tuple[EntityName | None, EntityName | None]


@dataclass(frozen=True, slots=True)
class Rules:
    """
    What changed between Kafka's versions.

    Args:
        name: as settings spell it.
        sticky_flags: a level once touched, even by the removal of nothing, counts as in use until
            restart (3.9); otherwise while it has a quota (4.x).
    """

    name: str
    sticky_flags: bool


KAFKA_4: Final = Rules("4", sticky_flags=False)
KAFKA_3_9: Final = Rules("3.9", sticky_flags=True)


def flag_of(user: EntityName | None, client_id: EntityName | None) -> int:
    """Return the level of an entity as Kafka's bit: 1 client-id, 2 user, 4 both, 0 neither."""
    if user is None:
        return 0 if client_id is None else CLIENT_ID_FLAG
    return USER_FLAG if client_id is None else USER_CLIENT_ID_FLAG


class Overrides:
    """
    The quotas of one type, by entity.

    Args:
        rules: by which Kafka's rules ``flags`` are set.
        static_default: ``quota.producer.default`` or ``quota.consumer.default``: the default
            for a client-id no quota was written for (KIP-55, dropped in Kafka 3.0).
            None or anything from 2^63 - 1 on: none.
    """

    __slots__ = ("_counts", "_pairs", "flags", "rules", "static_default")

    def __init__(self, rules: Rules = KAFKA_4, static_default: float | None = None) -> None:
        if static_default is not None:
            static_default = float(static_default)
            if static_default >= UNLIMITED:
                static_default = None
        self.rules = rules
        self.static_default = static_default
        self._pairs: dict[_Pair, float] = {}
        self._counts = {CLIENT_ID_FLAG: 0, USER_FLAG: 0, USER_CLIENT_ID_FLAG: 0}
        self.flags = 0 if static_default is None else CLIENT_ID_FLAG

    def copy(self) -> Overrides:
        """Return the quotas as they are now."""
        made = Overrides(self.rules, self.static_default)
        made._pairs = self._pairs.copy()
        made._counts = self._counts.copy()
        made.flags = self.flags
        return made

    def update(self, entity: QuotaEntity, value: float | None) -> bool:
        """
        Set (or with None remove) an entity's quota.

        Returns:
            Whether a request's tags may have changed: an entity came or went, or a flag did.
        """
        pair = (entity.user, entity.client_id)
        flag = flag_of(*pair)
        if not flag:
            return False
        before = self.flags
        existed = pair in self._pairs
        if value is None:
            if existed:
                del self._pairs[pair]
                self._counts[flag] -= 1
        else:
            self._pairs[pair] = float(value)
            if not existed:
                self._counts[flag] += 1
        if self.rules.sticky_flags or self._counts[flag]:
            self.flags |= flag
        elif not (flag == CLIENT_ID_FLAG and self.static_default is not None):
            self.flags &= ~flag
        return existed is (value is None) or self.flags != before

    def tags(self, user: str, client_id: str) -> Tags:
        """Return the tags a request is charged to: step A."""
        flags = self.flags
        if flags in (0, CLIENT_ID_FLAG):
            return "", client_id
        if flags == USER_FLAG:
            return user, ""
        if flags == USER_CLIENT_ID_FLAG:
            return user, client_id
        pairs = self._pairs
        if (user, client_id) in pairs or (user, DEFAULT) in pairs:
            return user, client_id
        if (user, None) in pairs:
            return user, ""
        if (DEFAULT, client_id) in pairs or (DEFAULT, DEFAULT) in pairs:
            return user, client_id
        if (DEFAULT, None) in pairs:
            return user, ""
        return "", client_id

    def limit(self, tags: Tags) -> float | None:
        """Return the quota of tags, None where there is none: step B."""
        user, client_id = tags
        pairs = self._pairs
        order: tuple[_Pair, ...]
        if user and client_id:
            order = (
                (user, client_id),
                (user, DEFAULT),
                (DEFAULT, client_id),
                (DEFAULT, DEFAULT),
            )
        elif user:
            order = ((user, None), (DEFAULT, None))
        elif client_id:
            order = ((None, client_id), (None, DEFAULT))
        else:
            return None
        for pair in order:
            value = pairs.get(pair)
            if value is not None:
                return value
        return self.static_default if not user else None

    def names(self, tags: Tags) -> bool:
        """Whether there is a quota of exactly these tags."""
        user, client_id = tags
        return (user or None, client_id or None) in self._pairs

    def names_client_id(self, user: str, client_id: str) -> bool:
        """Whether a quota names this client-id: alone, with the user, or with any user."""
        pairs = self._pairs
        return (
            (None, client_id) in pairs
            or (user, client_id) in pairs
            or (DEFAULT, client_id) in pairs
        )

    def bound(self, tags: Tags) -> float:
        """Return the bound of tags: their quota, or 2^63 - 1 as a double."""
        limit = self.limit(tags)
        return UNLIMITED if limit is None else limit
