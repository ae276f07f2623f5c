"""
The HTTP API: the data of the console's pages as JSON, for programs.

A resource calls the function that its page calls, so both tell and allow the same. From the table
here come the routes, the OpenAPI document, the reference page, and the tests of access.

- ``resource``: a resource's row, what it takes, how it is read and answered.
- ``problems``: refusals (RFC 9457).
- ``quotas``: what is configured, what applies.
- ``changes``: quotas checked, planned, set, removed; changes taken back.
- ``stream``: changes as they happen.
- ``asks``: of tenants, and the answers.
- ``looking``: why a client waits, who used most, the history.
- ``openapi``: the document.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from headgate.console.api import asks, changes, looking, quotas, stream
from headgate.console.api.openapi import document
from headgate.console.api.problems import encoded
from headgate.console.api.resource import Asked, Resource


@cache
def _described() -> bytes:
    return encoded(document(RESOURCES))


async def _openapi(request: Request, asked: Asked) -> Response:
    return Response(_described(), media_type="application/json")


RESOURCES: Final[tuple[Resource, ...]] = (
    Resource(
        "GET", "/openapi.json", "Describe the API: OpenAPI 3.1.", None, _openapi, Asked,
        dict[str, Any],
    ),
    *quotas.RESOURCES,
    *changes.RESOURCES,
    *looking.RESOURCES,
    *stream.RESOURCES,
    *asks.RESOURCES,
)  # fmt: skip
"""The table of resources: whatever isn't in it isn't served."""
