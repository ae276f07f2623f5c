"""
Requests that the broker has and hasn't answered yet, and how they were passed on: all of it for
those that nothing is special about (``RequestKind``), and the last steps for the others.

A request is charged when its last byte was handed to the upstream (``passed``), and its connection
is muted from then on. Its answer tells what is left of the throttle.

A handler of requests is a function that is called when a request's header has come. It returns a
verdict that says what becomes of the request: ``PASSED``, ``WAITS``, ``INCOMPLETE`` or ``COLLECT``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.plans import RequestKind, RequestPlan
from headgate.gateway.session.waits import ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.charging.clients import Told
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.session.commands import Ask
    from headgate.gateway.session.session import Session
    from headgate.wire.messages.produce import IdWalker


class PendingThrottle(NamedTuple):
    """
    The throttle of a request that isn't answered yet.

    Attributes:
        ms: as it was decided.
        end_ms: when it ends, by a clock that is never set (``Enforcement.steady_ms``).
        why: what decided.
        at_ms: when the request was charged, epoch ms.
    """

    ms: int
    end_ms: int
    why: Told | None
    at_ms: int


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
        merge: makes the client's answer from the broker's.
        throttle: what its charge decided; None: it isn't throttled, or isn't charged yet.
    """

    correlation_id: int
    plan: RequestPlan
    size: int
    context: Context
    merge: Callable[[bytes], bytes | Ask] | None = None
    throttle: PendingThrottle | None = None


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
        asked: the request, as it was when its header came.
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
_KIND_SHARE_FETCH: Final = RequestKind.SHARE_FETCH


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
    if context.timed and session.unanswered and (plan.alone or context.alone):
        return wait_for_answers(session)
    asked = new_in_flight(InFlight, (correlation_id, plan, size, context, None, None))
    left = pos + 4 + size - len(data)
    if left > 0:
        pass_part(session, asked, left, now_ms)
    else:
        passed(session, asked, now_ms)
    return PASSED


def wait_for_answers(session: Session) -> int:
    """Take nothing more before all requests in flight are answered."""
    session.waits |= ANSWER
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
    silent = passing.silent or not (unanswered and unanswered[-1] is asked)
    if not silent:
        unanswered.pop()  # it is put back as it was charged
    producer_ids = None if walker is None else walker.end()
    asked = session.of_payer(asked)
    if not unanswered:
        session.asked_ms = now_ms
    passed(session, asked, now_ms, producer_ids, silent=silent)


def passed(
    session: Session,
    asked: InFlight,
    now_ms: int,
    producer_ids: frozenset[int] | None = None,
    *,
    silent: bool = False,
) -> None:
    """
    Charge a request whose last byte is passed on, and begin its throttle.

    Fetches aren't charged here: nobody knows how much they will get.

    Args:
        session: of the session.
        asked: the request.
        now_ms: epoch ms.
        producer_ids: of its batches, where they are charged.
        silent: the broker won't answer it (acks=0), or has before it was all there.
    """
    _, plan, size, context, _, _ = asked
    kind = plan.kind
    if kind is _KIND_PRODUCE:
        ms = session.rules.produce(session, context, plan, size, producer_ids, not silent, now_ms)
        if session.produce_hold is not None:
            session.produce_hold.charged(now_ms)
    elif kind is _KIND_FETCH or kind is _KIND_SHARE_FETCH:
        ms = 0
        if context.one_fetch:
            session.wait_for_answer()
    else:
        ms = session.charge(plan, context, size, now_ms)
    if ms:
        asked = asked._replace(throttle=session.throttled(ms, now_ms))
    if silent:
        if ms:
            session.rules.tell(session, context, plan, session.told, ms, 0, 0, now_ms)
        return
    session.unanswered.append(asked)
    if context.timed and (plan.alone or context.alone):
        session.waits |= ANSWER


def answered(
    session: Session, data: memoryview, pos: int, size: int, asked: InFlight, now_ms: int
) -> None:
    """
    Tell what is left of the throttle in the answer to a request that nothing is special about.

    Args:
        session: of the session.
        data: what came from the broker; of the answer at least the beginning.
        pos: where the answer begins in ``data``.
        size: bytes of the answer without the length prefix.
        asked: the request.
        now_ms: epoch ms.
    """
    at = asked.plan.throttle_at
    has_throttle = 0 < at <= size
    upstream = _INT(data, pos + at)[0] if has_throttle else 0
    told = session.tell(asked, upstream, now_ms)
    if told > upstream and has_throttle:
        _PACK_INT(data, pos + at, told)
