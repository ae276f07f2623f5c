"""
The admin listener: how it handles its APIs, and KIP-546's own calls: describe 48, effective 49,
alter 50, all version 0. The same key may mean another API elsewhere.

In the draft's format names can't be null: "" is the default entity (KIP-546). Values are int64: a
stored fraction is never rounded; it is answered with INVALID_REQUEST. A failure of the whole
request goes into its entries, because the answer has no other place for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.client.quota_messages import (
    draft_entity_steps,
    draft_int64,
    draft_op_of,
    draft_parts_of,
)
from headgate.errors import ApiError, KafkaError, invalid_request
from headgate.gateway.charging.plans import NO_FIELD, RequestKind, RequestPlan
from headgate.quota.alteration import Op, QuotaAlteration, check_types, request_error
from headgate.quota.entity import QuotaEntity, canonical_entity_type
from headgate.quota.filter import QuotaFilter, matches
from headgate.quota.key import QuotaKey, format_value
from headgate.quota.precedence import EffectiveQuota, resolve_entity
from headgate.wire import apis
from headgate.wire.messages import api_versions, draft
from headgate.wire.messages.denied import DRAFT
from headgate.wire.messages.live import LIVE, LIVE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.answered_here.support import AnswerSupport
    from headgate.gateway.session.commands import Ask
    from headgate.quota.table import QuotaTable
    from headgate.steps import Work

ADMIN_APIS: Final = (
    apis.SASL_HANDSHAKE,
    apis.API_VERSIONS,
    apis.SASL_AUTHENTICATE,
    draft.DESCRIBE_QUOTAS,
    draft.DESCRIBE_EFFECTIVE_QUOTAS,
    draft.ALTER_QUOTAS,
)
"""All that the admin listener advertises; a broker would advertise Metadata too."""
MOST_FILTERS: Final = 100
"""Filters of one request: each is tried on each entity."""
_DENIED: Final = ApiError.generic(KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def versions(ask: Ask) -> bytes:
    """Answer ApiVersions."""
    newest = apis.API[apis.API_VERSIONS].max_version
    if ask.plan.version > newest:
        return api_versions.unsupported_response(ask.correlation_id)
    return api_versions.admin_response(ask.correlation_id, ask.plan.version, ADMIN_APIS)


async def answer(support: AnswerSupport, ask: Ask, listener: str) -> bytes:
    """Answer one of the three; anybody but an administrator is refused."""
    key, run = ask.plan.key, support.slices.run
    if not support.may_administer(ask.principal):
        await support.refused(ask, ask.client_id or f"listener {listener}")
        if key == draft.DESCRIBE_QUOTAS:
            refusal = draft.DescribeQuotasResponse((_described_error(_DENIED),))
            return draft.encode_response(key, ask.correlation_id, refusal)
        return await support.denials.answer(ask, DRAFT)
    offset = draft.body_offset(ask.frame)
    request = await run(draft.decode_request_steps(key, ask.frame, offset))
    response: Any
    if key == draft.DESCRIBE_QUOTAS:
        found = await run(describe(await support.table(), request))
        response = draft.DescribeQuotasResponse(found)
    elif key == draft.DESCRIBE_EFFECTIVE_QUOTAS:
        table = await support.explained()
        await support.on_thread(table.keys)  # indexes a table that is asked for the first time
        response = draft.DescribeEffectiveQuotasResponse((await run(effective(table, request)),))
    else:
        results = await support.alter(
            await run(alterations_of(request, draft_entity_steps, draft_op_of)),
            validate_only=request.validate_only,
            who=f"User:{ask.principal}",
            tool=ask.client_id or f"listener {listener}",
        )
        response = draft.AlterQuotasResponse(
            await run(support.altered(draft.DraftAlteredEntry, request, results))
        )
    return await run(draft.encode_response_steps(key, ask.correlation_id, response))


def alterations_of(
    request: Any, entity: Callable[[Any], Work[QuotaEntity]], op_of: Callable[[Any], Op]
) -> Work[list[QuotaAlteration]]:
    """Return what a request wants changed; ``entity`` and ``op_of`` read its way of spelling."""
    alterations = []
    for entry in request.entries:
        ops = []
        for op in entry.ops:
            ops.append(op_of(op))
            yield
        alterations.append(QuotaAlteration.of((yield from entity(entry.entity)), ops))
        yield
    return alterations


def describe(table: QuotaTable, request: Any) -> Work[tuple[draft.DescribedQuota, ...]]:
    """Return the quotas of the entities that pass every filter; a bad filter is one entry."""
    components, found = [], []
    try:
        if len(request.filters) > MOST_FILTERS:
            raise invalid_request(
                f"{len(request.filters)} filters in one request; "
                f"{MOST_FILTERS} are possible at most"
            )
        for item in request.filters:
            yield
            components.append(_filter(item).component())
        check_types(component.entity_type for component in components)
    except ApiError as error:
        return (_described_error(error),)
    for entity, values in table.entities.items():
        yield
        if components and not matches(components, entity):
            continue
        for key, value in values.items():
            fault = None if value.is_integer() else _fraction(key, value)
            found.append(
                draft.DescribedQuota(
                    draft_parts_of(entity),
                    str(key.type),
                    str(key.units),
                    0 if fault else draft_int64(value),
                    0 if fault is None else int(fault.code),
                    None if fault is None else fault.message,
                )
            )
    return tuple(found)


def effective(table: QuotaTable, request: Any) -> Work[draft.EffectiveEntry]:
    """Return an entity's quota per key, and those it overrides unless they are left out."""
    entity = yield from draft_entity_steps(request.entity)
    fault = request_error(entity)
    if fault is not None:
        return draft.EffectiveEntry(request.entity, (), int(fault.code), fault.message)
    values = []
    for key in table.keys():  # noqa: SIM118 - a QuotaTable isn't a dict
        yield
        found: EffectiveQuota = resolve_entity(table, entity, key)
        if found.value is None or found.source is None:
            continue
        entries = [(found.source, found.value)]
        if not request.omit_overridden_values:
            entries.extend(found.overridden)
        for _, value in entries:
            if not value.is_integer():
                error = _fraction(key, value)
                return draft.EffectiveEntry(request.entity, (), int(error.code), error.message)
        values.append(
            draft.EffectiveValue(
                str(key.type),
                str(key.units),
                tuple(
                    # No entity: KIP-55's static default, of server.properties.
                    draft.ValueEntry(
                        draft_parts_of(source) if isinstance(source, QuotaEntity) else (),
                        draft_int64(value),
                    )
                    for source, value in entries
                ),
            )
        )
    return draft.EffectiveEntry(request.entity, tuple(values))


def _filter(item: Any) -> QuotaFilter:
    rule = item.rule.upper()
    if rule not in ("EXACT", "PREFIX"):
        raise invalid_request(f"Unknown rule {item.rule}; there are EXACT and PREFIX.")
    return QuotaFilter(canonical_entity_type(item.entity_type), rule, item.match)


def _fraction(key: QuotaKey, value: float) -> ApiError:
    return invalid_request(f"{key} is {format_value(value)}, {draft.NO_FRACTIONS}")


def _described_error(error: ApiError) -> draft.DescribedQuota:
    return draft.DescribedQuota((), "", "", 0, int(error.code), error.message)


DRAFT_NAMES: Final = {
    draft.DESCRIBE_QUOTAS: "DescribeQuotas",
    draft.DESCRIBE_EFFECTIVE_QUOTAS: "DescribeEffectiveQuotas",
    draft.ALTER_QUOTAS: "AlterQuotas",
}
"""What KIP-546's draft calls these keys, on the admin listener alone; Kafka gave two of them other
names, and 50 to another API."""


def admin_plans() -> dict[int, RequestPlan]:
    """
    Return how the admin listener handles its six APIs, and ``LIVE``, which it doesn't advertise.

    Any other API is refused.
    """
    plans: dict[int, RequestPlan] = {}
    for key in ADMIN_APIS:
        api = apis.API[key]
        if key in (apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE):
            kind, newest = RequestKind.SASL, api.max_version
        elif key == apis.API_VERSIONS:
            kind, newest = RequestKind.OWN_VERSIONS, 64
        else:
            kind, newest = RequestKind.DRAFT, 0
        throttle_at = 8 if kind is RequestKind.DRAFT else NO_FIELD
        for version in range(newest + 1):
            name = DRAFT_NAMES.get(key, api.name)
            plans[key << 16 | version] = RequestPlan(
                key, version, kind, name, whole=True, throttle_at=throttle_at
            )
    plans[LIVE << 16] = RequestPlan(
        LIVE, 0, RequestKind.DRAFT, LIVE_NAME, whole=True, throttle_at=8
    )
    return plans
