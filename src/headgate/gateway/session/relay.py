"""
How requests are passed on: all of it for those that nothing is special about (``RequestKind``), and
the last steps for the others.

A handler of requests is a function that is called when a request's header has come. It returns a
verdict that says what becomes of the request: ``PASSED``, ``WAITS``, ``INCOMPLETE`` or ``COLLECT``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.plans import RequestKind, RequestPlan
from headgate.gateway.session.in_flight import Passing, told_before
from headgate.gateway.session.mute import RESPONSE_SENT

if TYPE_CHECKING:
    from headgate.gateway.session.in_flight import InFlight
    from headgate.gateway.session.session import Session
    from headgate.wire.messages.produce import IdWalker

PASSED: Final = 0
"""The request goes to the broker: the bytes of it that are here, and the rest as it comes."""
WAITS: Final = 1
"""Its bytes and all that follow are held until the session looks again."""
INCOMPLETE: Final = 2
"""More of its first bytes has to come before anything can be said."""
COLLECT: Final = 3
"""It is collected whole before anything is done with it."""
_INT: Final = struct.Struct(">i").unpack_from
_PACK_INT: Final = struct.Struct(">i").pack_into
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_FETCH: Final = RequestKind.FETCH
_KIND_PRODUCE: Final = RequestKind.PRODUCE


def on_request(
    session: Session,
    data: memoryview,
    pos: int,
    header: int,
    size: int,
    plan: RequestPlan,
    correlation_id: int,
    now_ms: int,
) -> int:
    """
    Pass a request on that nothing is special about; all handlers of requests take these arguments.

    Args:
        session: of the session.
        data: what came from the client.
        pos: where the request begins in ``data``.
        header: bytes of its header, the length prefix included.
        size: bytes of the request without the length prefix.
        plan: of the request.
        correlation_id: of the request.
        now_ms: epoch ms.

    Returns:
        PASSED, WAITS, INCOMPLETE or COLLECT.
    """
    context = session.context
    if context.timed and not may_follow(session, 0, now_ms):
        return WAITS
    asked = (correlation_id, plan, size, context, None, None, None)
    left = pos + 4 + size - len(data)
    if left > 0:
        pass_part(session, asked, left, now_ms)
    elif context.timed:
        pass_limited(session, asked, now_ms)
    else:
        session.unanswered.append(asked)
    return PASSED


def may_follow(session: Session, produced: int, now_ms: int) -> bool:
    """
    Say whether a request that may be throttled may be passed on while others are unanswered.

    If not, it waits until they are answered.

    Args:
        session: of the session.
        produced: bytes of a Produce; 0 for any other request.
        now_ms: epoch ms.
    """
    # A request that may not fit waits until those before it are answered, as in Kafka.
    headroom = session.context.headroom
    if not session.unanswered or headroom is None or headroom.fits(produced, now_ms):
        return True
    wait_for_answers(session)
    return False


def wait_for_answers(session: Session) -> int:
    """Take nothing more before all requests in flight are answered."""
    session.until_answered = session.blocked = True
    return WAITS


def collect_alone(
    most_bytes: int,
    session: Session,
    data: memoryview,
    pos: int,
    header: int,
    size: int,
    plan: RequestPlan,
    correlation_id: int,
    now_ms: int,
) -> int:
    """
    Have a request of at most ``most_bytes`` collected once all requests before it are answered.

    Other arguments and result as for ``on_request``.

    Raises:
        RemoteProtocolError: it is too long.
    """
    if session.unanswered:
        return wait_for_answers(session)
    if size > most_bytes:
        raise RemoteProtocolError(
            f"{plan.name} of {size} bytes; at most {most_bytes} are read", reason="oversized"
        )
    return COLLECT


def pass_part(
    session: Session,
    asked: InFlight,
    left: int,
    now_ms: int,
    silent: bool = False,
    walker: IdWalker | None = None,
) -> None:
    """Note that the beginning of a request is passed on; arguments as for ``Passing``."""
    session.begun = Passing(asked, left, silent, walker)
    session.partial_since_ms = now_ms
    if not silent:
        session.unanswered.append(asked)


def pass_rest(session: Session, passing: Passing, now_ms: int) -> None:
    """Note that the last piece of a request is passed on."""
    asked, walker = passing.asked, passing.walker
    unanswered = session.unanswered
    if not passing.silent:
        if not unanswered or unanswered[-1] is not asked:
            return  # answered before it was all there: no broker does that
        unanswered.pop()
    correlation_id, plan, size, context, producer_ids, _, _ = asked
    if walker is not None:
        producer_ids = walker.end()
    if context.epoch != session.rules.contexts.epoch:  # quotas have changed since its header came
        context = session.rules.context(context.principal, context.client_id)
    asked = (correlation_id, plan, size, context, producer_ids, None, None)
    if passing.silent:
        pass_silent(session, asked, now_ms)
    elif context.limited:
        pass_limited(session, asked, now_ms)
    else:
        unanswered.append(asked)


def pass_limited(session: Session, asked: InFlight, now_ms: int) -> None:
    """Note that a complete request of a client under a quota is passed on."""
    correlation_id, plan, size, context, producer_ids, _, _ = asked
    kind = plan.kind
    produced = size if kind is _KIND_PRODUCE else 0
    headroom = context.headroom
    early = True
    if headroom is not None and (produced or context.timed):
        early = headroom.claim(session, produced, producer_ids, now_ms)
        asked = (correlation_id, plan, size, context, producer_ids, None, headroom)
    session.unanswered.append(asked)
    if not early or (kind is _KIND_FETCH and context.fetches_alone):
        session.alone = True
        session.block()
    if session.stalled:
        session.set_stalled(True, now_ms)


def pass_silent(session: Session, asked: InFlight, now_ms: int) -> None:
    """Charge a complete Produce that gets no answer (acks=0), now that it is passed on."""
    _, plan, size, context, producer_ids, _, _ = asked
    headroom = context.headroom
    if headroom is not None:
        headroom.claim(session, size, producer_ids, now_ms)
        headroom.release(size, producer_ids)
    throttle = session.rules.produce(session, context, plan, size, producer_ids, 0, False, now_ms)
    if throttle:
        session.start_throttle(throttle, now_ms)
        if not session.unanswered:
            session.mute.apply(RESPONSE_SENT)


def answered(
    session: Session, data: memoryview, pos: int, size: int, asked: InFlight, now_ms: int
) -> int:
    """
    Charge a request that nothing is special about, and tell the throttle time in its answer.

    Args:
        session: of the session.
        data: what came from the broker; of the answer at least the beginning.
        pos: where the answer begins in ``data``.
        size: bytes of the answer without the length prefix.
        asked: the request.
        now_ms: epoch ms.

    Returns:
        The throttle time that begins now, ms.
    """
    _, plan, asked_bytes, context, _, _, _ = asked
    rules = session.rules
    at = plan.throttle_at
    has_throttle = 0 < at <= size
    told = told_before(asked)
    upstream = throttle = 0
    if rules.counts_requests:
        session.answer_sent = True
        if has_throttle:
            upstream = _INT(data, pos + at)[0]
        if told is None:
            throttle = rules.request(session, context, plan, asked_bytes, upstream, now_ms)
    told_ms = throttle if told is None else told
    if told_ms > upstream and has_throttle:
        _PACK_INT(data, pos + at, told_ms)
    return throttle
