"""
Broker settings through the gateway: some are the gateway's, the rest are the broker's.

DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of BROKER resources are split:
``max.connection.creation.rate``, ``max.connections``, ``max.connections.per.ip`` and
``.overrides``, plain or under ``listener.name.X.``, are kept in the store and enforced here. The
rest goes upstream with the client's own connection. The two answers are joined, without the
addresses that brokers and controllers listen on. ``broker_alteration`` makes alterations.

Source: KIP-612, by which ``max.connection.creation.rate`` can be altered while a broker runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ApiError, invalid_request
from headgate.gateway.answered_here.broker_alteration import Alteration, is_ours
from headgate.gateway.answered_here.denials import SMALL_BYTES
from headgate.gateway.store_link.in_force import static_defaults, static_limits
from headgate.quota.key import QUOTA_DEFAULTS, format_value
from headgate.steps import FEW, finish
from headgate.store.broker_rules import OVERRIDES, base_setting
from headgate.store.synonyms import BUILT_IN, broker_synonyms
from headgate.wire import apis
from headgate.wire.messages import configs, decode_request_steps, encode_response_steps
from headgate.wire.messages.denied import RELEASED

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.answered_here.support import AnswerSupport
    from headgate.gateway.connection.link import Link
    from headgate.gateway.session.commands import Ask
    from headgate.steps import Work
    from headgate.wire.fields import Buffer

_ADDRESSES: Final = frozenset(
    {
        "advertised.host.name",
        "advertised.listeners",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "host.name",
        "listeners",
        "zookeeper.connect",
    }
)
"""Settings of a broker (2.x to 4.x) that say where brokers, controllers or ZooKeeper listen."""
_ADDRESS_BYTES: Final = tuple(
    name.encode() for name in _ADDRESSES if not any(other in name for other in _ADDRESSES - {name})
)
"""Parts of names: a broker's answer without these bytes has none of them."""
MOST_BROKERS: Final = 1_000
"""Brokers that one request may ask about or alter."""
_COMMON: Final = b"max.connection"
"""Part of the name of every setting of ours: a request without these bytes names none."""
_INT: Final = 3
_LONG: Final = 5
_STRING: Final = 2
"""ConfigDef types as DescribeConfigs tells them (ConfigType in DescribeConfigsResponse)."""


async def split(support: AnswerSupport, link: Link, ask: Ask) -> None:
    """Answer our part of a request, let the broker answer the rest, join the two."""
    describing = ask.plan.key == apis.DESCRIBE_CONFIGS
    if not support.may_administer(ask.principal):
        if describing:
            _describe(support, link, ask, {})
            return
        if _COMMON not in ask.frame:
            link.forward(ask, ask.frame)
            return
        if len(ask.frame) > SMALL_BYTES:
            # Differs: a large request that names a setting of the gateway's is refused whole if
            # its user is without permission.
            await support.refused(ask, ask.client_id or "kafka")
            link.answer(ask, await support.denials.answer(ask, RELEASED))
            return
    request = await support.slices.run(
        decode_request_steps(ask.plan.key, ask.plan.version, ask.frame, ask.body_offset)
    )
    brokers = await support.slices.run(_brokers(request))
    if not brokers:
        link.forward(ask, ask.frame)
    elif len(brokers) > MOST_BROKERS:
        # Differs: more than 1,000 brokers in one request are refused; a client names one or two.
        error = invalid_request(
            f"{len(brokers)} brokers in one request; {MOST_BROKERS} are possible at most"
        )
        link.answer(ask, await support.slices.run(_refusing(ask, request, error)))
    elif describing:
        _describe(support, link, ask, {r.resource_name: r.keys for r in brokers})
    else:
        await Alteration(support, link, ask, request, brokers).run()


def _brokers(request: Any) -> Work[list[Any]]:
    """Return the resources of a request that are brokers."""
    found = []
    for count, resource in enumerate(request.resources, 1):
        if resource.resource_type == configs.BROKER:
            found.append(resource)
        if not count % FEW:
            yield
    return found


def _refusing(ask: Ask, request: Any, error: ApiError) -> Work[bytes]:
    """Return an answer that refuses every resource of a request."""
    describing = ask.plan.key == apis.DESCRIBE_CONFIGS
    made: Any = configs.DescribeResult if describing else configs.ResourceResult
    told: dict[str, Any] = {"error_code": int(error.code), "error_message": error.message}
    results = []
    for resource in request.resources:
        results.append(made(resource.resource_type, resource.resource_name, **told))
        yield
    whole: Any = configs.DescribeConfigsResponse if describing else configs.AlterConfigsResponse
    answer, plan = whole(tuple(results)), ask.plan
    return (yield from encode_response_steps(plan.key, plan.version, ask.correlation_id, answer))


# --- 32 -------------------------------------------------------------------------------------


def _describe(
    support: AnswerSupport, link: Link, ask: Ask, asked: Mapping[str, tuple[str, ...] | None]
) -> None:
    """Ask the broker, hide addresses in its answer, and add our settings."""
    dynamic = support.in_force.broker_configs
    settings = support.in_force.settings
    static = {k: v for k, v in static_limits(settings).items() if k in settings.given}
    defaults = _quota_defaults(settings)
    plan = ask.plan

    def shown(result: Any) -> Any:
        if result.resource_type != configs.BROKER:
            return result
        result = _without_addresses(result)
        if result.resource_name not in asked:
            return result
        return _with_ours(result, asked[result.resource_name], static, dynamic, defaults)

    def merged(frame: bytes) -> Work[Buffer]:
        if not asked and not (yield from configs.names_any(frame, _ADDRESS_BYTES)):
            return frame  # nearly always about topics
        return (yield from configs.change_results(plan.version, frame, shown))

    def merge(frame: bytes) -> bytes | Ask:
        short = not asked and len(frame) <= configs.WINDOW
        if short and not finish(configs.names_any(frame, _ADDRESS_BYTES)):
            return frame
        return support.merge(link, ask, merged(frame), len(frame))

    link.forward(ask, ask.frame, merge)


def _without_addresses(result: Any) -> Any:
    """
    Return a broker's answer without the addresses of brokers and controllers, as without passwords.

    Our addresses don't take their place: a tool that writes back what it read would put them into
    the broker, where some of these settings can be altered at any time.
    """
    if not any(c.name in _ADDRESSES for c in result.configs):
        return result
    return replace(
        result,
        # Differs: brokers' and controllers' addresses are shown as passwords are, without a value.
        configs=tuple(
            replace(
                c,
                value=None,
                is_sensitive=True,
                synonyms=tuple(replace(synonym, value=None) for synonym in c.synonyms),
            )
            if c.name in _ADDRESSES
            else c
            for c in result.configs
        ),
    )


def _with_ours(
    result: Any,
    keys: tuple[str, ...] | None,
    static: Mapping[str, str],
    dynamic: Mapping[str, Mapping[str, str]],
    defaults: tuple[configs.ConfigValue, ...],
) -> Any:
    """Return a broker's answer with our settings in place of its own of those names."""
    if result.error_code:
        return result
    names = {c.name for c in defaults}
    theirs = tuple(c for c in result.configs if not is_ours(c.name) and c.name not in names)
    ours = our_values(result.resource_name, static, dynamic)
    ours += defaults if result.resource_name else ()
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
        broker: its id as text; "": the cluster's dynamic defaults, and only these.
        static: of the file.
        dynamic: of the store.
    """
    return tuple(
        configs.ConfigValue(
            name,
            told[0].value,
            config_source=configs.ConfigSource[told[0].source],
            is_default=told[0].source == BUILT_IN,
            synonyms=tuple(
                configs.ResourceSynonym(s.name, s.value, configs.ConfigSource[s.source])
                for s in told
            ),
            config_type=_STRING if base_setting(name) == OVERRIDES else _INT,
        )
        for name, told in broker_synonyms(broker, dynamic, static).items()
    )


def _quota_defaults(settings: Settings) -> tuple[configs.ConfigValue, ...]:
    """
    Return KIP-55's static defaults of the file; clients that compute effective quotas ask for them.
    """
    values = static_defaults(settings)
    return tuple(
        configs.ConfigValue(
            name,
            text,
            read_only=True,
            config_source=configs.ConfigSource.STATIC_BROKER_CONFIG,
            synonyms=(
                configs.ResourceSynonym(name, text, configs.ConfigSource.STATIC_BROKER_CONFIG),
            ),
            config_type=_LONG,
        )
        for name, key in QUOTA_DEFAULTS.items()
        if key in values
        for text in [format_value(values[key])]
    )
