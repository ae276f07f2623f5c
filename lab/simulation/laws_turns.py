"""
Who may go when: a fetch when its quota-id has repaid, a request behind none that is throttled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from simulation import speech as say
from simulation.laws import CONSUMED, EARLY_NS, FETCHES, Law, Row
from simulation.loop import NS_PER_MS
from simulation.oracle import resolve

if TYPE_CHECKING:
    from simulation.life import Life
    from simulation.watch import Asked, View

SHARE_HOLD_NS: Final = 4_400 * NS_PER_MS
"""After this, and a little, a ShareFetch goes on asking for next to nothing: it may bring
acknowledgements."""
FETCH_HOLD_NS: Final = 9_900 * NS_PER_MS
"""Likewise of a Fetch (``headgate.fetch.hold.max.ms``)."""
EMPTY_BYTES: Final = 40
"""An answer up to this size names no partition: it is empty, or an error."""


class Gates(Law):
    """
    Where fetches over quota are delivered, none is before its quota-id's throttle is over.

    Nor is one passed on before, for the time that it may be held; where fetches are emptied, that
    is so of a ShareFetch. The throttle is the one that the last delivery got, on whatever
    connection. It is over when the wall clock says so, or when as much time has passed: the wall
    clock may be set.
    """

    name = "gates"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._ends: dict[Any, tuple[int, int]] = {}  # by quota-id: simulated ns, wall ms
        self._before: dict[tuple[int, str], tuple[Any, tuple[int, int]]] = {}
        # By connection and quota type: when a fetch was charged, and how long before its turn.
        self._turns: dict[int, dict[str, tuple[int, int]]] = {}
        keys = (key for _, key, _ in life.story.quotas)
        self._types = sorted({CONSUMED, *(key for key in keys if key.startswith(CONSUMED))})
        self._alone: dict[int, Asked] = {}  # by connection: what the next request waited behind

    def charged(self, row: Row) -> None:
        if row.kind in ("quota", "bound"):  # what is left is repaid at another rate
            for key in [key for key in self._ends if key[0] == row.quota_type]:
                del self._ends[key]
            return
        view = row.view
        if (
            view is None
            or row.api not in FETCHES
            or not row.quota_type.startswith(CONSUMED)
            or row.bound == math.inf
            or (row.api == say.FETCH and not self.life.story.delivers)
        ):
            return
        if row.kind == "unrecord":  # it was emptied: it closes nothing
            key, self._ends[key] = self._before.pop((view.number, row.quota_type))
            self._turns.pop(view.number, None)
        elif row.kind == "record":
            key = (row.quota_type, row.broker, row.tags)
            end_ns, end_ms = ends = self._ends.get(key, (0, 0))
            self._before[view.number, row.quota_type] = (key, ends)
            early = row.now_ns < end_ns - EARLY_NS and row.t_ms < end_ms - 2
            turns = self._turns.setdefault(view.number, {})
            turns[row.quota_type] = (row.now_ns, end_ns - row.now_ns if early else 0)
            if row.throttle_ms > 0:
                self._ends[key] = (
                    max(end_ns, row.now_ns + row.throttle_ms * NS_PER_MS),
                    max(end_ms, row.t_ms + row.throttle_ms),
                )

    def passing(self, view: View, asked: Asked) -> None:
        life, now_ns = self.life, self.life.loop.now_ns
        is_share = asked.key == say.SHARE_FETCH
        if asked.key not in FETCHES or not (is_share or life.story.delivers):
            return
        came_ns = asked.read_ns if is_share else asked.head_ns
        since_ns = max(came_ns, view.broker_ready_ns, view.muted_ns)
        alone = self._alone.get(view.number)
        if alone is not None:  # behind any other request it may be held before that is answered
            since_ns = max(since_ns, alone.written_ns)
        if now_ns - since_ns >= (SHARE_HOLD_NS if is_share else FETCH_HOLD_NS):
            return
        who = life.principals[view.number], asked.client
        early_ns = []
        for quota_type in self._types:
            tags, bound = resolve(life.quotas, *who, quota_type)
            if bound < math.inf:
                key = quota_type, life.broker_of(view.number), tags
                end_ns, end_ms = self._ends.get(key, (0, 0))
                early = end_ns - now_ns if life.host.wall_ns() // NS_PER_MS < end_ms - 2 else 0
                early_ns.append(early)
        # One that had its turn under a quota isn't asked there again (``hold``).
        if early_ns and min(early_ns) > EARLY_NS:
            self.broken(f"{life.whose(view.number)} had {asked.correlation} (API {asked.key}) "
                        f"passed on {min(early_ns) / 1e6:.1f} ms before its turn")  # fmt: skip

    def telling(self, view: View, asked: Asked, head: bytes, size: int) -> None:
        if asked.key in FETCHES and asked.begun_ns > self.life.requoted_ns:
            self._alone[view.number] = asked
        turns = self._turns.pop(view.number, {}).values()
        if asked.key != say.FETCH or size != asked.answer_bytes or size <= EMPTY_BYTES:
            return
        early_ns = [early for at_ns, early in turns if at_ns == self.life.loop.now_ns]
        # One that had its turn under a quota isn't asked there again (``hold``), but it waits
        # for the last of them.
        if early_ns and all(early_ns):
            self.broken(f"{self.life.whose(view.number)} got a fetch of {size} bytes "
                        f"{min(early_ns) / 1e6:.1f} ms before its turn")  # fmt: skip

    def crashed(self) -> None:
        self._ends.clear()
        self._turns.clear()


__all__ = ["Gates"]
