"""
Faults planted in what happens to a request as it passes; ``plants`` has the others.

Those of ``FINAL`` are planted in the core of ``prototype``, under the laws' final form.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Final

from headgate.gateway.charging import fetch_gate
from headgate.gateway.charging.fetch_hold import FetchHold
from headgate.gateway.session import fetch, produce, relay
from headgate.throttle import pacing
from simulation import forms, prototype
from simulation.brokers import ENDLESS
from simulation.story import Action, Person, Story

Patch = Any
Plant = Callable[[Patch], None]
ALICE: Final = ("alice", None)
PRODUCED, CONSUMED, TIMED = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


def share_fetch_uncharged(patch: Patch) -> None:
    patch.setattr(fetch, "charge_share", lambda *_: 0)


def half_read_produce_keeps_its_quotas(patch: Patch) -> None:
    """It is charged by the quotas of the time when its header came, although they have changed."""
    whole = relay.pass_rest

    def pass_rest(session: Any, passing: Any, now_ms: int) -> None:
        context = copy(passing.asked.context)
        context.epoch = session.rules.contexts.epoch
        context.generation = session.rules.managers.produce.generation
        before = passing.asked._replace(context=context)
        if not passing.silent and session.unanswered[-1] is passing.asked:
            session.unanswered[-1] = before
        passing.asked = before
        whole(session, passing, now_ms)

    patch.setattr(relay, "pass_rest", pass_rest)


def line_lets_all_pass(patch: Patch) -> None:
    """Nobody waits for what is owed beyond one throttle."""
    patch.setattr(pacing.PacedQuotaManager, "overdue_ms", lambda *_: 0)


def fetches_are_asked_at_a_closed_gate(patch: Patch) -> None:
    """Their answers wait for the gate, and what they ask for doesn't."""
    whole = fetch._waits_for_turn

    def waits_for_turn(state: Any, plan: Any, *more: Any) -> bool:
        return plan.kind is not fetch._KIND_FETCH and whole(state, plan, *more)

    patch.setattr(fetch, "_waits_for_turn", waits_for_turn)


def who_passes_keeps_a_gate(patch: Patch) -> None:
    """A fetch that was let pass, and waits in its broker, holds all others."""
    patch.setattr(fetch_gate, "SLOT_MS", 1 << 30)


def wake_up_lost_between_two_gates(patch: Patch) -> None:
    """As it was: who waits at one gate stays the next one at another."""

    def closed(self: Any, principal: str, now_ms: int) -> Any:
        for key in self._keys:
            gate = self._gates.get(key)
            if gate is not None and not (key not in self._turns and gate.idle(now_ms)):
                turn = self._turn_at(key, principal)
                if not turn.gate.admit(turn, now_ms):
                    return turn
        return None

    patch.setattr(FetchHold, "_closed", closed)


# --- under the final form -------------------------------------------------------------------------


def charged_when_answered(patch: Patch) -> None:
    """As today's core does it."""
    patch.setattr(forms, "FINAL", {forms.PRODUCE})


def told_in_full(patch: Patch) -> None:
    """What was waited for before the answer is told once more."""
    patch.setattr(prototype, "tell_what_is_left", lambda patch: None)
    prototype.final_form(patch)


def mute_counted_from_the_answer(patch: Patch) -> None:
    """The throttle is decided when a Produce passes, and begins when its answer comes."""
    prototype.final_form(patch)
    whole = produce.answered_in_place
    patch.setattr(prototype, "begin_throttle", lambda session, *_: session.wait_for_answer())

    def answered_in_place(own: Any, *given: Any) -> int:
        claim = own.unanswered[0].claim
        throttle: int = whole(own, *given)
        return claim if throttle == 0 and type(claim) is int else throttle

    patch.setattr(produce, "answered_in_place", answered_in_place)


def whole_answers_pipelined(patch: Patch) -> None:
    patch.setattr(prototype, "let_whole_answers_go_alone", lambda patch: None)
    prototype.final_form(patch)


# --- lives ----------------------------------------------------------------------------------------


def _story(
    quotas: dict[str, float],
    actions: tuple[Action, ...],
    people: int = 3,
    latency_ms: float = 0.2,
) -> Story:
    """Return a short life of some clients of one principal, on a good network."""
    return Story(
        seed=1,
        length_ms=30_000,
        settings=(),
        quotas=tuple((ALICE, key, value) for key, value in quotas.items()),
        network=(latency_ms, 1.5 * latency_ms, 0.05, 0.0, 131_072),
        brokers=1,
        batch_bytes=10_000,
        people=tuple(
            Person(f"c{at}", "alice", "app", 1, (9, 12), obeys=True) for at in range(people)
        ),
        actions=tuple(sorted(actions, key=lambda action: (action.t_ms, action.who))),
    )


def _all_do(people: int, t_ms: int, what: str, args: tuple[Any, ...]) -> tuple[Action, ...]:
    return tuple(Action(t_ms + 100 * at, f"c{at}", what, args) for at in range(people))


PRODUCES: Final = _story(
    {PRODUCED: 50_000.0}, _all_do(3, 1_500, "produce", (200_000, -1, 8, 2)), 3, 60.0
)
"""Produces over quota, far away."""
TIMES: Final = _story({TIMED: 50.0}, _all_do(2, 1_500, "chat", (30, 3)), 2)
"""Small requests of all kinds, three at once, under a request quota."""
SHARES: Final = _story({CONSUMED: 50_000.0}, _all_do(1, 1_500, "share", (10, 100_000)), 1)
FETCHES: Final = _story(
    {CONSUMED: 50_000.0}, _all_do(4, 1_500, "fetch", (ENDLESS, 10, 500, 100_000)), 4
)
POLLS: Final = _story(
    {CONSUMED: 50_000.0},
    (
        *_all_do(2, 1_500, "fetch", (ENDLESS, 8, 500, 150_000)),
        *(Action(4_500, f"c{at}", "poll", ("t", 3, 9_000, 100_000)) for at in (2, 3)),
    ),
    4,
)
"""Two that read, and two that wait for what nobody writes."""
TWO_GATES: Final = replace(
    _story(
        {},
        tuple(
            Action(t_ms, f"c{at}", "fetch", (ENDLESS, 25, 500, 60_000))
            for at, t_ms in enumerate((1_500, 1_604, 2_040, 2_163, 2_272, 1_705))
        ),
    ),
    network=(0.2, 20.0, 0.05, 0.0, 131_072),
    quotas=((ALICE, CONSUMED, 30_000.0), ((None, "app"), f"{CONSUMED}:bps", 60_000.0)),
    people=tuple(
        Person(f"c{at}", *(("alice", "app"), ("alice", "etl"), ("bob", "app"))[at % 3], 1, (9, 12),
               obeys=True)
        for at in range(6)
    ),
)  # fmt: skip
"""Some pay one quota, some the other, and some both."""
DEAF: Final = replace(
    _story(
        {PRODUCED: 20_000.0},
        (
            Action(1_500, "c0", "deaf", (6_000, 2)),
            Action(1_500, "c0", "produce", (300_000, -1, 2, 1)),
        ),
        1,
    ),
    network=(0.2, 0.3, 0.0, 0.0, 131_072),
    batch_bytes=120_000,
)
"""It takes no answers while it is throttled."""
LINES: Final = _story(
    {f"{PRODUCED}:bps": 20_000.0}, _all_do(6, 1_500, "produce", (150_000, -1, 6, 1)), 6
)
HALF: Final = _story(
    {PRODUCED: 100_000.0},
    (
        Action(1_500, "c0", "produce", (1_000, -1, 2, 1)),
        Action(4_000, "c0", "half", (50_000, 120, 3_000)),
        Action(5_000, "gate1", "quota", (("alice", "app"), PRODUCED, 30_000.0)),
    ),
    1,
)
"""The beginning of a Produce, another quota, and the rest."""
ALIKE: Final = replace(
    _story({PRODUCED: 50_000.0}, _all_do(1, 1_500, "silent", (64_889, 0, 20, 3)), 1),
    seed=5,
    network=(0.5, 5.0, 0.0, 0.0, 131_072),
)
"""Produces of one length that get no answer: one's rest and the next pass in one moment."""
GONE: Final = replace(
    _story(
        {PRODUCED: 200_000.0},
        (
            *_all_do(3, 1_500, "evade", (100_000, 14)),
            Action(18_000, "broker1", "power", (1,)),
        ),
    ),
    length_ms=45_000,
    network=(0.5, 5.0, 0.05, 500.0, 16_384),
    brokers=2,
    people=tuple(Person(f"c{at}", "alice", "app", 1, (9, 12), obeys=False) for at in range(3)),
)
"""Newcomers that wait for each other, and a broker that keeps a request and is gone."""

PLANTS: Final[tuple[tuple[Plant, Story, frozenset[str]], ...]] = tuple(
    (plant, story, frozenset(laws))
    for plant, story, laws in (
        (share_fetch_uncharged, SHARES, ("charged once",)),
        (half_read_produce_keeps_its_quotas, HALF, ("Kafka's decisions",)),
        (line_lets_all_pass, LINES, ("lines",)),
        (fetches_are_asked_at_a_closed_gate, FETCHES, ("gates",)),
        (who_passes_keeps_a_gate, POLLS, ("silence",)),
        (wake_up_lost_between_two_gates, TWO_GATES, ("silence",)),
        (charged_when_answered, PRODUCES, ("charged when passed",)),
        (told_in_full, PRODUCES, ("told",)),
        (mute_counted_from_the_answer, PRODUCES, ("waiting", "told")),
        (whole_answers_pipelined, TIMES, ("whole answers alone",)),
    )
)
"""Each fault, a life in which it shows, and the laws that may find it."""

NAMES: Final = [plant.__name__ for plant, _, _ in PLANTS]
STORIES: Final = (
    PRODUCES,
    TIMES,
    SHARES,
    FETCHES,
    POLLS,
    TWO_GATES,
    DEAF,
    LINES,
    HALF,
    ALIKE,
    GONE,
)
