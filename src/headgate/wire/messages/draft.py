"""
KIP-546's draft quota calls: DescribeQuotas 48, DescribeEffectiveQuotas 49, AlterQuotas 50.

Version 0, never flexible. The keys are those of released calls, so a listener speaks either these
or those: the admin listener speaks these and doesn't advertise Metadata (SEEDS.md 546-35).
Values are int64. An entity's name is a string that can't be null: the default is ``<default>``.

Source: KIP-546, "Proposed Changes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.wire.fields import Buffer, read_int16
from headgate.wire.header import build_request, build_response
from headgate.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    Array,
    Field,
    Steps,
    Struct,
)

NO_FRACTIONS: Final = "which this version can't tell; use the released API."
"""How the answer about a stored fraction ends (SEEDS 546-32); the admin client goes by it."""
DESCRIBE_QUOTAS: Final = 48
DESCRIBE_EFFECTIVE_QUOTAS: Final = 49
ALTER_QUOTAS: Final = 50


@dataclass(frozen=True, slots=True)
class EntityPart:
    """One part of an entity."""

    entity_type: str
    entity_name: str


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: ``rule`` is ``EXACT`` or ``PREFIX``."""

    entity_type: str
    rule: str
    match: str


@dataclass(frozen=True, slots=True)
class DescribeQuotasRequest:
    """Filters, all of which must hold."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class DescribedQuota:
    """One quota of one entity."""

    entity: tuple[EntityPart, ...]
    type: str
    units: str
    value: int
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeQuotasResponse:
    """What was found."""

    entries: tuple[DescribedQuota, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeEffectiveQuotasRequest:
    """One entity, and whether overridden values are left out."""

    entity: tuple[EntityPart, ...]
    omit_overridden_values: bool


@dataclass(frozen=True, slots=True)
class ValueEntry:
    """A value and the entity it is set for; the first of a list applies, the rest is overridden."""

    entity: tuple[EntityPart, ...]
    value: int


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """The values of one quota type and unit that match."""

    type: str
    units: str
    entries: tuple[ValueEntry, ...]


@dataclass(frozen=True, slots=True)
class EffectiveEntry:
    """What applies to one entity."""

    entity: tuple[EntityPart, ...]
    values: tuple[EffectiveValue, ...]
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeEffectiveQuotasResponse:
    """What applies."""

    entries: tuple[EffectiveEntry, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class AlterOp:
    """One quota to set, or with ``remove`` to clear."""

    type: str
    units: str
    value: int
    remove: bool


@dataclass(frozen=True, slots=True)
class AlterEntry:
    """What to change of one entity."""

    entity: tuple[EntityPart, ...]
    ops: tuple[AlterOp, ...]


@dataclass(frozen=True, slots=True)
class AlterQuotasRequest:
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
class AlterQuotasResponse:
    """How it went."""

    entries: tuple[AlteredEntry, ...]
    throttle_time_ms: int = 0


_ENTITY = Array(Struct(EntityPart, Field("entity_type", STRING), Field("entity_name", STRING)))
_FILTER = Struct(
    Filter, Field("entity_type", STRING), Field("rule", STRING), Field("match", STRING)
)
_ERROR = (Field("error_code", INT16), Field("error_message", NULLABLE_STRING))
_VALUE_ENTRY = Struct(ValueEntry, Field("entity", _ENTITY), Field("value", INT64))
_EFFECTIVE_VALUE = Struct(
    EffectiveValue,
    Field("type", STRING),
    Field("units", STRING),
    Field("entries", Array(_VALUE_ENTRY)),
)
_DESCRIBED = Struct(
    DescribedQuota,
    *_ERROR,
    Field("entity", _ENTITY),
    Field("type", STRING),
    Field("units", STRING),
    Field("value", INT64),
)
_OP = Struct(
    AlterOp,
    Field("type", STRING),
    Field("units", STRING),
    Field("value", INT64),
    Field("remove", BOOL),
)
_ALTER = Struct(AlterEntry, Field("entity", _ENTITY), Field("ops", Array(_OP)))
_ALTERED = Struct(AlteredEntry, *_ERROR, Field("entity", _ENTITY))
_EFFECTIVE = Struct(
    EffectiveEntry, *_ERROR, Field("entity", _ENTITY), Field("values", Array(_EFFECTIVE_VALUE))
)


def _answer(factory: Any, entry: Struct[Any]) -> Struct[Any]:
    return Struct(factory, Field("throttle_time_ms", INT32), Field("entries", Array(entry)))


REQUESTS: Final[Mapping[int, Struct[Any]]] = {
    DESCRIBE_QUOTAS: Struct(DescribeQuotasRequest, Field("filters", Array(_FILTER))),
    DESCRIBE_EFFECTIVE_QUOTAS: Struct(
        DescribeEffectiveQuotasRequest,
        Field("entity", _ENTITY),
        Field("omit_overridden_values", BOOL),
    ),
    ALTER_QUOTAS: Struct(
        AlterQuotasRequest, Field("entries", Array(_ALTER)), Field("validate_only", BOOL)
    ),
}
RESPONSES: Final[Mapping[int, Struct[Any]]] = {
    DESCRIBE_QUOTAS: _answer(DescribeQuotasResponse, _DESCRIBED),
    DESCRIBE_EFFECTIVE_QUOTAS: _answer(DescribeEffectiveQuotasResponse, _EFFECTIVE),
    ALTER_QUOTAS: _answer(AlterQuotasResponse, _ALTERED),
}


def _check(api_key: int, version: int, error: type[Exception]) -> None:
    if api_key not in REQUESTS or version != 0:
        raise error(f"the draft has no API {api_key} version {version}")


def body_offset(frame: Buffer) -> int:
    """
    Return where a draft request's body begins.

    Its header is version 1 for every key; ``parse_request_header`` would take 50 for the released,
    flexible call.
    """
    size, _ = read_int16(frame, 12)
    return 14 + max(size, 0)


def decode_request(api_key: int, version: int, frame: Buffer, body_offset: int) -> Any:
    """Read a draft request frame's body; its header is version 1."""
    _check(api_key, version, RemoteProtocolError)
    return REQUESTS[api_key].decode(frame, version, False, body_offset)


def decode_request_steps(api_key: int, version: int, frame: Buffer, body_offset: int) -> Steps[Any]:
    """Do as ``decode_request``, step by step."""
    _check(api_key, version, RemoteProtocolError)
    return REQUESTS[api_key].decode_steps(frame, version, False, body_offset)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Any
) -> bytes:
    """Return a draft request frame."""
    _check(api_key, version, LocalProtocolError)
    body = REQUESTS[api_key].encode(message, version, False)
    # Through the header of a released call that isn't flexible either, then its key is set.
    frame = bytearray(build_request(48, 0, correlation_id, client_id, body))
    frame[5] = api_key
    return bytes(frame)


def decode_response(api_key: int, version: int, frame: Buffer) -> Any:
    """Read a draft response frame; its header is version 0."""
    _check(api_key, version, LocalProtocolError)
    return RESPONSES[api_key].decode(frame, version, False, 8)


def encode_response(api_key: int, version: int, correlation_id: int, message: Any) -> bytes:
    """Return a draft response frame."""
    _check(api_key, version, LocalProtocolError)
    return build_response(48, 0, correlation_id, RESPONSES[api_key].encode(message, version, False))


def encode_response_steps(
    api_key: int, version: int, correlation_id: int, message: Any
) -> Steps[bytes]:
    """Do as ``encode_response``, step by step."""
    _check(api_key, version, LocalProtocolError)
    body = yield from RESPONSES[api_key].encode_steps(message, version, False)
    return build_response(48, 0, correlation_id, body)
