"""Work in steps keeps nothing that it has left behind."""

from __future__ import annotations

import weakref

from headgate.steps import FEW, Counted, emptying, one_by_one, taken


class Name:
    """It takes weak references, as numbers do not."""


def test_one_by_one_yields_what_was_there_and_lets_go_of_it() -> None:
    there = {number: Name() for number in range(3)}
    alive = [weakref.ref(name) for name in there.values()]
    named = list(there)
    for at, name in enumerate(one_by_one(there.values())):
        assert name is there.pop(at)
        there[at + 10] = Name()  # what comes meanwhile isn't among them
        assert [bool(each()) for each in alive] == [each >= at for each in named]
        del name
    assert list(there) == [10, 11, 12]


def test_what_is_taken_out_of_a_list_is_let_go_of() -> None:
    things = [Name() for _ in range(3)]
    alive = [weakref.ref(thing) for thing in things]
    for at, thing in enumerate(taken(things)):
        assert thing is alive[at]()
        assert [bool(each()) for each in alive] == [number >= at for number in range(3)]
        del thing
    assert not things


def test_a_dictionary_is_emptied_a_few_at_a_time() -> None:
    things = dict.fromkeys(range(2 * FEW + 1))
    assert [len(things) for _ in emptying(things)] == [FEW + 1, 1, 0]


def test_counted_things_are_made_when_their_turn_comes() -> None:
    made: list[int] = []
    counted = Counted(3, (made.append(n) for n in range(3)))
    assert (len(counted), made) == (3, [])
    for _ in counted:
        break
    assert made == [0]
