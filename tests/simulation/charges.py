"""
Which request a charge in the usage journal is of: the journal tells its size only.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from simulation import forms
from simulation import speech as say

if TYPE_CHECKING:
    from simulation.laws import Row
    from simulation.life import Life
    from simulation.watch import Asked, View

BY_SIZE: Final = "producer_byte_rate"
"""Every produce is charged by this first, and by what else there is behind it."""


class Charges:
    """Finds the produces that are charged."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._uncharged: dict[int, list[Asked]] = defaultdict(list)
        self._ahead: dict[int, list[int]] = defaultdict(list)
        self._last: dict[int, Asked | None] = {}

    def passing(self, view: View, asked: Asked) -> None:
        """A request is passed on."""
        if asked.key != say.PRODUCE:
            return
        ahead = self._ahead[view.number]
        if asked.size in ahead:
            ahead.remove(asked.size)
        else:
            self._uncharged[view.number].append(asked)

    def of(self, row: Row) -> Asked | None:
        """Return the produce that a charge is of; None: one that is charged as it is passed on."""
        view = row.view
        if view is None or row.kind not in ("record", "norecord"):
            return None
        if row.quota_type != BY_SIZE:
            return self._last.get(view.number)
        uncharged = self._uncharged[view.number]
        found = self._last[view.number] = self._choose(view, int(row.amount), uncharged)
        if found is None:
            self._ahead[view.number].append(int(row.amount))
        else:
            uncharged.remove(found)
        return found

    def is_late(self, asked: Asked | None) -> bool:
        """Whether a request was passed on before the quotas that are in force; None: now."""
        begun_ns = self._life.loop.now_ns if asked is None else asked.begun_ns
        return begun_ns <= self._life.requoted_ns

    def _choose(self, view: View, size: int, uncharged: list[Asked]) -> Asked | None:
        """Return the one of this size that is charged now; None: it hasn't been passed on yet."""
        same = [one for one in uncharged if one.size == size]
        if forms.PRODUCE in forms.FINAL:
            return same[0] if same else None
        for one in same:
            if self._is_due(one):
                return one
        if same and self._is_over(view):
            return same[0]
        coming = (one for one in view.asked.values() if one.begun_ns < 0)
        if any(one.key == say.PRODUCE and one.size == size for one in coming):
            return None
        return same[0] if same else None

    def _is_due(self, asked: Asked) -> bool:
        """
        Whether a produce that was passed on is charged before those that came behind it.

        What no quota held is charged when it is answered, or when its connection ends: there it
        comes after all that had room under the quota. A client that takes no answers is charged
        for the rest as it is passed on.
        """
        return not self.is_late(asked) or not asked.acks or asked.answer_begun_ns >= 0

    def _is_over(self, view: View) -> bool:
        """Whether a connection ends, or its gateway."""
        ends = (view.client_end, view.broker_end)
        gone = any(one is not None and (one.ended or one.error is not None) for one in ends)
        return gone or not self._life.orderly


class Owners:
    """
    Finds the request that a charge is of, whatever kind it is.

    A Produce is found by ``Charges``. Anything else is charged as its answer is told: the oldest
    one that is answered and not told. One that no broker is asked about is the oldest that waits.
    """

    def __init__(self, life: Life) -> None:
        self._charges = Charges(life)
        self._rows: dict[int, list[Row]] = defaultdict(list)  # by correlation id
        self._ahead: dict[int, list[Row]] = defaultdict(list)  # by connection

    def passing(self, view: View, asked: Asked) -> None:
        """A request is passed on."""
        self._charges.passing(view, asked)
        ahead = self._ahead.get(view.number)
        if ahead and asked.key == say.PRODUCE:
            own = [row for row in ahead if row.size == asked.size]
            if own:
                first = {row.quota_type: row for row in reversed(own)}.values()
                self._rows[asked.correlation] += first
                for row in first:
                    ahead.remove(row)

    def rows(self, asked: Asked) -> list[Row]:
        """Return the charges of a request so far."""
        return self._rows.get(asked.correlation, [])

    def ahead(self, row: Row) -> int:
        """Return how many that look like this charge are of requests that are to pass yet."""
        assert row.view is not None
        same = (row.api, row.quota_type, row.size)
        rows = self._ahead.get(row.view.number, ())
        return sum((one.api, one.quota_type, one.size) == same for one in rows)

    def is_charged(self, asked: Asked) -> bool:
        """Whether a Produce is charged."""
        return any(row.quota_type == BY_SIZE for row in self.rows(asked))

    def of(self, row: Row) -> Asked | None:
        """Return the request that a charge is of; None: one that is charged as it is passed on."""
        view = row.view
        assert view is not None
        if row.api == say.PRODUCE:
            found = self._charges.of(row)
            if found is None:
                self._ahead[view.number].append(row)
        else:
            found = self._by_kind(view, row)
        if found is not None:
            self._rows[found.correlation].append(row)
        return found

    def _by_kind(self, view: View, row: Row) -> Asked | None:
        by_answer = row.quota_type.startswith("consumer_")
        answered = [*view.unwritten.values(), *view.flying.values()]
        answered.sort(key=lambda one: one.answer_begun_ns < 0)
        for one in (*answered, *view.waiting.values()):
            size = one.answer_bytes if by_answer else one.size
            charged = any(before.quota_type == row.quota_type for before in self.rows(one))
            if one.key == row.api and one.told_ns < 0 and size == row.size and not charged:
                return one
        return None
