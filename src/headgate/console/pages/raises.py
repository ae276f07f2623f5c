"""
Tenants ask for more; operators approve, change or refuse.

A tenant asks only for its own principals: quotas that are shared with others, and defaults, are
changed by operators alone. The evidence is what the tenant itself may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anyio import Lock, to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headgate.console.access.viewer import EVERYBODY, OPERATORS, TENANTS
from headgate.console.foretold import Enough
from headgate.console.pages.change import Wanted, ending, filled, quota_of, reason_problem, until_of
from headgate.console.parts import parts, viewer
from headgate.console.proposal import audit, find_enough, make, propose, try_out
from headgate.console.raises import MOST_OPEN, Raise, Raises, State, evidence_of
from headgate.console.rendering import render, url
from headgate.console.routing import Page, missing
from headgate.errors import ConfigError, HeadgateError
from headgate.live.seen import as_seen_by
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.human import human
from headgate.quota.key import KEYS, QuotaKey, format_value
from headgate.quota.precedence import resolve_entity
from headgate.quota.table import QuotaTable
from headgate.store.base import AuditEvent

_KEYS: Final = [key for key, spec in KEYS.items() if "user" in spec.shapes]
_TOOL: Final = "headgate console"
_ASKING: Final = Lock()
"""One ask at a time is counted and gets its evidence, which takes a core for a second."""
_ANSWERING: Final = Lock()
"""Answers are given one after another, so that no ask is granted and refused."""


async def _raises(request: Request) -> Raises:
    database = parts(request).database
    if database is None:
        raise missing()
    return await to_thread.run_sync(Raises, database)


async def show(request: Request) -> Response:
    """Return the asks that the viewer may see; a tenant's form."""
    return await _list(request, dict(request.query_params))


async def _list(
    request: Request, given: dict[str, Any], problem: str = "", status: int = 200,
    enough: Enough | None = None,
) -> Response:  # fmt: skip
    who = viewer(request)
    listed: list[Raise] = []
    if parts(request).database is not None:
        raises = await _raises(request)
        listed = await to_thread.run_sync(raises.listed, None if who.sees_all else who.tenant)
    return render(
        request, "raises.html.j2", status, raises=listed, given=given, problem=problem,
        keys=_KEYS, principals=sorted(who.principals) if not who.sees_all else [], most=MOST_OPEN,
        enough=enough, has_journal=parts(request).journal is not None,
    )  # fmt: skip


def _wanted(request: Request, form: Mapping[str, Any]) -> tuple[QuotaEntity, QuotaKey]:
    """
    Return the quota that a tenant's form names.

    Raises:
        HTTPException: the principal isn't the tenant's, whether it exists or not.
        ValueError: there is no such quota.
    """
    user, client_id = str(form.get("user", "")), str(form.get("client-id", "")).strip()
    if user not in viewer(request).principals:
        raise missing()
    entity = QuotaEntity.of(user=user, **({"client_id": client_id} if client_id else {}))
    key = QuotaKey.parse(str(form.get("key", "")))
    if key not in _KEYS or entity.shape not in KEYS[key].shapes:
        raise ValueError(f"{key} isn't a quota of {entity.shape}")
    return entity, key


async def enough(request: Request) -> Response:
    """Return the tenant's form with the value that would be enough, or why that can't be known."""
    form = dict(await request.form())
    try:
        entity, key = _wanted(request, form)
    except ValueError as error:
        return await _list(request, form, str(error), 422)
    who = viewer(request)
    found = await find_enough(parts(request), entity, key, who.name, who.principals)
    return await _list(request, form | filled(found), enough=found)


async def ask(request: Request) -> Response:
    """Take an ask, with the evidence of this moment."""
    form, who = await request.form(), viewer(request)
    reason = str(form.get("reason", "")).strip()
    try:
        entity, key = _wanted(request, form)
        value = quota_of(str(form.get("value", "")), key)
        problem = reason_problem(reason)
        if not 0 < value < float("inf"):
            problem = "Ask for more than 0, and for a number."
    except ValueError as error:
        problem = str(error)
    if problem:
        return await _list(request, dict(form), problem, 422)
    wanted = Wanted(entity, key, value)
    problem = _no_raise(await parts(request).table(), wanted)
    if problem:
        return await _list(request, dict(form), problem, 422)
    raises = await _raises(request)
    async with _ASKING:
        if not await to_thread.run_sync(raises.is_room, who.tenant):
            problem = f"{MOST_OPEN} asks are open: wait for an answer."
            return await _list(request, dict(form), problem, 422)
        made = Raise(
            0, who.tenant, who.name, parts(request).clock_ms(), entity, key, value, reason,
            await _evidence(request, wanted),
        )  # fmt: skip
        number = await to_thread.run_sync(raises.add, made)
    await _audit(request, made._replace(id=number), "asked", reason)
    return RedirectResponse(url("/raises/one", id=number), 303)


def _no_raise(table: QuotaTable, wanted: Wanted) -> str:
    """Say why a value would be no raise for its entity; "": it would, as far as it may be told."""
    quota = resolve_entity(table, wanted.entity, wanted.key)
    source = quota.source
    if isinstance(source, QuotaEntity) and source.user is None and source.client_id is not DEFAULT:
        return ""  # of a client-id alone, which others may use: its quota isn't the tenant's to see
    if quota.value is None:
        return "No quota limits that now: any quota would be less than it has."
    if wanted.value is not None and wanted.value <= quota.value:
        has, asks = human(wanted.key, quota.value), human(wanted.key, wanted.value)
        return f"It has {has} now, so {asks} would be no raise."
    return ""


async def _evidence(request: Request, wanted: Wanted) -> Any:
    """Gather what speaks for it, of what the tenant may see."""
    here, who = parts(request), viewer(request)
    user, picture, notes = str(wanted.entity.user), None, []
    try:
        picture = as_seen_by(await here.picture(user), who.principals)
    except (HeadgateError, OSError):
        notes.append("The use of that moment isn't known.")
    plan = await to_thread.run_sync(wanted.making, await here.table())
    found, why = await try_out(here, plan, who.principals)
    if why:
        notes.append("What it would have done to the last hour's requests isn't known.")
    return evidence_of(picture, wanted.entity, wanted.key, found, tuple(notes))


async def _audit(request: Request, asked: Raise, what: str, detail: str) -> None:
    await audit(
        parts(request),
        AuditEvent(
            viewer(request).name, _TOOL, f"raise_{what}", "done",
            f"raise {asked.id}: {asked.entity.path} {asked.key.name}",
            f"{format_value(asked.granted or asked.value)}: {detail}",
            parts(request).clock_ms(),
        ),
    )  # fmt: skip


async def _one(request: Request, number: Any) -> Raise:
    who = viewer(request)
    found = None
    if str(number).isdecimal() and len(str(number)) < 16:
        raises = await _raises(request)
        tenant = None if who.sees_all else who.tenant
        found = await to_thread.run_sync(raises.get, int(number), tenant)
    if found is None:
        raise missing()
    return found


async def one(request: Request) -> Response:
    """Return one ask with its evidence."""
    asked = await _one(request, request.query_params.get("id", ""))
    return render(
        request, "raise.html.j2", asked=asked, given=format_value(asked.value), problem=""
    )


async def preview(request: Request) -> Response:
    """Say what granting an ask would do, as it was asked or with another value."""
    form = await request.form()
    asked = await _one(request, form.get("id", ""))
    given, until = str(form.get("value", "")), str(form.get("until", ""))
    try:
        wanted = Wanted(asked.entity, asked.key, quota_of(given, asked.key), until_of(until))
        return await _proposed(request, asked, wanted)
    except (ValueError, ConfigError) as error:
        return render(
            request, "raise.html.j2", 422, asked=asked, given=given, until=until,
            problem=str(error),
        )  # fmt: skip


async def _proposed(
    request: Request, asked: Raise, wanted: Wanted, problem: str = "", word: str = "",
    status: int = 200,
) -> Response:  # fmt: skip
    proposal = await propose(parts(request), wanted.making, wanted.until_ms)
    if wanted.until_ms is not None:
        proposal = proposal._replace(notes=(ending(wanted.until_ms), *proposal.notes))
    return render(
        request, "proposal.html.j2", status, title=f"Raise {asked.id}", proposal=proposal,
        problem=problem, action="/raises/grant",
        fields={"id": str(asked.id), **wanted.fields}, reason=word,
        button="Grant it", back=url("/raises/one", id=asked.id), prune_guard=0,
    )  # fmt: skip


async def grant(request: Request) -> Response:
    """Set what was asked for, or another value, as it was shown."""
    form, here, who = await request.form(), parts(request), viewer(request)
    asked, word = await _one(request, form.get("id", "")), str(form.get("reason", "")).strip()
    value = quota_of(str(form.get("value", "")), asked.key)
    wanted = Wanted(asked.entity, asked.key, value, until_of(str(form.get("until", ""))))
    problem = reason_problem(word)
    if problem:
        return await _proposed(request, asked, wanted, problem, word, 422)
    answered = asked._replace(
        state=State.GRANTED, answered_by=who.name, answered_ms=here.clock_ms(), granted=value,
        word=word,
    )  # fmt: skip
    async with _ANSWERING:
        problem = _may_not_answer(request, await _one(request, asked.id))
        problem = problem or _no_raise(await here.table(), wanted)
        if not problem:
            message = f"raise {asked.id} of {asked.tenant}: {word}"
            problem, _ = await make(
                here, wanted.making, form.get("state"), who=who.name, message=message,
                until_ms=wanted.until_ms,
            )  # fmt: skip
        if not problem:
            # After the change: a crash between leaves an ask open, and its number in the history.
            await to_thread.run_sync((await _raises(request)).answer, answered)
    if problem:
        return await _proposed(request, asked, wanted, problem, word, 409)
    await _audit(request, answered, "granted" if value == asked.value else "changed", word)
    return RedirectResponse(url("/raises/one", id=asked.id), 303)


def _may_not_answer(request: Request, asked: Raise) -> str:
    if asked.who == viewer(request).name:
        return "Who asked can't answer."
    return "" if asked.state == State.OPEN else "It was answered before."


async def refuse(request: Request) -> Response:
    """Refuse an ask, with a word."""
    form, here, who = await request.form(), parts(request), viewer(request)
    asked, word = await _one(request, form.get("id", "")), str(form.get("reason", "")).strip()
    answered = asked._replace(
        state=State.REFUSED, answered_by=who.name, answered_ms=here.clock_ms(), word=word
    )
    problem = reason_problem(word)
    async with _ANSWERING:
        problem = problem or _may_not_answer(request, await _one(request, asked.id))
        if not problem:
            await to_thread.run_sync((await _raises(request)).answer, answered)
    if problem:
        given = format_value(asked.value)
        return render(request, "raise.html.j2", 422, asked=asked, given=given, problem=problem)
    await _audit(request, answered, "refused", word)
    return RedirectResponse(url("/raises/one", id=asked.id), 303)


async def withdraw(request: Request) -> Response:
    """Take back an open ask of the viewer's tenant."""
    form, here, who = await request.form(), parts(request), viewer(request)
    async with _ANSWERING:
        asked = await _one(request, form.get("id", ""))
        problem = "" if asked.state == State.OPEN else "It was answered before."
        if not problem:
            answered = asked._replace(
                state=State.WITHDRAWN, answered_by=who.name, answered_ms=here.clock_ms()
            )
            await to_thread.run_sync((await _raises(request)).answer, answered)
    if problem:
        given = format_value(asked.value)
        return render(request, "raise.html.j2", 422, asked=asked, given=given, problem=problem)
    await _audit(request, answered, "withdrawn", "")
    return RedirectResponse("/raises", 303)


ROUTES: Final = (
    Page("/raises", show, EVERYBODY, nav="Raises"),
    Page("/raises", ask, TENANTS, ("POST",)),
    Page("/raises/enough", enough, TENANTS, ("POST",)),
    Page("/raises/one", one, EVERYBODY),
    Page("/raises/preview", preview, OPERATORS, ("POST",)),
    Page("/raises/grant", grant, OPERATORS, ("POST",)),
    Page("/raises/refuse", refuse, OPERATORS, ("POST",)),
    Page("/raises/withdraw", withdraw, TENANTS, ("POST",)),
)
