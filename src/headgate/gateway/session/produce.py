"""
Produce: its acks and producer ids as the request passes, and the throttle time in its answer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.hold import PASS, Hold
from headgate.gateway.session.relay import (
    INCOMPLETE,
    PASSED,
    WAITS,
    InFlight,
    new_in_flight,
    pass_part,
    passed,
    wait_for_answers,
)
from headgate.gateway.session.waits import TURN
from headgate.wire.header import parse_request_header
from headgate.wire.messages import produce

if TYPE_CHECKING:
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.gateway.session.session import Session

MAX_HEAD_BYTES: Final = 66_560
"""Most bytes that are kept until a Produce's acks have come. Before them are a client id and a
transactional id, of 32,767 bytes at most each."""
LATE_ACKS: Final = 4
"""Bytes before a Produce's acks by a unit of work (``Session.budget``), as a power of two."""
_INT: Final = struct.Struct(">i").unpack_from
_PACK_INT: Final = struct.Struct(">i").pack_into
_SHORT: Final = struct.Struct(">h").unpack_from
_ACKS: Final = struct.Struct(">hh").unpack_from
_TAIL: Final = struct.Struct(">iB").unpack_from
"""The end of a flexible Produce answer without tags: the throttle time, and how many tags."""


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
    """Pass a Produce on; arguments and result as for ``relay.on_request``."""
    version, context = plan.version, session.context
    left = pos + 4 + size - len(data)
    if context.alone and session.unanswered:
        return wait_for_answers(session)
    if (session.produce_hold is not None or context.produce_gates) and _waits_for_turn(
        session, context, now_ms
    ):
        return WAITS
    acks: int | None = None
    if header <= size:
        # Without a transactional id, and without tags in a flexible header, acks come next.
        none, acks = _ACKS(data, pos + header)
        if none != (-1 if version < 9 else 0) or version < 3:
            acks = None
    if acks is None:
        head = data[pos : pos + 4 + size]
        session.budget -= len(head[:MAX_HEAD_BYTES]) >> LATE_ACKS
        acks = _late_acks(head, version, header)
        if acks is None:  # never guessed
            if len(data) - pos >= MAX_HEAD_BYTES:
                raise RemoteProtocolError(
                    f"a Produce whose acks don't come in its first {len(data) - pos} bytes"
                )
            return INCOMPLETE
    producer_ids = walker = None
    if session.rules.counts_producer_ids:
        producer_ids, walker = _ids_in(data[pos:], version, header, left, 4 + size)
        session.budget -= 2 + len(producer_ids or ())
    asked = new_in_flight(InFlight, (correlation_id, plan, size, context, None, None))
    if left > 0:
        pass_part(session, asked, left, now_ms, not acks, walker)
    else:
        passed(session, asked, now_ms, producer_ids, silent=not acks)
    return PASSED


def _waits_for_turn(session: Session, context: Context, now_ms: int) -> bool:
    """Whether a Produce is held for now: its quota-id owes more than one throttle may tell."""
    keys, gates, hold = context.produce_gates, session.rules.gates, session.produce_hold
    if (hold is None or hold.idle) and not gates.any_at(keys):
        return False
    if hold is None:
        hold = session.produce_hold = Hold(gates, session.call)
    if hold.admit(keys, context.principal, now_ms, None, now_ms) == PASS:
        return False
    session.look_again_at(hold.wake_ms)
    session.waits |= TURN
    return True


def _late_acks(view: memoryview, version: int, header: int) -> int | None:
    """Read a Produce request's acks behind its transactional id; None: they haven't come yet."""
    try:
        if version < 3:
            return int(_SHORT(view, header)[0])
        body = header if version < 9 else parse_request_header(view)[4]
        return produce.acks(view, version, body)
    except (RemoteProtocolError, struct.error):
        if len(view) >= _INT(view)[0] + 4:
            raise RemoteProtocolError("a Produce request that ends before its acks") from None
        return None


def _ids_in(
    view: memoryview, version: int, header: int, left: int, frame_bytes: int
) -> tuple[frozenset[int] | None, produce.IdWalker | None]:
    """Return the producer ids of a Produce, or what reads them if it isn't all here."""
    body = header if version < 9 else parse_request_header(view)[4]
    if left <= 0:
        return produce.producer_ids(view[:frame_bytes], version, body), None
    walker = produce.IdWalker(version)
    walker.feed(view[body:])
    return None, walker


def answered_in_place(session: Session, data: memoryview, pos: int, size: int, now_ms: int) -> bool:
    """
    Tell in place what is left of a Produce's throttle, in an answer that is all here.

    Args:
        session: of the session.
        data: what came from the broker.
        pos: where the answer begins in ``data``.
        size: bytes of the answer without the length prefix.
        now_ms: epoch ms.

    Returns:
        False: nothing was done, since the answer has to be read as a whole.
    """
    asked = session.unanswered[0]
    version = asked.plan.version
    at = pos + size  # where the last 4 bytes are
    upstream, tags = _TAIL(data, at - 1)
    if version < 9:
        upstream = _INT(data, at)[0]
    elif upstream or tags:  # a throttle, endpoints or both
        return False
    else:
        at -= 1
    if size <= 8 or not version:
        return False
    session.unanswered.popleft()
    if upstream or asked.throttle is not None or session.rules.counts_requests:
        told = session.tell(asked, upstream, now_ms)
        if told > upstream:
            _PACK_INT(data, at, told)
    return True
