"""
Options and results of the admin client (KIP-546 "Public Interfaces").

Entities, keys, filters and ops are those of :mod:`headgate.quota`; here are the options, the
results with their futures, and what describe-effective tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from headgate.admin.given import EntityLike, OpsLike, alteration_of
from headgate.errors import InvalidQuota
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.precedence import Source

if TYPE_CHECKING:  # named in quotes below: asyncio takes longer than a command's --help
    import asyncio  # noqa: F401
    from concurrent.futures import Future  # noqa: F401

QUOTA_ENTITY_NAME_DEFAULT: Final = ""
"""The default entity's name on the draft wire and in :class:`QuotaFilter`. KIP-546
("Public Interfaces") leaves its value open. The empty string is the only one that Kafka refuses as
a name, so a user called ``<default>`` stays apart from the default user."""

MOST_QUOTA_IDS: Final = 500
"""Quota-ids of each broker at most, unless the caller gives another number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuotasOptions:
    """
    Options of ``describe_quotas``.

    Args:
        timeout_ms: how long the call may take; None means 30,000.
    """

    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeEffectiveQuotasOptions:
    """
    Options of ``describe_effective_quotas``.

    Args:
        timeout_ms: how long the call may take; None means 30,000.
        omit_overridden_values: leave out what the effective value hides.
    """

    timeout_ms: int | None = None
    omit_overridden_values: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuotasOptions:
    """
    Options of ``alter_quotas``.

    Args:
        timeout_ms: how long the call may take; None means 30,000.
        validate_only: check the alteration, and change nothing.
    """

    timeout_ms: int | None = None
    validate_only: bool = False


class Entry(NamedTuple):
    """
    One quota as it was written.

    Args:
        source: the entity it was written for, or ``server.properties`` (KIP-55's static default).
        value: the limit, in the key's unit.
    """

    source: Source
    value: float


class Value(NamedTuple):
    """
    What applies for one key.

    Args:
        entry: the quota that applies.
        overridden_entries: those it hides, most specific first; None when not requested.
        note: where Kafka's enforcement departs from plain precedence, in one sentence.
    """

    entry: Entry
    overridden_entries: tuple[Entry, ...] | None
    note: str | None = None


class AlterQuotasEntry(QuotaAlteration):
    """
    The change of one entity.

    Args:
        entity: the entity the quotas are written for, or a mapping; ``{"user": None}`` is the
            default user.
        ops: what to set (a value) or clear (None), or a mapping of keys to values; a key may be
            text.
    """

    __slots__ = ()

    Op = Op

    def __new__(cls, entity: EntityLike, ops: OpsLike) -> AlterQuotasEntry:
        """Accept mappings and text in place of entities, ops and keys."""
        return super().__new__(cls, *alteration_of(entity, ops))


Entities = dict[QuotaEntity, dict[QuotaKey, float]]
Values = dict[QuotaKey, Value]


OneT = TypeVar("OneT")
AllT = TypeVar("AllT")


class _Described(Generic[AllT]):
    """One future for everything that matched."""

    def __init__(self, entities: AllT) -> None:
        self._entities = entities

    def entities(self) -> AllT:
        """Return the future of entity to its keys and values; entities without keys are absent."""
        return self._entities


class _Each(Generic[OneT, AllT]):
    """A future for each entity, and one for all of them."""

    def __init__(self, each: Mapping[QuotaEntity, OneT], everything: AllT) -> None:
        self._each = dict(each)
        self._all = everything

    def all(self) -> AllT:
        """Return a future that succeeds only if the call does for every entity."""
        return self._all


class _Effective(_Each[OneT, AllT]):
    def config(self) -> dict[QuotaEntity, OneT]:
        """Return the futures; keys without any limit are absent from their results."""
        return dict(self._each)


class _Altered(_Each[OneT, AllT]):
    def values(self) -> dict[QuotaEntity, OneT]:
        """Return the futures; each succeeds when its entity was (or would be) changed."""
        return dict(self._each)


class DescribeQuotasResult(_Described["Future[Entities]"]):
    """What ``describe_quotas`` gives: one future for everything that matched."""


class DescribeEffectiveQuotasResult(_Effective["Future[Values]", "Future[None]"]):
    """What ``describe_effective_quotas`` gives: a future for each entity asked about."""


class AlterQuotasResult(_Altered["Future[None]", "Future[None]"]):
    """What ``alter_quotas`` gives: a future for each entity."""


class AsyncDescribeQuotasResult(_Described["asyncio.Future[Entities]"]):
    """:class:`DescribeQuotasResult` with an asyncio future."""


class AsyncDescribeEffectiveQuotasResult(
    _Effective["asyncio.Future[Values]", "asyncio.Future[None]"]
):
    """:class:`DescribeEffectiveQuotasResult` with asyncio futures."""


class AsyncAlterQuotasResult(_Altered["asyncio.Future[None]", "asyncio.Future[None]"]):
    """:class:`AlterQuotasResult` with asyncio futures."""


class ConfigSynonym(NamedTuple):
    """One place that a setting's value could come from."""

    source: str
    name: str
    value: str | None


class ConfigEntry(NamedTuple):
    """
    One setting of a broker or other resource.

    Args:
        source: ``DYNAMIC_BROKER_CONFIG``, ``DYNAMIC_DEFAULT_BROKER_CONFIG``,
            ``STATIC_BROKER_CONFIG``, ``DEFAULT_CONFIG`` …
        value: None when it is sensitive.
        synonyms: where the value could come from, the one in force first.
    """

    name: str
    value: str | None
    source: str
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]


class ScramUpsertion(NamedTuple):
    """
    A SCRAM credential to be set.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        iterations: 4,096 to 16,384.
        password: raw bytes; salted and hashed before it is sent.
    """

    mechanism: str
    iterations: int
    password: bytes


def unsupported(what: str, way_out: str) -> InvalidQuota:
    """Return the error for a call that the store or the servers can't do, with the way out."""
    return InvalidQuota(f"{what}; {way_out}")
