"""The checker of histories, on logs that are known to be sound or not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from faults.checker import (
    FOREVER,
    Audit,
    Entry,
    Operation,
    Step,
    check_audit,
    check_entities,
    check_revisions,
    check_watch,
    find_order,
)

ANN = "users/ann"


def alter(
    id_: str,
    began: int,
    ended: int | None,
    outcome: str = "ok",
    at: int | None = None,
    **ops: float,
) -> Operation:
    """Set keys of ann; 0 removes one."""
    wanted = {key: value or None for key, value in ops.items()}
    return Operation(id_, "alter", began, ended, outcome, ANN, wanted, at)  # type: ignore[arg-type]


def read(id_: str, began: int, ended: int, **values: float) -> Operation:
    return Operation(id_, "read", began, ended, "ok", found={ANN: values} if values else {})


def revision(id_: str, began: int, ended: int, number: int) -> Operation:
    return Operation(id_, "revision", began, ended, "ok", revision=number)


def sound(*operations: Operation) -> bool:
    return check_entities(operations) == []


def test_one_after_the_other() -> None:
    first, second = alter("a", 1, 2, k=1), alter("b", 3, 4, k=2)
    assert sound(first, second, read("r", 5, 6, k=2))
    assert not sound(first, second, read("r", 5, 6, k=1))
    assert not sound(first, read("r", 3, 4))


def test_side_by_side_either_may_be_last_but_not_both() -> None:
    both = alter("a", 1, 10, k=1), alter("b", 1, 10, k=2)
    assert sound(*both, read("r", 11, 12, k=1))
    assert sound(*both, read("r", 11, 12, k=2))
    assert sound(*both, read("r", 2, 3, k=1), read("s", 4, 5, k=2), read("t", 11, 12, k=2))
    assert not sound(*both, read("r", 11, 12, k=1), read("s", 13, 14, k=2))


def test_an_entity_changes_whole() -> None:
    whole = alter("a", 1, 2, k=1, m=1), alter("b", 3, 10, k=2, m=2)
    assert sound(*whole, read("r", 4, 5, k=2, m=2))
    assert not sound(*whole, read("r", 4, 5, k=2, m=1))


def test_a_lost_update_is_found() -> None:
    """Two keys set side by side: one of them is gone after."""
    both = alter("a", 1, 10, k=1), alter("b", 1, 10, m=2)
    assert sound(*both, read("r", 11, 12, k=1, m=2))
    assert not sound(*both, read("r", 11, 12, m=2))


def test_an_unknown_change_may_have_happened_late_or_never_and_once() -> None:
    unknown = alter("a", 1, None, "unknown", k=1)
    other = alter("b", 2, 3, k=2)
    assert sound(unknown, other, read("r", 4, 5, k=2))
    assert sound(unknown, other, read("r", 4, 5, k=1))
    assert sound(unknown, other, read("r", 4, 5, k=2), read("s", 6, 7, k=1))
    assert not sound(unknown, other, read("r", 4, 5, k=1), read("s", 6, 7, k=2))
    again = (read("r", 4, 5, k=1), alter("c", 6, 7, k=3), read("s", 8, 9, k=1))
    assert not sound(unknown, other, *again)


def test_a_refused_change_never_happened() -> None:
    refused = alter("a", 1, 2, "refused", k=1)
    assert sound(refused, read("r", 3, 4))
    assert not sound(refused, read("r", 3, 4, k=1))


def test_of_two_changes_based_on_one_revision_one_is_made() -> None:
    first, second = alter("a", 1, 10, at=0, k=1), alter("b", 1, 10, at=0, k=2)
    assert check_revisions([first, second], 0)
    assert not check_revisions([first, second._replace(outcome="refused")], 0)
    assert not check_revisions([first, second._replace(outcome="unknown", ended=None)], 0)
    # Refused though nobody else had changed anything.
    assert check_revisions([second._replace(outcome="refused")], 0)
    after = revision("r", 11, 12, 1)
    assert not check_revisions([first, after], 0)
    assert check_revisions([first, after._replace(revision=0)], 0)
    assert check_revisions([first, after._replace(revision=2)], 0)


CHANGES = [alter("a", 1, 2, k=1), alter("b", 3, 4, k=2, m=2), alter("c", 5, 6, k=0)]
ENTRIES = [
    Entry("a", ANN, "k", None, 1),
    Entry("b", ANN, "k", 1, 2),
    Entry("b", ANN, "m", None, 2),
    Entry("c", ANN, "k", 2, None),
]


def laws(changes: Sequence[Operation], entries: Sequence[Entry], **more: object) -> set[str]:
    audit = Audit(entries, {ANN: {"m": 2}}, 0, 3)._replace(**more)  # type: ignore[arg-type]
    return {line.partition(":")[0] for line in check_audit(changes, audit)}


def test_a_history_that_agrees() -> None:
    assert laws(CHANGES, ENTRIES) == set()


def test_each_law_of_the_history() -> None:
    a, b, b_too, c = ENTRIES
    assert laws(CHANGES, [a, b, b_too]) == {"final", "revision"}  # c may have changed nothing
    assert laws(CHANGES, [a, b, c]) == {"missing", "final"}
    assert laws(CHANGES, [b, b_too, c]) == {"missing", "chain", "revision"}
    assert laws(CHANGES, [a, *ENTRIES]) == {"twice", "chain"}
    assert laws(CHANGES, [b, b_too, a, c]) == {"order", "chain"}
    assert laws(CHANGES, [*ENTRIES, Entry("?", ANN, "k", None, 9)]) == {
        "unasked",
        "final",
        "revision",
    }
    assert laws(CHANGES, [a._replace(after=7), *ENTRIES[1:]]) == {"other", "chain"}
    assert laws([CHANGES[0]._replace(outcome="refused"), *CHANGES[1:]], ENTRIES) == {"refused"}
    assert laws(CHANGES, ENTRIES, revision=4) == {"revision"}
    assert laws(CHANGES, ENTRIES, final={ANN: {"m": 3}}) == {"final"}
    assert laws([CHANGES[0], CHANGES[1]._replace(at=0), CHANGES[2]], ENTRIES) == {"revision"}
    unknown = CHANGES[1]._replace(outcome="unknown", ended=None)
    assert laws([CHANGES[0], unknown, CHANGES[2]], ENTRIES) == set()
    assert "missing" in laws([CHANGES[0], unknown, CHANGES[2]], [a, b, c])


def test_a_read_shows_a_state_of_its_time() -> None:
    for time, values in ((0, {}), (2, {"k": 1}), (4, {"k": 2, "m": 2}), (6, {"m": 2})):
        assert laws([*CHANGES, read("r", time, time + 1, **values)], ENTRIES) == set()
    assert laws([*CHANGES, read("r", 7, 8, k=2, m=2)], ENTRIES) == {"read"}
    assert laws([*CHANGES, read("r", 1, 2, k=2, m=2)], ENTRIES) == {"read"}
    assert laws([*CHANGES, read("r", 1, 9, m=2, k=1)], ENTRIES) == {"read"}


def test_a_watch_goes_through_the_history_and_ends_at_its_end() -> None:
    audit = Audit(ENTRIES, {ANN: {"m": 2}}, 0, 3)
    first, second, last = {ANN: {"k": 1}}, {ANN: {"k": 2, "m": 2}}, {ANN: {"m": 2}}
    assert check_watch([{}, first, second, last], audit) == []
    assert check_watch([first, last], audit) == []
    assert check_watch([first, second], audit)
    assert check_watch([second, first, last], audit)
    assert check_watch([{ANN: {"k": 2}}, last], audit)
    assert check_watch([], audit)


# --- the search against trying every order


def applied(state: int, what: tuple[str, int]) -> int | None:
    verb, number = what
    if verb == "set":
        return number
    return state if state == number else None


def by_trial(steps: Sequence[Step]) -> bool:
    """Whether some order of some of them explains everything."""
    never = [step for step in steps if step.ended == FOREVER]
    for count in range(len(never) + 1):
        for left_out in itertools.combinations(never, count):
            chosen = [step for step in steps if step not in left_out]
            for order in itertools.permutations(chosen):
                if any(b.ended < a.began for a, b in itertools.combinations(order, 2)):
                    continue
                state: int | None = 0
                for step in order:
                    state = None if state is None else applied(state, step.what)
                if state is not None:
                    return True
    return False


@st.composite
def logs(draw: st.DrawFn) -> list[Step]:
    steps = []
    for n in range(draw(st.integers(1, 5))):
        began = draw(st.integers(0, 8))
        verb = draw(st.sampled_from(["set", "get"]))
        ended = began + draw(st.integers(1, 6))
        if verb == "set" and draw(st.booleans()):
            ended = draw(st.sampled_from([ended, FOREVER]))
        what = verb, draw(st.integers(0, 2))
        steps.append(Step(str(n), began * 2, min(ended * 2 + 1, FOREVER), what, verb == "get"))
    return steps


@given(logs())
def test_the_search_finds_an_order_exactly_where_there_is_one(steps: list[Step]) -> None:
    found = find_order(steps, 0, applied)
    assert (found is not None) == by_trial(steps)
    if found is not None:
        at = {step.name: step for step in steps}
        state: int | None = 0
        for name in found:
            assert state is not None
            state = applied(state, at[name].what)
        assert state is not None
        assert {s.name for s in steps if s.ended != FOREVER} <= set(found)
