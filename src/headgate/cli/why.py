"""
`headgate why`: why a client waits now, or waited, and what room it has.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from headgate.cli.connecting import open_client
from headgate.cli.contract import BadUsage, Parser, command
from headgate.cli.output import printable, say
from headgate.cli.quotas.flags import add_connection
from headgate.cli.results import Explained
from headgate.live.picture import Picture
from headgate.live.why import QuotaWhy, Why, ladder, why
from headgate.quota.human import human
from headgate.quota.key import KEYS, QuotaKey


def main(argv: Sequence[str]) -> int:
    """Run `headgate why`."""
    return command(parser(), argv, _why)


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate why",
        "Say in one sentence why a client waits, by which quota and for how long, or what room it "
        "has; then why that quota applies, who shares it, since when it is throttled, and what "
        "frees it. A gateway is asked about now, with administrators' credentials or the "
        "principal's own.",
        example="headgate why --bootstrap-server localhost:19092 --user alice --client-id etl",
    )
    made.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", required=True, help="a gateway's listener"
    )
    add_connection(made)
    made.add_argument("--user", metavar="NAME", required=True, help="the principal, without User:")
    made.add_argument("--client-id", metavar="NAME", help="its client-id; by default all of them")
    made.add_argument("--key", metavar="KEY", help="only this quota, such as consumer_byte_rate")
    return made


def _why(arguments: argparse.Namespace) -> Explained:
    user, client_id, key = arguments.user, arguments.client_id, arguments.key
    if key is not None and QuotaKey.parse(key) not in KEYS:
        names = ", ".join(known.name for known in KEYS)
        raise BadUsage(f"--key {key}: the keys are {names}")
    found = why(_picture(arguments), user, client_id, key and QuotaKey.parse(key).name)
    for line in lines(found):
        say(printable(line))
    rungs = ladder(found.quotas[0], user, client_id) if found.quotas else ()
    return Explained(why=found, levels=list(rungs))


def _picture(arguments: argparse.Namespace) -> Picture:
    with open_client(
        servers=arguments.bootstrap_server,
        store=None,
        config_file=arguments.command_config,
        tool="headgate why",
    ) as client:
        return client.describe_live(arguments.user, arguments.client_id)


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
