"""
Released client quota calls: DescribeClientQuotas 48 and AlterClientQuotas 49, versions 0 and 1.

Source: Apache Kafka's ``DescribeClientQuotas*.json``, ``AlterClientQuotas*.json``.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from headgate.wire.schema import Int8, Int16, Int32, Struct, message, struct

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_ANY: Final = 2


@message()
class EntityPart:
    """One part of an entity; ``entity_name`` None is the default entity."""

    entity_type: str
    entity_name: str | None


@message()
class Component:
    """One component of a filter; ``match`` is null unless ``match_type`` is exact."""

    entity_type: str
    match_type: Int8
    match: str | None


@message()
class DescribeClientQuotasRequest:
    """What to describe."""

    components: tuple[Component, ...]
    strict: bool


@message()
class QuotaValue:
    """A quota's key, as spelled on the released wire, and its value."""

    key: str
    value: float


@message()
class DescribedEntry:
    """The quotas of one entity."""

    entity: tuple[EntityPart, ...]
    values: tuple[QuotaValue, ...]


@message("throttle_time_ms", "error_code", "error_message")
class DescribeClientQuotasResponse:
    """What was found; ``entries`` is None when there is an error."""

    entries: tuple[DescribedEntry, ...] | None
    error_code: Int16 = 0
    error_message: str | None = None
    throttle_time_ms: Int32 = 0


@message()
class AlterOp:
    """One key to set, or with ``remove`` to clear (the value is then 0 and ignored)."""

    key: str
    value: float
    remove: bool


@message()
class AlterEntry:
    """What to change of one entity."""

    entity: tuple[EntityPart, ...]
    ops: tuple[AlterOp, ...]


@message()
class AlterClientQuotasRequest:
    """What to change."""

    entries: tuple[AlterEntry, ...]
    validate_only: bool


@message("error_code", "error_message")
class AlteredEntry:
    """How it went for one entity."""

    entity: tuple[EntityPart, ...]
    error_code: Int16 = 0
    error_message: str | None = None


@message("throttle_time_ms")
class AlterClientQuotasResponse:
    """How it went."""

    entries: tuple[AlteredEntry, ...]
    throttle_time_ms: Int32 = 0


REQUESTS: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_CLIENT_QUOTAS: struct(DescribeClientQuotasRequest),
    ALTER_CLIENT_QUOTAS: struct(AlterClientQuotasRequest),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_CLIENT_QUOTAS: struct(DescribeClientQuotasResponse),
    ALTER_CLIENT_QUOTAS: struct(AlterClientQuotasResponse),
}
