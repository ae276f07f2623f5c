"""
Resources of tenants' asks for a higher quota, and of the answers.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request

from headgate.console.access.viewer import EVERYBODY, OPERATORS, TENANTS
from headgate.console.api.changes import Revision, done
from headgate.console.api.problems import RefusedRequest
from headgate.console.api.resource import (
    Asked,
    ClientId,
    KeyName,
    ListTold,
    Name,
    PageAsked,
    Reason,
    Resource,
)
from headgate.console.pages.change import Wanted, quota_of, until_of
from headgate.console.pages.raises import ask_of, asks_seen, close, granted, take
from headgate.console.raises import Raise, State

Value = Annotated[str, Meta(max_length=100)]


class OneAsked(Asked, frozen=True):
    """An ask, by its number."""

    id: Annotated[int, Meta(ge=0, le=10**12)]


class AskAsked(Asked, frozen=True):
    """
    A quota that is asked for, for a principal of the tenant's, or its pair with a client-id.

    Args:
        user: the principal.
        key: what the quota limits.
        value: a number, or with a unit: ``10MB/s``.
        reason: why.
        client_id: only with this one; "": any.
    """

    user: Name
    key: KeyName
    value: Value
    reason: Reason
    client_id: ClientId = ""


class GrantAsked(OneAsked, frozen=True, kw_only=True):
    """
    How an ask is granted.

    Args:
        revision: that a plan of the change named.
        reason: the tenant reads it, and the history has it.
        value: another value than was asked for; "": that one.
        until: when the former value returns, as in a change; "": it doesn't.
    """

    revision: Revision
    reason: Reason
    value: Value = ""
    until: Value = ""


class RefuseAsked(OneAsked, frozen=True, kw_only=True):
    """An ask that is refused, and why; the tenant reads that."""

    reason: Reason


class AskTold(msgspec.Struct, frozen=True):
    """
    An ask for a higher quota.

    Args:
        id: its number.
        tenant: the tenant that asked.
        who: its user who asked.
        at_ms: when, epoch ms.
        entity: what the quota is for, as a path.
        key: what it limits.
        value: that is asked for.
        reason: why.
        state: what became of it.
        answered_by: who answered; "" while it is open.
        granted: the value that was set; null: none.
        word: the answer's reason.
        evidence: how the tenant's requests of the hour before would have gone with it, in
            sentences.
    """

    id: int
    tenant: str
    who: str
    at_ms: int
    entity: str
    key: str
    value: float
    reason: str
    state: State
    answered_by: str
    granted: float | None
    word: str
    evidence: tuple[str, ...]

    @classmethod
    def of(cls, asked: Raise) -> AskTold:
        """Tell an ask."""
        evidence = asked.evidence
        foretold = (f"{f.user}/{f.client_id}: {f.sentence}" for f in evidence.foretold)
        return cls(
            asked.id, asked.tenant, asked.who, asked.t_ms, asked.entity.path, asked.key.name,
            asked.value, asked.reason, asked.state, asked.answered_by, asked.granted, asked.word,
            (*foretold, *evidence.notes),
        )  # fmt: skip


async def listed(request: Request, asked: PageAsked) -> ListTold[AskTold]:
    """Return a page of the asks that the viewer may see."""
    return ListTold[AskTold].of(await asks_seen(request), asked, AskTold.of)


async def one(request: Request, asked: OneAsked) -> AskTold:
    """Return one ask."""
    return AskTold.of(await ask_of(request, asked.id))


async def ask(request: Request, asked: AskAsked) -> AskTold:
    """Take an ask of the viewer's tenant."""
    made = await take(request, msgspec.to_builtins(asked))
    if isinstance(made, str):
        raise RefusedRequest(422, made)
    return AskTold.of(made)


async def grant(request: Request, asked: GrantAsked) -> AskTold:
    """Set what was asked for, or another value."""
    found = await ask_of(request, asked.id)
    value = quota_of(asked.value, found.key) if asked.value else found.value
    wanted = Wanted(found.entity, found.key, value, until_of(asked.until))
    done(await granted(request, found, wanted, asked.reason.strip(), asked.revision))
    return AskTold.of(await ask_of(request, asked.id))


async def refuse(request: Request, asked: RefuseAsked) -> AskTold:
    """Refuse an ask."""
    return await _closed(request, asked.id, State.REFUSED, asked.reason.strip())


async def withdraw(request: Request, asked: OneAsked) -> AskTold:
    """Take back an open ask of the viewer's tenant."""
    return await _closed(request, asked.id, State.WITHDRAWN, "")


async def _closed(request: Request, number: int, state: State, word: str) -> AskTold:
    problem = await close(request, await ask_of(request, number), state, word)
    if problem:
        raise RefusedRequest(409, problem)
    return AskTold.of(await ask_of(request, number))


RESOURCES: Final = (
    Resource(
        "GET", "/asks", "List the asks: the open ones, then those answered last.", EVERYBODY,
        listed, PageAsked, ListTold[AskTold],
    ),
    Resource("GET", "/asks/one", "Tell one ask.", EVERYBODY, one, OneAsked, AskTold),
    Resource("POST", "/asks", "Ask for a higher quota.", TENANTS, ask, AskAsked, AskTold),
    Resource(
        "POST", "/asks/grant", "Grant an ask, or another value.", OPERATORS,
        grant, GrantAsked, AskTold, refusals=(409,),
    ),
    Resource(
        "POST", "/asks/refuse", "Refuse an ask.", OPERATORS, refuse, RefuseAsked, AskTold,
        refusals=(409,),
    ),
    Resource(
        "POST", "/asks/withdraw", "Take an open ask back.", TENANTS, withdraw, OneAsked, AskTold,
        refusals=(409,),
    ),
)  # fmt: skip
