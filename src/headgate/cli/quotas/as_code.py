"""
Quotas as code: `headgate plan` and `apply`.

A quotas file is reviewed like code. These commands compare it with a store or a cluster, show what
would change and for which clients, and apply it. They keep no state of their own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from headgate.admin.open_target import OpenTarget
from headgate.admin.target import ChangeCheck, ChangeRequest, Refused
from headgate.cli.contract import Action, BadUsage, Parser
from headgate.cli.output import complain, printable, say
from headgate.cli.quotas.flags import add_apply, add_message, add_shown, quotas_parser, read_clients
from headgate.cli.quotas.plan_file import read_plan, write_plan
from headgate.cli.quotas.plan_output import planned, print_plan, refusals
from headgate.cli.quotas.quota_output import say_notes
from headgate.cli.quotas.quota_target import open_quota_target
from headgate.cli.results import Applied, Error, Planned
from headgate.errors import ConfigError
from headgate.quota.plan import Plan, diff


def _plan_parser(name: str, about: str, does: Action, example: str) -> Parser:
    made = quotas_parser(name, about, does, example)
    made.add_argument(
        "--prune",
        action="store_true",
        help="also delete what the file doesn't mention; without it such quotas are left alone",
    )
    made.add_argument(
        "--strimzi",
        metavar="CLUSTER",
        help="of a file of Strimzi's resources read only those of this cluster",
    )
    add_shown(made)
    return made


def plan_parser() -> Parser:
    """Return the parser of `headgate plan`."""
    made = _plan_parser(
        "plan",
        "Compare a quotas file with a store or cluster. Exits 0 when they agree, 3 when there are "
        "changes, 1 when the changes would be refused.",
        _plan,
        "--bootstrap-server kafka-1:9092 quotas.yaml --client user=alice,client-id=etl",
    )
    made.add_argument("file", metavar="FILE", type=Path, help="the quotas file, YAML or JSON")
    made.add_argument(
        "--out",
        metavar="PLAN",
        type=Path,
        help="keep the plan, for review and `headgate apply PLAN`",
    )
    add_message(made, "why, for the history; kept in --out's file; up to 1,000 bytes")
    return made


def _plan(arguments: argparse.Namespace) -> Planned:
    from headgate.quota.file import read_quotas_file

    desired = read_quotas_file(arguments.file, cluster=arguments.strimzi)
    with open_quota_target(arguments, "plan", planned=True) as place:
        identity = place.identity()  # before the quotas: what comes after makes it old
        plan = diff(place.table(), desired, prune=arguments.prune)
        told, checked = _show(place, plan, arguments)
    refused = checked.refused
    _complain(told, "this plan can't be applied", refused)
    if arguments.out is not None and not refused:
        write_plan(arguments.out, plan, identity, arguments.message)
        complain(f"Plan written to {printable(str(arguments.out))}")
        told.out = str(arguments.out)
    return told


def apply_parser() -> Parser:
    """Return the parser of `headgate apply`."""
    made = _plan_parser(
        "apply",
        "Make a store or cluster match a quotas file, or do what a plan says that `headgate plan "
        "--out` or `headgate undo --out` wrote. Everything is validated first; if anything would "
        "be refused, or the quotas aren't those that the plan was made for, nothing is changed.",
        _apply,
        '--store sqlite:quotas.db quotas.yaml --message "ticket 17"',
    )
    made.add_argument("file", metavar="FILE", type=Path, help="the quotas file, or the plan")
    add_apply(made)
    return made


def _apply(arguments: argparse.Namespace) -> Applied:
    from headgate.quota.file import read_quotas_file

    kept = read_plan(arguments.file)
    if kept is not None and arguments.prune:
        raise BadUsage("a plan already says what is removed; --prune is for quotas files")
    if kept is not None and arguments.strimzi is not None:
        raise BadUsage("a plan already says what it is about; --strimzi is for Strimzi's resources")
    desired = None
    if kept is None:
        desired = read_quotas_file(arguments.file, cluster=arguments.strimzi)
    create = not arguments.validate_only and kept is None
    with open_quota_target(arguments, "apply", create=create, planned=not create) as place:
        identity = place.identity()
        if kept is not None:
            plan = kept.check(place.name, place.table(), identity)
            arguments.message = arguments.message or kept.message
        else:
            assert desired is not None
            plan = diff(place.table(), desired, prune=arguments.prune)
        at_revision = identity.revision if identity is not None and kept is not None else None
        return carry_out(place, plan, arguments, at_revision, reviewed=kept is not None)


def carry_out(
    place: OpenTarget,
    plan: Plan,
    arguments: argparse.Namespace,
    at_revision: int | None,
    *,
    reviewed: bool,
) -> Applied:
    """
    Show a plan and apply it.

    Args:
        place: where the quotas are.
        plan: what to do.
        arguments: with the flags of ``add_apply`` and of plans.
        at_revision: the store's revision that the plan was made from; None: any.
        reviewed: somebody has seen this very plan before.
    """
    shown, checked = _show(place, plan, arguments)
    refused = checked.refused
    told = Applied(**msgspec.structs.asdict(shown), validate_only=arguments.validate_only)
    if refused:
        complain(f"{place.tool}: nothing was changed, because of:")
    elif arguments.validate_only:
        say("Validated; nothing was changed.")
    elif plan.is_empty:
        say("Applied: 0 entities changed.")
    else:
        _confirm(plan, arguments, reviewed=reviewed)
        request = ChangeRequest(
            plan.alterations(), message=arguments.message, at_revision=at_revision
        )
        refused = place.change(request, checked)
        told.refused = refusals(refused)
        told.changed = len({c.entity for c in plan.changes}) - len({e for e, _ in refused})
        say(f"Applied: {told.changed} {entities(told.changed)} changed.")
    _complain(told, f"{told.changed} {entities(told.changed)} changed", refused)
    return told


def _confirm(plan: Plan, arguments: argparse.Namespace, *, reviewed: bool) -> None:
    """
    Ask for confirmation when many values would be removed.

    Raises:
        ConfigError: nobody confirmed.
    """
    if arguments.max_removals is not None:
        if plan.removals > arguments.max_removals:
            raise ConfigError(
                f"{plan.removals} values would be removed, more than --max-removals "
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
        f"{plan.removals} of {values} values would be removed; to allow that, give "
        f"--max-removals {plan.removals}. Nothing was changed"
    )


def entities(count: int) -> str:
    """Return the noun that goes with a number."""
    return "entity" if count == 1 else "entities"


def _complain(told: Planned, done: str, refused: Refused) -> None:
    """Say on stderr what was refused; note in the result that the command failed."""
    for entity, error in refused:
        complain(printable(f"{entity}: {error}"))
    if told.refused:
        first = told.refused[0]
        which = f"{len(told.refused)} {entities(len(told.refused))} refused"
        told.error = Error(first.code, first.name, f"{which}, {done}: {first.error}")


def _show(
    place: OpenTarget, plan: Plan, arguments: argparse.Namespace
) -> tuple[Planned, ChangeCheck]:
    """Print a plan for people; return it for programs, and what came of checking its changes."""
    checked = ChangeCheck([], frozenset())
    if not plan.is_empty:
        checked = place.validate(ChangeRequest(plan.alterations()))
    clients = read_clients(arguments.client, arguments.clients)
    if not arguments.json:
        print_plan(plan, clients, place=place.name, color=arguments.color)
    say_notes(place.tool, plan.notes)
    return planned(plan, clients, checked.refused), checked
