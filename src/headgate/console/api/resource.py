"""
A resource's row in the table: path, roles, what it takes and answers; its checks come from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from headgate.console.access.viewer import Role
from headgate.console.api.problems import RefusedRequest, encoded
from headgate.console.paging import MOST_FIND, PagePart, part_of
from headgate.console.routing import SAFE, Page
from headgate.errors import ConfigError, InvalidQuota
from headgate.quota.key import KEYS
from headgate.store.base import MOST_MESSAGE_BYTES

V1: Final = "/api/v1"
MOST_SIZE: Final = 500
"""Rows of a page."""
MOST_NAME: Final = 70_000
"""Characters of an entity's path: two names of 32 kB."""

Name = Annotated[str, Meta(min_length=1, max_length=MOST_NAME)]
ClientId = Annotated[str, Meta(max_length=MOST_NAME)]
EntityPath = Annotated[str, Meta(pattern="^(users|clients|ips)/.", max_length=MOST_NAME)]
Text = Annotated[str, Meta(max_length=MOST_FIND)]
Reason = Annotated[str, Meta(min_length=1, max_length=MOST_MESSAGE_BYTES)]
if TYPE_CHECKING:
    KeyName = str
else:
    KeyName = Literal[tuple(key.name for key in KEYS)]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What a request may say."""


class PageAsked(Asked, frozen=True, kw_only=True):
    """
    Which page of a list is asked for.

    Args:
        page: from 1 on.
        size: how many rows a page has.
    """

    page: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    size: Annotated[int, Meta(ge=1, le=MOST_SIZE)] = 50


Row = TypeVar("Row")


class ListTold(msgspec.Struct, Generic[Row], frozen=True):
    """
    One page of a list.

    Args:
        rows: those of the page; none beyond the last page.
        found: how many there are on all pages.
        page: its number.
        pages: how many there are.
    """

    rows: Sequence[Row]
    found: int
    page: int
    pages: int

    @classmethod
    def of(
        cls, found: Sequence[Any], asked: PageAsked, told: Callable[[Any], Row]
    ) -> ListTold[Row]:
        """Return the page that is asked for, each row as it is told."""
        part: PagePart = part_of(found, asked.page, asked.size)
        rows = part.rows if asked.page == part.page else ()
        return cls([told(row) for row in rows], part.found, asked.page, part.pages)


class Resource(NamedTuple):
    """
    One row of the table of resources.

    Args:
        method: the HTTP method.
        path: below ``/api/v1``; names of quotas and principals are parameters, never here.
        about: what it does, for its documentation.
        roles: who may ask (``access.viewer``); None: anybody.
        does: makes the answer from the request and what it says.
        takes: what the request may say: in its query if it is a GET, else in its body as JSON.
        answers: what the answer is; None: the answer says so itself.
        reads: it changes nothing, though it isn't a GET.
        refusals: statuses of refusals beside those that all have.
        media_type: of the answer.
    """

    method: str
    path: str
    about: str
    roles: frozenset[Role] | None
    does: Callable[[Request, Any], Awaitable[Any]]
    takes: type[Asked]
    answers: Any
    reads: bool = False
    refusals: tuple[int, ...] = ()
    media_type: str = "application/json"

    @property
    def page(self) -> Page:
        """Return its row of the table of routes, which has the checks of every page."""
        endpoint = self.endpoint
        return Page(V1 + self.path, endpoint, self.roles, (self.method,), reads=self.reads)

    @property
    def name(self) -> str:
        """What programs call it: ``quotas_plan``; ``make_asks`` beside ``asks``."""
        name = self.path.strip("/").partition(".")[0].replace("/", "_")
        return name if self.method == "GET" or "_" in name else f"make_{name}"

    async def endpoint(self, request: Request) -> Response:
        """Answer a request."""
        asked = await _read(request, self.takes)
        try:
            answer = await self.does(request, asked)
        except (InvalidQuota, ConfigError) as error:
            raise RefusedRequest(422, str(error)) from None
        if isinstance(answer, Response):
            return answer
        return Response(encoded(answer), media_type=self.media_type)


async def _read(request: Request, takes: type[Asked]) -> Asked:
    whole = "query" if request.method in SAFE else "body"
    try:
        if request.method in SAFE:
            return msgspec.convert(_once(request.query_params), takes, strict=False)
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise RefusedRequest(415, "")
        if request.query_params:
            raise RefusedRequest(
                400, "Nothing is read from the address.", "query", "Send it as the body."
            )
        return msgspec.json.decode(await request.body(), type=takes)
    except msgspec.ValidationError as error:
        detail, _, where = str(error).partition(" - at ")
        raise RefusedRequest(400, detail, where.strip("`").removeprefix("$.") or whole) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedRequest(400, str(error), whole) from None


def _once(given: QueryParams) -> Mapping[str, str]:
    twice = sorted({name for name in given if len(given.getlist(name)) > 1})
    if twice:
        raise RefusedRequest(400, "A parameter is given twice.", twice[0][:100])
    return dict(given)
