"""
`headgate history`: who changed which quota, when, from what to what, by which tool.

With ``--format yaml`` it is a quotas file with a history, which the pipeline's ``--quotas`` takes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from headgate.cli import exit_codes
from headgate.cli.output import printable, say
from headgate.cli.quotas.flags import add_place, read_entity_flag
from headgate.cli.quotas.plan_output import entity_path
from headgate.cli.quotas.quota_home import QuotaHome
from headgate.cli.quotas.quota_output import entity_json, number, value_text
from headgate.cli.running import run
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.file import dump_quotas
from headgate.quota.table import QuotaTable
from headgate.store import AuditEvent, HistoryEntry, QuotaStore


def main(argv: Sequence[str]) -> int:
    """Run `headgate history`."""
    made = argparse.ArgumentParser(
        prog="headgate history",
        description="List who changed which quota, oldest first, with refused attempts and changes "
        "of broker settings. What one command changed at once bears one name, "
        "which `headgate undo` takes.",
        allow_abbrev=False,
    )
    add_place(made)
    made.add_argument(
        "--entity",
        metavar="ENTITY",
        help="only this entity's quotas: users/alice/clients/etl or {user=alice, client-id=etl}",
    )
    made.add_argument("--limit", metavar="N", type=int, help="only the latest N changes")
    made.add_argument(
        "--format",
        choices=("text", "json", "yaml"),
        default="text",
        help="yaml is a quotas file with a history section, for the pipeline's --quotas",
    )
    arguments = made.parse_args(argv)

    def action() -> int:
        entity = read_entity_flag(arguments.entity)
        with QuotaHome(arguments, "history") as place:
            _print(place.history(), entity, arguments.limit, arguments.format)
        return exit_codes.DONE

    return run("headgate history", action)


def _print(store: QuotaStore, entity: QuotaEntity | None, limit: int | None, form: str) -> None:
    changes = store.history(entity=entity, limit=limit)
    if form == "yaml":
        say(as_quotas_file(store.snapshot(), changes).rstrip("\n"))
        return
    events = [] if entity is not None else store.audit_log(limit=limit)
    rows: list[HistoryEntry | AuditEvent] = sorted([*changes, *events], key=lambda row: row.t_ms)
    for row in rows[-limit:] if limit else rows:
        if form == "json":
            say(json.dumps(_json(row)))
        else:
            say(printable(_text(row)))


def when(t_ms: int) -> str:
    """Return epoch milliseconds as ``2026-11-21T14:00:00.123Z``."""
    stamp = datetime.fromtimestamp(t_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")


def _text(row: HistoryEntry | AuditEvent) -> str:
    head = f"{when(row.t_ms)}  {row.who or 'unknown'}  {row.tool or 'unknown'}"
    if isinstance(row, AuditEvent):
        return f"{head}  {row.outcome} {row.action}  {row.subject}  {row.detail}".rstrip()
    before = "none" if row.before is None else value_text(row.before)
    after = "none" if row.after is None else value_text(row.after)
    text = f"{head}  {entity_path(row.entity)}  {row.key}: {before} → {after}"
    return "  ".join(filter(None, (text, row.change, row.message)))


def _json(row: HistoryEntry | AuditEvent) -> dict[str, Any]:
    common = {"t_ms": row.t_ms, "time": when(row.t_ms), "who": row.who, "tool": row.tool}
    if isinstance(row, AuditEvent):
        return {
            "kind": "audit",
            **common,
            "action": row.action,
            "outcome": row.outcome,
            "subject": row.subject,
            "detail": row.detail,
        }
    return {
        "kind": "change",
        **common,
        "entity": entity_json(row.entity),
        "key": str(row.key),
        "before": number(row.before),
        "after": number(row.after),
        "change": row.change,
        "message": row.message,
    }


def as_quotas_file(now: QuotaTable, changes: Sequence[HistoryEntry]) -> str:
    """
    Return a quotas file: what held before the first change, and the changes.

    Args:
        now: every quota, after the last change.
        changes: oldest first.
    """
    undo = [
        QuotaAlteration(change.entity, (Op(change.key, change.before),))
        for change in reversed(changes)
    ]
    before, _ = now.apply(undo)
    import yaml

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
    return dump_quotas(before) + listed
