"""
Flags that several commands have: where quotas are, how a plan is shown and applied, which clients.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from headgate.cli.contract import Action, BadUsage, Parser
from headgate.cli.quotas.plan_file import checked_message
from headgate.config import store_kinds
from headgate.errors import InvalidQuota
from headgate.quota.entity import (
    DEFAULT,
    EntityName,
    QuotaEntity,
    entity_from_path,
    parse_entity,
)
from headgate.words import moment_ms


def quotas_parser(command: str, about: str, does: Action, example: str) -> Parser:
    """Return a parser with the flags that say where the quotas are."""
    made = Parser(f"headgate {command}", about, does, example=f"headgate {command} {example}")
    add_place(made)
    return made


def add_place(made: argparse.ArgumentParser) -> None:
    """Add the flags that say where the quotas are."""
    add_place_flags(made.add_mutually_exclusive_group(required=True))
    add_connection(made)


def add_place_flags(place: argparse._ActionsContainer) -> None:
    """Add the two flags themselves."""
    place.add_argument(
        "--store",
        metavar="URL",
        help=f"a Headgate store: {store_kinds.forms()}",
    )
    place.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="a gateway, or a Kafka 2.6 or later"
    )


def add_connection(made: argparse._ActionsContainer, to: str = "") -> None:
    """Add the flag for credentials; ``to`` tells which connection, where there are several."""
    about = f"properties for the connection{to}, as Kafka's tools"
    made.add_argument("--command-config", metavar="FILE", help=about)


def add_broker_id(made: argparse._ActionsContainer) -> None:
    """Add the flags that say which broker wrote a log."""
    which = made.add_mutually_exclusive_group()
    which.add_argument("--broker-id", type=int, metavar="N", help="broker that wrote the logs")
    which.add_argument(
        "--broker-id-pattern",
        metavar="REGEX",
        help="regex on a log's path whose first group is the broker's id",
    )


def add_shown(made: argparse.ArgumentParser) -> None:
    """Add the flags that say how a plan is shown."""
    made.add_argument(
        "--client",
        metavar="user=U,client-id=C",
        action="append",
        default=[],
        help="a client to show the effective change for (repeatable); by default those that "
        "quotas name",
    )
    made.add_argument(
        "--clients",
        metavar="FILE",
        type=Path,
        help="clients to show the effective change for: YAML, a list of {user: U, client-id: C}",
    )
    made.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )


def add_apply(made: argparse.ArgumentParser) -> None:
    """Add the flags of a command that changes quotas by a plan."""
    made.add_argument(
        "--validate-only", action="store_true", help="stop after validating; change nothing"
    )
    add_message(made, "why, for the history of a store (--store), up to 1,000 bytes")
    made.add_argument(
        "--max-removals",
        metavar="N",
        type=int,
        help="change nothing if more than N values would be removed; without it, "
        "pruning more than half of all values must be confirmed",
    )


def add_message(made: argparse.ArgumentParser, meaning: str) -> None:
    """Add the flag that says why quotas are changed."""
    made.add_argument("--message", type=_message, default="", help=meaning)


def _message(text: str) -> str:
    """Return what ``--message`` says, or raise argparse's error."""
    try:
        return checked_message(text)
    except InvalidQuota as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_entity(made: argparse.ArgumentParser) -> None:
    """Add the flag that names one entity."""
    made.add_argument(
        "--entity",
        metavar="ENTITY",
        help="only this entity: users/alice/clients/etl or {user=alice, client-id=etl}",
    )


def read_entity_flag(text: str | None) -> QuotaEntity | None:
    """Return the entity that ``--entity`` names; None where the flag isn't given."""
    if text is None:
        return None
    try:
        return parse_entity(text) if text.startswith("{") else entity_from_path(text)
    except InvalidQuota as exc:
        raise BadUsage(f"--entity {text}: {exc}") from exc


def moment(text: str, flag: str = "--since") -> int:
    """
    Return a time as epoch milliseconds; without a zone it is UTC.

    Args:
        text: as it was given.
        flag: where, for messages.

    Raises:
        BadUsage: it can't be read.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return round(moment_ms(text))
    except ValueError:
        raise BadUsage(
            f"{flag} {text}: write 2026-11-22T10:00:00Z, or epoch milliseconds"
        ) from None


def split_list(text: str) -> list[str]:
    r"""
    Split at commas; ``\,`` is a comma that doesn't.

    Raises:
        BadUsage: a part is empty, for example because a script's variable was.
    """
    parts = [part.replace(r"\,", ",") for part in re.split(r"(?<!\\),", text)]
    if not all(part.strip() for part in parts):
        raise BadUsage(f"an empty part in the list {text!r}: a comma too many?")
    return parts


def _rows(file: Path) -> object:
    import yaml

    from headgate.yaml_reading import plain_yaml

    try:
        return plain_yaml(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise InvalidQuota(f"{file}: not YAML or JSON: {' '.join(str(exc).split())}") from exc


def read_clients(flags: Sequence[str], file: Path | None) -> list[QuotaEntity]:
    """
    Return the clients that were named; a part left out stands for a name that no quota has.

    Raises:
        BadUsage: a flag makes no sense.
        InvalidQuota: an entry of the file doesn't, with its place.
    """
    found = []
    for flag in flags:
        entries: dict[str, EntityName] = {"user": DEFAULT, "client-id": DEFAULT}
        try:
            parts = split_list(flag)
        except BadUsage as exc:
            raise BadUsage(f"--client {flag}: {exc}") from None
        for part in parts:
            kind, equals, name = part.partition("=")
            entries[kind] = name
            if not equals or kind not in ("user", "client-id") or not name:
                raise BadUsage(f"--client {flag}: expected user=U,client-id=C")
        found.append(QuotaEntity(entries))
    if file is not None:
        rows = _rows(file)
        for number, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
            named = isinstance(row, dict) and row and set(row) <= {"user", "client-id"}
            if not named or not all(isinstance(name, str) for name in row.values()):
                raise InvalidQuota(
                    f"{file}: entry {number} isn't of the form {{user: U, client-id: C}}"
                )
            found.append(QuotaEntity({"user": DEFAULT, "client-id": DEFAULT, **row}))
    return found
