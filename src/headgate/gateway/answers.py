"""
What the gateway answers itself: client quotas (48, 49), broker settings (32, 33, 44), mutations.

Client quotas and the gateway's broker settings are for ``super.users`` and
``headgate.admin.principals``; anyone else gets CLUSTER_AUTHORIZATION_FAILED and leaves an audit
line. The store is asked on a thread of its own, never on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import ApiError, KafkaError, RemoteProtocolError, StoreError
from headgate.gateway import broker_settings, draft_answers, mutations
from headgate.gateway.limits import static_defaults
from headgate.gateway.log import get_logger
from headgate.gateway.plans import Kind
from headgate.quota.alteration import AlterResult, Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.quota.filter import FilterComponent, match_type_of, matches, validate_filter
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable
from headgate.store.base import AuditEvent
from headgate.wire import apis
from headgate.wire.messages import decode_request, encode_response, quotas

if TYPE_CHECKING:
    from headgate.gateway.commands import Ask
    from headgate.gateway.face import ListenerFace
    from headgate.gateway.front import BrokerFront
    from headgate.gateway.gateway_state import GatewayState
    from headgate.gateway.link import Link

log = get_logger("headgate.gateway")

T = TypeVar("T")


class Answers:
    """
    Answers questions of every link of a gateway.

    Args:
        gateway: whose store, table and settings are used.
    """

    def __init__(self, gateway: GatewayState) -> None:
        self.gateway = gateway
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="headgate-store")
        self._finishing: set[asyncio.Task[None]] = set()

    def may_administer(self, principal: str) -> bool:
        """Whether a principal may read and change quotas."""
        settings = self.gateway.settings
        return principal in settings.super_users or principal in settings.admin_principals

    async def on_thread(self, function: Callable[[], T]) -> T:
        """Run something that may wait, off the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the rest of an answer, whether or not its client is still there."""
        task = asyncio.get_running_loop().create_task(work)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def refused(self, ask: Ask, tool: str) -> None:
        """Leave an audit line about a principal that may not."""
        log.warning("refused", api=ask.plan.name, principal=f"User:{ask.principal}")
        store = self.gateway.store
        if store is None:
            return
        event = AuditEvent(f"User:{ask.principal}", tool, ask.plan.name, "refused")
        try:
            await self.on_thread(lambda: store.audit(event))
        except StoreError as error:
            log.warning("audit line lost", error=str(error))

    async def answer(self, front: BrokerFront, face: ListenerFace, link: Link, ask: Ask) -> None:
        """Answer a question, or pass it on; closes the link when its request doesn't parse."""
        try:
            if ask.token_id is not None:
                await self.gateway.token_owners.find(ask.token_id, face)
                link.resume(ask)
            elif ask.plan.kind == Kind.MUTATION:
                await mutations.charge(self.gateway, front, face, link, ask)
            elif ask.plan.kind == Kind.OWN_VERSIONS:
                link.answer(ask, draft_answers.versions(ask))
            elif ask.plan.kind == Kind.DRAFT:
                link.answer(ask, await draft_answers.answer(self, ask, face.name))
            elif ask.plan.key == apis.DESCRIBE_CLIENT_QUOTAS:
                link.answer(ask, await self._describe(ask))
            elif ask.plan.key == apis.ALTER_CLIENT_QUOTAS:
                link.answer(ask, await self._alter(ask, face.name))
            else:
                await broker_settings.split(self, front, link, ask)
        except asyncio.CancelledError:
            raise
        except RemoteProtocolError as error:
            link.close(error.reason, f"from the client: {ask.plan.name}: {error}")
        except Exception as error:
            log.exception("an answer failed", api=ask.plan.name)
            link.close("answer-failed", f"{ask.plan.name}: {error}")

    # --- 48 ---------------------------------------------------------------------------------

    async def _describe(self, ask: Ask) -> bytes:
        request = decode_request(ask.plan.key, ask.plan.version, ask.frame, ask.body_offset)
        try:
            if not self.may_administer(ask.principal):
                await self.refused(ask, "kafka")
                raise ApiError(
                    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                    KafkaError.CLUSTER_AUTHORIZATION_FAILED.generic_message,
                )
            entries = describe(await self.table(), request)
            response = quotas.DescribeClientQuotasResponse(entries)
        except ApiError as error:
            response = quotas.DescribeClientQuotasResponse(None, int(error.code), error.message)
        return encode_response(ask.plan.key, ask.plan.version, ask.correlation_id, response)

    async def table(self) -> QuotaTable:
        """Return the store's quotas as of now; the last known ones while it doesn't answer."""
        store = self.gateway.store
        if store is None:
            return self.gateway.table
        try:
            return await self.on_thread(store.snapshot)
        except StoreError:
            return self.gateway.table

    async def explained(self) -> QuotaTable:
        """Return the store's quotas and the last resorts of the settings file: what is in force."""
        return (await self.table()).with_static_defaults(static_defaults(self.gateway.settings))

    # --- 49 ---------------------------------------------------------------------------------

    async def _alter(self, ask: Ask, listener: str) -> bytes:
        request = decode_request(ask.plan.key, ask.plan.version, ask.frame, ask.body_offset)
        entities = [entity_of(entry.entity) for entry in request.entries]
        if not self.may_administer(ask.principal):
            await self.refused(ask, ask.client_id or "kafka")
            denied = ApiError(
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED.generic_message,
            )
            results = [AlterResult(entity, denied) for entity in entities]
        else:
            alterations = [
                QuotaAlteration.of(entity, (alteration_op(op) for op in entry.ops))
                for entity, entry in zip(entities, request.entries, strict=True)
            ]
            results = await self.alter(
                alterations,
                validate_only=request.validate_only,
                who=f"User:{ask.principal}",
                tool=ask.client_id or f"listener {listener}",
            )
        response = quotas.AlterClientQuotasResponse(
            tuple(
                quotas.AlteredEntry(
                    entry.entity,
                    0 if result.error is None else int(result.error.code),
                    None if result.error is None else result.error.message,
                )
                for entry, result in zip(request.entries, results, strict=True)
            )
        )
        return encode_response(ask.plan.key, ask.plan.version, ask.correlation_id, response)

    async def alter(
        self, alterations: list[QuotaAlteration], *, validate_only: bool, who: str, tool: str
    ) -> list[AlterResult]:
        """Alter in the store; what keeps it from answering is every entity's error."""
        store = self.gateway.store
        if store is None:
            error = ApiError(KafkaError.UNKNOWN_SERVER_ERROR, "the gateway runs without a store")
            return [AlterResult(a.entity, error) for a in alterations]
        try:
            return await self.on_thread(
                lambda: store.alter(alterations, validate_only=validate_only, who=who, tool=tool)
            )
        except StoreError as failure:
            error = ApiError(KafkaError.UNKNOWN_SERVER_ERROR, str(failure))
            return [AlterResult(a.entity, error) for a in alterations]


def entity_of(parts: Any) -> QuotaEntity:
    """Return the entity of a released request's parts; a null name is the default."""
    entries: dict[str, EntityName] = {
        part.entity_type: DEFAULT if part.entity_name is None else part.entity_name
        for part in parts
    }
    return QuotaEntity(entries)


def alteration_op(op: Any) -> Op:
    """Return an op of a released request's."""
    return Op(QuotaKey.parse(op.key), None if op.remove else op.value)


def describe(table: QuotaTable, request: Any) -> tuple[quotas.DescribedEntry, ...]:
    """
    Return the entities that a released filter selects.

    Raises:
        ApiError: the filter can't be, with Kafka's text.
    """
    components = [
        FilterComponent(c.entity_type, match_type_of(c.match_type), c.match)
        for c in request.components
    ]
    validate_filter(components)
    return tuple(
        quotas.DescribedEntry(
            tuple(
                quotas.EntityPart(kind, name if isinstance(name, str) else None)
                for kind, name in entity
            ),
            tuple(quotas.Value(key.name, value) for key, value in values.items()),
        )
        for entity, values in table.entities.items()
        if not components or matches(components, entity, request.strict)
    )
