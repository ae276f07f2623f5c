"""
Resolve who shares which quota, for one table or for a history of tables.

One ``Quotas`` is what ``--quotas`` (or ``--store``) gave: the table in force from each moment on.
It travels to the workers, which resolve each distinct (principal, client-id) once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from headgate.errors import ConfigError, HeadgateError
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.file import QuotaEvent, read_quotas_file
from headgate.quota.key import CONNECTION, KEYS, PRODUCER_IDS, REQUEST, QuotaKey
from headgate.quota.lookalikes import name_notes
from headgate.quota.precedence import STATIC_DEFAULT, EffectiveQuota, Resolver, select_limit
from headgate.quota.table import QuotaTable
from headgate.throttle.overrides import Overrides, Tags

_KEY_OF_NAME: Final[Mapping[str, QuotaKey]] = {key.name: key for key in KEYS if key != CONNECTION}
KEY_OF_TYPE: Final[Mapping[str, QuotaKey]] = {
    name: key for name, key in _KEY_OF_NAME.items() if name == key.type
}
"""The key each broker enforces for a quota type (Kafka's own unit)."""


def key_of(quota_type: str) -> QuotaKey:
    """
    Return the key that a quota type is looked up by.

    Types without a key of their own (journals may hold any) resolve as requests' do.
    """
    return _KEY_OF_NAME.get(quota_type, REQUEST)


class Resolved(NamedTuple):
    """Who shares the quota, the limit (None = unlimited) and the entity it comes from."""

    quota_id: str
    quota_user: str
    quota_client_id: str
    quota: float | None
    quota_source: str | None


@dataclass(frozen=True)
class Quotas:
    """
    The quotas assumed for a log.

    Args:
        starts_ms: from when each table holds, epoch ms, ascending; the first is -infinity.
        tables: as many tables.
        name: the file's stem, for what-if's ``plan`` column.
        notes: what the file leaves out, and names that don't mean what they look like.
    """

    starts_ms: tuple[float, ...]
    tables: tuple[QuotaTable, ...]
    name: str = "quotas"
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: QuotaTable, name: str = "quotas") -> Quotas:
        """One table for all time."""
        return cls((float("-inf"),), (table,), name)

    @classmethod
    def with_history(
        cls, table: QuotaTable, history: Sequence[QuotaEvent], name: str = "quotas"
    ) -> Quotas:
        """
        Tables over time.

        Args:
            table: in force before the first event.
            history: changes, oldest first.
            name: see the class.
        """
        starts, tables = [float("-inf")], [table]
        for event in sorted(history, key=lambda e: e.t_ms):
            alteration = QuotaAlteration(event.entity, (Op(event.key, event.value),))
            after, _ = tables[-1].apply([alteration])
            if starts[-1] == event.t_ms:
                tables[-1] = after
            else:
                starts.append(float(event.t_ms))
                tables.append(after)
        return cls(tuple(starts), tuple(tables), name)

    def resolver(self) -> TimedResolver:
        """Return a resolver with its own memory (one per worker)."""
        return TimedResolver(self)


class TimedResolver:
    """
    Resolve at a moment; answers are remembered per (moment's table, user, client, type).

    Attributes:
        starts_ms: from when each table holds.
    """

    def __init__(self, quotas: Quotas) -> None:
        self.starts_ms = quotas.starts_ms
        self._resolvers = [Resolver(t) for t in quotas.tables]
        self._known: list[dict[tuple[str, str, str], Resolved]] = [{} for _ in quotas.tables]
        self._tables = quotas.tables
        self._quick: list[dict[QuotaKey, Overrides]] = [{} for _ in quotas.tables]

    def configures(self, quota_type: str) -> bool:
        """Say whether any table holds a quota of a type (``producer_byte_rate:shares``)."""
        return any(t.for_key(_KEY_OF_NAME[quota_type]) for t in self._tables)

    def effective(self, user: str, client_id: str, key: QuotaKey, at_ms: float) -> EffectiveQuota:
        """Return what applied at ``at_ms``, with what it overrides."""
        return self._resolvers[bisect_right(self.starts_ms, at_ms) - 1](user, client_id, key)

    def __call__(self, user: str, client_id: str, quota_type: str, at_ms: float) -> Resolved:
        """
        Return who shares the quota of ``quota_type``, and the limit, at ``at_ms``.
        """
        epoch = bisect_right(self.starts_ms, at_ms) - 1 if len(self.starts_ms) > 1 else 0
        known = self._known[epoch]
        at = (user, client_id, quota_type)
        answer = known.get(at)
        if answer is None:
            found = self._resolvers[epoch](user, client_id, key_of(quota_type))
            source = None if found.source is None else str(found.source)
            answer = Resolved(found.quota_id, *found.tags, found.value, source)
            if len(known) > 200_000:
                known.clear()
            known[at] = answer
        return answer

    def sensor(
        self, user: str, client_id: str, quota_type: str, at_ms: float
    ) -> tuple[Tags, float | None]:
        """Return the tags and the limit (None = unlimited) that ``self()`` finds, but faster."""
        epoch = bisect_right(self.starts_ms, at_ms) - 1 if len(self.starts_ms) > 1 else 0
        table, key = self._tables[epoch], key_of(quota_type)
        if key == PRODUCER_IDS or key in table.static_defaults:
            found = self(user, client_id, quota_type, at_ms)
            return (found.quota_user, found.quota_client_id), found.quota
        quick = self._quick[epoch].get(key)
        if quick is None:
            quick = self._quick[epoch][key] = Overrides()
            for entity, value in table.for_key(key).items():
                quick.update(entity, value)
        tags = quick.tags(user, client_id)
        return tags, quick.limit(tags)

    def source(self, tags: Tags, quota_type: str, at_ms: float) -> str | None:
        """Return, as text, the entity that sets the limit for these tags; None: none does."""
        epoch = bisect_right(self.starts_ms, at_ms) - 1 if len(self.starts_ms) > 1 else 0
        table, key = self._tables[epoch], key_of(quota_type)
        found = select_limit(table.for_key(key), *tags)
        if found is not None:
            return str(found)
        # A static default is a client-id's.
        is_static = key in table.static_defaults and not tags[0] and tags[1]
        return str(STATIC_DEFAULT) if is_static else None


def load(path: str, flag: str = "--quotas") -> Quotas:
    """
    Read a quotas file, or a history export.

    Args:
        path: the file.
        flag: where it was given, for messages.

    Raises:
        ConfigError: if it can't be read; names the file, and each mistake with its line.
    """
    try:
        file = read_quotas_file(path)
    except HeadgateError as exc:
        raise ConfigError("\n".join(f"{flag}: {line}" for line in str(exc).splitlines())) from exc
    quotas = Quotas.with_history(file.table, file.history, Path(path).stem)
    return replace(quotas, notes=(*file.said, *name_notes(file.table.entities)))
