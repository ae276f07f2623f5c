"""
What the gateway answers itself: client quotas (48, 49), broker settings (32, 33, 44), mutations.

Client quotas and the gateway's broker settings are for ``super.users`` and
``headgate.admin.principals``. Anyone else gets CLUSTER_AUTHORIZATION_FAILED and leaves an audit
line; of their requests the event loop reads only small ones. (DescribeConfigs shows them what the
broker shows.) Requests of users with permission are read and answered in slices.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.client.quota_messages import component_of, described, entity_steps, op_of
from headgate.errors import ApiError, KafkaError, RemoteProtocolError
from headgate.gateway.answered_here import admin_listener, broker_settings, mutations
from headgate.gateway.answered_here.support import AnswerSupport
from headgate.gateway.charging.plans import RequestKind
from headgate.quota.entity import KNOWN_TYPES
from headgate.quota.filter import matches, validate_filter
from headgate.quota.table import QuotaTable
from headgate.steps import Work, freeing
from headgate.wire import apis
from headgate.wire.messages import (
    decode_request_steps,
    encode_response,
    encode_response_steps,
    quotas,
)
from headgate.wire.messages.denied import RELEASED
from headgate.wire.messages.live import LIVE

if TYPE_CHECKING:
    from headgate.gateway.answered_here.live import LiveAnswers
    from headgate.gateway.answered_here.mutations import Topics
    from headgate.gateway.answered_here.token_owners import TokenOwners
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.connection.link import Link
    from headgate.gateway.session.commands import Ask
    from headgate.gateway.session.rewrite import Rewrite


class Answers:
    """
    Answers questions of every link of a gateway.

    Args:
        support: the store, permission and slices.
        topics: knows how many partitions topics have.
        token_owners: knows which users own delegation tokens.
        live: knows what goes on.
    """

    def __init__(
        self, support: AnswerSupport, topics: Topics, token_owners: TokenOwners, live: LiveAnswers
    ) -> None:
        self.support = support
        self._topics = topics
        self._token_owners = token_owners
        self.live = live

    def tell(self) -> None:
        """Log how many lines weren't written in minutes that are over; called now and then."""
        self.support.tell()
        self._topics.failures.tell()
        self._token_owners.failures.tell()

    async def rewrite(self, link: Link, rewrite: Rewrite) -> None:
        """Replace the addresses in a broker's long answer; close the link if it doesn't parse."""
        try:
            link.rewritten(rewrite, await self.support.slices.run(rewrite.work))
        except RemoteProtocolError as error:
            link.close(error.reason, f"from the broker: {rewrite.plan.name}: {error}")
        except Exception as error:
            self.support.failed(link, rewrite, error)

    async def answer(self, rules: Enforcement, link: Link, ask: Ask) -> None:
        """Answer a question, or pass it on; closes the link when its request doesn't parse."""
        try:
            if ask.token_id is not None:
                await self._token_owners.find(ask.token_id, link.listener)
                link.resume(ask)
            elif ask.plan.kind == RequestKind.MUTATION:
                await mutations.charge(self.support, self._topics, rules, link, ask)
            elif ask.plan.key == LIVE:
                link.answer(ask, await self.live.answer(self.support, rules.broker_id, ask))
            elif ask.plan.kind == RequestKind.OWN_VERSIONS:
                link.answer(ask, admin_listener.versions(ask))
            elif ask.plan.kind == RequestKind.DRAFT:
                link.answer(ask, await admin_listener.answer(self.support, ask, link.listener.name))
            elif ask.plan.key == apis.DESCRIBE_CLIENT_QUOTAS:
                link.answer(ask, await self._describe(ask))
            elif ask.plan.key == apis.ALTER_CLIENT_QUOTAS:
                link.answer(ask, await self._alter(ask, link.listener.name))
            else:
                await broker_settings.split(self.support, link, ask)
        except asyncio.CancelledError:
            raise
        except RemoteProtocolError as error:
            link.close(error.reason, f"from the client: {ask.plan.name}: {error}")
        except Exception as error:
            self.support.failed(link, ask, error)

    # --- 48 ---------------------------------------------------------------------------------

    async def _describe(self, ask: Ask) -> bytes:
        plan = ask.plan
        try:
            if not self.support.may_administer(ask.principal):
                await self.support.refused(ask, "kafka")
                raise ApiError.generic(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            request = await self.support.slices.run(
                decode_request_steps(plan.key, plan.version, ask.frame, ask.body_offset)
            )
            entries = await self.support.slices.run(describe(await self.support.table(), request))
        except ApiError as error:
            refusal = quotas.DescribeClientQuotasResponse(None, int(error.code), error.message)
            return encode_response(plan.key, plan.version, ask.correlation_id, refusal)
        response = quotas.DescribeClientQuotasResponse(entries)
        return await self.support.slices.run(
            encode_response_steps(plan.key, plan.version, ask.correlation_id, response)
        )

    # --- 49 ---------------------------------------------------------------------------------

    async def _alter(self, ask: Ask, listener: str) -> bytes:
        plan, run = ask.plan, self.support.slices.run
        if not self.support.may_administer(ask.principal):
            await self.support.refused(ask, ask.client_id or "kafka")
            return await self.support.denials.answer(ask, RELEASED)
        request = await run(
            decode_request_steps(plan.key, plan.version, ask.frame, ask.body_offset)
        )
        results = await self.support.alter(
            await run(admin_listener.alterations_of(request, entity_steps, op_of)),
            validate_only=request.validate_only,
            who=f"User:{ask.principal}",
            tool=ask.client_id or f"listener {listener}",
        )
        entries = await run(self.support.altered(quotas.AlteredEntry, request, results))
        response = quotas.AlterClientQuotasResponse(entries)
        frame = await run(
            encode_response_steps(plan.key, plan.version, ask.correlation_id, response)
        )
        held = list(request.entries), results, list(entries)
        del request, results, entries, response
        await run(freeing(*held))
        return frame


def describe(table: QuotaTable, request: Any) -> Work[tuple[quotas.DescribedEntry, ...]]:
    """
    Return the entities that a released filter selects.

    Raises:
        ApiError: the filter isn't valid; with Kafka's text.
    """
    # One more than there are types already has a fault, so that no other has to be looked at.
    components = [component_of(found) for found in request.components[: len(KNOWN_TYPES) + 1]]
    validate_filter(components)
    found = []
    for entity, values in table.entities.items():
        if not components or matches(components, entity, request.strict):
            found.append(described(entity, values))
        yield
    return tuple(found)
