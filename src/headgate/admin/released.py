"""
The admin client over Kafka's released APIs: a real Kafka 2.6 or later, or a gateway's data port.

Effective quotas, which no Kafka tells, are computed here from all quotas.

Source: spec wire.md, resolution.md sections 6, 7; KafkaAdminClient in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from headgate.admin.api import ConfigEntry, ConfigSynonym, Entities, ScramUpsertion, Values
from headgate.admin.backend import Query, effective_values
from headgate.admin.scram import alter_scram, describe_scram
from headgate.client.connection import Connection, api_error, raise_error
from headgate.client.nodes import Nodes, is_controller
from headgate.errors import ApiError, KafkaError, StoreError
from headgate.quota.alteration import AlterResult, QuotaAlteration, request_error
from headgate.quota.entity import DEFAULT, Default, QuotaEntity
from headgate.quota.filter import FilterComponent, MatchType, matches
from headgate.quota.key import CONSUMER, PRODUCER, QuotaKey
from headgate.quota.table import QuotaTable
from headgate.store.base import MAX_RECORDS_PER_REQUEST
from headgate.wire import apis
from headgate.wire.messages import admin as p
from headgate.wire.messages import configs as c
from headgate.wire.messages import quotas as q

_RESOURCES: Final[Mapping[str, int]] = {
    "topics": 2,
    "brokers": 4,
    "broker-loggers": 8,
    "client-metrics": 16,
    "groups": 32,
}
_SOURCES: Final[Mapping[int, str]] = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_MATCH_NUMBERS: Final[Mapping[MatchType | int, int]] = {
    MatchType.EXACT: 0,
    MatchType.DEFAULT: 1,
    MatchType.ANY: 2,
}
_UNSUPPORTED_ENDPOINT_TYPE: Final = 115
_QUOTA_DEFAULTS: Final[Mapping[str, QuotaKey]] = {
    "quota.producer.default": PRODUCER,
    "quota.consumer.default": CONSUMER,
}
_NO_LIMIT: Final = 2**63 - 1


class ReleasedBackend:
    """
    Talks to brokers.

    Args:
        nodes: finds and keeps connections.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    # --- quotas

    async def describe(self, query: Query) -> Entities:
        """Return the entities that match; what a broker can't filter is filtered here."""
        asked = _for_the_wire(query)
        found = await describe_quotas(await self._nodes.any(), asked, query.strict)
        if asked == query.components:
            return found
        return {e: v for e, v in found.items() if matches(query.components, e, query.strict)}

    async def effective(
        self, entities: Collection[QuotaEntity], omit_overridden: bool
    ) -> Mapping[QuotaEntity, Values | ApiError]:
        """Compute what applies to each entity from everything there is."""
        quotas = await describe_quotas(await self._nodes.any(), (), False)
        table = QuotaTable(quotas, static_defaults=await self._static_defaults())
        return {
            e: request_error(e) or effective_values(table, e, omit_overridden) for e in entities
        }

    async def _static_defaults(self) -> dict[QuotaKey, float]:
        """Ask a broker for KIP-55's last resorts: a gateway has them, and a Kafka before 3.0."""
        try:
            brokers = await self._nodes.brokers()
            here = (await self._nodes.any()).address
            here_too = (b for b, (host, port) in brokers.items() if f"{host}:{port}" == here)
            broker = next(here_too, min(brokers))
            names = tuple(_QUOTA_DEFAULTS)
            entries = await self._configs("brokers", str(broker), names)
        except (ApiError, StoreError, ValueError):
            return {}  # who may not ask, or can't: what quotas say is told nevertheless
        return {
            _QUOTA_DEFAULTS[entry.name]: float(entry.value)
            for entry in entries
            if entry.name in names and entry.value and int(entry.value) < _NO_LIMIT
        }

    async def alter(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> list[AlterResult]:
        """Change quotas; a request is cut where the controller would refuse it for its size."""
        results: list[AlterResult] = []
        for part in cut(alterations, MAX_RECORDS_PER_REQUEST):
            results += await self._nodes.controlling(
                partial(alter_quotas, alterations=part, validate_only=validate_only)
            )
        return results

    # --- configs

    async def names(self, resource: str) -> list[str]:
        """Return brokers' ids, topics' names, or those of what else has settings."""
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
        answer: p.ListConfigResourcesResponse = await connection.call(
            p.LIST_CONFIG_RESOURCES,
            (0 if resource == "client-metrics" else 1, 1),
            p.ListConfigResourcesRequest((number,)),
        )
        raise_error(answer.error_code, None)
        found = {r.resource_name for r in answer.config_resources if r.resource_type == number}
        if resource == "groups":
            for node in await self._nodes.brokers():
                listed: p.ListGroupsResponse = await (await self._nodes.node(node)).call(
                    p.LIST_GROUPS, (0, 0), p.ListGroupsRequest()
                )
                raise_error(listed.error_code, None)
                found |= {group.group_id for group in listed.groups}
        return sorted(found)

    async def describe_configs(self, resource: str, name: str) -> list[ConfigEntry]:
        """Return a resource's settings with synonyms, by name."""
        return await self._configs(resource, name)

    async def _configs(
        self, resource: str, name: str, keys: tuple[str, ...] | None = None
    ) -> list[ConfigEntry]:
        connection = await self._for_resource(resource, name)
        number = _RESOURCES[resource]
        request = c.DescribeConfigsRequest((c.DescribeResource(number, name, keys),), True)
        answer: c.DescribeConfigsResponse = await connection.call(
            apis.DESCRIBE_CONFIGS,
            (1, 4),
            request,
        )
        for result in answer.results:
            raise_error(result.error_code, result.error_message)
            return sorted(_entry(config) for config in result.configs)
        return []

    async def alter_configs(self, resource: str, name: str, ops: Mapping[str, str | None]) -> None:
        """Set or remove settings of a resource."""
        connection = await self._for_resource(resource, name)
        changes = tuple(
            c.AlterConfig(key, value, c.OP_SET)
            if value is not None
            else c.AlterConfig(key, "", c.OP_DELETE)
            for key, value in ops.items()
        )
        request = c.AlterConfigsRequest(
            (c.AlterResource(_RESOURCES[resource], name, changes),), False
        )
        answer: c.AlterConfigsResponse = await connection.call(
            apis.INCREMENTAL_ALTER_CONFIGS,
            (0, 1),
            request,
        )
        for result in answer.responses:
            raise_error(result.error_code, result.error_message)

    async def _for_resource(self, resource: str, name: str) -> Connection:
        """Return the connection a resource is asked over: a broker's own settings by itself."""
        if resource in ("brokers", "broker-loggers") and name:
            return await self._nodes.node(int(name))
        return await self._nodes.any()

    # --- SCRAM

    async def describe_scram(
        self, users: Sequence[str]
    ) -> dict[str, list[tuple[str, int]] | ApiError]:
        """Return users' SCRAM mechanisms and iterations; users without any are left out."""
        return await describe_scram(self._nodes, users)

    async def alter_scram(
        self, user: str, upsertions: Sequence[ScramUpsertion], deletions: Sequence[str]
    ) -> None:
        """Set and remove a user's SCRAM credentials."""
        await alter_scram(self._nodes, user, upsertions, deletions)

    async def close(self) -> None:
        """Close the connections."""
        await self._nodes.close()


# --- quotas on the wire


def _for_the_wire(query: Query) -> tuple[FilterComponent, ...]:
    """Return components a broker takes: one per type, no prefix."""
    by_type: dict[str, FilterComponent] = {}
    for component in query.components:
        if query.draft and component.match_type is MatchType.PREFIX:
            component = FilterComponent(component.entity_type, MatchType.ANY)
        if query.draft and component.entity_type in by_type:
            continue
        by_type[component.entity_type] = component
    if not query.draft:
        return query.components
    return tuple(by_type.values())


def cut(alterations: Sequence[QuotaAlteration], limit: int) -> list[Sequence[QuotaAlteration]]:
    """
    Cut alterations into requests of at most so many records, an entity never in two of them.

    Args:
        alterations: one per entity.
        limit: records in a request; an op is a record.
    """
    parts: list[Sequence[QuotaAlteration]] = []
    part: list[QuotaAlteration] = []
    records = 0
    for alteration in alterations:
        if part and records + len(alteration.ops) > limit:
            parts.append(part)
            part, records = [], 0
        part.append(alteration)
        records += len(alteration.ops)
    return [*parts, part] if part else parts


async def describe_quotas(
    connection: Connection, components: Sequence[FilterComponent], strict: bool
) -> Entities:
    """
    Ask a broker for quotas.

    Raises:
        ApiError: the broker's refusal.
    """
    version = connection.version(apis.DESCRIBE_CLIENT_QUOTAS, 1)
    request = q.DescribeClientQuotasRequest(
        tuple(
            q.Component(
                part.entity_type,
                _MATCH_NUMBERS.get(
                    part.match_type,
                    int(part.match_type) if not isinstance(part.match_type, MatchType) else 0,
                ),
                part.match,
            )
            for part in components
        ),
        strict,
    )
    answer: q.DescribeClientQuotasResponse = await connection.ask(
        apis.DESCRIBE_CLIENT_QUOTAS,
        version,
        request,
    )
    raise_error(answer.error_code, answer.error_message)
    return {
        entity_from_wire(entry.entity): {
            QuotaKey.parse(value.key): value.value for value in entry.values
        }
        for entry in answer.entries or ()
    }


async def alter_quotas(
    connection: Connection, alterations: Sequence[QuotaAlteration], validate_only: bool
) -> list[AlterResult]:
    """
    Ask a broker to change quotas.

    Raises:
        ApiError: NOT_CONTROLLER, for the caller to find who is.
    """
    version = connection.version(apis.ALTER_CLIENT_QUOTAS, 1)
    request = q.AlterClientQuotasRequest(
        tuple(
            q.AlterEntry(
                entity_to_wire(entity),
                tuple(
                    q.AlterOp(op.key.name, 0.0 if op.value is None else op.value, op.value is None)
                    for op in ops
                ),
            )
            for entity, ops in alterations
        ),
        validate_only,
    )
    answer: q.AlterClientQuotasResponse = await connection.ask(
        apis.ALTER_CLIENT_QUOTAS,
        version,
        request,
    )
    results = []
    for entry in answer.entries:
        error = api_error(entry.error_code, entry.error_message)
        if error is not None and error.code == KafkaError.NOT_CONTROLLER:
            raise error
        results.append(AlterResult(entity_from_wire(entry.entity), error))
    return results


def entity_from_wire(parts: Sequence[Any]) -> QuotaEntity:
    """Read an entity as the released wire has it: a null name is the default."""
    return QuotaEntity(
        {
            part.entity_type: DEFAULT if part.entity_name is None else part.entity_name
            for part in parts
        }
    )


def entity_to_wire(entity: QuotaEntity) -> tuple[q.EntityPart, ...]:
    """Write an entity as the released wire has it."""
    return tuple(
        q.EntityPart(kind, None if isinstance(name, Default) else name) for kind, name in entity
    )


# --- helpers


def _entry(config: c.ConfigValue) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        _SOURCES.get(config.config_source, "UNKNOWN"),
        config.is_sensitive,
        tuple(
            ConfigSynonym(_SOURCES.get(s.source, "UNKNOWN"), s.name, s.value)
            for s in config.synonyms
        ),
    )
