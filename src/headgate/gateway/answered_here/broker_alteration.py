"""
Alterations of broker settings (33, 44), of which some are the gateway's.

An alteration that has both sides' settings is made on both or on neither: the gateway checks its
own part first and makes it last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.errors import ApiError, KafkaError, StoreError, invalid_request
from headgate.gateway.log import get_logger
from headgate.steps import FEW
from headgate.store.broker_rules import BROKER_SETTINGS, base_setting
from headgate.wire import apis
from headgate.wire.messages import (
    configs,
    decode_response_steps,
    encode_request_steps,
    encode_response_steps,
)

if TYPE_CHECKING:
    from headgate.gateway.answered_here.support import AnswerSupport
    from headgate.gateway.connection.link import Link
    from headgate.gateway.session.commands import Ask
    from headgate.steps import Work

log = get_logger("headgate.gateway")

_TWICE: Final = "Each resource must appear at most once."
_MOST_NAMED: Final = 10
"""Settings that an error or a log line names."""


def is_ours(name: str) -> bool:
    """Whether a broker setting is kept and enforced by the gateway."""
    return base_setting(name) in BROKER_SETTINGS


class _BrokerPart(NamedTuple):
    """
    One broker's part of an alteration.

    Attributes:
        ops: our settings and their new values; None removes.
        theirs: the broker's settings in it.
        forwarded: the broker is asked too.
    """

    ops: Mapping[str, str | None]
    theirs: tuple[configs.AlterConfig, ...]
    forwarded: bool


class Alteration:
    """
    One request that alters settings of brokers: both sides' settings of a broker, or neither's.

    The gateway checks its own part first. Then it sends the broker the broker's part, and makes
    its own only where the broker has made that. If the store fails then, or the gateway ends, the
    broker's part stays without the gateway's: the answer says so.
    """

    def __init__(
        self, support: AnswerSupport, link: Link, ask: Ask, request: Any, brokers: Sequence[Any]
    ) -> None:
        self._support = support
        self._link = link
        self._ask = ask
        self._request = request
        self._brokers = brokers
        self._may = support.may_administer(ask.principal)
        self._incremental = ask.plan.key == apis.INCREMENTAL_ALTER_CONFIGS
        self._refused: dict[str, ApiError] = {}
        self._parts: dict[str, _BrokerPart] = {}

    async def run(self) -> None:
        """Look at our part, pass on the broker's, answer when both are done."""
        ask, support = self._ask, self._support
        await self._look()
        theirs = await support.slices.run(self._left())
        codes = {error.code for error in self._refused.values()}
        if KafkaError.CLUSTER_AUTHORIZATION_FAILED in codes:
            await support.refused(ask, ask.client_id or "kafka")
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
        self._link.forward(ask, await support.slices.run(steps), self._merge)

    async def _look(self) -> None:
        """Look at each broker's part."""
        named = Counter(resource.resource_name for resource in self._brokers)
        for resource in self._brokers:
            name = resource.resource_name
            try:
                if named[name] > 1:
                    raise invalid_request(_TWICE)
                self._parts[name] = await self._checked(resource)
            except ApiError as error:
                self._refused[name] = error
            except StoreError as error:
                self._refused[name] = ApiError(error.kafka_code, str(error))

    def _left(self) -> Work[list[configs.AlterResource]]:
        """Return what the broker is asked for, in the order asked."""
        theirs: list[configs.AlterResource] = []
        for count, resource in enumerate(self._request.resources, 1):
            if resource.resource_type != configs.BROKER:
                theirs.append(resource)
            elif (part := self._parts.get(resource.resource_name)) and part.forwarded:
                theirs.append(replace(resource, configs=part.theirs))
            if not count % FEW:
                yield
        return theirs

    async def _checked(self, resource: Any) -> _BrokerPart:
        """
        Look at an alteration of one broker.

        Raises:
            ApiError: it isn't possible, or its principal has no permission.
            StoreError: the store doesn't answer.
        """
        run = self._support.slices.run
        ours, theirs = await run(_sides(resource.configs))
        # AlterConfigs replaces all settings: the broker's also where it names none of them.
        forwarded = bool(theirs) or not self._incremental or not ours
        nothing = _BrokerPart({}, theirs, forwarded)
        if not self._may:
            if ours:
                raise ApiError.generic(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            return nothing
        ops = await run(_ops(ours, self._incremental))
        store = self._support.in_force.store
        if not ops and (self._incremental or store is None):
            return nothing
        if store is None:
            raise self._support.no_store()
        broker = resource.resource_name
        if not self._incremental:
            stored = await self._support.on_thread(store.broker_settings.now)
            ops = {**dict.fromkeys(stored.get(broker, ())), **ops}
        if ops:
            await self._support.on_thread(
                lambda: store.broker_settings.alter(broker, ops, validate_only=True)
            )
        return _BrokerPart(ops, theirs, forwarded)

    def _merge(self, frame: bytes) -> Ask:
        """Join the broker's answer with ours, later: the store is asked first."""
        ask, support = self._ask, self._support

        async def joined() -> bytes:
            steps = decode_response_steps(ask.plan.key, ask.plan.version, frame)
            return await self._finish(await support.slices.run(steps))

        support.answer_later(self._link, ask, joined())
        return ask

    async def _finish(self, response: configs.AlterConfigsResponse) -> bytes:
        """Do our part where the broker has taken its own; return the client's answer."""
        run = self._support.slices.run
        taken = await run(_taken(response))
        for name, part in self._parts.items():
            if self._request.validate_only or (part.forwarded and name not in taken):
                continue
            error = await self._apply(name, part)
            if error is not None:
                self._refused[name] = error
        plan = self._ask.plan
        answer = replace(response, responses=await run(self._results(response)))
        return await run(
            encode_response_steps(plan.key, plan.version, self._ask.correlation_id, answer)
        )

    def _results(
        self, response: configs.AlterConfigsResponse
    ) -> Work[tuple[configs.ResourceResult, ...]]:
        """Return how it went: what the broker answered, with our errors, and our own results."""
        asked = {name for name, part in self._parts.items() if part.forwarded}
        results = []
        for count, result in enumerate(response.responses, 1):
            error = None
            if result.resource_type == configs.BROKER:
                error = self._refused.get(result.resource_name)
            results.append(result if error is None else _result(result.resource_name, error))
            if not count % FEW:
                yield
        own = sorted({*self._refused, *self._parts} - asked)
        results.extend(_result(name, self._refused.get(name)) for name in own)
        return tuple(results)

    async def _apply(self, broker: str, part: _BrokerPart) -> ApiError | None:
        """Change our settings of one broker; return the error, if it failed."""
        store = self._support.in_force.store
        if not part.ops:
            return None
        who, tool = f"User:{self._ask.principal}", self._ask.client_id or "kafka"
        try:
            if store is None:
                raise self._support.no_store()
            await self._support.on_thread(
                lambda: store.broker_settings.alter(broker, part.ops, who=who, tool=tool)
            )
        except (ApiError, StoreError) as error:
            api = error if isinstance(error, ApiError) else None
            code = error.code if isinstance(error, ApiError) else error.kafka_code
            text = str(error) if api is None else api.message
            if not part.forwarded:
                return ApiError(code, text)
            log.error("half an alteration of broker settings is in force: the broker's, not ours",
                      broker=broker, ours=_some(part.ops), error=str(error))  # fmt: skip
            held = f"the broker has taken {_some(c.name for c in part.theirs) or 'its part'}"
            return ApiError(code, f"{held}, but {_some(part.ops)} can't be changed: {text}")
        return None


def _result(broker: str, error: ApiError | None) -> configs.ResourceResult:
    if error is None:
        return configs.ResourceResult(configs.BROKER, broker)
    return configs.ResourceResult(configs.BROKER, broker, int(error.code), error.message)


def _some(names: Iterable[str]) -> str:
    """Name some settings, and say how many others there are."""
    every = list(names)
    others = len(every) - _MOST_NAMED
    return ", ".join(every[:_MOST_NAMED]) + (f" and {others} others" if others > 0 else "")


def _sides(
    altered: Sequence[configs.AlterConfig],
) -> Work[tuple[list[configs.AlterConfig], tuple[configs.AlterConfig, ...]]]:
    """Return our settings of an alteration, and the broker's."""
    ours: list[configs.AlterConfig] = []
    theirs: list[configs.AlterConfig] = []
    for count, config in enumerate(altered, 1):
        (ours if is_ours(config.name) else theirs).append(config)
        if not count % FEW:
            yield
    return ours, tuple(theirs)


def _taken(response: configs.AlterConfigsResponse) -> Work[set[str]]:
    """Return the brokers that have taken their own part."""
    names = set()
    for count, result in enumerate(response.responses, 1):
        if result.resource_type == configs.BROKER and not result.error_code:
            names.add(result.resource_name)
        if not count % FEW:
            yield
    return names


def _ops(ours: Sequence[configs.AlterConfig], incremental: bool) -> Work[dict[str, str | None]]:
    """
    Return new values of our settings.

    Raises:
        ApiError: an operation that isn't possible.

    Source: ConfigAdminManager in Apache Kafka.
    """
    ops: dict[str, str | None] = {}
    for count, config in enumerate(ours, 1):
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
        if not count % FEW:
            yield
    return ops
