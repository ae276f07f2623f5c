"""
How long a call of a store may take, with all its waits together.

A call makes several: for a lock, for each answer, before it tries again. Each asks here how much
time is left, so that a store which stands still doesn't get the whole time once more at each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from headgate.errors import StoreError, StoreSilent

NOTHING: Final = "Nothing was changed"
UNSURE: Final = (
    "The change was sent and not answered: it may have been made, or may yet; the history tells"
)
"""What became of a change that a store stopped answering in the middle of."""

#: How long one look for changes waits for an answer.
LOOK_S: Final = 10.0
#: How long a change may take for each of its entities beyond ``change_s``. ZooKeeper takes 2 ms.
EACH_S: Final = 0.01

_END: ContextVar[float | None] = ContextVar("end", default=None)
_EACH: ContextVar[float | None] = ContextVar("each", default=None)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let what this thread asks in the block take this long altogether; an earlier end stays."""
    ends, before = time.monotonic() + seconds, _END.get()
    token = _END.set(ends if before is None else min(ends, before))
    try:
        yield
    finally:
        _END.reset(token)


@contextmanager
def patient(seconds: float) -> Iterator[None]:
    """Let every wait for an answer in the block take this long, however many there are."""
    token = _EACH.set(seconds)
    try:
        yield
    finally:
        _EACH.reset(token)


def left_s(most: float) -> float:
    """Return how long a wait for an answer may take that would take ``most`` at most."""
    each = _EACH.get()
    return _until_end(most if each is None else min(most, each))


def _until_end(most: float) -> float:
    end = _END.get()
    return most if end is None else max(0.0, min(most, end - time.monotonic()))


class _Lock(Protocol):
    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...

    def release(self) -> None: ...


class LimitedLock:
    """
    A lock that is waited for as long as the call may take.

    Args:
        url: what errors call the store.
        lock: a Lock or an RLock.
    """

    def __init__(self, url: str, lock: _Lock) -> None:
        self._url = url
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=_until_end(threading.TIMEOUT_MAX)):
            raise StoreSilent(
                f"{self._url}: earlier calls still wait for its answer; try again when it answers"
            )

    def __exit__(self, *_exc: object) -> None:
        self._lock.release()


class Silence:
    """
    What is known of a home that doesn't answer.

    Args:
        look: wakes the thread that looks for changes.

    Attributes:
        looked: what the last look found silent; None: it was answered.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self.looked: str | None = None
        self._changed: str | None = None  # what a change since then found silent

    def broken(self) -> None:
        """A look was answered."""
        self.looked = self._changed = None

    def found(self, error: StoreError) -> None:
        """A look failed."""
        self.looked = error.silence if isinstance(error, StoreSilent) else None

    @contextmanager
    def changing(self, seconds: float, *, watched: bool) -> Iterator[None]:
        """
        Let a change take this long; refuse it at once if the home is known not to answer.

        Args:
            seconds: for the change altogether.
            watched: a thread goes on asking. Without one nobody would notice the home's return.

        Raises:
            StoreSilent: the home doesn't answer; it says what became of the change.
        """
        silent = self.looked or self._changed
        if silent is not None and watched:
            self._look()  # whether it is back
            raise StoreSilent(silent, f"{NOTHING}: it was refused without being tried")
        try:
            with within(seconds):
                yield
        except StoreSilent as exc:
            self._changed = exc.silence
            self._look()
            raise StoreSilent(exc.silence, exc.became or NOTHING) from exc
