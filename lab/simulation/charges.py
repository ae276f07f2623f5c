"""
Which request a charge in the usage journal is of: the journal tells its size only.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

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
        # None: it hasn't been passed on yet.
        found = next((one for one in uncharged if one.size == int(row.amount)), None)
        self._last[view.number] = found
        if found is None:
            self._ahead[view.number].append(int(row.amount))
        else:
            uncharged.remove(found)
        return found

    def is_late(self, asked: Asked | None) -> bool:
        """Whether a request was passed on before the quotas that are in force; None: now."""
        begun_ns = self._life.loop.now_ns if asked is None else asked.begun_ns
        return begun_ns <= self._life.requoted_ns


class Owners:
    """
    Finds the request that a charge is of, whatever kind it is.

    A Produce is found by ``Charges``. Of anything else it is the oldest that isn't told yet.
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
