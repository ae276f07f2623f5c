"""
Newcomers wait while another connection of their lane key repays what a closed one left (``lanes``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.gateway.charging.lanes import Debts

REPAYS_MS: Final = 10_000
"""How long one that repays is waited for when it may pass: its request may wait in the broker."""
SEEN_MS: Final = 100
"""How long it is waited for when it was charged: a hang-up that stood behind its request is seen by
then, and it has left its end. So it is when the rest of its request has yet to come: it is read
then, and would be seen to hang up."""


class Queue:
    """
    Connections of one lane key that repay a left end, and newcomers that wait for them.

    One newcomer goes at a time; those behind it wait for it as for any other that repays.

    Attributes:
        repaying: since when and until when each is waited for, epoch ms.
        waiting: in the order in which they came.
    """

    __slots__ = ("repaying", "waiting")

    def __init__(self) -> None:
        self.repaying: dict[Debts, tuple[int, int]] = {}
        self.waiting: dict[Debts, None] = {}

    def wait(self, debts: Debts, now_ms: int) -> int:
        """Return when a newcomer that waits has to look again if nobody calls it; 0: it passes."""
        for one, (since_ms, until_ms) in tuple(self.repaying.items()):
            if not since_ms <= now_ms < until_ms:  # or the clock was set back
                del self.repaying[one]
        if not self.repaying and next(iter(self.waiting), debts) is debts:
            return 0
        return max((until for _, until in self.repaying.values()), default=now_ms + REPAYS_MS)

    def call(self) -> None:
        """Have the first that waits look again."""
        for first in self.waiting:
            if first.nudge is not None:
                first.nudge()
            break
