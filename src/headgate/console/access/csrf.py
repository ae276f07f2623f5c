"""
Tokens that prove that a form came from one of our pages, opened by the same viewer.

The token is bound to the viewer's session (or, signed in by a proxy, to the name). Besides, a
browser's own ``Origin`` and ``Sec-Fetch-Site`` must say that the page was ours.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

FIELD: Final = "csrf"
HEADER: Final = "x-csrf-token"
MOST_BODY_BYTES: Final = 4_000_000
"""A quotas file of 20,000 entities is smaller."""
MOST_FORM_BYTES: Final = 256_000
"""For everybody but operators; two names of 32 kB fit, percent-encoded."""
_MOST_FIELDS: Final = 200
_SECRET: Final = secrets.token_bytes(32)
"""New at each start: forms that were opened before have to be opened again."""


def csrf_token(key: str) -> str:
    """
    Return the token of a viewer's key; the same as long as the session lives.

    A browser that hasn't opened a form has no key. All such browsers have the same token, so it
    isn't accepted.
    """
    return hmac.new(_SECRET, key.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


async def check_csrf(request: Request) -> None:
    """
    Refuse a request that may change something unless it came from one of our pages.

    Raises:
        HTTPException: 403, or 413 for a body that is too long.
    """
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or (
        origin is not None and origin not in request.state.origins
    ):
        raise HTTPException(403)
    given = request.headers.get(HEADER)
    if given is None:
        form = await request.form(
            max_files=1, max_fields=_MOST_FIELDS, max_part_size=MOST_BODY_BYTES
        )
        field = form.get(FIELD)
        given = field if isinstance(field, str) else ""
    expected = csrf_token(request.state.csrf_key)
    if not request.state.csrf_key or not hmac.compare_digest(
        given.encode("utf-8", "replace"), expected.encode()
    ):
        raise HTTPException(403)
