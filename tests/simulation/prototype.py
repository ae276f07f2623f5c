"""
Today's core, patched so that it has one moment for each charge: the laws' final form tried.

This isn't how a core should be built; it is the least that keeps the final form (``forms``). With
it the laws are seen to be right before there is a core that keeps them, and to find faults in one.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.session import answers, fetch, produce, relay, requests
from headgate.gateway.session.relay import InFlight, Passing
from headgate.wire import apis
from simulation import forms

Patch = Any
WHOLE: Final = (apis.METADATA, apis.FIND_COORDINATOR)
BY_ANSWER: Final = (RequestKind.FETCH, RequestKind.SHARE_FETCH)


def final_form(patch: Patch) -> None:
    """Have the laws in their final form, and a core that keeps them."""
    patch.setattr(forms, "FINAL", set(forms.KINDS))
    charge_when_passed(patch)
    tell_what_is_left(patch)
    let_whole_answers_go_alone(patch)


def charge_when_passed(patch: Patch) -> None:
    """Charge a request when its last byte passes, and a ShareFetch by its answer's length."""
    rest, collect = relay.pass_rest, answers.AnswerReader._collect

    def with_charge(before: Any) -> Any:
        def on_request(session: Any, *given: Any) -> int:
            verdict: int = before(session, *given)
            if verdict == relay.PASSED:
                _charge_last(session, given[-2], given[-1])
            return verdict

        return on_request

    def with_charge_of_collected(before: Any) -> Any:
        def take(session: Any, plan: Any, frame: Any, now_ms: int) -> None:
            count = len(session.unanswered)
            before(session, plan, frame, now_ms)
            if len(session.unanswered) > count:
                _charge_last(session, session.unanswered[-1].correlation_id, now_ms)

        return take

    def pass_rest(session: Any, passing: Any, now_ms: int) -> None:
        rest(session, passing, now_ms)
        if not passing.silent:
            _charge_last(session, passing.asked.correlation_id, now_ms)

    def charge_by_length(self: Any, session: Any, plan: Any, head: Any, frame_bytes: int) -> None:
        collect(self, session, plan, head, frame_bytes)
        if plan.kind is RequestKind.SHARE_FETCH:
            asked, now_ms = session.unanswered[0], session.rules.clock()
            throttle = fetch.charge_share(session, asked, frame_bytes, 0, now_ms)
            _is_charged(session, 0, throttle, now_ms)

    _every_handler(patch, with_charge)
    for kind, before in requests._TAKE.items():
        patch.setitem(requests._TAKE, kind, with_charge_of_collected(before))
    patch.setattr(relay, "pass_rest", pass_rest)
    patch.setattr(answers.AnswerReader, "_collect", charge_by_length)


_ends: dict[int, tuple[int, Any]] = {}
"""Of throttled requests, by correlation id: when the throttle ends, and the rules."""


def _charge_last(session: Any, correlation_id: int, now_ms: int) -> None:
    if not session.unanswered or isinstance(session.begun, Passing):
        return
    asked = session.unanswered[-1]
    if asked.correlation_id != correlation_id or asked.plan.kind in BY_ANSWER:
        return
    if type(asked.claim) is not int:
        _is_charged(session, -1, session._charge_passed(asked, now_ms), now_ms)


def _is_charged(session: Any, at: int, throttle_ms: int, now_ms: int) -> None:
    """Note that a request in flight is charged, and begin its throttle."""
    asked = session.unanswered[at]
    session.unanswered[at] = asked._replace(claim=throttle_ms)
    if throttle_ms:
        end_ms = session.rules.gates.time(now_ms) + throttle_ms
        _ends[asked.correlation_id] = end_ms, session.rules
        begin_throttle(session, throttle_ms, now_ms)


def begin_throttle(session: Any, throttle_ms: int, now_ms: int) -> None:
    """Mute a client from the charge of its request on."""
    session.start_throttle(throttle_ms, now_ms)


def tell_what_is_left(patch: Patch) -> None:
    """Tell what is left of a throttle when the answer is sent."""
    whole, in_place = relay.told_before, produce.answered_in_place

    def left(asked: InFlight) -> Any:
        if not isinstance(asked.claim, int) or asked.correlation_id not in _ends:
            return asked.claim
        end_ms, rules = _ends.pop(asked.correlation_id)
        return max(min(asked.claim, end_ms - rules.gates.time(rules.clock())), 0)

    def told_before(asked: InFlight) -> int | None:
        return whole(asked._replace(claim=left(asked)))

    def answered_in_place(own: Any, *given: Any) -> int:
        asked = own.unanswered[0]
        kept = _ends.get(asked.correlation_id)
        own.unanswered[0] = asked._replace(claim=left(asked))
        throttle: int = in_place(own, *given)
        if throttle < 0:  # nothing was done
            own.unanswered[0] = asked
            if kept is not None:
                _ends[asked.correlation_id] = kept
        return throttle

    for module in (produce, relay, answers):
        patch.setattr(module, "told_before", told_before)
    patch.setattr(produce, "answered_in_place", answered_in_place)


def let_whole_answers_go_alone(patch: Patch) -> None:
    """Under a request quota, let nothing pass behind what is read whole, nor that behind others."""

    def alone(before: Any) -> Any:
        def on_request(session: Any, *given: Any) -> int:
            if session.context.timed and session.unanswered:
                plans = [given[4], *(asked.plan for asked in session.unanswered)]
                if any(plan.key in WHOLE for plan in plans):
                    return relay.wait_for_answers(session)
            verdict: int = before(session, *given)
            return verdict

        return on_request

    _every_handler(patch, alone)


def _every_handler(patch: Patch, wrapped: Any) -> None:
    patch.setattr(requests, "_HANDLERS", tuple(map(wrapped, requests._HANDLERS)))
