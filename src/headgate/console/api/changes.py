"""
Resources that change quotas: check, plan, apply what was planned, take back.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request

from headgate.admin.target import Refused
from headgate.console.access.csrf import MOST_BODY_BYTES
from headgate.console.access.viewer import OPERATORS
from headgate.console.api.problems import RefusedRequest
from headgate.console.api.resource import Asked, EntityPath, KeyName, Reason, Resource
from headgate.console.pages.change import (
    Wanted,
    quota_of,
    reason_problem,
    setting,
    undoing_of,
    until_of,
)
from headgate.console.pages.plan import applied, applying
from headgate.console.parts import parts, viewer
from headgate.console.proposal import MadeChange, Making, check, make, propose
from headgate.console.uploads import Upload
from headgate.java_text import Number, finite
from headgate.quota.entity import entity_from_path
from headgate.quota.key import QuotaKey
from headgate.quota.plan import Plan
from headgate.quota.table import TableChange

MOST_CHANGES: Final = 1_000
"""Quotas that a request sets, and changes that an answer names; the rest is counted."""

Revision = Annotated[str, Meta(min_length=1, max_length=200)]


class QuotaAsked(Asked, frozen=True):
    """
    A quota as it is to be.

    Args:
        entity: what it is set for, as a path: ``users/alice/clients/etl``, ``users/<default>``.
        key: what it limits.
        value: a number, or a text with a unit, such as ``10MB/s``; null removes the quota.
    """

    entity: EntityPath
    key: KeyName
    value: float | Annotated[str, Meta(max_length=100)] | None


class ChangeAsked(Asked, frozen=True, kw_only=True):
    """
    A change. It is given in one way of three: as quotas, as a quotas file, or as one to undo.

    Args:
        quotas: as they are to be; those not named stay.
        file: the text of a quotas file, YAML or JSON.
        prune: remove the quotas that the file doesn't mention; only with ``file``.
        undo: the name of the change that is taken back (``change`` in answers).
        until: when the former values return: a time in UTC, such as ``2026-11-22 10:00``, or epoch
            ms as a text; "": they don't.
    """

    quotas: Annotated[tuple[QuotaAsked, ...], Meta(max_length=MOST_CHANGES)] = ()
    file: Annotated[str, Meta(max_length=MOST_BODY_BYTES)] = ""
    prune: bool = False
    undo: Annotated[str, Meta(max_length=100)] = ""
    until: Annotated[str, Meta(max_length=100)] = ""


class ApplyAsked(ChangeAsked, frozen=True, kw_only=True):
    """
    A change that is to be made as it was planned.

    Args:
        revision: that the plan named.
        reason: for the history.
        removals: how many values the file removes; needed if that is more than half of all.
    """

    revision: Revision
    reason: Reason
    removals: int | None = None


class PlannedTold(msgspec.Struct, frozen=True):
    """One value that a plan sets, changes or removes; null: none."""

    entity: str
    key: str
    before: Number
    after: Number

    @classmethod
    def of(cls, change: TableChange) -> PlannedTold:
        """Tell a change of a table."""
        return cls(change.entity.path, change.key.name, finite(change.old), finite(change.new))


class RefusedTold(msgspec.Struct, frozen=True):
    """An entity whose change would be refused, and why."""

    entity: str
    error: str


class CheckTold(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a change would do to quotas.

    Args:
        revision: of the quotas that it was computed from; ``apply`` asks for it.
        changes: what would be changed; the first ones.
        more: how many more there are.
        removals: how many values would be removed.
        removes_most: whether that is more than half; ``apply`` of a file asks for the number then.
        refused: what the store or the servers would refuse.
        notes: what isn't known or may not be meant.
    """

    revision: str
    changes: tuple[PlannedTold, ...]
    more: int
    removals: int
    removes_most: bool
    refused: tuple[RefusedTold, ...]
    notes: tuple[str, ...]


class AffectedTold(msgspec.Struct, frozen=True):
    """
    A connected client whose limit or quota-id changes.

    Args:
        client: its principal and client-id, as a path.
        key: what is limited.
        before: its limit until then; null: none.
        after: its limit then; null: none.
        connections: how many it has open.
    """

    client: str
    key: str
    before: Number
    after: Number
    connections: int


class PlanTold(CheckTold, frozen=True, kw_only=True):
    """
    What a change would do to quotas and clients.

    Args:
        affected: connected clients; those with most connections.
        clients: how many are affected.
        waiting: connections that wait now by what changes; no change ends a wait.
        foretold: how the busiest clients would go, in sentences.
    """

    affected: tuple[AffectedTold, ...]
    clients: int
    waiting: int
    foretold: tuple[str, ...]


class AppliedTold(msgspec.Struct, frozen=True):
    """A change that was made. ``change`` is its name; "": nothing to do, or no history is kept."""

    change: str


async def _making(request: Request, asked: ChangeAsked) -> Making:
    """Return the function that makes the plan, by the function of the page that does so, too."""
    ways = [name for name in ("quotas", "file", "undo") if getattr(asked, name)]
    if len(ways) != 1 or (asked.prune and not asked.file):
        raise RefusedRequest(
            422, "Give one of quotas, file and undo; prune goes with a file.", "body"
        )
    if asked.file:
        return await applying(_upload(request, asked))
    if asked.undo:
        return await undoing_of(request, asked.undo)
    wanted = []
    for quota in asked.quotas:
        key, value = QuotaKey.parse(quota.key), quota.value
        value = quota_of(value, key) if isinstance(value, str) else value
        wanted.append(Wanted(entity_from_path(quota.entity), key, value, until_of(asked.until)))
    if len({(each.entity, each.key) for each in wanted}) < len(wanted):
        raise RefusedRequest(422, "A quota is named twice.", "quotas")
    return setting(wanted)


def _upload(request: Request, asked: ChangeAsked) -> Upload:
    return Upload(viewer(request).name, 0, "the API's file", asked.file, asked.prune)


async def validate(request: Request, asked: ChangeAsked) -> CheckTold:
    """Say what a change would do to quotas, and what would be refused."""
    making = await _making(request, asked)
    plan, state, refused = await check(parts(request), making, until_of(asked.until))
    return CheckTold(**_checked(plan, state, refused, plan.notes))


def _checked(plan: Plan, state: str, refused: Refused, notes: tuple[str, ...]) -> dict[str, Any]:
    changes = plan.changes[:MOST_CHANGES]
    return {
        "revision": state,
        "changes": tuple(map(PlannedTold.of, changes)),
        "more": len(plan.changes) - len(changes),
        "removals": plan.removals,
        "removes_most": plan.removes_most,
        "refused": tuple(RefusedTold(e.path, str(error)) for e, error in refused[:MOST_CHANGES]),
        "notes": notes[:MOST_CHANGES],
    }


async def plan(request: Request, asked: ChangeAsked) -> PlanTold:
    """Say what a change would do to quotas and clients."""
    found = await propose(parts(request), await _making(request, asked), until_of(asked.until))
    shown, tried = found.preview, found.tried
    affected = (
        AffectedTold(
            a.client.path, a.key.name, finite(a.before.value), finite(a.after.value), a.connections
        )
        for a in shown.affected
    )
    foretold = () if tried is None else tried.foretold
    return PlanTold(
        **_checked(found.plan, found.state, found.refused, (*found.plan.notes, *found.notes)),
        affected=tuple(affected), clients=shown.clients, waiting=shown.waiting,
        foretold=tuple(f"{f.user}/{f.client_id} {f.key}: {f.sentence}" for f in foretold),
    )  # fmt: skip


async def apply(request: Request, asked: ApplyAsked) -> AppliedTold:
    """Make a change as it was planned."""
    reason = asked.reason.strip()
    if reason_problem(reason):
        raise RefusedRequest(422, reason_problem(reason), "reason")
    until_ms = until_of(asked.until)
    if asked.file:
        await _making(request, asked)  # refuses what else is given
        made = await applied(
            request, _upload(request, asked), asked.revision, asked.removals, reason, until_ms
        )
    else:
        made = await make(
            parts(request), await _making(request, asked), asked.revision,
            who=viewer(request).name, message=reason, until_ms=until_ms,
        )  # fmt: skip
    return AppliedTold(done(made).change)


def done(made: MadeChange) -> MadeChange:
    """
    Return what was made.

    Raises:
        RefusedRequest: it wasn't.
    """
    if made.problem:
        raise RefusedRequest(made.status, made.problem, "revision" if made.status == 409 else "")
    return made


RESOURCES: Final = (
    Resource(
        "POST", "/quotas/validate", "Check a change with the store or the servers.", OPERATORS,
        validate, ChangeAsked, CheckTold, reads=True, refusals=(409,),
    ),
    Resource(
        "POST", "/quotas/plan", "Tell what a change would do to quotas and clients.", OPERATORS,
        plan, ChangeAsked, PlanTold, reads=True, refusals=(409,),
    ),
    Resource(
        "POST", "/quotas/apply", "Make a change as it was planned: set, remove, undo.", OPERATORS,
        apply, ApplyAsked, AppliedTold, refusals=(409,),
    ),
)  # fmt: skip
