"""
Topic creations, deletions and growth: charged, and refused in the broker's place (KIP-599).

A broker charges after it has validated a topic; a proxy can't wait for that, so it charges first
and gives back what the broker then refused. Versions whose clients know error 89 get it for the
topics over quota, and the others go on; older versions are told to wait.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from headgate.errors import ApiError
from headgate.gateway import upstream as up
from headgate.gateway.log import get_logger
from headgate.wire import apis
from headgate.wire.messages import decode_request, decode_response, mutation

if TYPE_CHECKING:
    from headgate.gateway.commands import Ask
    from headgate.gateway.front import BrokerFront, ListenerFace
    from headgate.gateway.gateway_state import GatewayState
    from headgate.gateway.link import Link

log = get_logger("headgate.gateway")


async def charge(
    gateway: GatewayState, front: BrokerFront, face: ListenerFace, link: Link, ask: Ask
) -> None:
    """Charge a request topic by topic, refuse what is over quota, pass on the rest."""
    plan = ask.plan
    current = await _counts(gateway, face, ask)
    asked = mutation.mutations(
        plan.key,
        plan.version,
        ask.frame,
        ask.body_offset,
        current=current.get,
        default_partitions=1,
    )
    rules = front.rules
    now_ms = rules.clock()
    context = link.session.context
    quota = rules.mutation_quota(context, plan, now_ms)
    refused: list[Any] = []
    charged: dict[Any, int] = {}
    size: int | None = len(ask.frame)
    for topic, partitions in zip(asked.topics, asked.partitions, strict=True):
        count = partitions or 0
        try:
            quota.record(count, now_ms)
        except ApiError:
            refused.append(topic)
        else:
            charged[topic] = count
        rules.mutated(link.session, context, plan, count, quota, size, now_ms)
        size = None
    link.session.mutation_quota = quota
    if not refused:
        frame = ask.frame
    elif not charged:
        link.answer(
            ask,
            mutation.refuse(
                plan.key, plan.version, ask.correlation_id, refused, quota.throttle_time_ms(now_ms)
            ),
        )
        return
    else:
        frame = mutation.keep(plan.key, plan.version, ask.frame, refused)

    def merge(answer: bytes) -> bytes:
        response = decode_response(plan.key, plan.version, answer)
        for topic in response.topics:
            if topic.error_code:
                name = getattr(topic, "name", None)
                count = charged.get(name if name is not None else getattr(topic, "topic_id", None))
                if count:
                    # Differs: charged when asked, given back when refused; Kafka validates first.
                    rules.give_back(link.session, context, plan, count)
        return mutation.merge(plan.key, plan.version, answer, refused) if refused else answer

    link.forward(ask, frame, merge)


async def _counts(gateway: GatewayState, face: ListenerFace, ask: Ask) -> dict[Any, int]:
    """Ask the cluster how many partitions the named topics have, where that matters."""
    if ask.plan.key == apis.CREATE_TOPICS:
        return {}
    request = decode_request(ask.plan.key, ask.plan.version, ask.frame, ask.body_offset)
    names: list[str] = []
    by_id = False
    for topic in request.topics:
        if topic.name is None:
            by_id = True
        else:
            names.append(topic.name)
    names.extend(getattr(request, "topic_names", ()))
    try:
        answer = await gateway.topics(face, None if by_id else names)
    except (up.UpstreamError, OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        log.warning("partitions can't be counted", topics=", ".join(names), error=str(error))
        return {}
    counts: dict[Any, int] = {}
    for topic in answer:
        counts[topic[0]] = topic[2]
        if isinstance(topic[1], uuid.UUID):
            counts[topic[1]] = topic[2]
    return counts
