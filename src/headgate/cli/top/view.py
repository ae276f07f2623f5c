"""
What the one who looks has chosen: order, filter, row, answer. Each key changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.live.quota_ids import QuotaIdRow, matching

SORTS: Final = ("waits", "use", "name")
"""What rows may be ordered by; the first letters are keys."""
UP: Final = "\x1b[A"
DOWN: Final = "\x1b[B"
ENTER: Final = "\r"
ESCAPE: Final = "\x1b"
_ERASE: Final = ("\x7f", "\b")
_SEQUENCES: Final = {"\x1b[A": UP, "\x1b[B": DOWN, "\x1bOA": UP, "\x1bOB": DOWN}
"""What terminals send for the arrows; others that begin with ESC [ or ESC O mean nothing here."""

QuotaId = tuple[str, str, str, str]


def label(row: QuotaIdRow) -> str:
    """Return a quota-id as people name it: its tags, or the address whose connections count."""
    use = row.use
    if use.ip:
        return f"address {use.ip}"
    if not use.user and not use.client_id:
        return "all others"
    parts = (use.user or "any user", use.client_id)
    return "/".join(filter(None, parts))


def quota_id(row: QuotaIdRow) -> QuotaId:
    """Return what tells a row from others, also in the next picture."""
    return row.use.key, row.use.user, row.use.client_id, row.use.ip


def arranged(rows: Sequence[QuotaIdRow], sort: str, find: str = "") -> list[QuotaIdRow]:
    """
    Return the rows that have a text, in an order.

    Args:
        rows: as ``live.quota_ids.rows`` has them: by waits.
        sort: one of ``SORTS``; ``use`` is the share of the quota, the greatest first.
        find: the text; "" is in all.
    """
    found = matching(rows, find) if find else list(rows)
    if sort == "use":
        found.sort(key=lambda row: (-(row.use.utilisation or 0.0), -row.use.rate))
    elif sort == "name":
        found.sort(key=lambda row: (label(row).casefold(), row.use.key))
    return found


@dataclass(slots=True)
class TopView:
    """
    What is looked at.

    Attributes:
        sort: one of ``SORTS``.
        find: only rows with this text.
        typing: keys are letters of ``find``.
        chosen: the row that Enter asks about; None: the first one.
        asked: the row whose answer is shown in place of the table; None: none.
        notice: what a key couldn't do.
        ended: it is to be left.
    """

    sort: str = SORTS[0]
    find: str = ""
    typing: bool = False
    chosen: QuotaId | None = None
    asked: QuotaIdRow | None = None
    notice: str = ""
    ended: bool = False

    def at(self, rows: Sequence[QuotaIdRow]) -> int:
        """Return where the chosen row is; 0 where it is gone."""
        return next((n for n, row in enumerate(rows) if quota_id(row) == self.chosen), 0)

    def press(self, key: str, rows: Sequence[QuotaIdRow]) -> None:
        """
        Take a key.

        Args:
            key: a character, or ``UP``, ``DOWN``, ``ENTER``, ``ESCAPE``.
            rows: those that are shown, in their order.
        """
        self.notice = ""
        if self.typing:
            self._type(key)
        elif self.asked is not None:
            if key in ("q", ESCAPE, ENTER):
                self.asked = None
        elif key == "q":
            self.ended = True
        elif key == "/":
            self.typing = True
        elif key == ESCAPE:
            self.find = ""
        elif key in (UP, DOWN) and rows:
            to = self.at(rows) + (1 if key == DOWN else -1)
            self.chosen = quota_id(rows[min(max(to, 0), len(rows) - 1)])
        elif key == ENTER and rows:
            row = rows[self.at(rows)]
            self.chosen = quota_id(row)
            if row.owner is None:
                self.notice = "Nobody is known to ask about: no client is charged to it now."
            else:
                self.asked = row
        else:
            self.sort = next((sort for sort in SORTS if sort[0] == key), self.sort)

    def _type(self, key: str) -> None:
        if key == ENTER:
            self.typing = False
        elif key == ESCAPE:
            self.typing, self.find = False, ""
        elif key in _ERASE:
            self.find = self.find[:-1]
        elif key.isprintable():
            self.find += key


def keys_of(text: str) -> Iterator[str]:
    """Return the keys of what a terminal sent at once."""
    while text:
        if text[:3] in _SEQUENCES:
            yield _SEQUENCES[text[:3]]
            text = text[3:]
        elif text[:2] in ("\x1b[", "\x1bO"):
            end = next(
                (n for n, char in enumerate(text[2:], 3) if char.isalpha() or char == "~"), 2
            )
            text = text[end:]
        else:
            yield ENTER if text[0] == "\n" else text[0]
            text = text[1:]
