"""
`headgate history`: who changed which quota, when, from what to what, by which tool.

With ``--format yaml`` it is a quotas file with a history, which the pipeline's ``--quotas`` takes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from headgate.cli.contract import Parser
from headgate.cli.output import printable, say
from headgate.cli.quotas.flags import add_entity, quotas_parser, read_entity_flag
from headgate.cli.quotas.plan_output import entity_path, from_to
from headgate.cli.quotas.quota_output import entity_json, json_number, number
from headgate.cli.quotas.quota_target import open_quota_target
from headgate.cli.results import Audited, History, QuotaChange
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from headgate.store import AuditEvent, HistoryEntry


def parser() -> Parser:
    """Return the command's parser."""
    made = quotas_parser(
        "history",
        "List who changed which quota, oldest first, with refused attempts and changes of broker "
        "settings. The changes of one command share one name, which `headgate undo` takes.",
        _history,
        "--store sqlite:quotas.db --entity users/alice --limit 20",
    )
    add_entity(made)
    made.add_argument("--limit", metavar="N", type=int, help="only the latest N changes")
    made.add_argument(
        "--format",
        choices=("text", "json", "yaml"),
        default="text",
        help="json is an object a line; yaml is a quotas file with a history section, for the "
        "pipeline's --quotas",
    )
    return made


def _history(arguments: argparse.Namespace) -> History:
    entity = read_entity_flag(arguments.entity)
    with open_quota_target(arguments, "history") as place:
        place.find_history()
        limit = arguments.limit
        changes = place.run(lambda target: target.history(entity, limit))
        events = [] if entity else place.run(lambda target: target.audit_log(limit))
        if arguments.format == "yaml":
            say(as_quotas_file(place.table(), changes).rstrip("\n"))
    rows: list[HistoryEntry | AuditEvent] = sorted([*changes, *events], key=lambda row: row.t_ms)
    told = [(row, _told(row)) for row in (rows[-limit:] if limit else rows)]
    for row, for_programs in told:
        if arguments.format == "json":
            say(json.dumps(msgspec.to_builtins(for_programs)))
        elif arguments.format == "text":
            say(printable(_text(row)))
    return History([for_programs for _, for_programs in told])


def when(t_ms: int) -> str:
    """Return epoch milliseconds as ``2026-11-21T14:00:00.123Z``."""
    stamp = datetime.fromtimestamp(t_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")


def _text(row: HistoryEntry | AuditEvent) -> str:
    from headgate.store import AuditEvent

    head = f"{when(row.t_ms)}  {row.who or 'unknown'}  {row.tool or 'unknown'}"
    if isinstance(row, AuditEvent):
        return f"{head}  {row.outcome} {row.action}  {row.subject}  {row.detail}".rstrip()
    change = from_to(row.key, row.before, row.after)
    text = f"{head}  {entity_path(row.entity)}  {row.key}: {change}"
    return "  ".join(filter(None, (text, row.change, row.message)))


def _told(row: HistoryEntry | AuditEvent) -> QuotaChange | Audited:
    from headgate.store import AuditEvent

    common = (row.t_ms, when(row.t_ms), row.who, row.tool)
    if isinstance(row, AuditEvent):
        return Audited(*common, row.action, row.outcome, row.subject, row.detail)
    before, after = json_number(row.before), json_number(row.after)
    what = (entity_json(row.entity), str(row.key))
    return QuotaChange(*common, *what, before, after, row.change, row.message)


def table_before(now: QuotaTable, changes: Sequence[HistoryEntry]) -> QuotaTable:
    """Return the quotas that held before changes, oldest first, led to those of now."""
    undo = [QuotaAlteration(c.entity, (Op(c.key, c.before),)) for c in reversed(changes)]
    return now.apply(undo)[0]


def as_quotas_file(now: QuotaTable, changes: Sequence[HistoryEntry]) -> str:
    """
    Return a quotas file: what held before the first change, and the changes.

    Args:
        now: every quota, after the last change.
        changes: oldest first.
    """
    import yaml

    from headgate.quota.file import dump_quotas

    history = [
        {
            "t_ms": change.t_ms,
            "entity": entity_json(change.entity),
            "key": str(change.key),
            "value": number(change.after),
        }
        for change in changes
    ]
    listed = yaml.safe_dump(
        {"history": history}, sort_keys=False, allow_unicode=True, default_flow_style=None
    )
    return dump_quotas(table_before(now, changes)) + listed
