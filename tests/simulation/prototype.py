"""
Today's core, patched so that it has one moment for each charge: the laws' final form tried.

This isn't how a core should be built; it is the least that keeps the final form (``forms``). With
it the laws are seen to be right before there is a core that keeps them, and to find faults in one.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.session import answer_reader, fetch, produce, relay, request_reader
from headgate.gateway.session.in_flight import Passing
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
    rest, collect = relay.pass_rest, answer_reader.AnswerReader._collect

    def with_charge(before: Any) -> Any:
        def on_request(state: Any, *given: Any) -> int:
            verdict: int = before(state, *given)
            if verdict == relay.PASSED:
                _charge_last(state, given[-2], given[-1])
            return verdict

        return on_request

    def with_charge_of_collected(before: Any) -> Any:
        def take(state: Any, plan: Any, frame: Any, now_ms: int) -> None:
            count = len(state.unanswered)
            before(state, plan, frame, now_ms)
            if len(state.unanswered) > count:
                _charge_last(state, state.unanswered[-1][0], now_ms)

        return take

    def pass_rest(state: Any, passing: Any, now_ms: int) -> None:
        rest(state, passing, now_ms)
        if not passing.silent:
            _charge_last(state, passing.asked[0], now_ms)

    def charge_by_length(self: Any, plan: Any, head: Any, frame_bytes: int) -> None:
        collect(self, plan, head, frame_bytes)
        state = self._state
        if plan.kind is RequestKind.SHARE_FETCH:
            asked, now_ms = state.unanswered[0], state.rules.clock()
            throttle = fetch.charge_share(state, asked, frame_bytes, 0, now_ms)
            _is_charged(state, 0, throttle, now_ms)

    _every_handler(patch, with_charge)
    for kind, before in request_reader._TAKE.items():
        patch.setitem(request_reader._TAKE, kind, with_charge_of_collected(before))
    patch.setattr(relay, "pass_rest", pass_rest)
    patch.setattr(answer_reader.AnswerReader, "_collect", charge_by_length)


_ends: dict[int, tuple[int, Any]] = {}
"""Of throttled requests, by correlation id: when the throttle ends, and the rules."""


def _charge_last(state: Any, correlation_id: int, now_ms: int) -> None:
    if not state.unanswered or isinstance(state.begun, Passing):
        return
    asked = state.unanswered[-1]
    if asked[0] == correlation_id and asked[1].kind not in BY_ANSWER and type(asked[6]) is not int:
        _is_charged(state, -1, state._charge_passed(asked, now_ms), now_ms)


def _is_charged(state: Any, at: int, throttle_ms: int, now_ms: int) -> None:
    """Note that a request in flight is charged, and begin its throttle."""
    asked = state.unanswered[at]
    state.unanswered[at] = (*asked[:6], throttle_ms)
    if throttle_ms:
        _ends[asked[0]] = state.rules.gates.time(now_ms) + throttle_ms, state.rules
        begin_throttle(state, throttle_ms, now_ms)


def begin_throttle(state: Any, throttle_ms: int, now_ms: int) -> None:
    """Mute a client from the charge of its request on."""
    state.start_throttle(throttle_ms, now_ms)


def tell_what_is_left(patch: Patch) -> None:
    """Tell what is left of a throttle when the answer is sent."""
    whole, in_place = relay.told_before, produce.answered_in_place

    def left(asked: Any) -> Any:
        if type(asked[6]) is not int or asked[0] not in _ends:
            return asked[6]
        end_ms, rules = _ends.pop(asked[0])
        return max(min(asked[6], end_ms - rules.gates.time(rules.clock())), 0)

    def told_before(asked: Any) -> int | None:
        return whole((*asked[:6], left(asked)))

    def answered_in_place(own: Any, *given: Any) -> int:
        asked = own.unanswered[0]
        kept = _ends.get(asked[0])
        own.unanswered[0] = (*asked[:6], left(asked))
        throttle: int = in_place(own, *given)
        if throttle < 0:  # nothing was done
            own.unanswered[0] = asked
            if kept is not None:
                _ends[asked[0]] = kept
        return throttle

    for module in (produce, relay, answer_reader):
        patch.setattr(module, "told_before", told_before)
    patch.setattr(produce, "answered_in_place", answered_in_place)


def let_whole_answers_go_alone(patch: Patch) -> None:
    """Under a request quota, let nothing pass behind what is read whole, nor that behind others."""

    def alone(before: Any) -> Any:
        def on_request(state: Any, *given: Any) -> int:
            if state.context.timed and state.unanswered:
                plans = [given[4], *(asked[1] for asked in state.unanswered)]
                if any(plan.key in WHOLE for plan in plans):
                    return relay.wait_for_answers(state)
            verdict: int = before(state, *given)
            return verdict

        return on_request

    _every_handler(patch, alone)


def _every_handler(patch: Patch, wrapped: Any) -> None:
    patch.setattr(request_reader, "_HANDLERS", tuple(map(wrapped, request_reader._HANDLERS)))
