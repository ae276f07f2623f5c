"""
Work in steps: wherever it yields, its caller may pause it and serve others meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import merge
from typing import Any, Final, TypeVar

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
    left = list(things)
    left.reverse()
    while left:
        yield left.pop()


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
