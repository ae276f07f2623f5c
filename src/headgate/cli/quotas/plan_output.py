"""
A plan for people (coloured) and for programs (JSON): what changes, and for which clients.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from headgate.admin.target import Refused
from headgate.cli import results
from headgate.cli.contract import error_of
from headgate.cli.output import printable
from headgate.cli.quotas.quota_output import (
    effective_json,
    entity_json,
    json_number,
    value_text,
)
from headgate.cli.results import EffectiveChange, Planned, Refusal
from headgate.quota.entity import KNOWN_TYPES, QuotaEntity
from headgate.quota.human import human
from headgate.quota.key import QuotaKey, QuotaUnit
from headgate.quota.plan import EffectiveLine, Plan, effective_changes
from headgate.quota.precedence import Source
from headgate.quota.sanitizer import sanitize
from headgate.quota.table import TableChange

if TYPE_CHECKING:
    from rich.text import Text

_SET, _CHANGE, _REMOVE = "+", "~", "-"
MAX_CLIENT_LINES: Final = 50
"""A review reads no more; --json has them all."""
_STYLES: Final = {_SET: "green", _CHANGE: "yellow", _REMOVE: "red"}


def mark(change: TableChange) -> str:
    """Return ``+`` for set, ``~`` for changed, ``-`` for removed."""
    if change.old is None:
        return _SET
    return _REMOVE if change.new is None else _CHANGE


def print_plan(plan: Plan, clients: Sequence[QuotaEntity], *, place: str, color: str) -> None:
    """
    Print a plan.

    Args:
        plan: the plan.
        clients: those whose effective change is shown; when empty, those that quotas name.
        place: where the quotas are.
        color: ``auto`` (a terminal, and no NO_COLOR), ``always`` or ``never``.
    """
    from rich.console import Console

    console = Console(
        file=sys.stdout,
        force_terminal={"always": True, "never": False}.get(color),
        no_color=True if color == "never" else None,
        color_system="standard" if color == "always" else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )
    for line in plan_lines(plan, clients, place):
        console.print(line)


def plan_lines(plan: Plan, clients: Sequence[QuotaEntity], place: str) -> Iterator[Text]:
    """Yield the lines of a plan; their plain text is the same with and without colour."""
    from rich.text import Text

    if plan.is_empty:
        yield Text(f"No changes: {printable(place)} agrees with the file.")
    else:
        yield Text(f"Changes to {printable(place)}:", style="bold")
        for entity, changes in groupby(plan.changes, key=lambda change: change.entity):
            yield Text(f"  {entity_path(entity)}", style="bold")
            for change in changes:
                sign = mark(change)
                yield Text(printable(f"    {sign} {change.key}: {_from_to(change)}"), _STYLES[sign])
        lines = list(islice(effective_changes(plan, clients), MAX_CLIENT_LINES + 1))
        if lines:
            yield Text("For clients:", style="bold")
        for line in lines[:MAX_CLIENT_LINES]:
            yield Text(printable(f"  {effective_text(line)}"))
        if len(lines) > MAX_CLIENT_LINES:
            yield Text("  … and more; name those you care about with --client or --clients")
        yield Text(_totals(plan.changes))
    if plan.unmentioned:
        yield Text(
            f"{len(plan.unmentioned)} not in the file, left alone (--prune deletes them):",
            style="dim",
        )
        for change in plan.unmentioned:
            value = exact_and_said(change.key, change.old)
            text = f"    {entity_path(change.entity)} {change.key}: {value}"
            yield Text(printable(text), style="dim")


def entity_path(entity: QuotaEntity) -> str:
    """Return ``users/alice/clients/<default>``, sanitised; other types as ``{…}``."""
    known = KNOWN_TYPES.issuperset(entity.types)
    return entity.path if known and len(entity) else str(entity)


def exact_and_said(key: QuotaKey, value: float | None) -> str:
    """Return a value as it is kept, and a rate of bytes as people say it: ``4000000 (4 MB/s)``."""
    if value is None:
        return "none"
    exact = value_text(value)
    bytes_per_s = key.units in (QuotaUnit.BPS, QuotaUnit.BROKER_BPS)
    return f"{exact} ({human(key, value)})" if bytes_per_s and value >= 1000 else exact


def from_to(key: QuotaKey, old: float | None, new: float | None) -> str:
    """Return how a value changes."""
    return f"{exact_and_said(key, old)} → {exact_and_said(key, new)}"


def _from_to(change: TableChange) -> str:
    if change.old is None:
        return exact_and_said(change.key, change.new)
    return from_to(change.key, change.old, change.new)


def _totals(changes: Sequence[TableChange]) -> str:
    signs = [mark(change) for change in changes]
    words = ((_SET, "to set"), (_CHANGE, "to change"), (_REMOVE, "to remove"))
    return ", ".join(f"{signs.count(sign)} {word}" for sign, word in words)


def effective_text(line: EffectiveLine) -> str:
    """Return ``alice/etl: 10 MB/s → 4 MB/s, was users/alice (producer_byte_rate:bps)``."""
    before = human(line.key, line.before.value)
    after = human(line.key, line.after.value)
    text = f"{client_text(line.client)}: {before} → {after}"
    if line.before.source is not None:
        text += f", was {_source(line.before.source)}"
    if line.after.source is not None and line.after.source != line.before.source:
        text += f", now {_source(line.after.source)}"
    return f"{text} ({line.key})"


def client_text(client: QuotaEntity) -> str:
    """Return ``alice/etl``, sanitised; ``*`` for any name that no quota names."""
    names = (client.user, client.client_id)
    return "/".join(sanitize(name) if isinstance(name, str) else "*" for name in names)


def _source(source: Source) -> str:
    return entity_path(source) if isinstance(source, QuotaEntity) else str(source)


def planned(plan: Plan, clients: Sequence[QuotaEntity], refused: Refused) -> Planned:
    """Return a plan for programs, names raw."""

    def row(change: TableChange) -> results.Change:
        values = map(json_number, (change.old, change.new))
        return results.Change(entity_json(change.entity), str(change.key), *values)

    return Planned(
        changes=[row(change) for change in plan.changes],
        unmentioned=[row(change) for change in plan.unmentioned],
        effective=[
            EffectiveChange(
                entity_json(line.client),
                str(line.key),
                *(effective_json(side.value, side.source) for side in (line.before, line.after)),
            )
            for line in effective_changes(plan, clients)
        ],
        refused=refusals(refused),
        notes=list(plan.notes),
    )


def refusals(refused: Refused) -> list[Refusal]:
    """Return for programs which entities were refused, and why."""
    errors = ((entity, error_of(problem)) for entity, problem in refused)
    return [Refusal(entity_json(entity), e.message, e.code, e.name) for entity, e in errors]
