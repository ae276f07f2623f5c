"""
What `headgate top` shows at a width: the columns that fit, those left out named, and the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from headgate.cli.output import printable
from headgate.cli.top.view import TopView, label
from headgate.cli.why import lines as why_lines
from headgate.live.picture import Picture
from headgate.live.quota_ids import QuotaIdRow
from headgate.live.why import why
from headgate.words import NONE, amount, count, duration, moment, share, unit_of, what_of

_LEAST_NAME: Final = 16
_MOST_NAME: Final = 60
"""Columns that a quota-id's name takes at least, if it has as many, and at most."""
_GAP: Final = 2
KEYS: Final = "w waits  u use  n name  / filter  up/down choose  Enter why  q quit"
_WHY_KEYS: Final = "Enter back"


class TopColumn(NamedTuple):
    """
    A column of the table.

    Args:
        heading: its heading.
        cell: makes the text of a row at a moment, epoch ms.
        number: it stands to the right.
        rank: the higher, the sooner it is left out; 0: never.
    """

    heading: str
    cell: Callable[[QuotaIdRow, int], str]
    number: bool
    rank: int


def _amount(row: QuotaIdRow, value: float | None) -> str:
    return amount(value, unit_of(row.use.key))


def _rate(row: QuotaIdRow, _at_ms: int) -> str:
    told = _amount(row, row.use.rate)
    return f"up to {told}" if row.use.coarse else told


def _goes_on(row: QuotaIdRow, at_ms: int) -> str:
    return duration(row.held_until_ms - at_ms) if row.held_until_ms > at_ms else NONE


def _since(row: QuotaIdRow, at_ms: int) -> str:
    return duration(max(at_ms - row.held_since_ms, 0)) if row.held_since_ms else NONE


def connections(row: QuotaIdRow) -> int:
    """Return how many connections the clients have that a picture names."""
    return sum(client.connections for client in row.clients)


def _connections(row: QuotaIdRow, _at_ms: int) -> str:
    return f"{count(connections(row))}{'+' if row.use.other_clients else ''}"


COLUMNS: Final = (
    TopColumn("quota-id", lambda row, _: printable(label(row)), False, 0),
    TopColumn("limits", lambda row, _: what_of(row.use.key), False, 2),
    TopColumn("quota", lambda row, _: _amount(row, row.use.limit), True, 5),
    TopColumn("use now", _rate, True, 1),
    TopColumn("share", lambda row, _: share(row.use.utilisation).replace("\xa0", ""), True, 0),
    TopColumn("wait", lambda row, _: count(row.held) if row.held else NONE, True, 0),
    TopColumn("go on in", _goes_on, True, 3),
    TopColumn("throttled for", _since, True, 4),
    TopColumn("connected", _connections, True, 6),
    TopColumn("broker", lambda row, _: _broker(row), True, 7),
)


def _broker(row: QuotaIdRow) -> str:
    return f"{row.broker_id}" + (f" of {row.brokers}" if row.brokers > 1 else "")


def table(
    rows: Sequence[QuotaIdRow], at_ms: int, width: int, chosen: int | None = None
) -> tuple[list[Text], list[str]]:
    """
    Return the table's lines, the heading first, and the headings of columns that don't fit.

    Args:
        rows: to be shown.
        at_ms: the picture's time, epoch ms.
        width: columns of the terminal.
        chosen: the row that is marked; None: none, and no place for a mark.
    """
    cells = [[column.cell(row, at_ms) for row in rows] for column in COLUMNS]
    widths = [
        max(cell_len(column.heading), *map(cell_len, texts), 0)
        for column, texts in zip(COLUMNS, cells, strict=True)
    ]
    least = [min(widths[0], _LEAST_NAME), *widths[1:]]
    room = width - (0 if chosen is None else 2)
    kept = list(range(len(COLUMNS)))
    while sum(least[n] + _GAP for n in kept) - _GAP > room:
        last = max(kept, key=lambda n: COLUMNS[n].rank)
        if not COLUMNS[last].rank:
            break
        kept.remove(last)
    left = room - sum(least[n] + _GAP for n in kept) + _GAP
    widths[0] = min(widths[0], least[0] + max(left, 0), _MOST_NAME)
    drawn = [_line([COLUMNS[n].heading for n in kept], kept, widths, "  ", chosen)]
    drawn[0].stylize("bold")
    for number in range(len(rows)):
        mark = "> " if number == chosen else "  "
        line = _line([cells[n][number] for n in kept], kept, widths, mark, chosen)
        if number == chosen:
            line.stylize("reverse")
        elif rows[number].held:
            line.stylize("yellow")
        drawn.append(line)
    return drawn, [column.heading for n, column in enumerate(COLUMNS) if n not in kept]


def _line(
    texts: Sequence[str], kept: Sequence[int], widths: Sequence[int], mark: str, chosen: int | None
) -> Text:
    parts = []
    for text, n in zip(texts, kept, strict=True):
        blanks = " " * (widths[n] - cell_len(text))
        if cell_len(text) > widths[n]:
            text = f"{set_cell_size(text, widths[n] - 1)}…"
        parts.append(f"{blanks}{text}" if COLUMNS[n].number else f"{text}{blanks}")
    told = (" " * _GAP).join(parts).rstrip()
    return Text(told if chosen is None else f"{mark}{told}", no_wrap=True)


def summary(rows: Sequence[QuotaIdRow], picture: Picture) -> str:
    """Return in a sentence how many wait."""
    throttled = sum(row.throttled for row in rows)
    held = sum(row.held for row in rows)
    ids = f"{count(len(rows))} quota-id{'' if len(rows) == 1 else 's'}"
    waits = f"{count(held)} connection{' waits' if held == 1 else 's wait'}"
    are = "is" if throttled == 1 else "are"
    return f"{moment(picture.at_ms)}: {count(throttled)} of {ids} {are} throttled, {waits}."


def notes(picture: Picture, left_out: Iterable[str]) -> Iterator[str]:
    """Return what isn't shown, and why, a sentence each."""
    out = list(left_out)
    if out:
        yield f"Too narrow for: {', '.join(out)}."
    untold = sum(broker.other_quotas for broker in picture.brokers)
    if untold:
        yield f"{count(untold)} quota-ids with the most room aren't told."
    for broker in picture.brokers:
        if broker.silent:
            yield f"Broker {broker.broker_id} doesn't answer: {broker.silent}."
        if broker.splits_expired:
            yield f"Broker {broker.broker_id} has parts of quotas that are out of date."
    if picture.note:
        yield picture.note


def screen(
    view: TopView,
    rows: Sequence[QuotaIdRow],
    shown: Sequence[QuotaIdRow],
    picture: Picture,
    size: tuple[int, int],
    *,
    answer: Picture | None = None,
    problem: str = "",
) -> Text:
    """
    Return a whole screen.

    Args:
        view: what is looked at.
        rows: all quota-ids.
        shown: those asked for, in their order.
        picture: the last one.
        size: columns and lines.
        answer: the picture of the row asked about; None: not yet.
        problem: why the gateway doesn't answer; "": it does.
    """
    width, height = size
    head = [Text(summary(rows, picture))]
    if problem:
        head.append(Text(problem, style="bold red"))
    if view.asked is not None:
        body = [Text(line) for line in _why(view.asked, answer)]
        return _joined(head, body, [Text(_WHY_KEYS, style="dim")])
    at = view.at(shown)
    drawn, left_out = table(shown, picture.at_ms, width, at)
    said = [Text(printable(note)) for note in notes(picture, left_out)]
    if view.typing or view.find:
        here = "_" if view.typing else ""
        said.insert(0, Text(f"/{printable(view.find)}{here}  {count(len(shown))} match"))
    if view.notice:
        said.append(Text(view.notice, style="bold"))
    said.append(Text(KEYS, style="dim"))
    taken = sum(_height(line, width) for line in (*head, *said)) + 2
    most = max(height - taken - 1, 1)
    first = min(max(at - most + 1, 0), max(len(shown) - most, 0))
    body = [drawn[0], *drawn[1 + first : 1 + first + most]]
    below = len(shown) - first - most
    body.append(Text(f"{count(below)} more below" if below > 0 else ""))
    return _joined(head, body, said)


def _why(row: QuotaIdRow, answer: Picture | None) -> Iterator[str]:
    owner = row.owner
    if answer is None or owner is None:
        yield "Asking …"
        return
    for line in why_lines(why(answer, *owner, row.use.key)):
        yield printable(line)


def _height(line: Text, width: int) -> int:
    return max(1, -(-cell_len(line.plain) // max(width, 1)))


def _joined(*parts: Sequence[Text]) -> Text:
    head, *others = parts
    return Text("\n").join((*head, Text(""), *(line for part in others for line in part)))
