"""
The admin client over KIP-546's own APIs, on a gateway's admin listener.

The draft has no null: the default's name is ``QUOTA_ENTITY_NAME_DEFAULT``. Its values are int64;
where that can't hold one (``request_percentage`` 12.75) the released APIs are used instead, if one
of the bootstrap addresses speaks them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headgate.admin.api import (
    QUOTA_ENTITY_NAME_DEFAULT,
    ConfigEntry,
    Entities,
    Entry,
    ScramUpsertion,
    Value,
    Values,
    unsupported,
)
from headgate.admin.cluster_target import ClusterTarget, Part
from headgate.admin.live import ask_one
from headgate.admin.released import KafkaTarget
from headgate.admin.target import ChangeRequest, EntityQuery
from headgate.client.connection import Connection, api_error
from headgate.client.nodes import Nodes
from headgate.client.quota_messages import (
    cut,
    draft_entity_of,
    draft_int64,
    draft_key_of,
    draft_parts_of,
)
from headgate.errors import ApiError, HeadgateError, KafkaError, invalid_request
from headgate.live.picture import Picture
from headgate.quota.alteration import AlterResult, Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent, MatchType
from headgate.quota.precedence import STATIC_DEFAULT, Source
from headgate.wire.apis import METADATA
from headgate.wire.messages import draft as d
from headgate.wire.messages.live import LiveRequest

_ELSEWHERE = "use the gateway's data listener (--bootstrap-server with a port of a broker)"


class Kip546Target(ClusterTarget):
    """
    A gateway's admin listener.

    Args:
        nodes: keeps the connection; one of its bootstrap addresses may speak the released APIs.
    """

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(nodes)
        self._released: KafkaTarget | None = None

    async def describe(self, query: EntityQuery) -> Entities:
        """Return the entities that match; if there are fractions, ask by the released APIs."""
        connection = await self._nodes.any()
        # The draft can't ask for "any name, the default included": ask for more, filter here.
        asked = tuple(c for c in query.components if c.match_type is not MatchType.ANY)
        answer: d.DescribeQuotasResponse = await _ask(
            connection, d.DESCRIBE_QUOTAS, d.DescribeQuotasRequest(tuple(map(_filter, asked)))
        )
        found: Entities = {}
        for entry in answer.entries:
            error = api_error(entry.error_code, entry.error_message)
            if error is not None:
                released = await self._other() if _is_fraction(error) else None
                if released is None:
                    raise error
                return await released.describe(query)
            entity = draft_entity_of(entry.entity)
            found.setdefault(entity, {})[draft_key_of(entry.type, entry.units)] = float(entry.value)
        if asked == query.components and not query.strict:
            return found
        return {e: v for e, v in found.items() if query.passes(e)}

    async def effective(
        self, entities: Collection[QuotaEntity], omit_overridden: bool
    ) -> Mapping[QuotaEntity, Values | ApiError]:
        """Ask what applies to each entity; the draft takes one at a time."""
        results: dict[QuotaEntity, Values | ApiError] = {}
        for entity in entities:
            request = d.DescribeEffectiveQuotasRequest(draft_parts_of(entity), omit_overridden)
            answer: d.DescribeEffectiveQuotasResponse = await _ask(
                await self._nodes.any(), d.DESCRIBE_EFFECTIVE_QUOTAS, request
            )
            results[entity] = {}
            for entry in answer.entries:
                error = api_error(entry.error_code, entry.error_message)
                results[entity] = error or _values(entry.values, omit_overridden)
                if error is not None and _is_fraction(error):
                    released = await self._other()
                    if released is not None:
                        results |= await released.effective([entity], omit_overridden)
        return results

    async def alter(self, request: ChangeRequest) -> list[AlterResult]:
        """Change quotas; entities with a fraction are sent by the released API, or refused."""
        self._refuse_end(request)
        alterations = request.alterations
        whole = [a for a in alterations if not _fractions(a.ops)]
        broken = [a for a in alterations if _fractions(a.ops)]

        async def send(part: Part) -> list[AlterResult]:
            if part is broken:
                return await self._alter_fractions(request._replace(alterations=broken))
            asked = d.AlterQuotasRequest(tuple(map(_alter_entry, part)), request.validate_only)
            answer: d.AlterQuotasResponse = await _ask(
                await self._nodes.any(), d.ALTER_QUOTAS, asked
            )
            return [
                AlterResult(alteration.entity, api_error(entry.error_code, entry.error_message))
                for alteration, entry in zip(part, answer.entries, strict=False)
            ]

        results: dict[int, AlterResult] = {}
        async for part, told in self._in_parts([*cut(whole), *([broken] if broken else [])], send):
            # Answers stand in the order of the request; entities may repeat.
            results.update((id(a), result) for a, result in zip(part, told, strict=False))
        return [results[id(a)] for a in alterations if id(a) in results]

    async def _alter_fractions(self, request: ChangeRequest) -> list[AlterResult]:
        """Change entities whose values the draft's API can't hold, by the released API."""
        released = await self._other()
        if released is not None:
            return await released.alter(request)
        return [AlterResult(a.entity, _fraction_error(a)) for a in request.alterations]

    async def _other(self) -> KafkaTarget | None:
        """Return the target at the first bootstrap address that speaks the released APIs."""
        if self._released is not None:
            return self._released
        security = self._nodes.security
        for address in self._nodes.bootstrap:
            try:
                connection = await Connection.open(address, security, greet=True)
            except HeadgateError:
                continue
            if METADATA in connection.versions:
                self._released = KafkaTarget(Nodes([address], security, connection))
                return self._released
            await connection.close()
        return None

    async def names(self, resource: str) -> list[str]:
        """Refuse: an admin listener serves quotas only."""
        raise unsupported(f"an admin listener doesn't list {resource}", _ELSEWHERE)

    async def describe_configs(self, resource: str, name: str) -> list[ConfigEntry]:
        """Refuse: an admin listener serves quotas only."""
        raise unsupported(f"an admin listener doesn't describe {resource}", _ELSEWHERE)

    async def alter_configs(self, resource: str, name: str, ops: Mapping[str, str | None]) -> None:
        """Refuse: an admin listener serves quotas only."""
        raise unsupported(f"an admin listener doesn't alter {resource}", _ELSEWHERE)

    async def alter_scram(
        self, user: str, upsertions: Sequence[ScramUpsertion], deletions: Sequence[str]
    ) -> None:
        """Refuse: an admin listener serves quotas only."""
        raise unsupported("an admin listener keeps no SCRAM credentials", _ELSEWHERE)

    async def live(self, request: LiveRequest) -> Picture:
        """Ask about all brokers of the listener's process."""
        return await ask_one(await self._nodes.any(), request)

    async def close(self) -> None:
        """Close the connections."""
        await super().close()
        if self._released is not None:
            await self._released.close()


async def _ask(connection: Connection, api_key: int, request: object) -> Any:
    connection.version(api_key, 0)
    frame = await connection.swap(
        lambda cid: d.encode_request(api_key, cid, connection.client_id, request)
    )
    return d.decode_response(api_key, frame)


def _filter(component: FilterComponent) -> d.Filter:
    kind = component.entity_type
    if component.match_type is MatchType.PREFIX:
        return d.Filter(kind, "PREFIX", component.match or "")
    name = component.match if component.match_type is MatchType.EXACT else None
    return d.Filter(kind, "EXACT", QUOTA_ENTITY_NAME_DEFAULT if name is None else name)


def _values(values: Sequence[d.EffectiveValue], omit_overridden: bool) -> Values:
    found: Values = {}
    for value in values:
        entries = [Entry(_source(e.entity), float(e.value)) for e in value.entries]
        if entries:
            overridden = None if omit_overridden else tuple(entries[1:])
            found[draft_key_of(value.type, value.units)] = Value(entries[0], overridden)
    return found


def _source(parts: Sequence[d.DraftEntityPart]) -> Source:
    """Read the entity that a value was set for; without one, it is KIP-55's static default."""
    return draft_entity_of(parts) if parts else STATIC_DEFAULT


def _alter_entry(alteration: QuotaAlteration) -> d.DraftAlterEntry:
    return d.DraftAlterEntry(
        draft_parts_of(alteration.entity),
        tuple(
            d.DraftAlterOp(
                str(op.key.type),
                str(op.key.units),
                0 if op.value is None else draft_int64(op.value),
                op.value is None,
            )
            for op in alteration.ops
        ),
    )


def _fractions(ops: Collection[Op]) -> list[Op]:
    return [op for op in ops if op.value is not None and not op.value.is_integer()]


def _fraction_error(alteration: QuotaAlteration) -> ApiError:
    told = ", ".join(f"{op.key}={op.value}" for op in _fractions(alteration.ops))
    return invalid_request(
        f"{told} of {alteration.entity}: the draft APIs hold whole numbers only; {_ELSEWHERE}"
    )


def _is_fraction(error: ApiError) -> bool:
    return error.code == KafkaError.INVALID_REQUEST and str(error).endswith(d.NO_FRACTIONS)
