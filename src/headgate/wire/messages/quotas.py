"""
Released client quota calls: DescribeClientQuotas 48 and AlterClientQuotas 49, versions 0 and 1.

Source: Apache Kafka's ``DescribeClientQuotas*.json``, ``AlterClientQuotas*.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from headgate.wire.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    Array,
    Field,
    Struct,
)

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_ANY: Final = 2


@dataclass(frozen=True, slots=True)
class EntityPart:
    """One part of an entity; ``entity_name`` None is the default entity."""

    entity_type: str
    entity_name: str | None


@dataclass(frozen=True, slots=True)
class Component:
    """One component of a filter; ``match`` is null unless ``match_type`` is exact."""

    entity_type: str
    match_type: int
    match: str | None


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasRequest:
    """What to describe."""

    components: tuple[Component, ...]
    strict: bool


@dataclass(frozen=True, slots=True)
class Value:
    """A quota's key, as spelled on the released wire, and its value."""

    key: str
    value: float


@dataclass(frozen=True, slots=True)
class DescribedEntry:
    """The quotas of one entity."""

    entity: tuple[EntityPart, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasResponse:
    """What was found; ``entries`` is None when there is an error."""

    entries: tuple[DescribedEntry, ...] | None
    error_code: int = 0
    error_message: str | None = None
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class AlterOp:
    """One key to set, or with ``remove`` to clear (the value is then 0 and ignored)."""

    key: str
    value: float
    remove: bool


@dataclass(frozen=True, slots=True)
class AlterEntry:
    """What to change of one entity."""

    entity: tuple[EntityPart, ...]
    ops: tuple[AlterOp, ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotasRequest:
    """What to change."""

    entries: tuple[AlterEntry, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True)
class AlteredEntry:
    """How it went for one entity."""

    entity: tuple[EntityPart, ...]
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterClientQuotasResponse:
    """How it went."""

    entries: tuple[AlteredEntry, ...]
    throttle_time_ms: int = 0


_ENTITY = Array(
    Struct(EntityPart, Field("entity_type", STRING), Field("entity_name", NULLABLE_STRING))
)
_COMPONENT = Struct(
    Component,
    Field("entity_type", STRING),
    Field("match_type", INT8),
    Field("match", NULLABLE_STRING),
)
_DESCRIBED = Struct(
    DescribedEntry,
    Field("entity", _ENTITY),
    Field("values", Array(Struct(Value, Field("key", STRING), Field("value", FLOAT64)))),
)
_OP = Struct(AlterOp, Field("key", STRING), Field("value", FLOAT64), Field("remove", BOOL))
_ALTER = Struct(AlterEntry, Field("entity", _ENTITY), Field("ops", Array(_OP)))
_ALTERED = Struct(
    AlteredEntry,
    Field("error_code", INT16),
    Field("error_message", NULLABLE_STRING),
    Field("entity", _ENTITY),
)

REQUESTS = {
    DESCRIBE_CLIENT_QUOTAS: Struct(
        DescribeClientQuotasRequest,
        Field("components", Array(_COMPONENT)),
        Field("strict", BOOL),
    ),
    ALTER_CLIENT_QUOTAS: Struct(
        AlterClientQuotasRequest,
        Field("entries", Array(_ALTER)),
        Field("validate_only", BOOL),
    ),
}
RESPONSES = {
    DESCRIBE_CLIENT_QUOTAS: Struct(
        DescribeClientQuotasResponse,
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", NULLABLE_STRING),
        Field("entries", Array(_DESCRIBED, nullable=True)),
    ),
    ALTER_CLIENT_QUOTAS: Struct(
        AlterClientQuotasResponse,
        Field("throttle_time_ms", INT32),
        Field("entries", Array(_ALTERED)),
    ),
}
