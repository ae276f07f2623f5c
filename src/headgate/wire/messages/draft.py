"""
KIP-546's draft quota calls: DescribeQuotas 48, DescribeEffectiveQuotas 49, AlterQuotas 50.

Version 0, never flexible. Released calls have the same keys, so a listener serves one kind or the
other. The admin listener serves these, and doesn't advertise Metadata: tools tell the two kinds of
listener apart by that. Values are int64. An entity's name is a string that can't be null; the
default entity's is empty.

Source: KIP-546, "Public Interfaces" and "Proposed Changes".
"""

from __future__ import annotations

from typing import Any, Final

from headgate.steps import Work
from headgate.wire.fields import Buffer, read_int16
from headgate.wire.header import build_request, build_response
from headgate.wire.schema import Int16, Int32, Int64, Struct, message, struct

NO_FRACTIONS: Final = "which this version can't tell; use the released API."
"""How the answer about a stored fraction ends, since KIP-546's values are int64. The admin client
looks for this ending, and then uses the released API."""
DESCRIBE_QUOTAS: Final = 48
DESCRIBE_EFFECTIVE_QUOTAS: Final = 49
ALTER_QUOTAS: Final = 50


@message()
class DraftEntityPart:
    """One part of an entity."""

    entity_type: str
    entity_name: str


@message()
class Filter:
    """A filter: ``rule`` is ``EXACT`` or ``PREFIX``."""

    entity_type: str
    rule: str
    match: str


@message()
class DescribeQuotasRequest:
    """Filters, all of which must hold."""

    filters: tuple[Filter, ...]


@message("error_code", "error_message")
class DescribedQuota:
    """One quota of one entity."""

    entity: tuple[DraftEntityPart, ...]
    type: str
    units: str
    value: Int64
    error_code: Int16 = 0
    error_message: str | None = None


@message("throttle_time_ms")
class DescribeQuotasResponse:
    """What was found."""

    entries: tuple[DescribedQuota, ...]
    throttle_time_ms: Int32 = 0


@message()
class DescribeEffectiveQuotasRequest:
    """One entity, and whether overridden values are left out."""

    entity: tuple[DraftEntityPart, ...]
    omit_overridden_values: bool


@message()
class ValueEntry:
    """A value and the entity it is set for; the first of a list applies, the rest is overridden."""

    entity: tuple[DraftEntityPart, ...]
    value: Int64


@message()
class EffectiveValue:
    """The values of one quota type and unit that match."""

    type: str
    units: str
    entries: tuple[ValueEntry, ...]


@message("error_code", "error_message")
class EffectiveEntry:
    """What applies to one entity."""

    entity: tuple[DraftEntityPart, ...]
    values: tuple[EffectiveValue, ...]
    error_code: Int16 = 0
    error_message: str | None = None


@message("throttle_time_ms")
class DescribeEffectiveQuotasResponse:
    """What applies."""

    entries: tuple[EffectiveEntry, ...]
    throttle_time_ms: Int32 = 0


@message()
class DraftAlterOp:
    """One quota to set, or with ``remove`` to clear."""

    type: str
    units: str
    value: Int64
    remove: bool


@message()
class DraftAlterEntry:
    """What to change of one entity."""

    entity: tuple[DraftEntityPart, ...]
    ops: tuple[DraftAlterOp, ...]


@message()
class AlterQuotasRequest:
    """What to change."""

    entries: tuple[DraftAlterEntry, ...]
    validate_only: bool


@message("error_code", "error_message")
class DraftAlteredEntry:
    """How it went for one entity."""

    entity: tuple[DraftEntityPart, ...]
    error_code: Int16 = 0
    error_message: str | None = None


@message("throttle_time_ms")
class AlterQuotasResponse:
    """How it went."""

    entries: tuple[DraftAlteredEntry, ...]
    throttle_time_ms: Int32 = 0


REQUESTS: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_QUOTAS: struct(DescribeQuotasRequest),
    DESCRIBE_EFFECTIVE_QUOTAS: struct(DescribeEffectiveQuotasRequest),
    ALTER_QUOTAS: struct(AlterQuotasRequest),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_QUOTAS: struct(DescribeQuotasResponse),
    DESCRIBE_EFFECTIVE_QUOTAS: struct(DescribeEffectiveQuotasResponse),
    ALTER_QUOTAS: struct(AlterQuotasResponse),
}


def body_offset(frame: Buffer) -> int:
    """
    Return where a draft request's body begins.

    Its header is version 1 for every key; ``parse_request_header`` would take 50 for the released,
    flexible call.
    """
    size, _ = read_int16(frame, 12)
    return 14 + max(size, 0)


def decode_request(api_key: int, frame: Buffer, body_offset: int) -> Any:
    """Read a draft request frame's body; its header is version 1."""
    return REQUESTS[api_key].decode(frame, 0, False, body_offset)


def decode_request_steps(api_key: int, frame: Buffer, body_offset: int) -> Work[Any]:
    """Do as ``decode_request``, step by step."""
    return REQUESTS[api_key].decode_steps(frame, 0, False, body_offset)


def encode_request(api_key: int, correlation_id: int, client_id: str | None, message: Any) -> bytes:
    """Return a draft request frame."""
    body = REQUESTS[api_key].encode(message, 0, False)
    # Built with the header of a released call that isn't flexible either; then the key is set.
    frame = bytearray(build_request(48, 0, correlation_id, client_id, body))
    frame[5] = api_key
    return bytes(frame)


def decode_response(api_key: int, frame: Buffer) -> Any:
    """Read a draft response frame; its header is version 0."""
    return RESPONSES[api_key].decode(frame, 0, False, 8)


def encode_response(api_key: int, correlation_id: int, message: Any) -> bytes:
    """Return a draft response frame."""
    return build_response(48, 0, correlation_id, RESPONSES[api_key].encode(message, 0, False))


def encode_response_steps(api_key: int, correlation_id: int, message: Any) -> Work[bytes]:
    """Do as ``encode_response``, step by step."""
    body = yield from RESPONSES[api_key].encode_steps(message, 0, False)
    return build_response(48, 0, correlation_id, body)
