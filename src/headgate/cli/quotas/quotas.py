"""
`headgate quotas`: everything that is configured, with its use now and its last change.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from headgate.admin.listing import (
    KINDS,
    ONLY,
    SORTS,
    LastChanges,
    Listing,
    QuotaNow,
    QuotaQuery,
    QuotaRow,
    as_csv,
    last_changes,
)
from headgate.cli.connecting import open_servers
from headgate.cli.contract import BadUsage, Parser
from headgate.cli.output import say
from headgate.cli.quotas.flags import add_connection, add_place_flags
from headgate.cli.quotas.history import when
from headgate.cli.quotas.plan_output import entity_path
from headgate.cli.quotas.quota_output import entity_json, json_number, say_notes
from headgate.cli.quotas.quota_target import open_quota_target
from headgate.cli.results import ListedNow, ListedQuota, QuotaChange, QuotasListed
from headgate.errors import HeadgateError, StoreError
from headgate.quota.human import human
from headgate.quota.key import KEYS, QuotaKey
from headgate.words import NONE, amount, count, duration, moment, share, unit_of, what_of

if TYPE_CHECKING:
    from headgate.admin.open_target import OpenTarget
    from headgate.live.picture import Picture

_MOST_QUOTA_IDS = 100_000
"""Quota-ids of each broker that are asked for."""


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate quotas",
        "List every quota that is configured: its value, its use at this moment, who waits by it, "
        "how many quota-ids it matched, who changed it last and why. Quotas come from the store, "
        "or from the servers if no store is given; use and waits come from a gateway.",
        _quotas,
        example="headgate quotas --bootstrap-server localhost:19092 --store sqlite:quotas.db "
        "--sort waits --limit 20",
    )
    add_place_flags(made)
    add_connection(made)
    made.add_argument(
        "--find", metavar="TEXT", default="", help="in a name, who changed it, or why"
    )
    made.add_argument("--key", metavar="KEY", help="only this key, such as producer_byte_rate")
    made.add_argument(
        "--kind",
        choices=(*KINDS, "default"),
        default="",
        help="only quotas of these entities; default: of any other user, client-id or address",
    )
    made.add_argument(
        "--only",
        choices=ONLY,
        default="",
        help="only those by which clients wait, or that nobody is charged to",
    )
    made.add_argument("--sort", choices=SORTS, default="name", help="default: name")
    made.add_argument("--reverse", action="store_true", help="the other way round")
    made.add_argument("--limit", metavar="N", type=int, help="only the first N")
    made.add_argument("--csv", action="store_true", help="print CSV with a header")
    return made


def _quotas(arguments: argparse.Namespace) -> QuotasListed:
    if not arguments.store and not arguments.bootstrap_server:
        raise BadUsage("give --store, --bootstrap-server of a gateway, or both")
    if arguments.limit is not None and arguments.limit < 0:
        raise BadUsage("--limit takes 0 or more")
    key = arguments.key and QuotaKey.parse(arguments.key)
    if key and key not in KEYS:
        raise BadUsage(f"--key {key}: the keys are {', '.join(known.name for known in KEYS)}")
    query = QuotaQuery(
        arguments.find.strip(), key.name if key else "", arguments.kind, arguments.only,
        arguments.sort, arguments.reverse,
    )  # fmt: skip
    notes: list[str] = []
    picture = _picture(arguments, notes)
    if arguments.store and arguments.bootstrap_server:
        arguments.command_config = None  # which is for the gateway
    with open_quota_target(arguments, "quotas") as place:
        last = _last(place, notes)
        now = Listing(place.table(), last, place.run(lambda target: target.ends())).at(picture)
    found = now.select(query)
    rows = [now.row(number) for number in found[: arguments.limit]]
    if arguments.csv:
        say(as_csv(rows).replace("\r\n", "\n").rstrip("\n"))
    else:
        _print(rows, picture, len(found), len(now))
    say_notes("headgate quotas", notes)
    return QuotasListed(quotas=[_told(row) for row in rows], found=len(found), notes=notes)


def _picture(arguments: argparse.Namespace, notes: list[str]) -> Picture | None:
    """Return what goes on now, of everybody; None where that isn't known, with a note."""
    if not arguments.bootstrap_server:
        notes.append("use and waits aren't known: give --bootstrap-server of a gateway")
        return None
    servers, config = arguments.bootstrap_server, arguments.command_config
    try:
        with open_servers(servers, config, "headgate quotas") as gateway:
            found = gateway.picture(most=_MOST_QUOTA_IDS)
    except HeadgateError as error:
        notes.append(f"use and waits aren't known: {error}")
        return None
    untold = sum(broker.other_quotas for broker in found.brokers)
    if untold:
        notes.append(
            f"{untold} quota-ids with the most room aren't in the picture, so a quota that matched "
            "nobody may have matched one of them"
        )
    return found


def _last(place: OpenTarget, notes: list[str]) -> LastChanges:
    """Return the latest change of each quota; none without a history, with a note."""
    try:
        place.find_history()
        return last_changes(place.run(lambda target: target.history()))
    except StoreError as error:
        if place.keeps_history:
            raise
        notes.append(f"who changed a quota isn't known: {error}")
        return {}


# --- for people


def _print(rows: list[QuotaRow], picture: Picture | None, found: int, in_all: int) -> None:
    if rows:
        from headgate.cli.pipeline.print import closing_table

        at_ms = 0 if picture is None else picture.at_ms
        closing_table(
            "Quotas",
            [
                ("quota", lambda row: entity_path(row.entity)),
                ("limits", lambda row: what_of(row.key.name)),
                ("value", _value),
                ("use now", lambda row: _use(row.now)),
                ("waits", lambda row: _waits(row.now, at_ms)),
                ("matched", lambda row: _matched(row.now)),
                ("last change", _change),
            ],
            rows,
        )
    told = f"{count(found)} quota{'' if found == 1 else 's'}"
    if found != in_all:
        told += f" that match, of {count(in_all)}"
    if len(rows) < found:
        told += f"; the first {count(len(rows))} are shown"
    say(told.replace("\u202f", ","))


def _value(row: QuotaRow) -> str:
    if row.end is None:
        return human(row.key, row.value)
    then = "none" if row.end.former is None else human(row.key, row.end.former)
    return f"{human(row.key, row.value)} until {moment(row.end.until_ms)}, then {then}"


def _use(now: QuotaNow | None) -> str:
    if now is None:
        return "?"
    use = now.use
    if use is None:
        return NONE
    rate = amount(use.rate, unit_of(use.key))
    return f"{share(use.utilisation)} ({rate})".replace("\xa0", "") if use.limit else rate


def _waits(now: QuotaNow | None, at_ms: int) -> str:
    if now is None:
        return "?"
    if not now.held:
        return "throttled" if now.throttled else NONE
    left = f", {duration(now.held_until_ms - at_ms)}" if now.held_until_ms > at_ms else ""
    return f"{now.held} connection{'' if now.held == 1 else 's'}{left}"


def _matched(now: QuotaNow | None) -> str:
    return "?" if now is None else str(now.matched or "nobody")


def _change(row: QuotaRow) -> str:
    if row.last is None:
        return NONE
    return " ".join(filter(None, (moment(row.last.t_ms), row.last.who, row.last.message)))


# --- for programs


def _told(row: QuotaRow) -> ListedQuota:
    now, last = None, None
    entity, key = entity_json(row.entity), str(row.key)
    if row.now is not None:
        use = row.now.use
        now = ListedNow(
            matched=row.now.matched,
            rate=None if use is None else json_number(use.rate),
            limit=None if use is None else json_number(use.limit),
            waiting=row.now.held,
            waiting_until_ms=row.now.held_until_ms or None,
            throttled=row.now.throttled,
        )
    if row.last is not None:
        e = row.last
        last = QuotaChange(
            e.t_ms, when(e.t_ms), e.who, e.tool, entity, key, json_number(e.before),
            json_number(e.after), e.change, e.message,
        )  # fmt: skip
    end = row.end
    return ListedQuota(
        entity=entity, key=key, value=json_number(row.value), now=now, last=last,
        until_ms=None if end is None else end.until_ms,
        then=None if end is None else json_number(end.former),
    )  # fmt: skip
