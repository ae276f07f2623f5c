"""
Faults planted in what happens to a request as it passes; ``plants`` has the others.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Final

from headgate.gateway.charging import gates
from headgate.gateway.charging.contexts import Context
from headgate.gateway.charging.hold import Hold
from headgate.gateway.charging.lanes import Debts
from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.charging.waiting import Waiting
from headgate.gateway.session import fetch, produce, relay
from headgate.gateway.session.session import Session
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

    def of_payer(self: Any, asked: Any) -> Any:
        context = copy(asked.context)
        context.generation = self.rules.managers.produce.generation
        return asked._replace(context=context)

    patch.setattr(Session, "of_payer", of_payer)


def produces_pass_a_closed_gate(patch: Patch) -> None:
    """Nobody waits for what is owed beyond one throttle."""
    patch.setattr(produce, "_waits_for_turn", lambda *_: False)


def fetches_are_asked_at_a_closed_gate(patch: Patch) -> None:
    """Their answers wait for the gate, and what they ask for doesn't."""
    whole = fetch._waits_for_turn

    def waits_for_turn(state: Any, plan: Any, *more: Any) -> bool:
        return plan.kind is not fetch._KIND_FETCH and whole(state, plan, *more)

    patch.setattr(fetch, "_waits_for_turn", waits_for_turn)


def who_passes_keeps_a_gate(patch: Patch) -> None:
    """A fetch that was let pass, and waits in its broker, holds all others."""
    patch.setattr(gates, "SLOT_MS", 1 << 30)


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

    patch.setattr(Hold, "_closed", closed)


def charged_when_answered(patch: Patch) -> None:
    """As it was: a Produce is charged when its answer comes."""
    whole, tell, cut = relay.passed, Session.tell, Session._charge_cut
    due = relay.PendingThrottle(0, 0, None, 0)

    def passed(own: Any, asked: Any, *more: Any, silent: bool = False) -> None:
        if asked.plan.kind is RequestKind.PRODUCE and not silent:
            own.unanswered.append(asked._replace(throttle=due))
        else:
            whole(own, asked, *more, silent=silent)

    def charge(own: Any, asked: Any, now_ms: int) -> int:
        _, plan, size, context, *_ = asked
        ms: int = own.rules.produce(own, context, plan, size, None, True, now_ms)
        return ms

    def told(own: Any, asked: Any, upstream_ms: int, now_ms: int) -> int:
        if asked.throttle is due:
            ms = charge(own, asked, now_ms)
            asked = asked._replace(throttle=own.throttled(ms, now_ms) if ms else None)
        return tell(own, asked, upstream_ms, now_ms)

    def charge_cut(own: Any, now_ms: int) -> None:
        for asked in own.unanswered:
            if asked.throttle is due:
                charge(own, asked, now_ms)
        cut(own, now_ms)

    for module in (relay, produce):
        patch.setattr(module, "passed", passed)
    patch.setattr(Session, "tell", told)
    patch.setattr(Session, "_charge_cut", charge_cut)


def told_in_full(patch: Patch) -> None:
    """What was waited for before the answer is told once more."""
    whole = Session.throttled

    def throttled(self: Any, throttle_ms: int, now_ms: int) -> Any:
        found = whole(self, throttle_ms, now_ms)
        return found._replace(end_ms=found.end_ms + (1 << 30))

    patch.setattr(Session, "throttled", throttled)


def mute_counted_from_the_answer(patch: Patch) -> None:
    """The throttle is decided when a Produce passes, and begins when its answer comes."""
    tell = Session.tell

    def throttled(self: Any, throttle_ms: int, now_ms: int) -> relay.PendingThrottle:
        self.wait_for_answer()
        end_ms = self.rules.steady_ms(now_ms) + throttle_ms
        return relay.PendingThrottle(throttle_ms, end_ms, self.told, now_ms)

    def told(self: Any, asked: Any, upstream_ms: int, now_ms: int) -> int:
        if asked.throttle is not None:
            self.start_throttle(asked.throttle.ms, asked.throttle.why, now_ms)
        return tell(self, asked, upstream_ms, now_ms)

    patch.setattr(Session, "throttled", throttled)
    patch.setattr(Session, "tell", told)


def whole_answers_pipelined(patch: Patch) -> None:
    whole = Context.__post_init__

    def post_init(self: Any) -> None:
        whole(self)
        self.timed = False

    patch.setattr(Context, "__post_init__", post_init)


def nobody_is_called_when_a_quota_goes(patch: Patch) -> None:
    """As it was: who waits looks again when its time has come."""
    patch.setattr(Waiting, "calling", lambda self, concerns=None: iter(()))


def gate_isnt_called_when_its_bound_rises(patch: Patch) -> None:
    """As it was."""
    patch.setattr(gates.Gate, "requoted", lambda *_: None)


def half_sent_request_holds_newcomers(patch: Patch) -> None:
    """As it was: for ten seconds, like one that waits in the broker."""
    patch.setattr(Debts, "reads", lambda self, half, now_ms: None)


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
GATED: Final = _story(
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
GOES: Final = _story(
    {PRODUCED: 20_000.0},
    (
        Action(1_500, "c0", "produce and leave", (400_000, -1, "close", 500.0)),
        Action(2_500, "c1", "produce", (1_000, -1, 2, 1)),
        Action(3_500, "c2", "produce", (1_000, -1, 2, 1)),
        Action(5_000, "gate1", "quota", (ALICE, PRODUCED, None)),
    ),
)
"""Who waits for what a closed connection left, and who waits behind it, when the quota goes."""
RISES: Final = _story(
    {f"{PRODUCED}:bps": 10_000.0},
    (
        Action(1_500, "c0", "produce", (400_000, -1, 2, 1)),
        Action(2_500, "c1", "produce", (1_000, -1, 2, 1)),
        Action(13_000, "gate1", "quota", (ALICE, f"{PRODUCED}:bps", 9e6)),
    ),
)
"""Who waits at a gate, and a bound that rises."""
HALF_REPAID: Final = _story(
    {PRODUCED: 36_000.0},
    (
        Action(1_500, "c0", "produce and leave", (400_000, -1, "close", 500.0)),
        Action(2_100, "c1", "half", (50_000, 120, 12_000)),
        Action(2_300, "c2", "produce", (1_000, -1, 2, 1)),
    ),
)
"""A throttle that is left, who takes it sends half a request, and a newcomer behind it."""

PLANTS: Final[tuple[tuple[Plant, Story, frozenset[str]], ...]] = tuple(
    (plant, story, frozenset(laws))
    for plant, story, laws in (
        (share_fetch_uncharged, SHARES, ("charged once",)),
        (half_read_produce_keeps_its_quotas, HALF, ("Kafka's decisions",)),
        (produces_pass_a_closed_gate, GATED, ("produce gates",)),
        (fetches_are_asked_at_a_closed_gate, FETCHES, ("gates",)),
        (who_passes_keeps_a_gate, POLLS, ("silence",)),
        (wake_up_lost_between_two_gates, TWO_GATES, ("silence",)),
        (charged_when_answered, PRODUCES, ("charged when passed", "ending never gains")),
        (told_in_full, PRODUCES, ("told",)),
        (mute_counted_from_the_answer, PRODUCES, ("waiting", "told")),
        (whole_answers_pipelined, TIMES, ("whole answers alone",)),
        (nobody_is_called_when_a_quota_goes, GOES, ("waiting",)),
        (gate_isnt_called_when_its_bound_rises, RISES, ("waiting",)),
        (half_sent_request_holds_newcomers, HALF_REPAID, ("waiting", "silence")),
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
    GATED,
    HALF,
    ALIKE,
    GONE,
    GOES,
    RISES,
    HALF_REPAID,
)
