"""
`headgate undo`: take back one change, or all since a time.

It is a plan like any other: shown and validated, and refused if the same keys have changed since.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from headgate.admin.undoing import undoing
from headgate.cli.contract import Parser
from headgate.cli.output import complain, printable
from headgate.cli.quotas.as_code import carry_out
from headgate.cli.quotas.flags import (
    add_apply,
    add_entity,
    add_place,
    add_shown,
    moment,
    read_clients,
    read_entity_flag,
)
from headgate.cli.quotas.plan_file import write_plan
from headgate.cli.quotas.plan_output import planned
from headgate.cli.quotas.quota_target import open_quota_target
from headgate.cli.results import Planned
from headgate.errors import ConfigError


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate undo",
        "Take back a change, such as what one `headgate apply` did, or everything since a time. "
        "The names of changes stand in `headgate history`.",
        _undo,
        example="headgate undo 4f1c9a02b7de --store sqlite:quotas.db --validate-only",
    )
    what = made.add_mutually_exclusive_group(required=True)
    what.add_argument("change", metavar="CHANGE", nargs="?", help="the change's name")
    what.add_argument(
        "--since",
        metavar="TIME",
        help="go back to the quotas of this time: 2026-11-22T10:00:00Z, or epoch milliseconds",
    )
    add_place(made)
    add_entity(made)
    made.add_argument(
        "--out",
        metavar="PLAN",
        type=Path,
        help="change nothing; keep the plan for `headgate apply`",
    )
    add_apply(made)
    add_shown(made)
    return made


def _undo(arguments: argparse.Namespace) -> Planned:
    since_ms = None if arguments.since is None else moment(arguments.since)
    about = read_entity_flag(arguments.entity)
    with open_quota_target(arguments, "undo") as place:
        place.find_history()
        identity = place.identity()
        entries = place.run(lambda target: target.history(about))
        if since_ms is not None:
            chosen = [entry for entry in entries if entry.t_ms >= since_ms]
            what = f"undo since {arguments.since}"
        else:
            chosen = [entry for entry in entries if entry.change == arguments.change]
            what = f"undo of {arguments.change}"
            if not chosen:
                raise ConfigError(
                    f"{place.name} has no change {arguments.change}; see `headgate history`"
                )
        plan = undoing(place.table(), chosen)
        arguments.message = arguments.message or what
        if arguments.out is not None:
            write_plan(arguments.out, plan, identity, arguments.message)
            complain(f"Plan written to {printable(str(arguments.out))}; nothing was changed.")
            told = planned(plan, read_clients(arguments.client, arguments.clients), [])
            told.out = str(arguments.out)
            return told
        revision = None if identity is None else identity.revision
        return carry_out(place, plan, arguments, revision, reviewed=False)
