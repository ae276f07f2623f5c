"""
Topic creations, deletions and growth: charged, and refused in the broker's place (KIP-599).

A broker charges after it has validated a topic; a proxy can't wait for that, so it charges first
and gives back what the broker then refused. Where the request's version has error 89
(THROTTLING_QUOTA_EXCEEDED), topics over quota get it and the other topics are passed on; clients of
older versions are told to wait.

The cluster is asked how many partitions a deleted topic has, and how many a new topic gets by
default if its request doesn't say (``topics``). Without an answer a topic is charged as one
mutation: Kafka charges at least as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ApiError
from headgate.steps import FEW, emptying
from headgate.wire import apis
from headgate.wire.messages import decode_request_steps, mutation

if TYPE_CHECKING:
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.connection.link import Link, Way
    from headgate.gateway.own_answers.answers import Answers
    from headgate.gateway.session.commands import Ask
    from headgate.steps import Work

AT_LEAST: Final = 1
"""Mutations charged for a topic whose partitions aren't known."""


async def charge(answers: Answers, rules: Enforcement, link: Link, ask: Ask) -> None:
    """Charge a request topic by topic, refuse what is over quota, pass on the rest; in slices."""
    plan = ask.plan
    run = answers.slices.run
    request = await run(decode_request_steps(plan.key, plan.version, ask.frame, ask.body_offset))
    current, default = await _known(answers, rules.broker_id, link.listener, plan.key, request)
    asked = await run(
        mutation.mutations(
            plan.key, plan.version, request, current=current.get, default_partitions=default
        )
    )
    refused: list[Any] = []
    charged: dict[Any, int] = {}
    context = link.session.context
    quota = rules.mutations.quota(context, plan, rules.clock())
    link.session.mutation_quota = quota

    def charge_each() -> Work[None]:
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
            now_ms = rules.clock()
            try:
                quota.record(count, now_ms)
            except ApiError:
                refused.append(topic)
            else:
                charged[topic] = count if quota.was_charged else 0
            rules.mutations.charged(link.session, context, plan, count, quota, size, now_ms)
            size = None
            yield

    await run(charge_each())
    if not refused:
        frame = ask.frame
    elif not charged:
        throttle_ms = quota.throttle_time_ms(rules.clock())
        link.answer(
            ask,
            await run(
                mutation.refuse(plan.key, plan.version, ask.correlation_id, refused, throttle_ms)
            ),
        )
        return
    else:
        frame = await run(mutation.keep(plan.key, plan.version, ask.frame, request, refused))

    def give_back(topic: Any) -> None:
        if topic.error_code:
            name = getattr(topic, "name", None)
            count = charged.get(name if name is not None else getattr(topic, "topic_id", None))
            if count:
                # Differs: charged when asked, given back when refused; Kafka validates first.
                rules.mutations.give_back(link.session, context, plan, count)

    def merged(answer: bytes) -> Work[bytes]:
        frame = yield from mutation.merge(plan.key, plan.version, answer, refused, give_back)
        yield from emptying(charged)
        return frame

    def merge(answer: bytes) -> bytes | Ask:
        return answers.merge(link, ask, merged(answer), len(answer) + len(ask.frame))

    link.forward(ask, frame, merge)


async def _known(
    answers: Answers, broker_id: int, listener: Way, key: int, request: Any
) -> tuple[dict[Any, int], int | None]:
    """Return the partitions of existing topics; ``num.partitions`` where a new topic needs it."""
    run, topics = answers.slices.run, answers.topics
    if key == apis.CREATE_TOPICS:
        if await run(_leaves_open(request)):
            return {}, await topics.default(broker_id, listener)
        return {}, None
    refs = await run(mutation.named(request))
    return await topics.partitions(broker_id, listener, refs, run), None


def _leaves_open(request: Any) -> Work[bool]:
    """Whether a topic to create doesn't say how many partitions it shall have."""
    for number, topic in enumerate(request.topics, 1):
        if topic.num_partitions == -1 and not topic.assignments:
            return True
        if not number % FEW:
            yield
    return False
