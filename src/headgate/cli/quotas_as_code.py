"""
Quotas as code: `headgate export`, `plan` and `apply`.

A quotas file is reviewed like code; these commands compare it with a store or a cluster, without
any state of their own, show what would change (also for the clients it changes something for), and
make it so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli import exit_codes
from headgate.cli.connecting import open_client, with_way_out
from headgate.cli.output import complain, printable, say
from headgate.errors import ApiError, HeadgateError, InvalidQuota
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.quota.file import dump_quotas, read_quotas_file
from headgate.quota.plan import Plan, diff
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from headgate.admin import AdminClient

_TIMEOUT_MS: Final = 60_000


def run(command: str, action: Callable[[], int]) -> int:
    """Run an action and turn what it raises into a line on stderr and an exit status."""
    try:
        return action()
    except (HeadgateError, OSError) as exc:
        name = f"{exc.name}: " if isinstance(exc, ApiError) else ""
        for line in f"headgate {command}: {name}{exc}".splitlines():
            complain(printable(line))
        return exit_codes.FAILED


def parser(command: str, about: str) -> argparse.ArgumentParser:
    """Return a parser with the flags that say where the quotas are."""
    made = argparse.ArgumentParser(
        prog=f"headgate {command}", description=about, allow_abbrev=False
    )
    place = made.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--store",
        metavar="URL",
        help="a Headgate store: sqlite:PATH, zookeeper://HOST:PORT/CHROOT, kafka://HOST:PORT",
    )
    place.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="a gateway, or a Kafka 2.6 or later"
    )
    made.add_argument(
        "--command-config", metavar="FILE", help="properties for the connection, as Kafka's tools"
    )
    return made


def connect(arguments: argparse.Namespace, command: str) -> AdminClient:
    """Open the admin client that the flags ask for."""
    return open_client(
        servers=arguments.bootstrap_server,
        store=arguments.store,
        config_file=arguments.command_config,
        tool=f"headgate {command}",
    )


def place_of(arguments: argparse.Namespace) -> str:
    """Return where the quotas are, in words for people."""
    return str(arguments.store or arguments.bootstrap_server)


def table_of(client: AdminClient) -> QuotaTable:
    """Return every quota there is."""
    return QuotaTable(client.describe_quotas().entities().result(_TIMEOUT_MS / 1000))


# --- export


def main_export(argv: Sequence[str]) -> int:
    """`headgate export`: write all quotas as a quotas file."""
    made = parser(
        "export",
        "Write every quota of a store or cluster as a quotas file, which `headgate plan` and "
        "`headgate apply` read back.",
    )
    made.add_argument("--out", metavar="FILE", type=Path, help="the file; stdout by default")
    made.add_argument("--format", choices=("yaml", "json"), default="yaml")
    if "--schema" in argv:
        say(schema_text().rstrip())
        return exit_codes.DONE
    made.add_argument(
        "--schema", action="store_true", help="print the quotas file's JSON Schema instead"
    )
    arguments = made.parse_args(argv)

    def action() -> int:
        with connect(arguments, "export") as client:
            table = table_of(client)
        text = dump_quotas(table)
        if arguments.format == "json":
            import yaml

            text = json.dumps(yaml.safe_load(text), indent=2) + "\n"
        if arguments.out is None:
            say(text.rstrip("\n"))
        else:
            arguments.out.write_text(text, encoding="utf-8")
            complain(f"{len(table)} entities written to {printable(str(arguments.out))}")
        return exit_codes.DONE

    return run("export", action)


def schema_text() -> str:
    """Return the JSON Schema of a quotas file, for editors."""
    from importlib.resources import files

    return (files("headgate.quota") / "quotas.schema.json").read_text(encoding="utf-8")


# --- plan and apply


def _plan_parser(command: str, about: str) -> argparse.ArgumentParser:
    made = parser(command, about)
    made.add_argument("file", metavar="FILE", type=Path, help="the quotas file, YAML or JSON")
    made.add_argument(
        "--prune",
        action="store_true",
        help="also delete what the file doesn't mention; without it such quotas are left alone",
    )
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
    made.add_argument("--json", action="store_true", help="print the plan as JSON")
    made.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: auto"
    )
    return made


def main_plan(argv: Sequence[str]) -> int:
    """`headgate plan`: show what a quotas file would change; exits 3 when it would."""
    made = _plan_parser(
        "plan",
        "Compare a quotas file with a store or cluster. Exits 0 when they agree, 3 when there are "
        "changes, 1 when the changes would be refused.",
    )
    arguments = made.parse_args(argv)

    def action() -> int:
        with connect(arguments, "plan") as client:
            plan = _make_plan(client, arguments)
            refused = _refusals(client, plan)
        _show(plan, arguments)
        _complain(refused)
        if refused:
            return exit_codes.FAILED
        return exit_codes.DONE if plan.is_empty else exit_codes.CHANGES

    return run("plan", action)


def main_apply(argv: Sequence[str]) -> int:
    """`headgate apply`: make a store or cluster match a quotas file."""
    made = _plan_parser(
        "apply",
        "Make a store or cluster match a quotas file. Everything is validated first; if anything "
        "would be refused, nothing is changed.",
    )
    made.add_argument(
        "--validate-only", action="store_true", help="stop after validating; change nothing"
    )
    arguments = made.parse_args(argv)

    def action() -> int:
        with connect(arguments, "apply") as client:
            plan = _make_plan(client, arguments)
            refused = _refusals(client, plan)
            _show(plan, arguments)
            if not refused and not arguments.validate_only:
                refused = _alter(client, plan, validate_only=False)
                done = len({c.entity for c in plan.changes}) - len(refused)
                _tell(arguments, f"Applied: {done} {entities(done)} changed.")
            elif refused:
                complain("headgate apply: nothing was changed, because of:")
            else:
                _tell(arguments, "Validated; nothing was changed.")
        _complain(refused)
        return exit_codes.FAILED if refused else exit_codes.DONE

    return run("apply", action)


def entities(count: int) -> str:
    """Return the noun that goes with a number."""
    return "entity" if count == 1 else "entities"


def _tell(arguments: argparse.Namespace, text: str) -> None:
    """Print a line for people: to stdout, or to stderr where stdout is JSON."""
    say(text, file=sys.stderr if arguments.json else sys.stdout)


def _make_plan(client: AdminClient, arguments: argparse.Namespace) -> Plan:
    desired = read_quotas_file(arguments.file)
    return diff(table_of(client), desired, prune=arguments.prune)


def _refusals(client: AdminClient, plan: Plan) -> list[tuple[QuotaEntity, Exception]]:
    return [] if plan.is_empty else _alter(client, plan, validate_only=True)


def _alter(
    client: AdminClient, plan: Plan, *, validate_only: bool
) -> list[tuple[QuotaEntity, Exception]]:
    from headgate.admin.api import AlterQuotasOptions

    alterations = plan.alterations()
    options = AlterQuotasOptions(validate_only=validate_only, timeout_ms=_TIMEOUT_MS)
    futures = client.alter_quotas(alterations, options).values()
    refused: list[tuple[QuotaEntity, Exception]] = []
    for alteration in alterations:
        try:
            futures[alteration.entity].result(_TIMEOUT_MS / 1000)
        except ApiError as exc:
            told = with_way_out(exc, [op.key for op in alteration.ops])
            refused.append((alteration.entity, told))
    return refused


def _complain(refused: Sequence[tuple[QuotaEntity, Exception]]) -> None:
    for entity, error in refused:
        complain(printable(f"{entity}: {error}"))


def _show(plan: Plan, arguments: argparse.Namespace) -> None:
    from headgate.cli.plan_text import plan_json, print_plan

    clients = read_clients(arguments.client, arguments.clients)
    if arguments.json:
        say(json.dumps(plan_json(plan, clients), indent=2))
        return
    print_plan(plan, clients, place=place_of(arguments), color=arguments.color)


def read_clients(flags: Sequence[str], file: Path | None) -> list[QuotaEntity]:
    """
    Return the clients that were named; a part that wasn't is any name no quota names.

    Raises:
        InvalidQuota: one that makes no sense, with its place.
    """
    from headgate.cli.kafka_quotas import split_list

    found = []
    for flag in flags:
        entries: dict[str, EntityName] = {"user": DEFAULT, "client-id": DEFAULT}
        for part in split_list(flag):
            kind, equals, name = part.partition("=")
            entries[kind] = name
            if not equals or kind not in ("user", "client-id") or not name:
                raise InvalidQuota(f"--client {flag}: expected user=U,client-id=C")
        found.append(QuotaEntity(entries))
    if file is not None:
        import yaml

        rows = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
        for number, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
            if not isinstance(row, dict) or not set(row) <= {"user", "client-id"} or not row:
                raise InvalidQuota(
                    f"{file}: entry {number} isn't of the form {{user: U, client-id: C}}"
                )
            found.append(QuotaEntity({"user": DEFAULT, "client-id": DEFAULT, **row}))
    return found
