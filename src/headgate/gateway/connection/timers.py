"""
The timers of one connection, which end with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Timers:
    """Timers that are cancelled together, once: a timer keeps alive whose method it calls."""

    __slots__ = ("_closed", "_handles", "_made")

    def __init__(self) -> None:
        self._handles: dict[int, asyncio.TimerHandle] = {}
        self._made = 0
        self._closed = False

    def after(self, delay_s: float, do: Callable[..., None], *more: Any) -> None:
        """Do something later, unless ``close`` is called before, or was."""
        if not self._closed:
            self._made += 1
            loop = asyncio.get_running_loop()
            self._handles[self._made] = loop.call_later(delay_s, self._due, self._made, do, *more)

    def _due(self, timer: int, do: Callable[..., None], *more: Any) -> None:
        del self._handles[timer]
        do(*more)

    def close(self) -> None:
        """Cancel all of them."""
        self._closed = True
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
