"""
Edit a quota, after a preview of who is affected; undo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headgate.admin.undoing import undoing
from headgate.console.access.viewer import OPERATORS
from headgate.console.events import watches
from headgate.console.foretold import Enough
from headgate.console.parts import parts, viewer
from headgate.console.proposal import Making, find_enough, history, make, propose
from headgate.console.rendering import render, url
from headgate.console.routing import Page, missing
from headgate.errors import ConfigError, InvalidQuota, StoreMovedOn
from headgate.live.known import unknown_name
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity, entity_from_path
from headgate.quota.human import has_unit, human, read_value
from headgate.quota.key import KEYS, QuotaKey, format_value
from headgate.quota.plan import Plan, nothing_removed, plan_of
from headgate.quota.table import QuotaTable, TableChange
from headgate.store.base import MOST_MESSAGE_BYTES, EndingQuota, HistoryEntry
from headgate.words import moment, moment_ms

_SHOWN_CHANGES: Final = 20
_READ_ENTRIES: Final = 500
ANY: Final = "any"
"""What a form says for the default entity, beside "named" and ""."""


class PastChange(NamedTuple):
    """What one call changed."""

    name: str
    first: HistoryEntry
    entries: tuple[HistoryEntry, ...]


class Wanted(NamedTuple):
    """One quota as it is to be; None: removed. At its time, if it has one, the former returns."""

    entity: QuotaEntity
    key: QuotaKey
    value: float | None
    until_ms: int | None = None

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Wanted:
        """
        Read a form: an entity by its parts or its path, a key, and a value that people wrote.

        Raises:
            InvalidQuota: what can't be understood, and the way out.
        """
        entity = read_entity(form)
        key = QuotaKey.parse(str(form.get("key", "")))
        if key not in KEYS:
            raise InvalidQuota(f"{key} isn't a quota that can be set")
        until_ms = until_of(str(form.get("until", "")))
        if form.get("remove"):
            return cls(entity, key, None, until_ms)
        return cls(entity, key, quota_of(str(form.get("value", "")), key), until_ms)

    @property
    def making(self) -> Making:
        """Return the function that makes the plan."""
        return setting([self])

    @property
    def fields(self) -> dict[str, str]:
        """The same as a form's hidden fields."""
        value = {"remove": "yes"} if self.value is None else {"value": format_value(self.value)}
        until = {} if self.until_ms is None else {"until": str(self.until_ms)}
        return {"entity": self.entity.path, "key": self.key.name, **value, **until}


def setting(wanted: Sequence[Wanted]) -> Making:
    """Return the function that makes the plan which sets and removes quotas."""

    def making(table: QuotaTable) -> Plan:
        changes, notes = [], []
        for entity, key, value, until_ms in wanted:
            old = table.get(entity, key)
            other_end = until_ms is not None and old is not None
            if old != value or other_end:
                changes.append(TableChange(entity, key, old, value))
            elif value is None:
                notes.append(nothing_removed(entity, key))
        plan = plan_of(table, changes)
        return plan._replace(notes=(*notes, *plan.notes))

    return making


def quota_of(text: str, key: QuotaKey) -> float:
    """
    Return a value that people wrote, with its unit or as a plain number.

    Raises:
        InvalidQuota: it isn't one; says what may be written.
    """
    try:
        return read_value(text, key) if not text or has_unit(text) else float(text)
    except ValueError:
        pass
    try:
        return read_value(text, key)  # says what may be written
    except ValueError as error:
        raise InvalidQuota(str(error)) from None


def until_of(text: str) -> int | None:
    """
    Return when a quota is to end, epoch ms; None where nothing is written: never.

    Raises:
        InvalidQuota: it isn't a time.
    """
    text = text.strip()
    if not text:
        return None
    try:
        found = int(text) if text.isascii() and text.isdigit() else round(moment_ms(text))
        moment(found)
    except (ValueError, OverflowError):
        raise InvalidQuota(
            f"until {text}: write a time in UTC, such as 2026-11-22 10:00, or nothing: for good"
        ) from None
    return found


def read_entity(form: Mapping[str, Any]) -> QuotaEntity:
    """
    Return the entity of a form.

    Raises:
        InvalidQuota: the form names none.
    """
    if form.get("entity"):
        return entity_from_path(str(form["entity"]))
    names: dict[str, EntityName] = {}
    for kind in ("user", "client-id", "ip"):
        how, name = form.get(f"{kind}-is", ""), str(form.get(kind, ""))
        if how == ANY and name:
            raise InvalidQuota(
                f"any other {kind} has no name, and {name} stands beside it: clear the name, or "
                f"choose the {kind} that is named"
            )
        if how == ANY:
            names[kind] = DEFAULT
        elif how or name:
            if not name:
                raise InvalidQuota(f"name the {kind}, or choose any other {kind}")
            names[kind] = name
    if not names:
        raise InvalidQuota("choose a user, a client-id, both, or an address")
    if "ip" in names and len(names) > 1:
        raise InvalidQuota("a quota of an address has no user or client-id beside it")
    return QuotaEntity(names)


async def show(request: Request) -> Response:
    """Return the form, and what was changed last."""
    return await _form(request, dict(request.query_params))


async def _form(
    request: Request, given: Mapping[str, Any], problem: str = "", status: int = 200,
    enough: Enough | None = None,
) -> Response:  # fmt: skip
    entity, current = None, None
    ends: dict[QuotaKey, EndingQuota] = {}
    if given.get("entity"):
        try:
            entity = entity_from_path(str(given["entity"]))
        except InvalidQuota:
            if not problem:
                raise missing() from None
    if entity is not None:
        current = (await parts(request).table()).entities.get(entity, {})
        told = await parts(request).quotas.beside(lambda to: to.ends())
        ends = {end.key: end for end in told if end.entity == entity}
    return render(
        request, "change.html.j2", status, given=given, problem=problem, entity=entity,
        current=current, ends=ends, keys=list(KEYS), changes=await _changes(request),
        done=request.query_params.get("done", ""), enough=enough,
        has_journal=parts(request).journal is not None,
    )  # fmt: skip


async def enough(request: Request) -> Response:
    """Return the form with the value that would be enough, or why that can't be known."""
    form = dict(await request.form())
    try:
        entity, key = read_entity(form), QuotaKey.parse(str(form.get("key", "")))
        if key not in KEYS:
            raise InvalidQuota(f"{key} isn't a quota that can be set")
    except ValueError as error:
        return await _form(request, form, str(error), 422)
    found = await find_enough(parts(request), entity, key, viewer(request).name)
    return await _form(request, form | filled(found), enough=found)


def filled(found: Enough) -> dict[str, str]:
    """Return what is enough as the field of a form; empty where it isn't known."""
    return {} if found.value is None else {"value": human(found.key, found.value), "remove": ""}


async def _changes(request: Request) -> list[PastChange]:
    """Return the latest changes, the newest first."""
    entries = await history(parts(request), _READ_ENTRIES)
    found = [
        PastChange(name, made[0], tuple(made))
        for name, each in groupby(entries, key=lambda entry: entry.change)
        if (made := list(each))
    ]
    # The oldest change may have more entries, which weren't read.
    return found[::-1][:_SHOWN_CHANGES]


async def preview(request: Request) -> Response:
    """Say what a change would do."""
    form = await request.form()
    try:
        wanted = Wanted.of(form)
    except ValueError as error:
        return await _form(request, form, str(error), 422)
    return await _proposed(request, wanted)


async def _proposed(
    request: Request, wanted: Wanted, problem: str = "", reason: str = "", status: int = 200
) -> Response:
    try:
        proposal = await propose(parts(request), wanted.making, wanted.until_ms)
    except ConfigError as error:  # a time that has passed, or no place for an end
        return await _form(request, dict(await request.form()), str(error), 422)
    new = await _newness(request, wanted)
    if new:
        proposal = proposal._replace(notes=(new, *proposal.notes))
    if wanted.until_ms is not None:
        proposal = proposal._replace(notes=(ending(wanted.until_ms), *proposal.notes))
    return render(
        request, "proposal.html.j2", status, title="Change", proposal=proposal, problem=problem,
        action="/change/apply", fields=wanted.fields, reason=reason, button="Make this change",
        back=url("/change", entity=wanted.entity.path), prune_guard=0,
    )  # fmt: skip


def ending(until_ms: int) -> str:
    """Say what happens at the time of a change that ends."""
    return (
        f"It ends at {moment(until_ms)}: then the value returns that is in force now, or that "
        "would return if that one ends too. A later change of this quota stays."
    )


async def _newness(request: Request, wanted: Wanted) -> str:
    """Say that an entity has no quota yet, and which known names come near; "": it has one."""
    entity, table = wanted.entity, await parts(request).table()
    if wanted.value is None or entity in table.entities:
        return ""
    said = f"{entity.path} is new: it has no quota yet."
    if not isinstance(entity.user, str):
        return said
    client_id = entity.client_id if isinstance(entity.client_id, str) else None
    everybody = (await watches(request).everybody.now()).picture
    if everybody is None:
        return said
    return f"{said} {unknown_name(entity.user, client_id, everybody, table.entities)}".rstrip()


async def apply(request: Request) -> Response:
    """Make a change that was shown."""
    form = await request.form()
    wanted, reason = Wanted.of(form), str(form.get("reason", "")).strip()
    problem = reason_problem(reason)
    if problem:
        return await _proposed(request, wanted, problem, reason, 422)
    made = await make(
        parts(request), wanted.making, form.get("state"), who=viewer(request).name, message=reason,
        until_ms=wanted.until_ms,
    )  # fmt: skip
    if made.problem:
        return await _proposed(request, wanted, made.problem, reason, made.status)
    return RedirectResponse(url("/change", done=made.change or "made"), 303)


def reason_problem(reason: str) -> str:
    """Return what is wrong with a reason; "": nothing."""
    if not reason:
        return "Give a reason: the history keeps it."
    if len(reason.encode("utf-8", "replace")) > MOST_MESSAGE_BYTES:
        return f"The reason is longer than {MOST_MESSAGE_BYTES} bytes."
    return ""


async def undo(request: Request) -> Response:
    """Say what taking a change back would do."""
    return await _undone(request, request.query_params.get("change", ""))


async def _undone(
    request: Request, name: str, problem: str = "", reason: str = "", status: int = 200
) -> Response:
    making = await undoing_of(request, name)
    try:
        proposal = await propose(parts(request), making)
    except StoreMovedOn as error:  # by a later change of the same
        return await _form(request, {}, f"That can't be taken back: {error}", 409)
    return render(
        request, "proposal.html.j2", status, title="Undo", proposal=proposal, problem=problem,
        action="/change/undo", fields={"change": name}, reason=reason or f"undo of {name}",
        button="Take it back", back="/change", prune_guard=0,
    )  # fmt: skip


async def undoing_of(request: Request, name: str) -> Making:
    """
    Return the function that makes the plan which takes a change back.

    Raises:
        HTTPException: the history has no such change.
    """
    chosen = [e for e in await history(parts(request)) if name and e.change == name]
    if not chosen:
        raise missing()
    return lambda table: undoing(table, chosen)


async def undo_now(request: Request) -> Response:
    """Take a change back, as it was shown."""
    form = await request.form()
    name, reason = str(form.get("change", "")), str(form.get("reason", "")).strip()
    problem = reason_problem(reason)
    if problem:
        return await _undone(request, name, problem, reason, 422)
    making, who = await undoing_of(request, name), viewer(request).name
    made = await make(parts(request), making, form.get("state"), who=who, message=reason)
    if made.problem:
        return await _undone(request, name, made.problem, reason, made.status)
    return RedirectResponse(url("/change", done=made.change or "made"), 303)


ROUTES: Final = (
    Page("/change", show, OPERATORS, nav="Change"),
    Page("/change/enough", enough, OPERATORS, ("POST",)),
    Page("/change/preview", preview, OPERATORS, ("POST",)),
    Page("/change/apply", apply, OPERATORS, ("POST",)),
    Page("/change/undo", undo, OPERATORS),
    Page("/change/undo", undo_now, OPERATORS, ("POST",)),
)
