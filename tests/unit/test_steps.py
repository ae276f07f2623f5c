"""Work in steps keeps nothing that it has left behind."""

from __future__ import annotations

import weakref

from headgate.steps import one_by_one


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
