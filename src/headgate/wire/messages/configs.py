"""
Config calls that the gateway splits for brokers: DescribeConfigs 32, AlterConfigs 33, 44.

Source: Apache Kafka's ``DescribeConfigs*.json``, ``AlterConfigs*.json``,
``IncrementalAlterConfigs*.json``; ``ConfigResource.Type``, ``AlterConfigOp.OpType``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.wire.apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from headgate.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    Array,
    Field,
    Struct,
)

TOPIC: Final = 2
BROKER: Final = 4

OP_SET: Final = 0
OP_DELETE: Final = 1
OP_APPEND: Final = 2
OP_SUBTRACT: Final = 3

# DescribeConfigsResponse.ConfigSource
SOURCE_DYNAMIC_BROKER: Final = 2
SOURCE_DYNAMIC_DEFAULT_BROKER: Final = 3
SOURCE_STATIC_BROKER: Final = 4
SOURCE_DEFAULT: Final = 5


@dataclass(frozen=True, slots=True)
class DescribeResource:
    """A resource to describe; ``keys`` None asks for all."""

    resource_type: int
    resource_name: str
    keys: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """What to describe."""

    resources: tuple[DescribeResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


@dataclass(frozen=True, slots=True)
class Synonym:
    """Another place the value may come from, most specific first."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One config of a resource."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: int = -1
    is_default: bool = False
    is_sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()
    config_type: int = 0
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeResult:
    """The configs of one resource, or its error."""

    resource_type: int
    resource_name: str
    configs: tuple[ConfigValue, ...] = ()
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    """What was found."""

    results: tuple[DescribeResult, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """One config to change; ``operation`` is only on the wire of 44."""

    name: str
    value: str | None
    operation: int = OP_SET


@dataclass(frozen=True, slots=True)
class AlterResource:
    """What to change of one resource."""

    resource_type: int
    resource_name: str
    configs: tuple[AlterConfig, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigsRequest:
    """What to change: all of a resource (33) or by operations (44)."""

    resources: tuple[AlterResource, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterResult:
    """How it went for one resource."""

    resource_type: int
    resource_name: str
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterConfigsResponse:
    """How it went (33 and 44)."""

    responses: tuple[AlterResult, ...]
    throttle_time_ms: int = 0


_RESOURCE = (Field("resource_type", INT8), Field("resource_name", STRING))
_ERROR = (Field("error_code", INT16), Field("error_message", NULLABLE_STRING))
_SYNONYM = Struct(
    Synonym, Field("name", STRING), Field("value", NULLABLE_STRING), Field("source", INT8)
)
_CONFIG = Struct(
    ConfigValue,
    Field("name", STRING),
    Field("value", NULLABLE_STRING),
    Field("read_only", BOOL),
    Field("is_default", BOOL, until=0),
    Field("config_source", INT8, since=1),
    Field("is_sensitive", BOOL),
    Field("synonyms", Array(_SYNONYM), since=1),
    Field("config_type", INT8, since=3),
    Field("documentation", NULLABLE_STRING, since=3),
)
_NAME_VALUE = (Field("name", STRING), Field("value", NULLABLE_STRING))
_INCREMENTAL = (
    Field("name", STRING),
    Field("operation", INT8),
    Field("value", NULLABLE_STRING),
)


def _alter_request(*config: Field) -> Struct[AlterConfigsRequest]:
    resource = Struct(
        AlterResource, *_RESOURCE, Field("configs", Array(Struct(AlterConfig, *config)))
    )
    return Struct(
        AlterConfigsRequest, Field("resources", Array(resource)), Field("validate_only", BOOL)
    )


_ALTER_RESPONSE = Struct(
    AlterConfigsResponse,
    Field("throttle_time_ms", INT32),
    Field("responses", Array(Struct(AlterResult, *_ERROR, *_RESOURCE))),
)

REQUESTS = {
    DESCRIBE_CONFIGS: Struct(
        DescribeConfigsRequest,
        Field(
            "resources",
            Array(
                Struct(DescribeResource, *_RESOURCE, Field("keys", Array(STRING, nullable=True)))
            ),
        ),
        Field("include_synonyms", BOOL, since=1),
        Field("include_documentation", BOOL, since=3),
    ),
    ALTER_CONFIGS: _alter_request(*_NAME_VALUE),
    INCREMENTAL_ALTER_CONFIGS: _alter_request(*_INCREMENTAL),
}
RESPONSES = {
    DESCRIBE_CONFIGS: Struct(
        DescribeConfigsResponse,
        Field("throttle_time_ms", INT32),
        Field(
            "results",
            Array(Struct(DescribeResult, *_ERROR, *_RESOURCE, Field("configs", Array(_CONFIG)))),
        ),
    ),
    ALTER_CONFIGS: _ALTER_RESPONSE,
    INCREMENTAL_ALTER_CONFIGS: _ALTER_RESPONSE,
}
