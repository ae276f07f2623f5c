"""
Broker settings through the gateway: some are ours, the rest is the broker's (SEEDS 612-2).

DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of BROKER resources are split:
``max.connection.creation.rate``, ``max.connections``, ``max.connections.per.ip`` and
``.overrides``, plain or under ``listener.name.X.``, are kept in the store and enforced here; the
rest goes upstream with the client's own connection, and the two answers are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ApiError, KafkaError, StoreError
from headgate.gateway.limits import static_limits
from headgate.store.base import BROKER_SETTINGS, base_setting
from headgate.wire import apis
from headgate.wire.messages import (
    configs,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

if TYPE_CHECKING:
    from headgate.gateway.answers import Answers
    from headgate.gateway.commands import Ask
    from headgate.gateway.front import BrokerFront
    from headgate.gateway.link import Link

_INT: Final = 3
_STRING: Final = 2
"""ConfigDef types as DescribeConfigs tells them (ConfigType in DescribeConfigsResponse)."""


def is_ours(name: str) -> bool:
    """Whether a broker setting is kept and enforced by the gateway."""
    return base_setting(name) in BROKER_SETTINGS


async def split(answers: Answers, front: BrokerFront, link: Link, ask: Ask) -> None:
    """Answer our part of a request, let the broker answer the rest, join the two."""
    request = decode_request(ask.plan.key, ask.plan.version, ask.frame, ask.body_offset)
    if not any(r.resource_type == configs.BROKER for r in request.resources):
        link.forward(ask, ask.frame)
    elif ask.plan.key == apis.DESCRIBE_CONFIGS:
        await _describe(answers, link, ask, request)
    else:
        await _alter(answers, link, ask, request)


# --- 32 -------------------------------------------------------------------------------------


async def _describe(answers: Answers, link: Link, ask: Ask, request: Any) -> None:
    if not answers.may_administer(ask.principal):
        link.forward(ask, ask.frame)
        return
    asked = {
        r.resource_name: r.keys for r in request.resources if r.resource_type == configs.BROKER
    }
    dynamic = answers.gateway.broker_configs
    static = static_limits(answers.gateway.settings)

    def merge(frame: bytes) -> bytes:
        response = decode_response(ask.plan.key, ask.plan.version, frame)
        results = tuple(
            _with_ours(result, asked[result.resource_name], static, dynamic)
            if result.resource_type == configs.BROKER and result.resource_name in asked
            else result
            for result in response.results
        )
        return encode_response(
            ask.plan.key, ask.plan.version, ask.correlation_id, replace(response, results=results)
        )

    link.forward(ask, ask.frame, merge)


def _with_ours(
    result: Any,
    keys: tuple[str, ...] | None,
    static: Mapping[str, str],
    dynamic: Mapping[str, Mapping[str, str]],
) -> Any:
    """Return a broker's answer with our settings in place of its own of those names."""
    if result.error_code:
        return result
    theirs = tuple(c for c in result.configs if not is_ours(c.name))
    ours = our_values(result.resource_name, static, dynamic)
    return replace(
        result,
        configs=theirs + tuple(c for c in ours if keys is None or c.name in keys),
    )


def our_values(
    broker: str, static: Mapping[str, str], dynamic: Mapping[str, Mapping[str, str]]
) -> tuple[configs.ConfigValue, ...]:
    """
    Return our settings of one broker as DescribeConfigs shows them.

    Args:
        broker: its id as text; "" asks for the cluster's defaults, which shows these alone.
        static: of the file.
        dynamic: of the store.
    """
    layers = (
        (dynamic.get(broker, {}) if broker else {}, configs.SOURCE_DYNAMIC_BROKER),
        (dynamic.get("", {}), configs.SOURCE_DYNAMIC_DEFAULT_BROKER),
        (static if broker else {}, configs.SOURCE_STATIC_BROKER),
    )
    names = dict.fromkeys(name for values, _ in layers for name in values)
    found = []
    for name in names:
        synonyms = tuple(
            configs.Synonym(name, values[name], source)
            for values, source in layers
            if name in values
        )
        least = BROKER_SETTINGS[base_setting(name)]
        found.append(
            configs.ConfigValue(
                name,
                synonyms[0].value,
                config_source=synonyms[0].source,
                synonyms=synonyms,
                config_type=_STRING if least is None else _INT,
            )
        )
    return tuple(found)


# --- 33 and 44 ------------------------------------------------------------------------------


async def _alter(answers: Answers, link: Link, ask: Ask, request: Any) -> None:
    incremental = ask.plan.key == apis.INCREMENTAL_ALTER_CONFIGS
    allowed = answers.may_administer(ask.principal)
    errors: dict[str, ApiError] = {}
    ours_only: set[str] = set()
    upstream: list[configs.AlterResource] = []
    refused = False
    for resource in request.resources:
        if resource.resource_type != configs.BROKER:
            upstream.append(resource)
            continue
        name = resource.resource_name
        ours = [c for c in resource.configs if is_ours(c.name)]
        theirs = tuple(c for c in resource.configs if not is_ours(c.name))
        if ours and not allowed:
            refused = True
            errors[name] = ApiError(
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED.generic_message,
            )
            ours_only.add(name)
            continue
        if (ours or not incremental) and allowed:
            error = await _alter_ours(answers, ask, name, ours, incremental, request.validate_only)
            if error is not None:
                errors[name] = error
                ours_only.add(name)  # nothing of this resource is changed upstream either
                continue
        if theirs or not ours:
            upstream.append(replace(resource, configs=theirs))
        else:
            ours_only.add(name)
    if refused:
        await answers.refused(ask, ask.client_id or "kafka")

    def own_results() -> tuple[configs.AlterResult, ...]:
        return tuple(
            configs.AlterResult(
                configs.BROKER,
                name,
                int(errors[name].code) if name in errors else 0,
                errors[name].message if name in errors else None,
            )
            for name in sorted(ours_only)
        )

    def merge(frame: bytes) -> bytes:
        response = decode_response(ask.plan.key, ask.plan.version, frame)
        return encode_response(
            ask.plan.key,
            ask.plan.version,
            ask.correlation_id,
            replace(response, responses=response.responses + own_results()),
        )

    if not upstream:
        response = configs.AlterConfigsResponse(own_results())
        link.answer(
            ask, encode_response(ask.plan.key, ask.plan.version, ask.correlation_id, response)
        )
        return
    frame = encode_request(
        ask.plan.key,
        ask.plan.version,
        ask.correlation_id,
        ask.client_id,
        replace(request, resources=tuple(upstream)),
    )
    link.forward(ask, frame, merge)


async def _alter_ours(
    answers: Answers, ask: Ask, broker: str, ours: list[Any], incremental: bool, validate: bool
) -> ApiError | None:
    """Change our settings of one broker; return what is wrong with them."""
    store = answers.gateway.store
    if store is None:
        return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, "the gateway runs without a store")
    ops: dict[str, str | None] = {}
    for config in ours:
        if not incremental or config.operation == configs.OP_SET:
            ops[config.name] = config.value
        elif config.operation == configs.OP_DELETE:
            ops[config.name] = None
        else:
            return ApiError(
                KafkaError.INVALID_REQUEST,
                f"{config.name} can be set or deleted; APPEND and SUBTRACT are for lists",
            )
    if not incremental:
        # AlterConfigs replaces the whole: what isn't named goes back to its default.
        for name in answers.gateway.broker_configs.get(broker, {}):
            ops.setdefault(name, None)
    if not ops:
        return None
    change: Callable[[], None] = lambda: store.alter_broker_configs(  # noqa: E731
        broker,
        ops,
        validate_only=validate,
        who=f"User:{ask.principal}",
        tool=ask.client_id or "kafka",
    )
    try:
        await answers.on_thread(change)
    except ApiError as error:
        return error
    except StoreError as error:
        return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, str(error))
    return None
