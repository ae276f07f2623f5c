"""The interface that the tests use for every client; each kind of client implements it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Self

HEARTBEAT_MS: Final = 500
"""How often members of a group ask whether partitions must be shared out again; 3 s by default."""


class Member(AbstractContextManager["Member"]):
    """
    A running consumer of a group, from the beginning of its topic on.

    Attributes:
        values: what it has read by now.
    """

    def __init__(self) -> None:
        self.values: list[str] = []

    @abstractmethod
    def leave(self) -> None:
        """Stop it in order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Polling(Member, threading.Thread):
    """A member that is polled by a thread of its own."""

    def __init__(self) -> None:
        Member.__init__(self)
        threading.Thread.__init__(self, daemon=True)
        self.asked_to_leave = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def leave(self) -> None:
        self.asked_to_leave.set()
        self.join()


class Client(ABC):
    """A kind of client."""

    @abstractmethod
    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Make a topic."""

    @abstractmethod
    def produce(self, bootstrap: str, topic: str, values: Sequence[str]) -> None:
        """Send values, and wait until all are acknowledged."""

    @abstractmethod
    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        """Read ``count`` values from the group's offset, else the beginning; commit; leave."""

    @abstractmethod
    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        """Return a consumer of a group, to be entered."""

    @abstractmethod
    def reset(self, bootstrap: str, topic: str, group: str, partitions: int) -> None:
        """Put a group that is empty back to the beginning of a topic."""

    def transact(
        self, bootstrap: str, topic: str, name: str, rounds: Sequence[tuple[str, bool]]
    ) -> None:
        """Send a value per transaction and commit it, or abort it where the flag is False."""
        raise NotImplementedError(f"{type(self).__name__} knows no transactions")
