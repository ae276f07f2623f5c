"""
Upload a quotas file, see what it would change, apply it; show what has changed since the last one.
"""

from __future__ import annotations

from typing import Final

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headgate.console.access.viewer import OPERATORS
from headgate.console.pages.change import reason_problem
from headgate.console.parts import parts, viewer
from headgate.console.proposal import MadeChange, Making, make, propose
from headgate.console.rendering import render, url
from headgate.console.routing import Page, missing
from headgate.console.uploads import Upload, Uploads
from headgate.errors import InvalidQuota
from headgate.quota.file import QuotasFile, parse_quotas
from headgate.quota.plan import Plan, diff

_MOST_PROBLEMS: Final = 30
_READING: Final = CapacityLimiter(1)
"""Files that are read at a time: one of 4 MB takes seconds of CPU and 200 MB of memory."""


async def show(request: Request) -> Response:
    """Return the form, and the drift since the last file was applied."""
    return await _form(request)


async def _form(request: Request, problems: list[str] | None = None, status: int = 200) -> Response:
    last = await to_thread.run_sync((await _uploads(request)).applied)
    drift: Plan | None = None
    if last is not None:
        # With prune, so that quotas that the file doesn't mention count as drift.
        making = await applying(last._replace(prune=True))
        drift = await to_thread.run_sync(making, await parts(request).table())
    return render(
        request, "plan.html.j2", status, problems=(problems or [])[:_MOST_PROBLEMS],
        more=max(0, len(problems or []) - _MOST_PROBLEMS), last=last, drift=drift,
        done=request.query_params.get("done", ""),
    )  # fmt: skip


async def _uploads(request: Request) -> Uploads:
    database = parts(request).database
    if database is None:
        raise missing()
    return await to_thread.run_sync(Uploads, database)


async def upload(request: Request) -> Response:
    """Take a file, and say what it would change."""
    form = await request.form()
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        return await _form(request, ["Choose a quotas file."], 422)
    try:
        text = (await file.read()).decode()
        await to_thread.run_sync(parse_quotas, text, file.filename, limiter=_READING)
    except UnicodeDecodeError:
        return await _form(request, [f"{file.filename}: not text in UTF-8"], 422)
    except InvalidQuota as error:
        return await _form(request, str(error).splitlines(), 422)
    kept = Upload(
        viewer(request).name, parts(request).clock_ms(), file.filename, text,
        bool(form.get("prune")),
    )  # fmt: skip
    await to_thread.run_sync((await _uploads(request)).keep, kept)
    return await _proposed(request, kept)


async def applying(kept: Upload) -> Making:
    """
    Return the function that makes the plan which applies a quotas file.

    Raises:
        InvalidQuota: the file has mistakes; names all.
    """
    file: QuotasFile = await to_thread.run_sync(
        parse_quotas, kept.text, kept.name, limiter=_READING
    )
    return lambda table: diff(table, file, prune=kept.prune)


async def _proposed(
    request: Request, kept: Upload, problem: str = "", reason: str = "", status: int = 200
) -> Response:
    proposal = await propose(parts(request), await applying(kept))
    guard = proposal.plan.removals if proposal.plan.removes_most else 0
    return render(
        request, "proposal.html.j2", status, title="Plan", proposal=proposal, problem=problem,
        action="/plan/apply", fields={"uploaded": kept.mark}, reason=reason,
        button="Apply this file", back="/plan", prune_guard=guard,
    )  # fmt: skip


async def apply(request: Request) -> Response:
    """Apply a file as it was shown."""
    form = await request.form()
    uploads = await _uploads(request)
    kept = await to_thread.run_sync(uploads.of, viewer(request).name)
    if kept is None or kept.mark != form.get("uploaded"):
        return await _form(request, ["Upload the file again: another one was uploaded since."], 409)
    reason = str(form.get("reason", "")).strip()
    problem = reason_problem(reason)
    if problem:
        return await _proposed(request, kept, problem, reason, 422)
    made = await applied(request, kept, form.get("state"), form.get("removals"), reason)
    if made.problem:
        return await _proposed(request, kept, made.problem, reason, made.status)
    return RedirectResponse(url("/plan", done=made.change or "made"), 303)


async def applied(
    request: Request, kept: Upload, state: object, removals: object, reason: str,
    until_ms: int | None = None,
) -> MadeChange:  # fmt: skip
    """
    Apply a quotas file, and remember it as the one applied last.

    Args:
        request: of who applies it.
        kept: the file.
        state: of the quotas that it was shown with.
        removals: how many values are removed, as somebody wrote it; needed if these are most.
        reason: for the history.
        until_ms: when the former values return, epoch ms; None: never.
    """
    making = await applying(kept)
    plan = await to_thread.run_sync(making, await parts(request).table())
    if plan.removes_most and str(removals) != str(plan.removals):
        number = f"to allow that, write their number, {plan.removals}"
        return MadeChange(f"Most quotas would be removed: {number}.", status=422)
    made = await make(
        parts(request), making, state, who=viewer(request).name, message=reason,
        refusal="Some of it was refused.", until_ms=until_ms,
    )  # fmt: skip
    if not made.problem:
        uploads = await _uploads(request)
        await to_thread.run_sync(uploads.applied, kept._replace(t_ms=parts(request).clock_ms()))
    return made


ROUTES: Final = (
    Page("/plan", show, OPERATORS, nav="Plan"),
    Page("/plan", upload, OPERATORS, ("POST",)),
    Page("/plan/apply", apply, OPERATORS, ("POST",)),
)
