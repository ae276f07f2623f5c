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
from headgate.console.proposal import MadeChange, audit, find_enough, make, propose, try_out
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
_ANSWERED: Final = "It was answered before."
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


async def asks_seen(request: Request) -> list[Raise]:
    """Return the asks that the viewer may see: the open ones, then those answered last."""
    who, raises = viewer(request), await _raises(request)
    return await to_thread.run_sync(raises.listed, None if who.sees_all else who.tenant)


async def show(request: Request) -> Response:
    """Return the asks that the viewer may see; a tenant's form."""
    return await _list(request, dict(request.query_params))


async def _list(
    request: Request, given: dict[str, Any], problem: str = "", status: int = 200,
    enough: Enough | None = None,
) -> Response:  # fmt: skip
    who = viewer(request)
    listed = [] if parts(request).database is None else await asks_seen(request)
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
    """Take an ask from the form."""
    form = dict(await request.form())
    made = await take(request, form)
    if isinstance(made, str):
        return await _list(request, form, made, 422)
    return RedirectResponse(url("/raises/one", id=made.id), 303)


async def take(request: Request, form: Mapping[str, Any]) -> Raise | str:
    """Take an ask, with the evidence of this moment; returns it, or why it isn't taken."""
    who, reason = viewer(request), str(form.get("reason", "")).strip()
    try:
        entity, key = _wanted(request, form)
        value = quota_of(str(form.get("value", "")), key)
        problem = reason_problem(reason)
        if not 0 < value < float("inf"):
            problem = "Ask for more than 0, and for a number."
    except ValueError as error:
        problem = str(error)
    if problem:
        return problem
    wanted = Wanted(entity, key, value)
    problem = _no_raise(await parts(request).table(), wanted)
    if problem:
        return problem
    raises = await _raises(request)
    async with _ASKING:
        if not await to_thread.run_sync(raises.is_room, who.tenant):
            return f"{MOST_OPEN} asks are open: wait for an answer."
        made = Raise(
            0, who.tenant, who.name, parts(request).clock_ms(), entity, key, value, reason,
            await _evidence(request, wanted),
        )  # fmt: skip
        number = await to_thread.run_sync(raises.add, made)
    made = made._replace(id=number)
    await _audit(request, made, "asked", reason)
    return made


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


async def ask_of(request: Request, number: Any) -> Raise:
    """
    Return an ask.

    Raises:
        HTTPException: there is none, or the viewer may not see it.
    """
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
    asked = await ask_of(request, request.query_params.get("id", ""))
    return render(
        request, "raise.html.j2", asked=asked, given=format_value(asked.value), problem=""
    )


async def preview(request: Request) -> Response:
    """Say what granting an ask would do, as it was asked or with another value."""
    form = await request.form()
    asked = await ask_of(request, form.get("id", ""))
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
    form = await request.form()
    asked, word = await ask_of(request, form.get("id", "")), str(form.get("reason", "")).strip()
    value = quota_of(str(form.get("value", "")), asked.key)
    wanted = Wanted(asked.entity, asked.key, value, until_of(str(form.get("until", ""))))
    made = await granted(request, asked, wanted, word, form.get("state"))
    if made.problem:
        return await _proposed(request, asked, wanted, made.problem, word, made.status)
    return RedirectResponse(url("/raises/one", id=asked.id), 303)


async def granted(
    request: Request, asked: Raise, wanted: Wanted, word: str, state: object
) -> MadeChange:
    """
    Grant an ask.

    Args:
        request: of who grants it.
        asked: the ask.
        wanted: what is set.
        word: the reason, which the tenant reads.
        state: of the quotas that the change was shown with.
    """
    here, who, value = parts(request), viewer(request), wanted.value
    problem = reason_problem(word)
    if problem:
        return MadeChange(problem, status=422)
    answered = asked._replace(
        state=State.GRANTED, answered_by=who.name, answered_ms=here.clock_ms(), granted=value,
        word=word,
    )  # fmt: skip
    async with _ANSWERING:
        problem = _may_not_answer(request, await ask_of(request, asked.id))
        problem = problem or _no_raise(await here.table(), wanted)
        made = MadeChange(problem, status=409 if problem else 200)
        if not problem:
            message = f"raise {asked.id} of {asked.tenant}: {word}"
            made = await make(
                here, wanted.making, state, who=who.name, message=message,
                until_ms=wanted.until_ms,
            )  # fmt: skip
        if not made.problem:
            # After the change: a crash between leaves an ask open, and its number in the history.
            await to_thread.run_sync((await _raises(request)).answer, answered)
    if not made.problem:
        await _audit(request, answered, "granted" if value == asked.value else "changed", word)
    return made


def _may_not_answer(request: Request, asked: Raise) -> str:
    if asked.who == viewer(request).name:
        return "Who asked can't answer."
    return "" if asked.state == State.OPEN else _ANSWERED


async def refuse(request: Request) -> Response:
    """Refuse an ask, with a word."""
    form = await request.form()
    asked = await ask_of(request, form.get("id", ""))
    problem = await close(request, asked, State.REFUSED, str(form.get("reason", "")).strip())
    if problem:
        return _again(request, asked, problem)
    return RedirectResponse(url("/raises/one", id=asked.id), 303)


async def close(request: Request, asked: Raise, state: State, word: str = "") -> str:
    """
    End an ask without a change; returns why it can't be ended, or "".

    Args:
        request: of who does it.
        asked: the ask.
        state: ``REFUSED``, by an operator; ``WITHDRAWN``, by its tenant.
        word: why it is refused.
    """
    here, who, is_refused = parts(request), viewer(request), state is State.REFUSED
    answered = asked._replace(
        state=state, answered_by=who.name, answered_ms=here.clock_ms(), word=word
    )
    problem = reason_problem(word) if is_refused else ""
    async with _ANSWERING:
        now = await ask_of(request, asked.id)
        if is_refused:
            problem = problem or _may_not_answer(request, now)
        elif now.state != State.OPEN:
            problem = _ANSWERED
        if not problem:
            await to_thread.run_sync((await _raises(request)).answer, answered)
    if not problem:
        await _audit(request, answered, state.value, word)
    return problem


def _again(request: Request, asked: Raise, problem: str) -> Response:
    given = format_value(asked.value)
    return render(request, "raise.html.j2", 422, asked=asked, given=given, problem=problem)


async def withdraw(request: Request) -> Response:
    """Take back an open ask of the viewer's tenant."""
    asked = await ask_of(request, (await request.form()).get("id", ""))
    problem = await close(request, asked, State.WITHDRAWN)
    if problem:
        return _again(request, asked, problem)
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
