"""
Config calls that the gateway splits for brokers: DescribeConfigs 32, AlterConfigs 33, 44.

Source: Apache Kafka's ``DescribeConfigs*.json``, ``AlterConfigs*.json``,
``IncrementalAlterConfigs*.json``; ``ConfigResource.Type``, ``AlterConfigOp.OpType``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Final

from headgate.steps import Work
from headgate.wire.apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from headgate.wire.fields import Buffer, skip_tagged
from headgate.wire.header import is_flexible, response_body_offset
from headgate.wire.schema import Array, Int8, Int16, Int32, check_end, message, struct, versions

TOPIC: Final = 2
BROKER: Final = 4

OP_SET: Final = 0
OP_DELETE: Final = 1


class ConfigSource(enum.IntEnum):
    """Where a config's value comes from, by the names of Kafka's ConfigEntry.ConfigSource."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@message()
class DescribeResource:
    """A resource to describe; ``keys`` None asks for all."""

    resource_type: Int8
    resource_name: str
    keys: tuple[str, ...] | None


@message()
class DescribeConfigsRequest:
    """What to describe."""

    resources: tuple[DescribeResource, ...]
    include_synonyms: bool = versions(False, since=1)
    include_documentation: bool = versions(False, since=3)


@message()
class ResourceSynonym:
    """Another place the value may come from, most specific first."""

    name: str
    value: str | None
    source: Int8


@message("name", "value", "read_only", "is_default")
class ConfigValue:
    """One config of a resource."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: Int8 = versions(-1, since=1)
    is_default: bool = versions(False, until=0)
    is_sensitive: bool = False
    synonyms: tuple[ResourceSynonym, ...] = versions((), since=1)
    config_type: Int8 = versions(0, since=3)
    documentation: str | None = versions(None, since=3)


@message("error_code", "error_message")
class DescribeResult:
    """The configs of one resource, or its error."""

    resource_type: Int8
    resource_name: str
    configs: tuple[ConfigValue, ...] = ()
    error_code: Int16 = 0
    error_message: str | None = None


@message("throttle_time_ms")
class DescribeConfigsResponse:
    """What was found."""

    results: tuple[DescribeResult, ...]
    throttle_time_ms: Int32 = 0


@message("name", "operation")
class AlterConfig:
    """One config to change; ``operation`` is only on the wire of 44."""

    name: str
    value: str | None
    operation: Int8 = OP_SET


@message()
class AlterResource:
    """What to change of one resource."""

    resource_type: Int8
    resource_name: str
    configs: tuple[AlterConfig, ...]


@message()
class AlterConfigsRequest:
    """What to change: all of a resource (33) or by operations (44)."""

    resources: tuple[AlterResource, ...]
    validate_only: bool = False


@message("error_code", "error_message")
class ResourceResult:
    """How it went for one resource."""

    resource_type: Int8
    resource_name: str
    error_code: Int16 = 0
    error_message: str | None = None


@message("throttle_time_ms")
class AlterConfigsResponse:
    """How it went (33 and 44)."""

    responses: tuple[ResourceResult, ...]
    throttle_time_ms: Int32 = 0


REQUESTS = {
    DESCRIBE_CONFIGS: struct(DescribeConfigsRequest),
    ALTER_CONFIGS: struct(AlterConfigsRequest, without="operation"),
    INCREMENTAL_ALTER_CONFIGS: struct(AlterConfigsRequest),
}
RESPONSES = {
    DESCRIBE_CONFIGS: struct(DescribeConfigsResponse),
    ALTER_CONFIGS: struct(AlterConfigsResponse),
    INCREMENTAL_ALTER_CONFIGS: struct(AlterConfigsResponse),
}


WINDOW: Final = 65_536
"""Bytes that are searched in one step."""
_COPIED: Final = 1_048_576
"""Bytes that are copied in one step: 0.6 ms."""
_RESULT: Final = struct(DescribeResult)
_RESULTS: Final = Array(_RESULT)


def names_any(frame: Buffer, words: Collection[bytes]) -> Work[bool]:
    """Whether a message has one of some words anywhere; in steps."""
    view = memoryview(frame)
    over = max(map(len, words)) - 1
    for at in range(0, len(frame), WINDOW):
        window = bytes(view[at : at + WINDOW + over])
        if any(word in window for word in words):
            return True
        yield
    return False


def change_results(
    version: int, frame: Buffer, change: Callable[[DescribeResult], DescribeResult]
) -> Work[Buffer]:
    """
    Change an answer to DescribeConfigs resource by resource, in steps; none is kept.

    Args:
        version: of the request.
        frame: the answer.
        change: returns what takes a result's place; the same object to leave it as it is.

    Raises:
        RemoteProtocolError: the answer doesn't parse.
    """
    flexible = is_flexible(DESCRIBE_CONFIGS, version)
    at = response_body_offset(DESCRIBE_CONFIGS, version, frame) + 4  # throttle time
    count, at = _RESULTS.begin(frame, at, flexible)
    view = memoryview(frame)
    out = bytearray()
    copied = 0
    for _ in range(count):
        begin = at
        result, at = yield from _RESULT.read_steps(frame, at, version, flexible)
        changed = change(result)
        if changed is not result:
            yield from _copy(view[copied:begin], out)
            parts: list[bytes] = []
            yield from _RESULT.write_steps(changed, parts, version, flexible)
            out += b"".join(parts)
            copied = at
        yield
    check_end(frame, skip_tagged(frame, at, flexible))
    if not copied:
        return frame
    yield from _copy(view[copied:], out)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return out


def _copy(part: memoryview, out: bytearray) -> Work[None]:
    """Append a part of a message."""
    for at in range(0, len(part), _COPIED):
        out += part[at : at + _COPIED]
        yield
