"""
Limits the log lines that unknown clients can cause: a few a minute of each kind, then a count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from headgate.gateway.log import get_logger

log = get_logger("headgate.gateway")

PER_MINUTE: Final = 10
_MOST_KINDS: Final = 1_000
"""Kinds remembered; principals are among them. The oldest is logged and forgotten early."""
_MINUTE_S: Final = 60.0


class _Kind:
    """Lines of one kind in its minute."""

    __slots__ = ("began_s", "count", "fields", "left_out")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.count = self.left_out = 0
        self.fields: Mapping[str, Any] = {}


class LogLimit:
    """
    Decides which lines are written.

    Args:
        event: what the lines are about. When a kind's minute is over, one line says how many of
            the kind were left out, and what they have in common.
        per_minute: lines of one kind.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        event: str,
        per_minute: int = PER_MINUTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._event = f"{event}; not every one is logged"
        self._per_minute = per_minute
        self._clock = clock
        self._kinds: dict[Hashable, _Kind] = {}

    def passes(self, *kind: Hashable, **fields: Any) -> bool:
        """
        Say whether a line may be written; it is counted in any case.

        Args:
            kind: which lines are of a kind.
            fields: what all of them have in common, for the line that counts those left out.
        """
        now = self._clock()
        found = self._kinds.get(kind)
        if found is None or now - found.began_s >= _MINUTE_S:
            if found is not None:
                self._tell(kind, found)
            elif len(self._kinds) >= _MOST_KINDS:
                oldest = next(iter(self._kinds))
                self._tell(oldest, self._kinds[oldest])
            found = self._kinds[kind] = _Kind(now)
        found.count += 1
        if found.count <= self._per_minute:
            return True
        found.left_out += 1
        found.fields = fields
        return False

    def tell(self) -> None:
        """Log what was left out in minutes that are over; called now and then."""
        now = self._clock()
        # Kinds stand in the order in which their minutes began.
        while self._kinds:
            kind, oldest = next(iter(self._kinds.items()))
            if now - oldest.began_s < _MINUTE_S:
                return
            self._tell(kind, oldest)

    def _tell(self, kind: Any, oldest: _Kind) -> None:
        del self._kinds[kind]
        if oldest.left_out:
            log.warning(self._event, left_out=oldest.left_out, **oldest.fields)
