"""
Fetch and ShareFetch: their limits and holds on the way to the broker, their charge on the way back.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from headgate.gateway.charging.gates import KEPT_BYTES
from headgate.gateway.charging.hold import HELD, LITTLE, PASS, SHARE_HOLD_MS, Hold
from headgate.gateway.charging.plans import RequestKind, RequestPlan
from headgate.gateway.session.relay import (
    COLLECT,
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
from headgate.wire.messages import fetch, share

if TYPE_CHECKING:
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.gates import GateKey
    from headgate.gateway.session.session import Session

_INT: Final = struct.Struct(">i").unpack_from
_PACK_INT: Final = struct.Struct(">i").pack_into
_SESSIONS_SINCE: Final = 7
"""Fetch sessions exist since this version (KIP-227)."""
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_FETCH: Final = RequestKind.FETCH


class FetchSession:
    """
    The fetch session that a client knows, and one that it wasn't told about.

    If the answer that opens a session is emptied, the client never learns the session's id, and the
    session holds a slot of the broker's cache. So that id is written into the client's next full
    fetch, by which the broker closes the session.
    """

    __slots__ = ("_known", "_lost")

    def __init__(self) -> None:
        self._known = self._lost = 0

    def requested(self, view: memoryview, version: int, body: int) -> None:
        """Note a fetch's session; have a full fetch close the session that was lost."""
        head = fetch.read_request(view, version, body)
        self._known = head.session_id
        if self._lost and not head.session_id and head.session_epoch == 0:
            fetch.set_session(view, version, body, self._lost, 0)
            self._lost = 0

    def emptied(self, head: memoryview, correlation_id: int, version: int, wait_ms: int) -> bytes:
        """Return a throttled fetch's answer without records, as a broker writes it."""
        session = 0
        if version >= _SESSIONS_SINCE:
            session = fetch.response_session(head, version)[1]
        if session and session != self._known:
            self._lost, session = session, 0
        return fetch.empty_response(version, correlation_id, wait_ms, session)


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
    """Pass a Fetch on, or hold it; arguments and result as for ``relay.on_request``."""
    context = session.context
    if session.unanswered and context.one_fetch:
        return wait_for_answers(session)
    if (session.hold is not None or context.share_gates) and _waits_for_turn(
        session, plan, context.gates, data[pos:], now_ms
    ):
        return WAITS
    hold = session.hold
    limit = session.rules.fetch_limit(context, now_ms)
    if limit is not None or hold is not None:
        _adapt(session, data[pos : pos + 4 + size], plan.version, limit, now_ms)
    asked = new_in_flight(InFlight, (correlation_id, plan, size, context, None, None))
    left = pos + 4 + size - len(data)
    if left > 0:
        pass_part(session, asked, left, now_ms)
    else:
        passed(session, asked, now_ms)
    return PASSED


def on_share_request(
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
    Collect a ShareFetch, or hold it; arguments and result as for ``relay.on_request``.

    It comes here again when it is whole, and is held only then: gates may close meanwhile.
    """
    if session.unanswered and session.context.one_fetch:
        return wait_for_answers(session)
    if len(data) - pos < 4 + size:
        return COLLECT
    gates = session.context.share_gates
    if (session.hold is not None or gates) and _waits_for_turn(
        session, plan, gates, data[pos:], now_ms
    ):
        return WAITS
    return COLLECT


def take_share_fetch(session: Session, plan: RequestPlan, frame: memoryview, now_ms: int) -> None:
    """Pass on a ShareFetch that was collected, asking for no more than the quota's window."""
    _, version, correlation_id, _, body = parse_request_header(frame)
    context = session.context
    limit = session.rules.fetch_limit(context, now_ms)
    asks = frame if limit is None else share.cap_request(frame, version, body, limit)
    if session.hold is not None and session.hold.expired:
        asks = share.ask_little(asks, version, body)
    session.to_broker.append(asks)
    passed(session, InFlight(correlation_id, plan, len(frame) - 4, context), now_ms)


def _adapt(
    session: Session, view: memoryview, version: int, limit: int | None, now_ms: int
) -> None:
    """Write into a Fetch how much it may ask for and how long the broker may wait."""
    hold = session.hold
    body = parse_request_header(view)[4]
    if limit is not None:
        fetch.cap_request(view, version, body, limit)
    if version >= _SESSIONS_SINCE and (session.rules.empties_fetches or hold is not None):
        _session(session).requested(view, version, body)
    if hold is not None and not hold.idle:
        delayed_ms = hold.delayed_ms(now_ms)
        if hold.expired:
            fetch.ask_little(view, version, body)
        elif delayed_ms:
            fetch.shorten_wait(view, version, body, delayed_ms)


def _session(session: Session) -> FetchSession:
    if session.fetch_session is None:
        session.fetch_session = FetchSession()
    return session.fetch_session


def _waits_for_turn(
    session: Session,
    plan: RequestPlan,
    keys: tuple[GateKey, ...],
    frame: memoryview,
    now_ms: int,
) -> bool:
    """Whether a fetch is held for now; one that asks for no records never is."""
    if (session.hold is None or session.hold.idle) and not session.rules.gates.any_at(keys):
        return False
    # Differs: a fetch whose quota-id owes is held; Kafka answers it empty and mutes.
    way, hold = _turn(session, plan, session.context, keys, now_ms, now_ms)
    if way != HELD:
        return False
    if plan.kind is _KIND_FETCH and fetch.asks_nothing(
        frame, plan.version, parse_request_header(frame)[4]
    ):
        hold.pass_unasked(now_ms)
        return False
    session.waits |= TURN
    return True


def _turn(
    session: Session,
    plan: RequestPlan,
    context: Context,
    keys: tuple[GateKey, ...],
    since_ms: int,
    now_ms: int,
) -> tuple[int, Hold]:
    """Say whether a fetch or its answer may go on (``Hold.admit``); if not, have it woken."""
    rules = session.rules
    hold = session.hold
    if hold is None:
        hold = session.hold = Hold(rules.gates, session.call)
    most_ms = rules.hold_ms
    if plan.kind is not _KIND_FETCH and most_ms > SHARE_HOLD_MS:
        most_ms = SHARE_HOLD_MS
    way = hold.admit(keys, context.principal, since_ms, most_ms, now_ms)
    if way == HELD:
        session.look_again_at(hold.wake_ms)
    elif hold.waited_ms:
        rules.held(session, context, plan, hold.take_waited(), now_ms)
    return way, hold


def _answer_way(
    session: Session, plan: RequestPlan, context: Context, data: memoryview, now_ms: int
) -> int:
    """
    Say what becomes of a Fetch's answer: PASS, HELD for its turn, or emptied (LITTLE).

    Args:
        session: of the session.
        plan: of the request.
        context: the one that the request was passed on with.
        data: the answer, as far as it has come.
        now_ms: epoch ms.
    """
    rules = session.rules
    if rules.contexts.epoch != context.epoch:  # quotas have changed since it was asked for
        context = rules.context(context.principal, context.client_id)
    hold = session.hold
    if hold is None or hold.idle:
        if session.gone or not rules.gates.any_at(context.gates):
            return PASS
    elif hold.expired:
        return LITTLE
    elif hold.asks_nothing or session.gone:
        return PASS
    if plan.version >= _SESSIONS_SINCE and fetch.response_session(data, plan.version)[0]:
        return PASS  # an error has no records
    way, hold = _turn(session, plan, context, context.gates, session.asked_ms, now_ms)
    if way == HELD and rules.gates.kept_bytes + len(data) > KEPT_BYTES:
        hold.drop_answer(now_ms)
        return LITTLE
    return way


def answered(
    session: Session, data: memoryview, pos: int, size: int, asked: InFlight, now_ms: int
) -> tuple[bytes | None, bool]:
    """
    Charge a Fetch by its answer's size, which is known, and tell the throttle time in its answer.

    Args:
        session: of the session.
        data: what came from the broker; of the answer at least the beginning.
        pos: where the answer begins in ``data``.
        size: bytes of the answer without the length prefix.
        asked: the request.
        now_ms: epoch ms.

    Returns:
        What is sent in place of the answer (None: the answer itself), and whether it is charged;
        False: it waits for its turn.
    """
    plan, context = asked.plan, asked.context
    rules, hold = session.rules, session.hold
    withheld = False
    if context.limited or hold is not None or rules.contexts.epoch != context.epoch:
        way = _answer_way(session, plan, context, data[pos:], now_ms)
        if way == HELD:
            return None, False
        withheld = way == LITTLE
        hold = session.hold
    at = plan.throttle_at
    has_throttle = 0 < at <= size
    upstream = _INT(data, pos + at)[0] if has_throttle else 0
    # Differs: a fetch over quota keeps its records and is charged; Kafka empties it.
    # Differs: node endpoints (of moved leaders) in a fetch's answer are charged.
    throttle = rules.fetch(session, context, plan, asked.size, size + 4, now_ms, withheld=withheld)
    if throttle:
        asked = asked._replace(throttle=session.throttled(throttle, now_ms))
    told = 0
    if throttle or upstream or rules.counts_requests:
        told = session.tell(asked, upstream, now_ms)
    if hold is not None:
        if withheld:
            hold.emptied()
        elif not hold.idle:
            hold.charged(now_ms)
    if withheld or (throttle and rules.empties_fetches):
        empty = _session(session).emptied(data[pos:], asked.correlation_id, plan.version, told)
        rules.unfetch(session, context, plan, size + 4, now_ms)
        return empty, True
    if told > upstream and has_throttle:
        _PACK_INT(data, pos + at, told)
    return None, True


def charge_share(session: Session, answer_bytes: int, now_ms: int) -> None:
    """Charge the oldest request, a ShareFetch, by its answer's size, which is known now."""
    asked = session.unanswered[0]
    throttle = session.rules.fetch(
        session, asked.context, asked.plan, asked.size, answer_bytes, now_ms
    )
    if session.hold is not None:
        session.hold.charged(now_ms)
    if throttle:
        session.unanswered[0] = asked._replace(throttle=session.throttled(throttle, now_ms))
