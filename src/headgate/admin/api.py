"""
The words of the admin client: what is asked and what comes back (KIP-546 "Public Interfaces").

Entities, keys, filters and ops are those of :mod:`headgate.quota`; here are the options, the
results with their futures, and what describe-effective tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.admin.given import EntityLike, OpsLike, alteration_of
from headgate.errors import ApiError, InvalidQuota, KafkaError
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.precedence import Source

QUOTA_ENTITY_NAME_DEFAULT: Final = ""
"""The default entity's name on the draft wire and in :class:`QuotaFilter` (SEEDS 546-14): the
only string Kafka refuses as a name, so that a user called ``<default>`` stays apart."""

DEFAULT_TIMEOUT_MS: Final = 30_000
"""How long a call may take unless its options say otherwise, as kafka-configs waits."""


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
        source: the entity it was written for, or ``server.properties`` (KIP-55's last resort).
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
        entity: the entity the quotas are written for; a mapping will do, ``{"user": None}`` being
            the default user.
        ops: what to set (a value) or clear (None); a mapping of keys to values will do, and text
            for a key.
    """

    __slots__ = ()

    Op = Op

    def __new__(cls, entity: EntityLike, ops: OpsLike) -> AlterQuotasEntry:
        """Take what can be meant so."""
        return super().__new__(cls, *alteration_of(entity, ops))


_Op = Op

Entities = dict[QuotaEntity, dict[QuotaKey, float]]
Values = dict[QuotaKey, Value]


class DescribeQuotasResult:
    """What ``describe_quotas`` gives: one future for everything that matched."""

    def __init__(self, entities: Future[Entities]) -> None:
        self._entities = entities

    def entities(self) -> Future[Entities]:
        """Return the future of entity to its keys and values; entities without keys are absent."""
        return self._entities


class DescribeEffectiveQuotasResult:
    """What ``describe_effective_quotas`` gives: a future for each entity asked about."""

    def __init__(
        self, config: Mapping[QuotaEntity, Future[Values]], everything: Future[None]
    ) -> None:
        self._config = dict(config)
        self._all = everything

    def config(self) -> dict[QuotaEntity, Future[Values]]:
        """Return the futures; keys without any limit are absent from their results."""
        return dict(self._config)

    def all(self) -> Future[None]:
        """Return a future that succeeds only if every description does."""
        return self._all


class AlterQuotasResult:
    """What ``alter_quotas`` gives: a future for each entity."""

    def __init__(
        self, values: Mapping[QuotaEntity, Future[None]], everything: Future[None]
    ) -> None:
        self._values = dict(values)
        self._all = everything

    def values(self) -> dict[QuotaEntity, Future[None]]:
        """Return the futures; each succeeds when its entity was (or would be) changed."""
        return dict(self._values)

    def all(self) -> Future[None]:
        """Return a future that succeeds only if every alteration does."""
        return self._all


class AsyncDescribeQuotasResult:
    """:class:`DescribeQuotasResult` with an asyncio future."""

    def __init__(self, entities: asyncio.Future[Entities]) -> None:
        self._entities = entities

    def entities(self) -> asyncio.Future[Entities]:
        """Return the future of entity to its keys and values."""
        return self._entities


class AsyncDescribeEffectiveQuotasResult:
    """:class:`DescribeEffectiveQuotasResult` with asyncio futures."""

    def __init__(
        self,
        config: Mapping[QuotaEntity, asyncio.Future[Values]],
        everything: asyncio.Future[None],
    ) -> None:
        self._config = dict(config)
        self._all = everything

    def config(self) -> dict[QuotaEntity, asyncio.Future[Values]]:
        """Return the futures; keys without any limit are absent from their results."""
        return dict(self._config)

    def all(self) -> asyncio.Future[None]:
        """Return a future that succeeds only if every description does."""
        return self._all


class AsyncAlterQuotasResult:
    """:class:`AlterQuotasResult` with asyncio futures."""

    def __init__(
        self,
        values: Mapping[QuotaEntity, asyncio.Future[None]],
        everything: asyncio.Future[None],
    ) -> None:
        self._values = dict(values)
        self._all = everything

    def values(self) -> dict[QuotaEntity, asyncio.Future[None]]:
        """Return the futures; each succeeds when its entity was (or would be) changed."""
        return dict(self._values)

    def all(self) -> asyncio.Future[None]:
        """Return a future that succeeds only if every alteration does."""
        return self._all


class ConfigSynonym(NamedTuple):
    """Where a broker setting's value could come from, strongest first."""

    source: str
    name: str
    value: str | None


class ConfigEntry(NamedTuple):
    """
    One broker setting.

    Args:
        source: ``DYNAMIC_BROKER_CONFIG``, ``DYNAMIC_DEFAULT_BROKER_CONFIG``,
            ``STATIC_BROKER_CONFIG``, ``DEFAULT_CONFIG`` …
        value: None when it is sensitive.
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


def timeout_error(timeout_ms: int) -> ApiError:
    """Return the error of a call that took too long."""
    return ApiError(KafkaError.REQUEST_TIMED_OUT, f"no answer within {timeout_ms} ms")


def unsupported(what: str, way_out: str) -> InvalidQuota:
    """Return the refusal of something this home of quotas can't do, with the way out."""
    return InvalidQuota(f"{what}; {way_out}")
