"""
SASL: what a client sends, and what the broker answers, is shown to the client's identity.

After a handshake of version 0 both sides send bare tokens: a length, then bytes that only the
mechanism understands.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.plans import RAW_TOKEN, RequestPlan
from headgate.gateway.session.commands import Ask
from headgate.gateway.session.relay import InFlight, collect_alone
from headgate.wire.header import parse_request_header

if TYPE_CHECKING:
    from headgate.gateway.session.session import Session
    from headgate.wire.fields import Buffer

MAX_REQUEST_BYTES: Final = 524_288
"""Longest request or bare token that is taken, after login too: it is copied and read in one piece.
A client that isn't known yet may send no more either (``Session.max_bytes``)."""
MAX_TOKEN_ANSWER_BYTES: Final = 1_048_576
"""Largest answer to a bare SASL token: far above what any mechanism says."""
# Differs: a SASL request of more than 512 KiB closes after login, too, and without SASL.
on_request: Final = partial(collect_alone, MAX_REQUEST_BYTES)
_INT: Final = struct.Struct(">i").unpack_from


def take(session: Session, plan: RequestPlan, frame: memoryview, now_ms: int) -> None:
    """Take a SASL request or a bare token that was collected."""
    session.wait_for_answer()
    correlation_id, client_id, body = 0, None, 4
    if plan is RAW_TOKEN:
        session.requests_taken += 1
    else:
        _, _, correlation_id, client_id, body = parse_request_header(frame)
    identity = session.identity
    token_id = identity.unknown_token(plan.key, plan.version, frame, body)
    if token_id is None:
        pass_on(session, plan, correlation_id, body, frame)
        return
    ask = Ask(plan, correlation_id, client_id, body, bytes(frame), identity.principal, token_id)
    session.ask(ask)


def pass_on(
    session: Session,
    plan: RequestPlan,
    correlation_id: int,
    body: int,
    frame: memoryview | bytes,
) -> None:
    """Pass a SASL request or a bare token on, unless the identity refuses it."""
    identity = session.identity
    if plan is RAW_TOKEN:
        identity.raw_request(frame)
    else:
        refusal = identity.request(plan.key, plan.version, bytes(frame), body)
        if refusal is not None:
            session.to_client.append(refusal)
            session.end(identity.close_reason or "authentication-failed", identity.close_text)
            return
    session.to_broker.append(frame)
    session.unanswered.append(InFlight(correlation_id, plan, len(frame) - 4, session.context))


def answered(session: Session, plan: RequestPlan, frame: Buffer) -> None:
    """Show the identity a broker's answer; it takes a principal only when the broker accepts it."""
    before = session.identity.principal
    if plan is RAW_TOKEN:
        session.identity.raw_response(frame)
    else:
        session.identity.response(plan.key, plan.version, bytes(frame))
    session.identified(before)


def token_answered(session: Session, collected: bytearray) -> bool:
    """
    Take the answer to a bare SASL token, if it has all come.

    Args:
        session: of the session.
        collected: what has come of it; it goes to the client.

    Raises:
        RemoteProtocolError: there is more than an answer, or nothing was asked.
    """
    if len(collected) < 4:
        return False
    end = _INT(collected)[0] + 4
    if not 4 <= end <= MAX_TOKEN_ANSWER_BYTES:
        raise RemoteProtocolError(
            f"an answer of {end - 4} bytes to a SASL token", reason="upstream-oversized"
        )
    if len(collected) < end:
        return False
    if not session.unanswered or len(collected) > end:
        raise RemoteProtocolError("a SASL answer to no token", reason="upstream-unexpected")
    session.unanswered.popleft()
    answered(session, RAW_TOKEN, collected)
    session.to_client.append(collected)
    return True
