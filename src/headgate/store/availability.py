"""
Whether a store can be read and changed now, as far as its last look for changes tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headgate.errors import StoreError, StoreSilent
from headgate.store.deadline import NOTHING, within


class Availability:
    """
    What is known of a home that can't be read, doesn't answer, or refuses changes.

    Args:
        look: wakes the thread that looks for changes.

    Attributes:
        trouble: why the quotas can't be read and watched; None: they can.
        silent: what the last look found silent; None: it was answered.
        refuses: why the home refuses what Kafka knows, broker settings too; None: it doesn't.
        watched: whether a thread looks. Without one nobody would notice the home's return.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self.trouble: str | None = None
        self.silent: str | None = None
        self.refuses: str | None = None
        self.watched = False
        self._changed: str | None = None  # what a change since then found silent

    def answered(self) -> None:
        """A look was answered."""
        self.trouble = self.silent = self._changed = None

    def failed(self, error: StoreError) -> None:
        """A look failed."""
        self.silent = error.silence if isinstance(error, StoreSilent) else None
        self.trouble = str(error)

    @contextmanager
    def changing(self, seconds: float) -> Iterator[None]:
        """
        Let a change take this long altogether; refuse it at once if the home is known to be silent.

        Raises:
            StoreSilent: the home doesn't answer; it says what became of the change.
        """
        silent = self.silent or self._changed
        if silent is not None and self.watched:
            self._look()  # whether it is back
            raise StoreSilent(silent, f"{NOTHING}: it was refused without being tried")
        try:
            with within(seconds):
                yield
        except StoreSilent as exc:
            self._changed = exc.silence
            self._look()
            raise StoreSilent(exc.silence, exc.became or NOTHING) from exc
