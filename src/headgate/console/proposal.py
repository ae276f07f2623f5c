"""
A change of quotas: shown before it is made, and made only as it was shown.

The page carries the state of the quotas that the change was computed from: the store's revision, or
a digest. The change is made only if the quotas are still in this state; else it is computed and
shown again. Pages *Change*, *Plan* and *Raises* do so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from anyio import CapacityLimiter, to_thread

from headgate.admin.target import ChangeRequest, Refused
from headgate.console.foretold import Enough
from headgate.console.parts import ConsoleParts
from headgate.console.preview import Preview, preview
from headgate.console.what_if import WhatIf, what_if, what_is_enough
from headgate.errors import ConfigError, HeadgateError, StoreError, StoreMovedOn
from headgate.live.effective import no_capacity
from headgate.live.picture import Picture
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.plan import Plan
from headgate.quota.table import QuotaTable
from headgate.store.base import AuditEvent, HistoryEntry
from headgate.store.identity import StoreIdentity

Making = Callable[[QuotaTable], Plan]
"""Makes a plan from the present quotas."""

_TOLD: Final = 5
"""Refused entities that a sentence names."""
_TRYING: Final = CapacityLimiter(1)
"""A what-if uses a whole core for a second, so one runs at a time; other pages don't wait."""


_FINDING: Final[set[str]] = set()
"""Users whose question what is enough is being answered."""


class ProposedChange(NamedTuple):
    """
    A change as it is shown.

    Args:
        plan: what would be changed.
        state: the store's revision, or a digest of the quotas that it was computed from.
        preview: who is affected.
        refused: what the store or cluster would refuse.
        tried: what it would have done to the last hour's requests; None: notes say why.
        notes: what isn't known, and why.
    """

    plan: Plan
    state: str
    preview: Preview
    refused: Refused
    tried: WhatIf | None
    notes: tuple[str, ...]

    @property
    def can_be_made(self) -> bool:
        """Whether there is something to do, and nothing against it."""
        return not self.plan.is_empty and not self.refused


async def check(
    parts: ConsoleParts, making: Making, until_ms: int | None = None
) -> tuple[Plan, str, Refused]:
    """
    Compute a change, and check it with the store or cluster.

    Args:
        parts: the console's.
        making: makes the plan.
        until_ms: when the former values return, epoch ms; None: never.

    Returns:
        The plan, the quotas' state that it was computed from, and what would be refused.

    Raises:
        ConfigError: the change can't end then.
        StoreError: quotas can't be read.
    """
    state, _, plan = await _planned(parts, making)
    if plan.is_empty:
        return plan, state, []
    alterations = plan.alterations()
    found = await parts.quotas.beside(lambda to: to.validate(alterations, until_ms), is_change=True)
    return plan, state, found.refused


async def propose(
    parts: ConsoleParts, making: Making, until_ms: int | None = None
) -> ProposedChange:
    """Compute and ``check`` a change, and say what it means for clients."""
    plan, state, refused = await check(parts, making, until_ms)
    notes = []
    picture: Picture | None = None
    try:
        picture = await parts.picture()
    except (HeadgateError, OSError) as error:
        notes.append(f"It isn't known which clients are connected: {error}")
    idle = frozenset() if picture is None else picture.without_capacity
    keys = {change.key for change in plan.changes if change.new is not None}
    notes += [no_capacity(key) for key in sorted(keys) if key.name in idle]
    shown = await to_thread.run_sync(preview, plan, picture)
    tried, why = await try_out(parts, plan)
    return ProposedChange(plan, state, shown, refused, tried, (*notes, *filter(None, (why,))))


async def try_out(
    parts: ConsoleParts, plan: Plan, principals: Collection[str] | None = None
) -> tuple[WhatIf | None, str]:
    """
    Replay the last hour's requests under a plan.

    Args:
        parts: which journal, and the clock.
        plan: the present and the changed quotas.
        principals: only their requests; None: everybody's.

    Returns:
        What came of it, or why it isn't known.
    """
    journal = parts.journal
    if journal is None:
        return None, "The last hour's requests can't be tried: the console reads no usage journal."
    if plan.is_empty:
        return None, ""

    def replay() -> WhatIf:
        return what_if(journal, plan, parts.clock_ms(), principals=principals)

    try:
        return await to_thread.run_sync(replay, limiter=_TRYING), ""
    except (OSError, ImportError) as error:
        return None, f"The last hour's requests can't be tried: {_why(error, principals)}"


async def find_enough(
    parts: ConsoleParts,
    entity: QuotaEntity,
    key: QuotaKey,
    who: str,
    principals: Collection[str] | None = None,
) -> Enough:
    """
    Say which value of a quota would be enough, by the last hour's requests.

    Args:
        parts: which journal, and the clock.
        entity: whose quota.
        key: of the quota.
        who: asks; one question of each is answered at a time.
        principals: only their requests count; None: everybody's.
    """
    journal = parts.journal
    if journal is None:
        return Enough(key, None, "the console reads no usage journal")
    table = await parts.table()
    if who in _FINDING:
        return Enough(key, None, "your question before this one isn't answered yet")
    _FINDING.add(who)

    def find() -> Enough:
        return what_is_enough(journal, table, entity, key, parts.clock_ms(), principals=principals)

    try:
        return await to_thread.run_sync(find, limiter=_TRYING)
    except (OSError, ImportError) as error:
        why = _why(error, principals)
        return Enough(key, None, f"the last hour's requests can't be read: {why}")
    finally:
        _FINDING.discard(who)


def _why(error: Exception, principals: Collection[str] | None) -> str:
    """Return what an error says; a tenant isn't told names of files."""
    return str(error) if principals is None else "an operator finds the reason on its own page"


class MadeChange(NamedTuple):
    """
    What came of a change that was to be made.

    Args:
        problem: why it wasn't made, or not all of it; "": it was.
        change: its name in the history; "" without a history, or where there was nothing to do.
        status: as HTTP says it: 409 where quotas have changed since the change was shown.
    """

    problem: str = ""
    change: str = ""
    status: int = 200


async def make(
    parts: ConsoleParts,
    making: Making,
    state: object,
    *,
    who: str,
    message: str,
    refusal: str = "It was refused.",
    until_ms: int | None = None,
) -> MadeChange:
    """
    Make a change that was shown.

    Args:
        parts: the console's.
        making: makes the plan, as for the page that was shown.
        state: ``ProposedChange.state`` as the page has it.
        who: for the history.
        message: why, for the history.
        refusal: what to say where something was refused.
        until_ms: when the former values return, epoch ms; None: never.

    Raises:
        StoreError: the store can't be reached.
    """
    try:
        now, identity, plan = await _planned(parts, making)
        if now != state:
            raise StoreMovedOn("the quotas have changed since this was shown")
        if plan.is_empty:
            return MadeChange()
        revision = None if identity is None else identity.revision
        kept = message if parts.quotas.keeps_history else ""  # servers have no place for it
        request = ChangeRequest(
            plan.alterations(), message=kept, at_revision=revision, who=who, until_ms=until_ms
        )
        refused = await parts.quotas.beside(lambda to: to.change(request), is_change=True)
    except ConfigError as error:
        return MadeChange(f"Nothing was changed: {error}.", status=422)
    except StoreMovedOn as error:
        return MadeChange(f"Nothing was changed: {error}.", status=409)
    latest = await history(parts, limit=len(plan.changes))
    named = [entry.change for entry in latest if (entry.who, entry.message) == (who, message)]
    change = named[-1] if named else ""
    if not refused:
        return MadeChange("", change)
    told = "; ".join(f"{entity.path}: {error}" for entity, error in refused[:_TOLD])
    return MadeChange(f"{refusal} {told}", change, 422)


async def history(parts: ConsoleParts, limit: int | None = None) -> list[HistoryEntry]:
    """Return the latest changes, oldest first; none where no history is kept."""
    try:
        return await parts.quotas.history_beside(lambda to: to.history(limit=limit))
    except StoreError:
        return []


async def audit(parts: ConsoleParts, event: AuditEvent) -> None:
    """Keep a line in the audit, where there is one."""
    try:
        await parts.quotas.history_beside(lambda to: to.audit(event))
    except StoreError:
        return


async def _planned(parts: ConsoleParts, making: Making) -> tuple[str, StoreIdentity | None, Plan]:
    """Return the quotas' state, the store's identity, and the plan for them."""
    state, identity, table = await parts.state()
    return state, identity, await to_thread.run_sync(making, table)
