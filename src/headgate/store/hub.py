"""
Calls watches back with changes: in order, each change once, one call at a time per watch.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger("headgate.store")
Event = TypeVar("Event")


class Watch(Generic[Event]):
    """
    A running watch; nothing is called after ``close`` has returned.

    It keeps its callback, and the latest version that this was called with.
    """

    def __init__(self, hub: Hub[Event], callback: Callable[[Event], None]) -> None:
        self._hub = hub
        self._callback = callback
        self._lock = threading.RLock()
        self._seen = -1
        self._closed = False

    def _call(self, version: int, event: Event) -> None:
        with self._lock:
            if self._closed or version <= self._seen:
                return
            self._seen = version
            try:
                self._callback(event)
            except Exception:
                # A watcher's mistake must not stop the others, nor the store's thread.
                log.exception("a quota watch raised; the watch goes on")

    def close(self) -> None:
        """
        Stop calling back. May be called twice, and from the callback.

        Waits for a call under way, unless made from within it.
        """
        self._hub.remove(self)
        with self._lock:
            self._closed = True


class Hub(Generic[Event]):
    """
    The watches of one store for one kind of event.

    ``push`` only queues, so it may be called with a store's locks held. ``deliver`` calls back; the
    store's thread calls it while it holds no lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._delivery = threading.RLock()
        self._watches: list[Watch[Event]] = []
        self._queue: deque[tuple[int, Event]] = deque()

    def add(
        self, callback: Callable[[Event], None], first: Callable[[], tuple[int, Event]]
    ) -> Watch[Event]:
        """
        Watch from now on, with one call at once.

        Args:
            callback: what to call.
            first: returns the present version and the event to begin with. Asked after the watch
                is registered, so a change in between is seen once, not lost.
        """
        watch = Watch(self, callback)
        with watch._lock:
            with self._lock:
                self._watches.append(watch)
            try:
                version, event = first()
                watch._seen = version
                callback(event)
            except BaseException:
                self.remove(watch)
                watch._closed = True
                raise
        return watch

    def remove(self, watch: Watch[Event]) -> None:
        """Forget a watch."""
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def push(self, version: int, event: Event) -> None:
        """Queue an event, if anybody watches. Each has a higher version than the last."""
        with self._lock:
            if self._watches:
                self._queue.append((version, event))

    def deliver(self) -> None:
        """Call back for everything queued."""
        with self._delivery:
            while True:
                with self._lock:
                    if not self._queue:
                        return
                    version, event = self._queue.popleft()
                    watches = tuple(self._watches)
                for watch in watches:
                    watch._call(version, event)
