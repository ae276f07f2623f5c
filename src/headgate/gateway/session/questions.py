"""
Requests that the gateway answers itself, or has the shell change before they are passed on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.charging.plans import RequestPlan
from headgate.gateway.session import relay
from headgate.gateway.session.commands import Ask
from headgate.gateway.session.relay import InFlight, collect_alone
from headgate.wire.header import parse_request_header

if TYPE_CHECKING:
    from headgate.gateway.session.session import Session

MAX_ASKED_BYTES: Final = 1 << 20
"""Longest request that is decoded field by field, on the event loop: a million bytes may hold as
many fields, which take a second and more."""
# Differs: what the gateway reads whole is 1 MiB at most, or it closes.
on_request: Final = partial(collect_alone, MAX_ASKED_BYTES)
_INT: Final = struct.Struct(">i")


def on_mutation(session: Session, *request: Any) -> int:
    """Ask about a topic change where mutations are charged; else pass it on like any other."""
    handler = on_request if session.rules.counts_mutations else relay.on_request
    return handler(session, *request)


def take(session: Session, plan: RequestPlan, frame: memoryview, now_ms: int) -> None:
    """Ask the shell what becomes of a request that was collected."""
    _, _, correlation_id, client_id, body = parse_request_header(frame)
    session.wait_for_answer()
    ask = Ask(
        plan,
        correlation_id,
        client_id,
        body,
        bytes(frame),
        session.identity.principal,
        client_ip=session.client_ip,
    )
    session.retains = True
    session.ask(ask)


def answer(session: Session, ask: Ask, frame: bytes, now_ms: int) -> int:
    """Charge a question and send the gateway's own answer; return the throttle time, ms."""
    session.no_question()
    plan = ask.plan
    at = plan.throttle_at
    upstream = _INT.unpack_from(frame, at)[0] if at > 0 else 0
    throttle = session.charge(plan, session.context, len(ask.frame) - 4, upstream, now_ms)
    if throttle > upstream and at > 0:
        told = bytearray(frame)
        _INT.pack_into(told, at, throttle)
        frame = bytes(told)
    session.to_client.append(frame)
    return throttle


def forward(
    session: Session, ask: Ask, frame: bytes, merge: Callable[[bytes], bytes | Ask] | None
) -> None:
    """Pass a question on; ``merge`` makes the client's answer from the broker's."""
    session.no_question()
    session.to_broker.append(frame)
    session.unanswered.append(
        InFlight(ask.correlation_id, ask.plan, len(ask.frame) - 4, session.context, merge=merge)
    )
