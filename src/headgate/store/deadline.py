"""
How long a call of a store may take, with all its waits together.

A call makes several: for a lock, for each answer, before it tries again. Each asks here how much
time is left, so that a store which stands still doesn't get the whole time once more at each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from headgate.errors import StoreSilent

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
