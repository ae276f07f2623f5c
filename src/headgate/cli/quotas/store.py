"""
`headgate store`: show a store's id, accept another store for a gateway, copy a store.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from headgate.cli.contract import BadUsage, Parser
from headgate.cli.output import complain, printable, say
from headgate.cli.quotas.flags import add_connection
from headgate.cli.quotas.quota_output import value_text
from headgate.cli.quotas.quota_target import open_quota_store
from headgate.cli.results import StoreAccepted, StoreCopied, StoreShown
from headgate.errors import StoreError
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.table import QuotaTable, TableChange, alterations_of, table_delta
from headgate.words import moment

if TYPE_CHECKING:
    from headgate.store.base import BrokerConfigs
    from headgate.store.watched import QuotaStore

_FEW: Final = 5
"""Differences between two stores that are named."""


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate store",
        "Show which store it is; let a gateway use another store; move quotas.",
        example="headgate store show --store sqlite:quotas.db",
        json=None,
    )
    actions = made.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser(
        "show",
        help="print a store's id, its revision and the stores it took over from",
        description="Print a store's id, its revision and the stores it took over from.",
        does=_show,
        example="headgate store show --store sqlite:quotas.db",
    )
    show.add_argument("--store", metavar="URL", required=True, help="the Headgate store")
    accept = actions.add_parser(
        "accept",
        help="let the gateway use the store that it finds, though it isn't the one it knew",
        description="Let the gateway use the store that it finds, though it isn't the one it "
        "knew. Run it on the gateway's host, once for each gateway; it is valid once.",
        does=_accept,
        example="headgate store accept 9f86d081884c7d65 --config headgate.properties",
    )
    accept.add_argument("id", metavar="ID", help="the id of the store, as `show` prints it")
    accept.add_argument(
        "--config", metavar="FILE", required=True, help="the gateway's headgate.properties"
    )
    copy = actions.add_parser(
        "copy",
        help="copy quotas and settings of brokers to another store, which takes over",
        description="Copy quotas and settings of brokers to another store, and note there that it "
        "took over, so that gateways use it at once; history isn't copied.",
        does=_copy,
        example="headgate store copy --from sqlite:quotas.db --to kafka://kafka-1:9092",
    )
    copy.add_argument("--from", metavar="URL", dest="source", required=True, help="the old store")
    copy.add_argument("--to", metavar="URL", dest="target", required=True, help="the new store")
    copy.add_argument(
        "--merge",
        action="store_true",
        help="copy to a store that holds other quotas or settings: they stay as they are there, "
        "and what it lacks is added",
    )
    for each in (show, copy):
        add_connection(each)
    return made


def _show(arguments: argparse.Namespace) -> StoreShown:
    with open_quota_store(arguments.store, arguments.command_config) as store:
        found = store.home.identity()
    if found is None:
        say("no identity: nothing was changed here yet, or only by a version before")
        return StoreShown(None, None, [])
    say(f"store {found.id}, revision {found.revision}")
    for id_, revision in found.succeeds:
        say(f"took over from store {id_}, revision {revision}")
    return StoreShown(found.id, found.revision, list(found.succeeds))


def _accept(arguments: argparse.Namespace) -> StoreAccepted:
    from headgate.config import load_settings
    from headgate.gateway.store_link.guard import accept_store
    from headgate.store import open_store

    settings = load_settings(arguments.config)
    with open_store(settings.store, settings, create=False) as store:
        found = store.home.identity()
    if found is None:
        raise StoreError(
            f"{settings.store} has no identity: nothing was changed there yet. Put quotas into it "
            "first, as with headgate apply"
        )
    if found.id != arguments.id:
        raise StoreError(
            f"{settings.store} is store {found}, not {printable(arguments.id)}; nothing was done"
        )
    accept_store(settings, found)
    say(f"The gateway of {arguments.config} will use store {found}, within seconds if it runs.")
    return StoreAccepted(found.id, found.revision, list(found.succeeds), arguments.config)


def _copy(arguments: argparse.Namespace) -> StoreCopied:
    from headgate.admin.store_target import principal

    if arguments.source == arguments.target:
        raise BadUsage("--from and --to are the same store")
    config = arguments.command_config
    with (
        open_quota_store(arguments.source, config) as source,
        open_quota_store(arguments.target, config, create=True) as target,
    ):
        keep = _Kept(source, target, merge=arguments.merge)
        who, tool = principal(), "headgate store copy"
        while True:
            before = source.home.identity()
            table = source.snapshot()
            message = f"copied from {arguments.source}"
            if before is not None:
                message += f", store {before}"
            for half in _halves(alterations_of(keep.changes(target.snapshot(), table))):
                for result in target.alter(half, who=who, tool=tool, message=message):
                    if result.error is not None:
                        raise StoreError(f"{result.entity}: {result.error}")
            for broker, ops in keep.settings(
                target.broker_settings.now(), source.broker_settings.now()
            ):
                target.broker_settings.alter(broker, ops, who=who, tool=tool)
            if source.home.identity() == before:
                break
            complain("The old store was changed meanwhile; what changed is copied too.")
        for end in source.ends.kept() if source.ends is not None else ():
            complain(
                printable(
                    f"Not copied: the end of {end.entity} {end.key}, {_value(end.value)} until "
                    f"{moment(end.until_ms)}, then {_value(end.former)}. There it stays until you "
                    "change it; `kafka-quotas --until` sets an end"
                )
            )
        if before is None:
            say(f"{len(table)} entities copied to {arguments.target}.")
            return StoreCopied(len(table), arguments.source, arguments.target, None, None)
        target.home.succeed(before)
        say(f"{len(table)} entities copied; {arguments.target} took over from store {before}.")
        id_, revision = before[:2]
        return StoreCopied(len(table), arguments.source, arguments.target, id_, revision)


class _Kept:
    """
    What the new store has otherwise than the old one, and keeps.

    Args:
        source: the old store.
        target: the new one.
        merge: whether it may hold anything else than the old one.

    Raises:
        StoreError: it does, and mayn't.
    """

    def __init__(self, source: QuotaStore, target: QuotaStore, *, merge: bool) -> None:
        found = table_delta(target.snapshot(), source.snapshot()).changes
        # A cluster that was migrated has taken its own quotas along: what is missing there now was
        # removed there since.
        self._kafka_has_its_own = source.availability.refuses is not None
        there, here = target.broker_settings.now(), source.broker_settings.now()
        self._quotas = {
            (change.entity, change.key): change
            for change in found
            if change.old is not None or self._is_kafkas(change)
        }
        self._settings = {
            (broker, name)
            for broker, settings in there.items()
            for name, value in settings.items()
            if here.get(broker, {}).get(name) != value
        }
        told = [*self._told(there, here)]
        if not told:
            return
        more = f"; and {len(told) - _FEW} more" if len(told) > _FEW else ""
        few = "; ".join(told[:_FEW]) + more
        if not merge:
            raise StoreError(
                f"{target.url} holds other quotas or settings than {source.url}: {few}. Copy to "
                "an empty store, or with --merge: then what is there stays, and what it lacks is "
                "added"
            )
        complain(printable(f"What {target.url} has otherwise stays: {few}"))

    def _told(self, there: BrokerConfigs, here: BrokerConfigs) -> Iterator[str]:
        """Yield each difference for people."""
        for entity, key, old, new in self._quotas.values():
            yield f"{entity} {key}: {_value(new)} and {_value(old)} there"
        for broker, name in sorted(self._settings):
            value = here.get(broker, {}).get(name, "not set")
            of = f"broker {broker}" if broker else "all brokers"
            yield f"{name} of {of}: {value} and {there[broker][name]} there"

    def _is_kafkas(self, change: TableChange) -> bool:
        return self._kafka_has_its_own and change.key.known_to_kafka

    def changes(self, there: QuotaTable, table: QuotaTable) -> list[TableChange]:
        """Return the changes that give the new store what the old one has, except what is kept."""
        return [
            change
            for change in table_delta(there, table).changes
            if (change.entity, change.key) not in self._quotas and not self._is_kafkas(change)
        ]

    def settings(
        self, there: BrokerConfigs, here: BrokerConfigs
    ) -> Iterator[tuple[str, dict[str, str | None]]]:
        """Yield the changes of settings of each broker, except what is kept."""
        for broker in {**here, **there}:
            wanted = {**dict.fromkeys(there.get(broker, ())), **here.get(broker, {})}
            ops = {n: v for n, v in wanted.items() if (broker, n) not in self._settings}
            if ops:
                yield broker, ops


def _value(value: float | None) -> str:
    return "not set" if value is None else value_text(value)


def _halves(alterations: Sequence[QuotaAlteration]) -> list[list[QuotaAlteration]]:
    """Return the alterations in two lists: of keys that Kafka knows, and of all others."""
    parts = [
        (a._replace(ops=tuple(op for op in a.ops if op.key.known_to_kafka is theirs)), theirs)
        for a in alterations
        for theirs in (True, False)
    ]
    return [[a for a, half in parts if a.ops and half is theirs] for theirs in (True, False)]
