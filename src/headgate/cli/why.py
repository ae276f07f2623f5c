"""
`headgate why`: why a client waits now, or waited, and what room it has.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import structs

from headgate.cli.connecting import open_servers
from headgate.cli.contract import BadUsage, Parser
from headgate.cli.output import printable, say
from headgate.cli.pipeline.flags import add_principals
from headgate.cli.quotas.flags import add_broker_id, add_connection, moment
from headgate.cli.quotas.history import table_before, when
from headgate.cli.quotas.quota_output import say_notes
from headgate.cli.quotas.quota_target import open_quota_store
from headgate.cli.results import Result
from headgate.cli.watching import add_every, every_s, watch
from headgate.errors import ApiError, ConfigError, StoreError
from headgate.live.known import unknown_name
from headgate.live.picture import Picture
from headgate.live.why import QuotaWhy, Rung, Why, ladder, why
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.human import human
from headgate.quota.key import KEYS, QuotaKey
from headgate.quota.lookalikes import name_notes
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from headgate.admin.open_target import OpenTarget


class Explained(Result, kw_only=True):
    """
    `headgate why`: the answer in words and in parts.

    Args:
        why: the answer.
        levels: of the precedence of its first quota.
    """

    why: Why
    levels: list[Rung]


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate why",
        "Say in one sentence why a client waits, by which quota and for how long, or what room it "
        "has; then why that quota applies, who shares it, since when it is throttled, and what "
        "frees it. A gateway is asked about now, with administrators' credentials or the "
        "principal's own.",
        _why,
        example="headgate why --bootstrap-server localhost:19092 --user alice --client-id etl",
    )
    place = made.add_mutually_exclusive_group(required=True)
    place.add_argument("--bootstrap-server", metavar="HOST:PORT", help="a gateway's listener")
    place.add_argument(
        "--requests",
        nargs="+",
        metavar="PATH",
        help="ask about a past moment: files or directories with usage journals of gateways, or "
        "with request logs of brokers",
    )
    add_connection(made)
    made.add_argument(
        "--at",
        metavar="TIME",
        help="with --requests: the moment, such as 2026-11-22T10:00:00Z; default: the last one",
    )
    limits = made.add_mutually_exclusive_group()
    limits.add_argument(
        "--quotas",
        metavar="FILE",
        help="with --requests: the quotas at that moment, a quotas file or an export of `headgate "
        "history`; by default those that the journal holds; request logs hold none",
    )
    limits.add_argument(
        "--store", metavar="URL", help="with --requests: a store; its history has these quotas"
    )
    made.add_argument(
        "--time-zone", metavar="ZONE", help="the zone of logs that print none; default: UTC"
    )
    add_broker_id(made)
    add_principals(made)
    made.add_argument("--user", metavar="NAME", required=True, help="the principal, without User:")
    made.add_argument("--client-id", metavar="NAME", help="its client-id; by default all of them")
    made.add_argument("--key", metavar="KEY", help="only this quota, such as consumer_byte_rate")
    made.add_argument(
        "--watch",
        action="store_true",
        help="with --bootstrap-server: say the sentence again whenever the answer changes, until "
        "Ctrl-C",
    )
    add_every(made, "with --watch: ")
    return made


def _why(arguments: argparse.Namespace) -> Explained:
    user, client_id, key = arguments.user, arguments.client_id, arguments.key
    if key is not None and QuotaKey.parse(key) not in KEYS:
        names = ", ".join(known.name for known in KEYS)
        raise BadUsage(f"--key {key}: the keys are {names}")
    key = key and QuotaKey.parse(key).name
    if arguments.watch:
        return _explained(_watched(arguments, key))
    found = why(_picture(arguments), user, client_id, key)
    if arguments.requests:
        say(f"At {when(found.at_ms)}:")
    for line in lines(found):
        say(printable(line))
    return _explained(found)


def _explained(found: Why) -> Explained:
    rungs = ladder(found.quotas[0], found.user, found.client_id) if found.quotas else ()
    return Explained(why=found, levels=list(rungs))


def _watched(arguments: argparse.Namespace, key: str | None) -> Why:
    """Tell the answer until Ctrl-C; return the last one."""
    pause_s = every_s(arguments)
    if arguments.requests or arguments.json:
        raise BadUsage("--watch goes with --bootstrap-server, and without --json")
    user, client_id = arguments.user, arguments.client_id
    with _gateway(arguments) as place:
        return watch(lambda: why(_now(place, arguments), user, client_id, key), pause_s)


def _picture(arguments: argparse.Namespace) -> Picture:
    if arguments.requests:
        return _past(arguments)
    with _gateway(arguments) as place:
        return _now(place, arguments)


def _gateway(arguments: argparse.Namespace) -> OpenTarget:
    """
    Return the gateway that is asked about now.

    Raises:
        BadUsage: flags of a past moment are given.
    """
    logs_only = ("time-zone", "broker-id", "broker-id-pattern", "principal-pattern")
    for flag in ("at", "quotas", "store", *logs_only):
        if getattr(arguments, flag.replace("-", "_")) not in (None, ""):
            raise BadUsage(f"--{flag} goes with --requests; a gateway is asked about now")
    return open_servers(arguments.bootstrap_server, arguments.command_config, "headgate why")


def _now(place: OpenTarget, arguments: argparse.Namespace) -> Picture:
    found = place.picture(arguments.user, arguments.client_id)
    if any(broker.connections for broker in found.brokers):
        return found
    return structs.replace(found, note=f"{found.note} {_unknown(place, arguments)}".strip())


def _unknown(place: OpenTarget, arguments: argparse.Namespace) -> str:
    """Say that nobody has the name asked about, to those who may ask about everybody."""
    try:
        everybody = place.picture()
        quotas = place.table().entities
    except (ApiError, StoreError):
        return f"{arguments.user} isn't connected now."
    return (
        unknown_name(arguments.user, arguments.client_id, everybody, quotas)
        or f"{arguments.user} isn't connected now."
    )


def _past(arguments: argparse.Namespace) -> Picture:
    """
    Read what happened at a past moment from usage journals, or from request logs.

    Raises:
        ConfigError: they can't be read, or hold nothing about that time.
    """
    from headgate.live.past import LOOK_BACK_MS, Past
    from headgate.pipeline.sources.files import find_files
    from headgate.usage import reader
    from headgate.usage.files import SUFFIXES

    paths: list[str] = arguments.requests
    at_ms = None if arguments.at is None else moment(arguments.at, "--at")
    files = find_files(paths)
    if not any(path.endswith(SUFFIXES) for path, _ in files):
        return _past_of_logs(arguments, files, at_ms)
    try:
        if at_ms is None:
            last_ms = reader.last_ms(paths)
            if last_ms is None:
                raise ConfigError(f"--requests: there are no events in {', '.join(paths)}")
            at_ms = round(last_ms)
        past = Past(at_ms, arguments.user, arguments.client_id)
        for batch in reader.read_until(paths, at_ms + LOOK_BACK_MS):
            past.take(batch)
    except ValueError as error:
        raise ConfigError(f"--requests: {error}. Give either journals or request logs") from error
    if past.first_ms is None or past.last_ms is None or not past.first_ms <= at_ms:
        begins = "" if past.first_ms is None else f"; the first is of {when(round(past.first_ms))}"
        raise ConfigError(f"--at {when(at_ms)}: there are no events before{begins}")
    return past.picture(_quotas_at(arguments, at_ms))


def _past_of_logs(
    arguments: argparse.Namespace, files: list[tuple[str, int]], at_ms: int | None
) -> Picture:
    """Do as ``_past``, from request logs of brokers."""
    from headgate.cli.pipeline.opening import check_time_zone, notes_of
    from headgate.pipeline.answers.past_logs import PERIOD_MS, PastLogs, last_ms
    from headgate.pipeline.sources.pieces import pieces_of
    from headgate.pipeline.workers.log_reader import ReadOptions

    if arguments.quotas is None and arguments.store is None:
        raise BadUsage("--requests: request logs name no quotas; give --quotas FILE or --store URL")
    zone, notes = arguments.time_zone or "UTC", list[str]()
    check_time_zone(zone)
    pieces = pieces_of(
        files,
        broker_id=arguments.broker_id,
        broker_id_pattern=arguments.broker_id_pattern,
        notes=notes,
        copies="refuse",
    )
    at_ms = last_ms(pieces, zone) if at_ms is None else at_ms
    if at_ms is None:
        raise ConfigError("--requests: there is no request in these logs")
    table = _quotas_at(arguments, at_ms)
    assert table is not None
    known = notes_of(pieces, arguments)
    found = PastLogs(
        table,
        at_ms,
        arguments.user,
        arguments.client_id,
        ReadOptions((), zone, principal_pattern=arguments.principal_pattern),
    )
    found.take(pieces)
    if not found.read:
        minutes = PERIOD_MS // 60_000
        raise ConfigError(f"--at {when(at_ms)}: there are no requests in the {minutes} min before")
    about = [note.sentence for note in known if note.of_moments]
    note = " ".join([found.note, *(f"{note}." for note in notes), *about])
    return structs.replace(found.past.picture(table), note=note)


def _quotas_at(arguments: argparse.Namespace, at_ms: int) -> QuotaTable | None:
    """Return the quotas at a time, from a file or a store; None: neither was given."""
    if arguments.quotas is not None:
        from headgate.quota.file import read_quotas_file

        file = read_quotas_file(arguments.quotas)
        say_notes("headgate why", (*file.said, *name_notes(file.table.entities)))
        changes = [
            QuotaAlteration(event.entity, (Op(event.key, event.value),))
            for event in file.history
            if event.t_ms <= at_ms
        ]
        return file.table.apply(changes)[0]
    if arguments.store is None:
        return None
    with closing(open_quota_store(arguments.store, arguments.command_config)) as store:
        later = [entry for entry in store.history.entries() if entry.t_ms > at_ms]
        return table_before(store.snapshot(), later)


def lines(found: Why) -> Iterator[str]:
    """Return an answer as text: the sentence, its parts, the levels, the other quotas."""
    yield found.sentence
    parts = (found.because, found.others, found.since, found.free, *found.connecting, found.note)
    yield from (f"  {part}" for part in parts if part)
    if not found.quotas:
        return
    first, *others = found.quotas
    if first.entries:
        yield ""
        yield from _drawn(first, found)
    if others:
        yield ""
        yield "its other quotas:"
        for quota in others:
            yield f"  {_other(quota)}"


def _drawn(quota: QuotaWhy, found: Why) -> Iterator[str]:
    key = QuotaKey.parse(quota.key)
    rungs = ladder(quota, found.user, found.client_id)
    width = max(len(rung.entity) for rung in rungs)
    values = [human(key, rung.value) if rung.value is not None else "-" for rung in rungs]
    column = max(map(len, values))
    yield f"precedence of {quota.key}, the most specific first:"
    for rung, value in zip(rungs, values, strict=True):
        word = "applies" if rung.applies else "overridden" if rung.value is not None else ""
        yield f"  {rung.number}  {rung.entity:<{width}}  {value:>{column}}  {word}".rstrip()


def _other(quota: QuotaWhy) -> str:
    key = QuotaKey.parse(quota.key)
    source = quota.entries[0].entity if quota.entries else "-"
    use = quota.use.utilisation if quota.use is not None else None
    used = "not used" if use is None else f"{use:.0%} used"
    if not quota.enforced:
        used += ", not enforced by the gateway"
    return f"{quota.key}  {source}  {human(key, quota.limit)}  {used}"
