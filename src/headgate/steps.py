"""
Work in steps: wherever it yields, its caller may pause it and serve others meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import merge
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
Work = Generator[None, None, T]

FEW: Final = 256
"""Things that are looked at in one step, where looking at one takes a microsecond."""


def finish(work: Work[T]) -> T:
    """Do work in one piece; return what it returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def begin(work: Work[T], most: int) -> T | None:
    """Do at most ``most`` steps of work; return what it returns, or None if it isn't done."""
    try:
        for _ in range(most):
            next(work)
    except StopIteration as end:
        result: T = end.value
        return result
    return None


def one_by_one(things: Iterable[T]) -> Iterator[T]:
    """
    Yield the things that are in a collection now, in order; the collection may change meanwhile.

    No yielded thing is kept. A plain copy would keep things that are removed meanwhile, and free
    them all at its end: 50,000 keys take 10 ms.
    """
    yield from taken(list(things))


def taken(things: list[T]) -> Iterator[T]:
    """
    Yield the things of a list, in order, and take each out of it.

    So none is kept, and none is left to be freed at the end with all the others.
    """
    things.reverse()
    while things:
        yield things.pop()


def emptying(things: dict[Any, Any]) -> Work[None]:
    """Empty a dictionary: to free 150,000 names at once takes 7 ms."""
    while things:
        for _ in range(min(FEW, len(things))):
            things.popitem()
        yield


def freeing(*lists: list[Any]) -> Work[None]:
    """Empty lists of which nobody else holds the things: 25,000 entries of a request take 7 ms."""
    for things in lists:
        while things:
            del things[-FEW:]
            yield


class Counted(Generic[T]):
    """
    As many things as are said, each made when its turn comes; for arrays that are written in steps.

    Args:
        count: how many there are.
        things: yields them, once.
    """

    __slots__ = ("_count", "_things")

    def __init__(self, count: int, things: Iterable[T]) -> None:
        self._count = count
        self._things = things

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._things)


def sorting(items: Iterable[T], key: Callable[[T], Any]) -> Work[list[T]]:
    """Return things in order, as ``sorted`` does, in steps."""
    runs: list[list[T]] = [[]]
    for item in items:
        runs[-1].append(item)
        if len(runs[-1]) == FEW:
            runs[-1].sort(key=key)
            runs.append([])
            yield
    runs[-1].sort(key=key)
    if len(runs) == 1:
        return runs[0]
    ordered: list[T] = []
    for item in merge(*runs, key=key):
        ordered.append(item)
        if not len(ordered) % FEW:
            yield
    return ordered


def look_at_young() -> None:
    """
    Have the garbage collector look at what was made since its last look, unless it is switched off.

    Work that replaces many objects calls it now and then. The collector takes one off its count of
    new objects for each object that is freed, old or new. So alone it would look late, and then
    at all the new ones at once.
    """
    if gc.isenabled():
        gc.collect(1)
