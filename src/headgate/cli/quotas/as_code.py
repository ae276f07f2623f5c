"""
Quotas as code: `headgate export`, `plan` and `apply`.

A quotas file is reviewed like code. These commands compare it with a store or a cluster, show what
would change and for which clients, and apply it. They keep no state of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.cli import exit_codes
from headgate.cli.output import complain, printable, say
from headgate.cli.quotas.flags import add_apply, add_shown, quotas_parser, read_clients
from headgate.cli.quotas.plan_file import read_plan, write_plan
from headgate.cli.quotas.plan_output import plan_json, print_plan
from headgate.cli.quotas.quota_home import QuotaHome, Refused
from headgate.cli.quotas.quota_output import entity_json
from headgate.cli.running import run
from headgate.errors import ConfigError
from headgate.quota.file import dump_quotas, read_quotas_file
from headgate.quota.plan import Plan, diff

_MOST_MESSAGE_BYTES: Final = 1_000
"""A message stands in every entry of its change; stores keep 20,000 of them in memory."""


# --- export


def main_export(argv: Sequence[str]) -> int:
    """`headgate export`: write all quotas as a quotas file."""
    made = quotas_parser(
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
        with QuotaHome(arguments, "export") as place:
            table = place.table()
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

    return run("headgate export", action)


def schema_text() -> str:
    """Return the JSON Schema of a quotas file, for editors."""
    from importlib.resources import files

    return (files("headgate.quota") / "quotas.schema.json").read_text(encoding="utf-8")


# --- plan and apply


def _plan_parser(command: str, about: str) -> argparse.ArgumentParser:
    made = quotas_parser(command, about)
    made.add_argument(
        "--prune",
        action="store_true",
        help="also delete what the file doesn't mention; without it such quotas are left alone",
    )
    add_shown(made)
    return made


def main_plan(argv: Sequence[str]) -> int:
    """`headgate plan`: show what a quotas file would change; exits 3 when it would."""
    made = _plan_parser(
        "plan",
        "Compare a quotas file with a store or cluster. Exits 0 when they agree, 3 when there are "
        "changes, 1 when the changes would be refused.",
    )
    made.add_argument("file", metavar="FILE", type=Path, help="the quotas file, YAML or JSON")
    made.add_argument(
        "--out",
        metavar="PLAN",
        type=Path,
        help="keep the plan, for review and `headgate apply PLAN`",
    )
    made.add_argument("--message", default="", help="why, for the history; kept in --out's file")
    arguments = made.parse_args(argv)

    def action() -> int:
        desired = read_quotas_file(arguments.file)
        with QuotaHome(arguments, "plan", planned=True) as place:
            identity = place.identity()  # before the quotas: what comes after makes it old
            plan = diff(place.table(), desired, prune=arguments.prune)
            refused = _refusals(place, plan)
        _show(place, plan, arguments, refused)
        _complain(refused)
        if refused:
            return exit_codes.FAILED
        if arguments.out is not None:
            write_plan(arguments.out, plan, identity, arguments.message)
            complain(f"Plan written to {printable(str(arguments.out))}")
        return exit_codes.DONE if plan.is_empty else exit_codes.CHANGES

    return run("headgate plan", action)


def main_apply(argv: Sequence[str]) -> int:
    """`headgate apply`: make a store or cluster match a quotas file, or a plan come true."""
    made = _plan_parser(
        "apply",
        "Make a store or cluster match a quotas file, or do what a plan says that `headgate plan "
        "--out` or `headgate undo --out` wrote. Everything is validated first; if anything would "
        "be refused, or the quotas aren't those that the plan was made for, nothing is changed.",
    )
    made.add_argument("file", metavar="FILE", type=Path, help="the quotas file, or the plan")
    add_apply(made)
    arguments = made.parse_args(argv)

    def action() -> int:
        kept = read_plan(arguments.file)
        if kept is not None and arguments.prune:
            raise ConfigError("a plan says already what goes; --prune is for quotas files")
        desired = None if kept is not None else read_quotas_file(arguments.file)
        create = not arguments.validate_only and kept is None
        with QuotaHome(arguments, "apply", create=create, planned=not create) as place:
            identity = place.identity()
            if kept is not None:
                plan = kept.check(place.name, place.table(), identity)
                arguments.message = arguments.message or kept.message
            else:
                assert desired is not None
                plan = diff(place.table(), desired, prune=arguments.prune)
            at_revision = identity.revision if identity is not None and kept is not None else None
            return carry_out(place, plan, arguments, at_revision, reviewed=kept is not None)

    return run("headgate apply", action)


def carry_out(
    place: QuotaHome,
    plan: Plan,
    arguments: argparse.Namespace,
    at_revision: int | None,
    *,
    reviewed: bool,
) -> int:
    """
    Show a plan and make it come true; returns the exit status.

    Args:
        place: where the quotas are.
        plan: what to do.
        arguments: with the flags of ``add_apply`` and of plans.
        at_revision: the store's revision that the plan was made from; None: any.
        reviewed: somebody has seen this very plan before.
    """
    if len(arguments.message.encode()) > _MOST_MESSAGE_BYTES:
        raise ConfigError(f"--message is longer than {_MOST_MESSAGE_BYTES} bytes")
    refused = _refusals(place, plan)
    _show(place, plan, arguments, refused)
    if refused:
        complain(f"{place.command}: nothing was changed, because of:")
    elif arguments.validate_only:
        _tell(arguments, "Validated; nothing was changed.")
    elif plan.is_empty:
        _tell(arguments, "Applied: 0 entities changed.")
    else:
        _confirm(plan, arguments, reviewed=reviewed)
        refused = place.alter(
            plan.alterations(),
            validate_only=False,
            message=arguments.message,
            at_revision=at_revision,
        )
        done = len({c.entity for c in plan.changes}) - len({entity for entity, _ in refused})
        _tell(arguments, f"Applied: {done} {entities(done)} changed.")
    _complain(refused)
    return exit_codes.FAILED if refused else exit_codes.DONE


def _confirm(plan: Plan, arguments: argparse.Namespace, *, reviewed: bool) -> None:
    """
    See that somebody means it when much is removed.

    Raises:
        ConfigError: nobody does.
    """
    if arguments.max_removals is not None:
        if plan.removals > arguments.max_removals:
            raise ConfigError(
                f"{plan.removals} values would go, more than --max-removals "
                f"{arguments.max_removals}; nothing was changed"
            )
        return
    if reviewed or not getattr(arguments, "prune", False) or not plan.removes_most:
        return
    values = sum(map(len, plan.current.entities.values()))
    if sys.stdin.isatty():
        complain(f"This removes {plan.removals} of {values} values. Type yes to go on:")
        if sys.stdin.readline().strip() == "yes":
            return
        raise ConfigError("nothing was changed")
    raise ConfigError(
        f"{plan.removals} of {values} values would go; if that is meant, say "
        f"--max-removals {plan.removals}. Nothing was changed"
    )


def entities(count: int) -> str:
    """Return the noun that goes with a number."""
    return "entity" if count == 1 else "entities"


def _tell(arguments: argparse.Namespace, text: str) -> None:
    """Print a line for people: to stdout, or to stderr where stdout is JSON."""
    say(text, file=sys.stderr if arguments.json else sys.stdout)


def _refusals(place: QuotaHome, plan: Plan) -> Refused:
    return [] if plan.is_empty else place.alter(plan.alterations(), validate_only=True)


def _complain(refused: Refused) -> None:
    for entity, error in refused:
        complain(printable(f"{entity}: {error}"))


def _show(place: QuotaHome, plan: Plan, arguments: argparse.Namespace, refused: Refused) -> None:
    clients = read_clients(arguments.client, arguments.clients)
    if arguments.json:
        told = plan_json(plan, clients)
        told["refused"] = [
            {"entity": entity_json(entity), "error": str(error)} for entity, error in refused
        ]
        say(json.dumps(told, indent=2))
        return
    print_plan(plan, clients, place=place.name, color=arguments.color)
