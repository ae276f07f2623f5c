"""
All chance of a life, from one number: a stream for each name.

Streams don't depend on each other. So when an action is taken out of a story, what is drawn for
the others stays as it was, and a failing story can be shrunk.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Seed:
    """
    The source of all chance.

    Args:
        number: of the life.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def stream(self, *name: object) -> random.Random:
        """Return a stream of its own for a name; the same name begins the same stream again."""
        text = "/".join(map(str, (self.number, *name)))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return random.Random(int.from_bytes(digest, "big"))


class Digest:
    """
    A fingerprint of everything that happened, to tell whether two runs are the same.

    Attributes:
        events: how many were noted.
        tail: the last of them, in which to look for the first difference.
    """

    def __init__(self, keep: int = 0) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._keep = keep
        self.events = 0
        self.tail: list[tuple[Any, ...]] = []

    def note(self, *what: Any) -> None:
        """Add an event."""
        self.events += 1
        self._hash.update(repr(what).encode())
        if self._keep:
            self.tail.append(what)
            del self.tail[: -self._keep]

    def text(self) -> str:
        """Return the fingerprint so far."""
        return self._hash.hexdigest()


def weighted(chance: random.Random, choices: Sequence[tuple[float, T]]) -> T:
    """Draw one of some things, each with its weight."""
    total = sum(weight for weight, _ in choices)
    at = chance.random() * total
    for weight, choice in choices:
        at -= weight
        if at < 0:
            return choice
    return choices[-1][1]
