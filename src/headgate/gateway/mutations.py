"""
Topic creations, deletions and growth: charged, and refused in the broker's place (KIP-599).

A broker charges after it has validated a topic; a proxy can't wait for that, so it charges first
and gives back what the broker then refused. Versions whose clients know error 89 get it for the
topics over quota, and the others go on; older versions are told to wait.

How many partitions a deleted topic has, or a new one gets that leaves it open, is asked of the
cluster (``topics``). What it won't say is charged as one: as much as Kafka would at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ApiError
from headgate.wire import apis
from headgate.wire.messages import decode_request, decode_response, mutation

if TYPE_CHECKING:
    from headgate.gateway.commands import Ask
    from headgate.gateway.face import ListenerFace
    from headgate.gateway.front import BrokerFront
    from headgate.gateway.gateway_state import GatewayState
    from headgate.gateway.link import Link

AT_LEAST: Final = 1
"""Mutations a topic is charged whose partitions nobody can tell."""


async def charge(
    gateway: GatewayState, front: BrokerFront, face: ListenerFace, link: Link, ask: Ask
) -> None:
    """Charge a request topic by topic, refuse what is over quota, pass on the rest."""
    plan = ask.plan
    rules = front.rules
    current, default = await _known(gateway, front, face, ask)
    asked = mutation.mutations(
        plan.key,
        plan.version,
        ask.frame,
        ask.body_offset,
        current=current.get,
        default_partitions=default,
    )
    now_ms = rules.clock()
    context = link.session.context
    quota = rules.mutation_quota(context, plan, now_ms)
    refused: list[Any] = []
    charged: dict[Any, int] = {}
    size: int | None = len(ask.frame)
    for topic, partitions in zip(asked.topics, asked.partitions, strict=True):
        if current.get(topic) == 0:
            count = 0  # there is no such topic: the broker refuses it and charges nothing
        elif partitions is None:
            # Differs: a topic whose partitions the cluster won't tell counts as one mutation.
            count = AT_LEAST
            rules.meters.mutations_guessed += 1
        else:
            count = partitions
        try:
            quota.record(count, now_ms)
        except ApiError:
            refused.append(topic)
        else:
            charged[topic] = count if quota.was_charged else 0
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


async def _known(
    gateway: GatewayState, front: BrokerFront, face: ListenerFace, ask: Ask
) -> tuple[dict[Any, int], int | None]:
    """Find out how many partitions topics have, or get that leave it open, where that matters."""
    request = decode_request(ask.plan.key, ask.plan.version, ask.frame, ask.body_offset)
    if ask.plan.key == apis.CREATE_TOPICS:
        if any(topic.num_partitions == -1 and not topic.assignments for topic in request.topics):
            return {}, await gateway.topics.default(front, face)
        return {}, None
    refs = [topic.topic_id if topic.name is None else topic.name for topic in request.topics]
    refs.extend(getattr(request, "topic_names", ()))
    return await gateway.topics.partitions(front, face, refs), None
