"""
`headgate doctor`: looks for quotas that don't do what they seem to.
"""

from __future__ import annotations

import argparse
import ipaddress
import socket
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.contract import Parser
from headgate.cli.doctor.requests import look_at_requests
from headgate.cli.output import complain, printable, say
from headgate.cli.pipeline.flags import add_principals
from headgate.cli.quotas.as_code import entities
from headgate.cli.quotas.flags import add_connection, add_place_flags
from headgate.cli.quotas.plan_output import entity_path
from headgate.cli.quotas.quota_target import open_quota_target
from headgate.cli.results import Error, Examined
from headgate.errors import StoreError
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER_SHARES, PRODUCER_SHARES, QuotaUnit
from headgate.quota.lookalikes import name_notes
from headgate.quota.table import QuotaTable
from headgate.throttle.connection import host_address

if TYPE_CHECKING:
    from headgate.store import QuotaStore

_UNLIMITED: Final = 9.2e18
_SHARES: Final = (PRODUCER_SHARES, CONSUMER_SHARES)


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate doctor",
        "Look for quotas that don't do what they seem to. With --config, also look at the "
        "gateway's set-up: listeners, ports, credentials, ACLs, clocks, versions, and quotas that "
        "the brokers enforce as well. With --requests, say what request logs are, and what can be "
        "answered from them. Exits 3 if it finds something, 1 if it can't look.",
        _look,
        example="headgate doctor --config headgate.properties",
    )
    place = made.add_mutually_exclusive_group(required=True)
    place.add_argument("--config", metavar="FILE", help="a gateway's headgate.properties")
    place.add_argument("--requests", nargs="+", metavar="PATH", help="request logs of brokers")
    add_place_flags(place)
    add_connection(made)
    made.add_argument(
        "--time-zone", metavar="ZONE", help="of --requests that print none (default: UTC)"
    )
    add_principals(made)
    return made


def _look(arguments: argparse.Namespace) -> Examined:
    report = Examined([], [], [])
    if arguments.requests is not None:
        look_at_requests(arguments, report)
    elif arguments.config is not None:
        look_at_setup(Path(arguments.config), report)
    else:
        with open_quota_target(arguments, "doctor") as place:
            look_at_quotas(place.store(), place.table(), report)
    for line in report.found:
        say(printable(line))
    for line in report.unseen:
        complain(printable(f"headgate doctor: couldn't look: {line}"))
    if report.unseen and not report.found:
        report.error = Error(None, "COULD_NOT_LOOK", f"couldn't look: {'; '.join(report.unseen)}")
    elif not report.found:
        say(f"{', '.join(report.seen)} looked at; nothing found.")
    return report


def look_at_quotas(
    store: QuotaStore | None,
    table: QuotaTable,
    report: Examined,
    idle: Collection[str] | None = None,
) -> None:
    """Look for quotas that don't do what they seem to; see ``findings``."""
    if store is not None and (refuses := store.availability.refuses) is not None:
        report.found.append(refuses)
    odd = [] if store is None else store.home.oddities()
    report.found += [*odd, *findings(table, idle)]
    report.seen.append(f"{len(table)} {entities(len(table))}")


def look_at_setup(config: Path, report: Examined) -> None:
    """
    Look at a gateway's settings, its store, and the cluster behind it.

    Raises:
        ConfigError: the settings make no sense; every mistake.
    """
    from headgate.cli.doctor.setup import look
    from headgate.config import load_settings
    from headgate.gateway.broker.live_view import without_capacity
    from headgate.store import open_store

    settings = load_settings(config)
    report.found += settings.warnings
    table = None
    try:
        with open_store(settings.store, settings, create=False) as store:
            table = store.snapshot()
            look_at_quotas(store, table, report, without_capacity(settings))
    except StoreError as error:
        report.unseen.append(f"the store {settings.store}: {error}")
    look(settings, table, report)


def findings(table: QuotaTable, idle: Collection[str] | None = None) -> Iterator[str]:
    """
    Yield a sentence for each quota that doesn't do what it seems to.

    Args:
        table: every quota.
        idle: keys of shares that a gateway has no capacity for; None: its settings aren't known.
    """
    yield from _hidden_by_unlimited_default(table)
    yield from name_notes(table.entities)
    yield from _one_address_twice(table.entities)
    yield from _not_reached_without_client_id(table)
    for key in _SHARES:
        if table.for_key(key) and (idle is None or key.name in idle):
            yield (
                f"{len(table.for_key(key))} entities have {key}: shares are enforced only where "
                f"headgate.capacity.{key.type} is set, by a gateway"
            )


def _hidden_by_unlimited_default(table: QuotaTable) -> Iterator[str]:
    default = QuotaEntity.of(user=DEFAULT)
    for key, value in table.entities.get(default, {}).items():
        if value < _UNLIMITED or key.units == QuotaUnit.SHARES:
            continue
        hidden = [e for e in table.for_key(key) if e.shape == "client-id"]
        if hidden:
            names = ", ".join(entity_path(e) for e in sorted(hidden)[:5])
            yield (
                f"users/<default> {key} is unlimited and hides {len(hidden)} client-id quotas "
                f"({names}): in Kafka an unlimited default user isn't transparent, as KIP-55 has "
                "it; remove it to let them through"
            )


def _one_address_twice(entities: Iterable[QuotaEntity]) -> Iterator[str]:
    by_address: dict[str, list[str]] = {}
    for entity in sorted(entities):
        name = entity.ip
        if isinstance(name, str):
            by_address.setdefault(_address(name), []).append(name)
    for address, names in by_address.items():
        if len(names) > 1:
            yield (
                f"ips {', '.join(names)} are one address ({address}): the quota set last wins in a "
                "broker; keep one"
            )


def _address(name: str) -> str:
    try:
        # As brokers and gateways take it: ::ffff:10.0.0.1 is 10.0.0.1.
        return str(ipaddress.ip_address(host_address(name)))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(name, None)[0][4][0])
    except (OSError, UnicodeError):
        return name


def _not_reached_without_client_id(table: QuotaTable) -> Iterator[str]:
    alone = QuotaEntity.of(client_id=DEFAULT)
    if alone in table.entities:
        keys = ", ".join(str(key) for key in sorted(table.entities[alone]))
        yield (
            f"clients/<default> ({keys}) doesn't reach clients that send no client-id; use "
            "users/<default> for those"
        )
