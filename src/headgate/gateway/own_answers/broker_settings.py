"""
Broker settings through the gateway: some are the gateway's, the rest are the broker's.

DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of BROKER resources are split:
``max.connection.creation.rate``, ``max.connections``, ``max.connections.per.ip`` and
``.overrides``, plain or under ``listener.name.X.``, are kept in the store and enforced here. The
rest goes upstream with the client's own connection. The two answers are joined, without the
addresses that brokers and controllers listen on. An alteration that has both is made on both sides
or on neither: the gateway checks its own part first and makes it last.

Source: KIP-612, by which ``max.connection.creation.rate`` can be altered while a broker runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.errors import ApiError, KafkaError, StoreError, invalid_request
from headgate.gateway.kept.limits import QUOTA_DEFAULTS, static_defaults, static_limits
from headgate.gateway.log import get_logger
from headgate.gateway.own_answers.denials import SMALL_BYTES
from headgate.quota.key import format_value
from headgate.steps import finish
from headgate.store.broker_rules import BROKER_SETTINGS, base_setting
from headgate.store.synonyms import (
    BUILT_IN,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    STATIC,
    broker_synonyms,
)
from headgate.wire import apis
from headgate.wire.messages import (
    configs,
    decode_request_steps,
    decode_response_steps,
    encode_request_steps,
    encode_response_steps,
)
from headgate.wire.messages.denied import RELEASED

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.connection.link import Link
    from headgate.gateway.own_answers.answers import Answers
    from headgate.gateway.session.commands import Ask
    from headgate.steps import Work
    from headgate.wire.fields import Buffer

log = get_logger("headgate.gateway")

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
_SOURCES: Final[Mapping[str, int]] = {
    DYNAMIC_BROKER: configs.SOURCE_DYNAMIC_BROKER,
    DYNAMIC_DEFAULT: configs.SOURCE_DYNAMIC_DEFAULT_BROKER,
    STATIC: configs.SOURCE_STATIC_BROKER,
    BUILT_IN: configs.SOURCE_DEFAULT,
}
_TWICE: Final = "Each resource must appear at most once."
_COMMON: Final = b"max.connection"
"""Part of the name of every setting of ours: a request without these bytes names none."""
_INT: Final = 3
_LONG: Final = 5
_STRING: Final = 2
"""ConfigDef types as DescribeConfigs tells them (ConfigType in DescribeConfigsResponse)."""


def is_ours(name: str) -> bool:
    """Whether a broker setting is kept and enforced by the gateway."""
    return base_setting(name) in BROKER_SETTINGS


async def split(answers: Answers, link: Link, ask: Ask) -> None:
    """Answer our part of a request, let the broker answer the rest, join the two."""
    describing = ask.plan.key == apis.DESCRIBE_CONFIGS
    if not answers.may_administer(ask.principal):
        if describing:
            _describe(answers, link, ask, {})
            return
        if _COMMON not in ask.frame:
            link.forward(ask, ask.frame)
            return
        if len(ask.frame) > SMALL_BYTES:
            # Differs: a large request that names a setting of the gateway's is refused whole if
            # its user is without permission.
            await answers.refused(ask, ask.client_id or "kafka")
            link.answer(ask, await answers.denials.answer(ask, RELEASED))
            return
    request = await answers.slices.run(
        decode_request_steps(ask.plan.key, ask.plan.version, ask.frame, ask.body_offset)
    )
    if not any(r.resource_type == configs.BROKER for r in request.resources):
        link.forward(ask, ask.frame)
    elif describing:
        brokers = (r for r in request.resources if r.resource_type == configs.BROKER)
        _describe(answers, link, ask, {r.resource_name: r.keys for r in brokers})
    else:
        await _Alteration(answers, link, ask, request).run()


# --- 32 -------------------------------------------------------------------------------------


def _describe(
    answers: Answers, link: Link, ask: Ask, asked: Mapping[str, tuple[str, ...] | None]
) -> None:
    """Ask the broker, hide addresses in its answer, and add our settings."""
    dynamic = answers.current.broker_configs
    settings = answers.current.settings
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
        return answers.merge(link, ask, merged(frame), len(frame))

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
            config_source=_SOURCES[told[0].source],
            is_default=told[0].source == BUILT_IN,
            synonyms=tuple(configs.Synonym(s.name, s.value, _SOURCES[s.source]) for s in told),
            config_type=_STRING if BROKER_SETTINGS[base_setting(name)] is None else _INT,
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
            config_source=configs.SOURCE_STATIC_BROKER,
            synonyms=(configs.Synonym(name, text, configs.SOURCE_STATIC_BROKER),),
            config_type=_LONG,
        )
        for name, key in QUOTA_DEFAULTS.items()
        if key in values
        for text in [format_value(values[key])]
    )


# --- 33 and 44 ------------------------------------------------------------------------------


class _Part(NamedTuple):
    """
    One broker's part of an alteration.

    Attributes:
        ops: our settings and their new values; None removes.
        theirs: names of the broker's settings in it.
        forwarded: the broker is asked too.
    """

    ops: Mapping[str, str | None]
    theirs: tuple[str, ...]
    forwarded: bool


class _Alteration:
    """
    One request that alters settings of brokers: both sides' settings of a broker, or neither's.

    The gateway checks its own part first. Then it sends the broker the broker's part, and makes
    its own only where the broker has made that. If the store fails then, or the gateway ends, the
    broker's part stays without the gateway's: the answer says so.
    """

    def __init__(self, answers: Answers, link: Link, ask: Ask, request: Any) -> None:
        self._answers = answers
        self._link = link
        self._ask = ask
        self._request = request
        self._may = answers.may_administer(ask.principal)
        self._incremental = ask.plan.key == apis.INCREMENTAL_ALTER_CONFIGS
        self._refused: dict[str, ApiError] = {}
        self._parts: dict[str, _Part] = {}

    async def run(self) -> None:
        """Look at our part, pass on the broker's, answer when both are done."""
        ask, answers = self._ask, self._answers
        theirs = await self._look()
        codes = {error.code for error in self._refused.values()}
        if KafkaError.CLUSTER_AUTHORIZATION_FAILED in codes:
            await answers.refused(ask, ask.client_id or "kafka")
        if not theirs:
            self._link.answer(ask, await self._finish(configs.AlterConfigsResponse(())))
            return
        steps = encode_request_steps(
            ask.plan.key,
            ask.plan.version,
            ask.correlation_id,
            ask.client_id,
            replace(self._request, resources=tuple(theirs)),
        )
        self._link.forward(ask, await answers.slices.run(steps), self._merge)

    async def _look(self) -> list[configs.AlterResource]:
        """Look at each broker's part; return what the broker is asked for."""
        resources = self._request.resources
        named = Counter(r.resource_name for r in resources if r.resource_type == configs.BROKER)
        theirs: list[configs.AlterResource] = []
        for resource in resources:
            name = resource.resource_name
            if resource.resource_type != configs.BROKER:
                theirs.append(resource)
                continue
            try:
                if named[name] > 1:
                    raise invalid_request(_TWICE)
                part = await self._checked(resource)
            except ApiError as error:
                self._refused[name] = error
            except StoreError as error:
                self._refused[name] = ApiError(KafkaError.UNKNOWN_SERVER_ERROR, str(error))
            else:
                self._parts[name] = part
                if part.forwarded:
                    configs_left = tuple(c for c in resource.configs if not is_ours(c.name))
                    theirs.append(replace(resource, configs=configs_left))
        return theirs

    async def _checked(self, resource: Any) -> _Part:
        """
        Look at an alteration of one broker.

        Raises:
            ApiError: it isn't possible, or its principal has no permission.
            StoreError: the store doesn't answer.
        """
        ours = [c for c in resource.configs if is_ours(c.name)]
        theirs = tuple(c.name for c in resource.configs if not is_ours(c.name))
        # AlterConfigs replaces all settings: the broker's also where it names none of them.
        forwarded = bool(theirs) or not self._incremental or not ours
        nothing = _Part({}, theirs, forwarded)
        if not self._may:
            if ours:
                raise ApiError.generic(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            return nothing
        ops = _ops(ours, self._incremental)
        store = self._answers.current.store
        if not ops and (self._incremental or store is None):
            return nothing
        if store is None:
            raise ApiError(KafkaError.UNKNOWN_SERVER_ERROR, self._answers.no_store())
        broker = resource.resource_name
        if not self._incremental:
            stored = await self._answers.on_thread(store.broker_configs)
            ops = {**dict.fromkeys(stored.get(broker, ())), **ops}
        if ops:
            await self._answers.on_thread(
                lambda: store.alter_broker_configs(broker, ops, validate_only=True)
            )
        return _Part(ops, theirs, forwarded)

    def _merge(self, frame: bytes) -> Ask:
        """Join the broker's answer with ours, later: the store is asked first."""
        ask, answers = self._ask, self._answers

        async def joined() -> bytes:
            steps = decode_response_steps(ask.plan.key, ask.plan.version, frame)
            return await self._finish(await answers.slices.run(steps))

        answers.answer_later(self._link, ask, joined())
        return ask

    async def _finish(self, response: configs.AlterConfigsResponse) -> bytes:
        """Do our part where the broker has taken its own; return the client's answer."""
        of_brokers = [r for r in response.responses if r.resource_type == configs.BROKER]
        taken = {r.resource_name for r in of_brokers if not r.error_code}
        for name, part in self._parts.items():
            if self._request.validate_only or (part.forwarded and name not in taken):
                continue
            error = await self._apply(name, part)
            if error is not None:
                self._refused[name] = error
        asked = {name for name, part in self._parts.items() if part.forwarded}
        results = [
            _result(r.resource_name, self._refused[r.resource_name])
            if r.resource_type == configs.BROKER and r.resource_name in self._refused
            else r
            for r in response.responses
        ]
        own = sorted({*self._refused, *self._parts} - asked)
        results.extend(_result(name, self._refused.get(name)) for name in own)
        plan = self._ask.plan
        answer = replace(response, responses=tuple(results))
        return await self._answers.slices.run(
            encode_response_steps(plan.key, plan.version, self._ask.correlation_id, answer)
        )

    async def _apply(self, broker: str, part: _Part) -> ApiError | None:
        """Change our settings of one broker; return the error, if it failed."""
        store = self._answers.current.store
        if not part.ops:
            return None
        who, tool = f"User:{self._ask.principal}", self._ask.client_id or "kafka"
        try:
            if store is None:
                raise StoreError("the gateway runs without a store")
            await self._answers.on_thread(
                lambda: store.alter_broker_configs(broker, part.ops, who=who, tool=tool)
            )
        except (ApiError, StoreError) as error:
            api = error if isinstance(error, ApiError) else None
            code = KafkaError.UNKNOWN_SERVER_ERROR if api is None else api.code
            text = str(error) if api is None else api.message
            if not part.forwarded:
                return ApiError(code, text)
            log.error("half an alteration of broker settings is in force: the broker's, not ours",
                      broker=broker, ours=", ".join(part.ops), error=str(error))  # fmt: skip
            held = f"the broker has taken {', '.join(part.theirs) or 'its part'}"
            return ApiError(code, f"{held}, but {', '.join(part.ops)} can't be changed: {text}")
        return None


def _result(broker: str, error: ApiError | None) -> configs.AlterResult:
    if error is None:
        return configs.AlterResult(configs.BROKER, broker)
    return configs.AlterResult(configs.BROKER, broker, int(error.code), error.message)


def _ops(ours: Sequence[configs.AlterConfig], incremental: bool) -> dict[str, str | None]:
    """
    Return new values of our settings.

    Raises:
        ApiError: an operation that isn't possible.

    Source: ConfigAdminManager in Apache Kafka.
    """
    ops: dict[str, str | None] = {}
    for config in ours:
        if config.name in ops:
            raise invalid_request("Error due to duplicate config keys")
        deleted = incremental and config.operation == configs.OP_DELETE
        if not deleted and config.value is None:
            raise invalid_request(f"Null value not supported for : {config.name}")
        if incremental and config.operation not in (configs.OP_SET, configs.OP_DELETE):
            raise invalid_request(
                f"{config.name} can be set or deleted; APPEND and SUBTRACT are for lists"
            )
        ops[config.name] = None if deleted else config.value
    return ops
