"""
The admin client over Kafka's released APIs: a real Kafka 2.6 or later, or a gateway's data port.

Effective quotas, which no Kafka tells, are computed here from all quotas.

Source: spec wire.md, resolution.md sections 6, 7; KafkaAdminClient in Apache Kafka.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from headgate.admin import protocol as p
from headgate.admin.api import ConfigEntry, ConfigSynonym, Entities, ScramUpsertion, Values
from headgate.admin.backend import Query, effective_values
from headgate.admin.connection import Connection
from headgate.admin.nodes import Nodes
from headgate.errors import ApiError, KafkaError, StoreError
from headgate.quota.alteration import AlterResult, QuotaAlteration, request_error
from headgate.quota.entity import DEFAULT, Default, QuotaEntity
from headgate.quota.filter import FilterComponent, MatchType, matches
from headgate.quota.key import CONSUMER, PRODUCER, QuotaKey
from headgate.quota.table import QuotaTable
from headgate.store.base import MAX_RECORDS_PER_REQUEST
from headgate.wire import apis
from headgate.wire.messages import configs as c
from headgate.wire.messages import quotas as q
from headgate.wire.sasl_client import HASHES

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
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_MECHANISM_NUMBERS: Final = {name: number for number, name in _MECHANISMS.items()}
_RESOURCE_NOT_FOUND: Final = 91
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
        """Return brokers' ids or topics' names."""
        if resource in ("brokers", "broker-loggers"):
            return [str(node) for node in sorted(await self._nodes.brokers())]
        if resource == "topics":
            return await self._nodes.topics()
        raise ApiError(
            KafkaError.UNSUPPORTED_VERSION, f"listing {resource} isn't done here; name one"
        )

    async def describe_configs(self, resource: str, name: str) -> list[ConfigEntry]:
        """Return a resource's settings with synonyms, by name."""
        return await self._configs(resource, name)

    async def _configs(
        self, resource: str, name: str, keys: tuple[str, ...] | None = None
    ) -> list[ConfigEntry]:
        connection = await self._for_resource(resource, name)
        number = _RESOURCES[resource]
        request = c.DescribeConfigsRequest((c.DescribeResource(number, name, keys),), True)
        answer: c.DescribeConfigsResponse = await _ask(
            connection,
            apis.DESCRIBE_CONFIGS,
            (1, 4),
            request,
        )
        for result in answer.results:
            _raise(result.error_code, result.error_message)
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
        answer: c.AlterConfigsResponse = await _ask(
            connection,
            apis.INCREMENTAL_ALTER_CONFIGS,
            (0, 1),
            request,
        )
        for result in answer.responses:
            _raise(result.error_code, result.error_message)

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
        request = p.DescribeScramRequest(tuple(map(p.UserName, users)) or None)
        answer: p.DescribeScramResponse = await _ask(
            await self._nodes.any(),
            p.DESCRIBE_SCRAM,
            (0, 0),
            request,
        )
        _raise(answer.error_code, answer.error_message)
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
        """Set and remove a user's SCRAM credentials."""
        request = p.AlterScramRequest(
            tuple(p.ScramDeletion(user, _MECHANISM_NUMBERS[name]) for name in deletions),
            tuple([await asyncio.to_thread(_salted, user, upsert) for upsert in upsertions]),
        )

        async def action(connection: Connection) -> list[AlterResult]:
            answer: p.AlterScramResponse = await _ask(
                connection,
                p.ALTER_SCRAM,
                (0, 0),
                request,
            )
            for result in answer.results:
                _raise(result.error_code, result.error_message)
            return []

        await self._nodes.controlling(action)

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
    _raise(answer.error_code, answer.error_message)
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


async def _ask(
    connection: Connection,
    api_key: int,
    versions: tuple[int, int],
    message: object,
) -> Any:
    version = connection.version(api_key, versions[1], versions[0])
    return await connection.ask(api_key, version, message)


def api_error(code: int, message: str | None) -> ApiError | None:
    """Return an answer's error with Kafka's own text where it sent none; None for code 0."""
    if code == 0:
        return None
    error = ApiError(code, message)
    if message is None and isinstance(error.code, KafkaError):
        return ApiError(error.code, error.code.generic_message)
    return error


def _raise(code: int, message: str | None) -> None:
    error = api_error(code, message)
    if error is not None:
        raise error


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


def _salted(user: str, upsertion: ScramUpsertion) -> p.ScramUpsert:
    """Salt and hash a password, as Java's admin client does before it sends one."""
    salt = secrets.token_bytes(24)
    salted = hashlib.pbkdf2_hmac(
        HASHES[upsertion.mechanism], upsertion.password, salt, upsertion.iterations
    )
    number = _MECHANISM_NUMBERS[upsertion.mechanism]
    return p.ScramUpsert(user, number, upsertion.iterations, salt, salted)
