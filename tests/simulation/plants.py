"""
Faults to be planted in the product while a life is lived: each is a way to lose a law.

A plant gets pytest's ``MonkeyPatch`` and changes what decides. ``test_planted`` holds that the laws
find every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headgate.gateway.charging import lanes
from headgate.gateway.session import answer_reader, held_bytes, produce, relay, state
from headgate.throttle import manager

Patch = Any
Plant = Callable[[Patch], None]


def mute_ends_early(patch: Patch) -> None:
    whole = state.SessionState.start_throttle

    def start_throttle(self: Any, throttle_ms: int, now_ms: int) -> None:
        whole(self, max(throttle_ms * 9 // 10, 1), now_ms)

    patch.setattr(state.SessionState, "start_throttle", start_throttle)


def debt_forgotten_on_reconnect(patch: Patch) -> None:
    patch.setattr(lanes.LaneBook, "leave", lambda *_: None)


def newcomer_served_although_it_owes(patch: Patch) -> None:
    patch.setattr(state.SessionState, "debts_end_ms", lambda self, plan, now_ms: now_ms)


def headroom_waits_on_a_silent_peer(patch: Patch) -> None:
    """A request that may not fit waits until the others' claims are gone."""
    whole = produce.on_request

    def on_request(own: Any, data: Any, pos: int, header: int, size: int, *more: Any) -> int:
        room = own.context.headroom
        if room is not None and not own.unanswered:
            for allowance in room.bytes:
                if allowance.claimed and allowance.spare() - allowance.claimed < size:
                    return relay.wait_for_answers(own)
        return whole(own, data, pos, header, size, *more)

    _handler(patch, whole, on_request)


def half_sent_request_reserves(patch: Patch) -> None:
    """Its headroom is claimed at its first byte, and nobody gives it back when it is cut short."""
    whole = produce.pass_part

    def pass_part(own: Any, asked: Any, *more: Any) -> None:
        if asked[3].headroom is not None:
            asked[3].headroom.claim(own, asked[2], None, more[1])
        whole(own, asked, *more)

    patch.setattr(produce, "pass_part", pass_part)


def charge_made_twice(patch: Patch) -> None:
    """At a hang-up what is in flight is charged, and charged once more."""
    whole = state.SessionState._charge_passed

    def charge_passed(self: Any, asked: Any, now_ms: int) -> int:
        whole(self, (*asked[:6], None), now_ms)
        return whole(self, asked, now_ms)

    patch.setattr(state.SessionState, "_charge_passed", charge_passed)


def charge_lost_at_hang_up(patch: Patch) -> None:
    whole = state.SessionState.charge_unanswered

    def charge_unanswered(self: Any, *, first_is_charged: bool, now_ms: int) -> None:
        self.unanswered.clear()
        whole(self, first_is_charged=first_is_charged, now_ms=now_ms)

    patch.setattr(state.SessionState, "charge_unanswered", charge_unanswered)


def cut_request_uncharged(patch: Patch) -> None:
    """Of a produce that is cut short nothing is charged."""
    patch.setattr(state.SessionState, "_take_cut", lambda self: setattr(self, "begun", None))


def acks_0_uncharged(patch: Patch) -> None:
    patch.setattr(produce, "pass_silent", lambda *_: None)


def answers_out_of_order(patch: Patch) -> None:
    whole = answer_reader.AnswerReader.feed

    def feed(self: Any, data: Any, now_ms: int) -> None:
        before = self._left
        whole(self, data, now_ms)
        out = self._state.to_client
        if len(out) == 2 and not before and not self._left:
            out.reverse()

    patch.setattr(answer_reader.AnswerReader, "feed", feed)


def buffer_without_bound(patch: Patch) -> None:
    def grown(self: Any, by_bytes: int) -> None:
        self.size += by_bytes

    patch.setattr(held_bytes.HeldBytes, "_grown", grown)


def throttle_a_millisecond_off(patch: Patch) -> None:
    whole = manager.throttle_time_ms
    patch.setattr(manager, "throttle_time_ms", lambda *args: whole(*args) + 1)


def mute_begins_when_the_answer_has_come(patch: Patch) -> None:
    """As it was until the simulator found it: seed 19."""
    whole = answer_reader.AnswerReader._begin
    ended = answer_reader.AnswerReader._continue
    due: dict[int, int] = {}

    def begin(self: Any, asked: Any, left: int, throttle_ms: int, answer: Any, now_ms: int) -> None:
        due[id(self)] = throttle_ms
        whole(self, asked, left, 0, answer, now_ms)

    def go_on(self: Any, data: Any, now_ms: int) -> Any:
        left = self._left
        if 0 < left <= len(data) and due.get(id(self)):
            self._state.start_throttle(due.pop(id(self)), now_ms)
        return ended(self, data, now_ms)

    patch.setattr(answer_reader.AnswerReader, "_begin", begin)
    patch.setattr(answer_reader.AnswerReader, "_continue", go_on)


def _handler(patch: Patch, before: Any, after: Any) -> None:
    """Have the request reader call another handler."""
    from headgate.gateway.session import request_reader

    handlers = tuple(after if one is before else one for one in request_reader._HANDLERS)
    patch.setattr(request_reader, "_HANDLERS", handlers)


PLANTS: Final[tuple[tuple[Plant, frozenset[str]], ...]] = tuple(
    (plant, frozenset(laws))
    for plant, laws in (
        (mute_ends_early, ("mutes",)),
        (debt_forgotten_on_reconnect, ("ending never gains",)),
        (newcomer_served_although_it_owes, ("ending never gains",)),
        (headroom_waits_on_a_silent_peer, ("waiting",)),
        (half_sent_request_reserves, ("at rest",)),
        (charge_made_twice, ("charged once",)),
        (charge_lost_at_hang_up, ("charged once",)),
        (cut_request_uncharged, ("charged once",)),
        (acks_0_uncharged, ("charged once",)),
        (answers_out_of_order, ("order", "answers")),
        (buffer_without_bound, ("memory",)),
        (throttle_a_millisecond_off, ("Kafka's decisions",)),
        (mute_begins_when_the_answer_has_come, ("waiting",)),
    )
)
"""Each fault, and the laws that may find it."""
