"""
`headgate top`: who waits and who uses most, as a live table, as a table once, or as JSON.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

import msgspec

from headgate.cli.connecting import open_servers
from headgate.cli.contract import BadUsage, Parser
from headgate.cli.output import printable, say
from headgate.cli.quotas.flags import add_connection
from headgate.cli.results import Result
from headgate.cli.top.view import SORTS, TopView, arranged
from headgate.cli.watching import add_every, every_s, is_screen
from headgate.java_text import Number, finite
from headgate.live.picture import Picture
from headgate.live.quota_ids import QuotaIdRow, rows

MOST_QUOTA_IDS: Final = 10_000
"""Quota-ids of each broker that are asked for."""
_PIPE_COLUMNS: Final = 160


class TopQuotaId(msgspec.Struct):
    """
    A quota-id, at the broker where it waits longest or has the least room.

    Args:
        key: of the quota.
        user, client_id: its tags; "" where it doesn't have that one.
        ip: the address, where connections of one are limited.
        broker_id: of that broker.
        brokers: at how many it is used.
        limit: what its use is compared with there, per second in the key's unit; null: nothing.
        rate: its use now; a tenant sees that of a shared quota-id rounded up to quarters.
        share: rate by limit; null: it has no limit, or one of 0.
        waiting: connections that wait by it, at all brokers.
        waiting_until_ms: when the last of them goes on, epoch ms; null: none waits.
        throttled_since_ms: since when it is throttled, epoch ms; null: it isn't.
        connections: of the clients charged to it that are told by name.
        other_clients: how many more clients there are at that broker.
    """

    key: str
    user: str
    client_id: str
    ip: str
    broker_id: int
    brokers: int
    limit: Number
    rate: Number
    share: Number
    waiting: int
    waiting_until_ms: int | None
    throttled_since_ms: int | None
    connections: int
    other_clients: int


class TopShown(Result):
    """
    `headgate top`: the quota-ids in use, in the order that was asked for.

    Args:
        at_ms: when that was so, epoch ms.
        quota_ids: those that are shown.
        found: how many there are; more than are shown with ``--limit``.
        notes: what isn't known, and why.
    """

    at_ms: int
    quota_ids: list[TopQuotaId]
    found: int
    notes: list[str]


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate top",
        "Show who waits and who uses most at this moment, and again every few seconds: each "
        "quota-id with its quota, its use and share, how many of its connections wait and for how "
        "long. On a terminal, w, u and n sort, / filters, Enter says why a quota-id waits, q "
        "leaves. In a pipe the table is printed once.",
        _top,
        example="headgate top --bootstrap-server localhost:19092",
        json="print one JSON object, also for errors; implies --once",
    )
    made.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", required=True, help="a gateway's listener"
    )
    add_connection(made)
    made.add_argument("--once", action="store_true", help="print the table once and leave")
    made.add_argument(
        "--sort",
        choices=SORTS,
        default=SORTS[0],
        help="waits: the longest wait, then the least room; use: the share of the quota; "
        "default: waits",
    )
    made.add_argument(
        "--find", metavar="TEXT", default="", help="only with this text in a name or address"
    )
    made.add_argument("--limit", metavar="N", type=int, help="with --once: only the first N")
    add_every(made)
    return made


def _top(arguments: argparse.Namespace) -> TopShown:
    pause_s = every_s(arguments)
    if arguments.limit is not None and arguments.limit < 0:
        raise BadUsage("--limit takes 0 or more")
    live = not (arguments.once or arguments.json) and is_screen()
    if live and arguments.limit is not None:
        raise BadUsage("--limit goes with --once")
    view = TopView(arguments.sort, arguments.find.strip())
    with open_servers(
        arguments.bootstrap_server, arguments.command_config, "headgate top"
    ) as place:
        picture = place.picture(most=MOST_QUOTA_IDS)
        if live:
            from headgate.cli.top.terminal import look

            look(place, picture, view, MOST_QUOTA_IDS, pause_s)
            return TopShown(at_ms=picture.at_ms, quota_ids=[], found=0, notes=[])
    from headgate.cli.top.screen import notes

    found = arranged(rows(picture), view.sort, view.find)
    shown = found[: arguments.limit]
    _print(shown, len(found), picture)
    told = [_told(row) for row in shown]
    return TopShown(
        at_ms=picture.at_ms, quota_ids=told, found=len(found), notes=list(notes(picture, ()))
    )


def _print(shown: list[QuotaIdRow], found: int, picture: Picture) -> None:
    from rich.console import Console

    from headgate.cli.top.screen import notes, summary, table

    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False)
    console.print(summary(rows(picture), picture), markup=False, soft_wrap=True)
    drawn, left_out = table(shown, picture.at_ms, console.width)
    if shown:
        for line in drawn:
            console.print(line, soft_wrap=True)
    if len(shown) < found:
        say(f"{found - len(shown)} more")
    for note in notes(picture, left_out if shown else ()):
        say(printable(note))


def _told(row: QuotaIdRow) -> TopQuotaId:
    from headgate.cli.top.screen import connections

    use = row.use
    return TopQuotaId(
        use.key, use.user, use.client_id, use.ip, row.broker_id, row.brokers, finite(use.limit),
        finite(use.rate), finite(use.utilisation), row.held, row.held_until_ms or None,
        row.held_since_ms or None, connections(row), use.other_clients,
    )  # fmt: skip
