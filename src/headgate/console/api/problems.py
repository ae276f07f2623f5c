"""
Refusals as RFC 9457 has them: what went wrong, where, and the way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPE: Final = "application/problem+json"
_SCHEMA: Final = "/api/v1/openapi.json says what may be sent"
WAYS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("The request can't be read.", f"Correct it: {_SCHEMA}."),
    401: (
        "No token that counts came with it: none was sent, or it is unknown or has ended.",
        "Send `Authorization: Bearer TOKEN`, never in an address. Make one on the console's page "
        "Tokens, or by `headgate console token`.",
    ),
    403: (
        "Whose token or session this is may not do that.",
        "Use a token with the scope change, of somebody with the role; a browser's session sends "
        "the page's x-csrf-token with what changes something.",
    ),
    404: ("There is nothing here, or nothing that you may see.", f"Look for the name: {_SCHEMA}."),
    405: ("The resource doesn't know this method.", f"Use another: {_SCHEMA}."),
    408: ("The body came too slowly.", "Send it again, whole within a minute."),
    409: ("What it was made from has changed since.", "Ask for the plan again, and look at it."),
    413: ("The body is too long.", "Send less at a time."),
    415: ("The body isn't JSON.", "Send `Content-Type: application/json`."),
    422: ("It can't be done as it was asked for.", f"Correct what `detail` names: {_SCHEMA}."),
    500: ("Something went wrong here.", "Look into the console's log."),
    502: ("The store, a server or a gateway doesn't answer.", "Try again later."),
    503: ("That isn't known at this moment.", "Try again after `Retry-After` seconds."),
}
"""By status: what is said, and the way out, where nothing better is known."""


class Problem(msgspec.Struct, frozen=True):
    """
    Why a request was refused.

    Args:
        type: ``about:blank``: the status says what kind of problem it is.
        title: the status in words.
        status: the HTTP status.
        detail: what went wrong.
        where: which part of the request; else its method and path.
        way_out: what to do.
    """

    type: str
    title: str
    status: int
    detail: str
    where: str
    way_out: str


class RefusedRequest(HTTPException):
    """
    A refusal that says more than its status.

    Args:
        status: the HTTP status.
        detail: what went wrong.
        where: which part of the request; "": all of it.
        way_out: what to do; "": what is usual.
        retry_s: when to try again; 0: not said.
    """

    def __init__(
        self, status: int, detail: str, where: str = "", way_out: str = "", retry_s: int = 0
    ) -> None:
        super().__init__(status, detail, {"retry-after": str(retry_s)} if retry_s else None)
        self.where = where
        self.way_out = way_out


def problem_answer(request: Request, status: int, error: Exception | None = None) -> Response:
    """
    Return the answer that refuses a request.

    Args:
        request: which.
        status: the HTTP status.
        error: says what went wrong; None, or one of Starlette's own: what is usual is said.
    """
    detail, way_out = WAYS.get(status, WAYS[500])
    where = f"{request.method} {request.url.path}"
    if isinstance(error, RefusedRequest):
        detail = error.detail or detail
        where, way_out = error.where or where, error.way_out or way_out
    elif error is not None and not isinstance(error, HTTPException):
        detail = str(error)
    problem = Problem("about:blank", HTTPStatus(status).phrase, status, detail, where, way_out)
    answer = Response(encoded(problem), status, media_type=MEDIA_TYPE)
    if isinstance(error, HTTPException):
        answer.headers.update(error.headers or {})
    if status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    return answer


def encoded(answer: object) -> bytes:
    """Return JSON; half a character (a lone surrogate), which UTF-8 has no place for, is ``?``."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole(msgspec.to_builtins(answer)))


def _whole(found: object) -> object:
    if isinstance(found, str):
        return found.encode("utf-8", "replace").decode()
    if isinstance(found, dict):
        return {_whole(name): _whole(value) for name, value in found.items()}
    return [_whole(each) for each in found] if isinstance(found, list | tuple) else found
