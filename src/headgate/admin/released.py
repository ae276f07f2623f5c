"""
The admin client over Kafka's released APIs: a real Kafka 2.6 or later, or a gateway's data port.

Kafka has no API for effective quotas; they are computed here from all quotas.

Source: KafkaAdminClient and ClientQuotaControlManager in Apache Kafka.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from headgate.admin.api import ConfigEntry, ConfigSynonym, Entities, ScramUpsertion, Values
from headgate.admin.cluster_target import ClusterTarget, Part
from headgate.admin.live import ask_brokers
from headgate.admin.target import ChangeRequest, EntityQuery, effective_values
from headgate.client import quota_messages as words
from headgate.client.connection import Connection, api_error, raise_error
from headgate.client.nodes import Nodes, is_controller
from headgate.client.quota_calls import QuotaCalls
from headgate.errors import ApiError, KafkaError, StoreError
from headgate.live.picture import Picture
from headgate.quota.alteration import AlterResult, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent, MatchType
from headgate.quota.key import QUOTA_DEFAULTS, QuotaKey
from headgate.quota.table import QuotaTable
from headgate.wire import apis
from headgate.wire.messages import cluster
from headgate.wire.messages import configs as c
from headgate.wire.messages import scram as s
from headgate.wire.messages.live import LiveRequest
from headgate.wire.scram import salted_password

_RESOURCES: Final[Mapping[str, int]] = {
    "topics": 2,
    "brokers": 4,
    "broker-loggers": 8,
    "client-metrics": 16,
    "groups": 32,
}
_SOURCES: Final[Mapping[int, str]] = {source: source.name for source in c.ConfigSource}
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_MECHANISM_NUMBERS: Final = {name: number for number, name in _MECHANISMS.items()}
_RESOURCE_NOT_FOUND: Final = 91
_UNACCEPTABLE_CREDENTIAL: Final = 93
_UNSUPPORTED_ENDPOINT_TYPE: Final = 115
_NO_LIMIT: Final = 2**63 - 1


class KafkaTarget(ClusterTarget):
    """Brokers, or a gateway's data listeners."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(nodes)
        self._calls = QuotaCalls(nodes)

    # --- quotas

    async def describe(self, query: EntityQuery) -> Entities:
        """Return the entities that match; what a broker can't filter is filtered here."""
        asked = _for_the_wire(query)
        found = await self._find(asked, strict=query.strict)
        if asked == query.components:
            return found
        return {e: v for e, v in found.items() if query.passes(e)}

    async def _find(self, components: Sequence[FilterComponent], *, strict: bool) -> Entities:
        answer = await self._calls.describe(components, strict=strict)
        raise_error(answer.error_code, answer.error_message)
        return {words.entity_of(e.entity): words.values_of(e) for e in answer.entries or ()}

    async def effective(
        self, entities: Collection[QuotaEntity], omit_overridden: bool
    ) -> Mapping[QuotaEntity, Values | ApiError]:
        """Compute what applies to each entity, from all quotas of the cluster."""
        quotas = await self._find((), strict=False)
        table = QuotaTable(quotas, static_defaults=await self._static_defaults())
        return effective_values(table, entities, omit_overridden)

    async def _static_defaults(self) -> dict[QuotaKey, float]:
        """Ask a broker for KIP-55's static defaults, which gateways have, and Kafka before 3.0."""
        try:
            brokers = await self._nodes.brokers()
            here = (await self._nodes.any()).address
            broker = next((b for b, at in brokers.items() if str(at) == here), min(brokers))
            names = tuple(QUOTA_DEFAULTS)
            entries = await self.describe_configs("brokers", str(broker), names)
        except (ApiError, StoreError, ValueError):
            return {}  # without permission, or without an answer: the quotas alone decide
        return {
            QUOTA_DEFAULTS[entry.name]: float(entry.value)
            for entry in entries
            if entry.name in names and entry.value and int(entry.value) < _NO_LIMIT
        }

    async def alter(self, request: ChangeRequest) -> list[AlterResult]:
        """Change quotas; split a request that the controller would refuse for its size."""
        self._refuse_end(request)

        async def send(part: Part) -> list[AlterResult]:
            to = partial(self._alter_part, part, request.validate_only)
            return await self._nodes.controlling(to)

        results: list[AlterResult] = []
        async for _, told in self._in_parts(words.cut(request.alterations), send):
            results += told
        return results

    async def _alter_part(
        self, part: Sequence[QuotaAlteration], validate_only: bool, over: Connection
    ) -> list[AlterResult]:
        """
        Send one request of a change.

        Raises:
            ApiError: NOT_CONTROLLER; the caller then asks the controller.
        """
        results = []
        for entry in await self._calls.alter(part, validate_only=validate_only, over=over):
            error = api_error(entry.error_code, entry.error_message)
            if error is not None and error.code == KafkaError.NOT_CONTROLLER:
                raise error
            results.append(AlterResult(words.entity_of(entry.entity), error))
        return results

    # --- configs

    async def names(self, resource: str) -> list[str]:
        """Return brokers' ids, topics' names, or the names of another kind of resource."""
        if resource in ("brokers", "broker-loggers"):
            return [str(node) for node in sorted(await self._nodes.brokers())]
        if resource == "topics":
            return await self._nodes.topics()
        connection = await self._nodes.any()
        if is_controller(connection):
            raise ApiError(
                _UNSUPPORTED_ENDPOINT_TYPE,
                "This Admin API is not yet supported when communicating directly with the "
                "controller quorum.",
            )
        number = _RESOURCES[resource]
        answer: cluster.ListConfigResourcesResponse = await connection.call(
            apis.LIST_CONFIG_RESOURCES,
            (0 if resource == "client-metrics" else 1, 1),
            cluster.ListConfigResourcesRequest((number,)),
        )
        raise_error(answer.error_code, None)
        found = {r.resource_name for r in answer.config_resources if r.resource_type == number}
        if resource == "groups":
            for node in await self._nodes.brokers():
                listed: cluster.ListGroupsResponse = await (await self._nodes.node(node)).call(
                    apis.LIST_GROUPS, (0, 0), cluster.ListGroupsRequest()
                )
                raise_error(listed.error_code, None)
                found |= {group.group_id for group in listed.groups}
        return sorted(found)

    async def describe_configs(
        self, resource: str, name: str, keys: tuple[str, ...] | None = None
    ) -> list[ConfigEntry]:
        """Return a resource's settings with synonyms, by name; with keys, only these."""
        connection = await self._for_resource(resource, name)
        number = _RESOURCES[resource]
        request = c.DescribeConfigsRequest((c.DescribeResource(number, name, keys),), True)
        answer: c.DescribeConfigsResponse = await connection.call(
            apis.DESCRIBE_CONFIGS, (1, 4), request
        )
        for result in answer.results:
            raise_error(result.error_code, result.error_message)
            return sorted(_entry(config) for config in result.configs)
        return []

    async def alter_configs(self, resource: str, name: str, ops: Mapping[str, str | None]) -> None:
        """Set or remove settings of a resource."""
        connection = await self._for_resource(resource, name)
        changes = tuple(
            c.AlterConfig(key, value or "", c.OP_DELETE if value is None else c.OP_SET)
            for key, value in ops.items()
        )
        request = c.AlterConfigsRequest(
            (c.AlterResource(_RESOURCES[resource], name, changes),), False
        )
        answer: c.AlterConfigsResponse = await connection.call(
            apis.INCREMENTAL_ALTER_CONFIGS, (0, 1), request
        )
        for result in answer.responses:
            raise_error(result.error_code, result.error_message)

    async def _for_resource(self, resource: str, name: str) -> Connection:
        """Return the connection to ask over; for a broker's own settings the one to that broker."""
        if resource in ("brokers", "broker-loggers") and name:
            return await self._nodes.node(int(name))
        return await self._nodes.any()

    # --- SCRAM

    async def describe_scram(
        self, users: Sequence[str]
    ) -> dict[str, list[tuple[str, int]] | ApiError]:
        """Return users' SCRAM mechanisms and iterations; users without any are left out."""
        connection = await self._nodes.any()
        request = s.DescribeScramRequest(tuple(map(s.UserName, users)) or None)
        answer: s.DescribeScramResponse = await connection.call(
            apis.DESCRIBE_SCRAM, (0, 0), request
        )
        raise_error(answer.error_code, answer.error_message)
        found: dict[str, list[tuple[str, int]] | ApiError] = {}
        for user in answer.results:
            if user.error_code == _RESOURCE_NOT_FOUND:
                continue
            if user.error_code:
                found[user.user] = ApiError(user.error_code, user.error_message)
            else:
                found[user.user] = [
                    (_MECHANISMS.get(info.mechanism, "UNKNOWN"), info.iterations)
                    for info in sorted(user.credential_infos, key=lambda info: info.mechanism)
                ]
        return found

    async def alter_scram(
        self, user: str, upsertions: Sequence[ScramUpsertion], deletions: Sequence[str]
    ) -> None:
        """
        Set and remove a user's SCRAM credentials.

        Raises:
            ApiError: the broker's refusal; or a password is empty, which Java's client refuses too.
        """
        if not all(upsertion.password for upsertion in upsertions):
            raise ApiError(_UNACCEPTABLE_CREDENTIAL, "Password must not be empty")
        request = s.AlterScramRequest(
            tuple(s.ScramDeletion(user, _MECHANISM_NUMBERS[name]) for name in deletions),
            tuple([await asyncio.to_thread(_salted, user, upsert) for upsert in upsertions]),
        )

        async def action(connection: Connection) -> None:
            answer: s.AlterScramResponse = await connection.call(apis.ALTER_SCRAM, (0, 0), request)
            for result in answer.results:
                raise_error(result.error_code, result.error_message)

        await self._nodes.controlling(action)

    async def live(self, request: LiveRequest) -> Picture:
        """Ask the gateway in front of each broker."""
        return await ask_brokers(self._nodes, request)


# --- quotas on the wire


def _for_the_wire(query: EntityQuery) -> tuple[FilterComponent, ...]:
    """
    Return the components to send: any name in place of a prefix, which brokers don't know.

    Of a KIP-546 query only one per type is sent, as Kafka takes them.
    """
    by_type: dict[str, FilterComponent] = {}
    asked = []
    for component in query.components:
        if component.match_type is MatchType.PREFIX:
            # Without a name it is as wrong as an exact one is, and the broker says so.
            wrong = component.match is None and not query.draft
            released = MatchType.EXACT if wrong else MatchType.ANY
            component = FilterComponent(component.entity_type, released)
        asked.append(component)
        by_type.setdefault(component.entity_type, component)
    return tuple(by_type.values()) if query.draft else tuple(asked)


# --- helpers


def _entry(config: c.ConfigValue) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        _SOURCES.get(config.config_source, "UNKNOWN"),
        config.is_sensitive,
        tuple(
            ConfigSynonym(_SOURCES.get(other.source, "UNKNOWN"), other.name, other.value)
            for other in config.synonyms
        ),
    )


def _salted(user: str, upsertion: ScramUpsertion) -> s.ScramUpsert:
    """Salt and hash a password, as Java's admin client does before it sends one."""
    salt = secrets.token_bytes(24)
    salted = salted_password(upsertion.mechanism, upsertion.password, salt, upsertion.iterations)
    number = _MECHANISM_NUMBERS[upsertion.mechanism]
    return s.ScramUpsert(user, number, upsertion.iterations, salt, salted)
