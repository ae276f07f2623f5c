"""
Requests that the broker has and hasn't answered yet, and how they were passed on: all of it for
those that nothing is special about (``RequestKind``), and the last steps for the others.

A handler of requests is a function that is called when a request's header has come. It returns a
verdict that says what becomes of the request: ``PASSED``, ``WAITS``, ``INCOMPLETE`` or ``COLLECT``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.plans import RequestKind, RequestPlan
from headgate.gateway.session.waits import ANSWERS, HOLDS_CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.headroom import Headroom
    from headgate.gateway.session.commands import Ask
    from headgate.gateway.session.session import Session
    from headgate.wire.messages.produce import IdWalker


class InFlight(NamedTuple):
    """
    An unanswered request.

    One is made per request, so where many are made they are made by ``new_in_flight``: it calls no
    function written in Python.

    Attributes:
        correlation_id: of the request.
        plan: how its API is handled.
        size: bytes of header and body, as Kafka counts them.
        context: who is charged.
        producer_ids: of its batches, where they are charged.
        merge: makes the client's answer from the broker's.
        claim: the headroom that the request uses until it is charged. If it is charged before its
            answer comes: the throttle time to be told, ms.
    """

    correlation_id: int
    plan: RequestPlan
    size: int
    context: Context
    producer_ids: frozenset[int] | None = None
    merge: Callable[[bytes], bytes | Ask] | None = None
    claim: Headroom | int | None = None


new_in_flight: Final = tuple.__new__
"""Make a record of a class and a tuple of all its fields."""
IN_FLIGHT_BYTES: Final = 128
"""About what one unanswered request takes in memory."""
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_PRODUCE: Final = RequestKind.PRODUCE


class Passing:
    """
    A request that is passed on in pieces while it arrives.

    Args:
        asked: the request.
        left: bytes that haven't come yet.
        silent: the broker won't answer it (acks=0).
        walker: reads its producer ids as the pieces pass; None: they aren't needed.

    Attributes:
        passes_untouched: nothing has to be read of its pieces.
    """

    __slots__ = ("asked", "left", "passes_untouched", "silent", "walker")

    def __init__(self, asked: InFlight, left: int, silent: bool, walker: IdWalker | None) -> None:
        self.asked = asked
        self.left = left
        self.silent = silent
        self.walker = walker
        self.passes_untouched = walker is None


class Collecting:
    """
    A request that is collected whole before anything is done with it.

    Args:
        plan: of the request.
        frame: its bytes so far, a copy.
        left: bytes that haven't come yet.
    """

    __slots__ = ("frame", "left", "plan")

    passes_untouched: Final = False

    def __init__(self, plan: RequestPlan, frame: bytearray, left: int) -> None:
        self.plan = plan
        self.frame = frame
        self.left = left


def told_before(asked: InFlight) -> int | None:
    """
    Give back the headroom that an answered request claimed.

    Returns:
        The throttle time to be told, in ms, if the request was charged before its answer; None: it
        has to be charged now.
    """
    claim = asked.claim
    if claim is None or isinstance(claim, int):
        return claim
    produced = asked.size if asked.plan.kind is _KIND_PRODUCE else 0
    claim.release(produced, asked.producer_ids)
    return None


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
_KIND_FETCH: Final = RequestKind.FETCH


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
    asked = new_in_flight(InFlight, (correlation_id, plan, size, context, None, None, None))
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
    session.waits |= ANSWERS
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
    context = asked.context
    producer_ids = asked.producer_ids if walker is None else walker.end()
    if context.epoch != session.rules.contexts.epoch:  # quotas have changed since its header came
        context = session.rules.context(context.principal, context.client_id)
    asked = asked._replace(context=context, producer_ids=producer_ids)
    if passing.silent:
        pass_silent(session, asked, now_ms)
    elif context.limited:
        pass_limited(session, asked, now_ms)
    else:
        unanswered.append(asked)


def pass_limited(session: Session, asked: InFlight, now_ms: int) -> None:
    """Note that a complete request of a client under a quota is passed on."""
    kind, context = asked.plan.kind, asked.context
    produced = asked.size if kind is _KIND_PRODUCE else 0
    headroom = context.headroom
    early = True
    if headroom is not None and (produced or context.timed):
        early = headroom.claim(session, produced, asked.producer_ids, now_ms)
        asked = new_in_flight(InFlight, (*asked[:-1], headroom))
    session.unanswered.append(asked)
    if not early or (kind is _KIND_FETCH and context.fetches_alone):
        session.alone = True
        session.wait_for_answer()
    if session.holds & HOLDS_CLIENT:
        session.set_stalled(True, now_ms)


def pass_silent(session: Session, asked: InFlight, now_ms: int) -> None:
    """Charge a complete Produce that gets no answer (acks=0), now that it is passed on."""
    plan, size, context = asked.plan, asked.size, asked.context
    producer_ids = asked.producer_ids
    headroom = context.headroom
    if headroom is not None:
        headroom.claim(session, size, producer_ids, now_ms)
        headroom.release(size, producer_ids)
    throttle = session.rules.produce(session, context, plan, size, producer_ids, 0, False, now_ms)
    if throttle:
        session.start_throttle(throttle, now_ms)


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
    plan = asked.plan
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
            throttle = rules.request(session, asked.context, plan, asked.size, upstream, now_ms)
    told_ms = throttle if told is None else told
    if told_ms > upstream and has_throttle:
        _PACK_INT(data, pos + at, told_ms)
    return throttle
