"""
The API's description, made from the table of resources: OpenAPI 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from headgate.console.api.problems import MEDIA_TYPE, WAYS, Problem
from headgate.console.api.resource import V1, Resource

_PLACE: Final = "#/components/schemas/"
_ALWAYS: Final = (400, 404, 422, 500, 502)
_SIGNED_IN: Final = (401, 403)
_SENT: Final = (408, 413, 415)


def document(resources: Iterable[Resource]) -> dict[str, Any]:
    """Return the OpenAPI document of a table of resources."""
    resources = tuple(resources)
    answers = [r.answers for r in resources if r.answers is not None]
    kinds = [*(r.takes for r in resources), *answers, Problem]
    heads, schemas = msgspec.json.schema_components(kinds, ref_template=_PLACE + "{name}")
    taken, told = heads[: len(resources)], iter(heads[len(resources) :])
    paths: dict[str, dict[str, Any]] = {}
    for resource, head in zip(resources, taken, strict=True):
        asked = schemas[head["$ref"].removeprefix(_PLACE)]
        answer = {"type": "string"} if resource.answers is None else next(told)
        paths.setdefault(V1 + resource.path, {})[resource.method.lower()] = _operation(
            resource, head, asked, answer
        )
    bodies = {h["$ref"] for r, h in zip(resources, taken, strict=True) if r.method != "GET"}
    queries = {head["$ref"] for head in taken} - bodies
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate's console",
            "version": "1",
            "description": "Quotas of Apache Kafka: what is set, how clients do, and changes.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {n: s for n, s in schemas.items() if _PLACE + n not in queries},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(
    resource: Resource, head: dict[str, Any], asked: dict[str, Any], answer: dict[str, Any]
) -> dict[str, Any]:
    anybody = resource.roles is None
    refusals = {*_ALWAYS, *resource.refusals, *(() if anybody else _SIGNED_IN)}
    found: dict[str, Any] = {
        "operationId": resource.name,
        "summary": resource.about,
        "description": f"For {told_roles(resource)}.",
        "security": [] if anybody else [{"token": []}],
    }
    if resource.method == "GET":
        needed = asked.get("required", ())
        found["parameters"] = [
            {"name": name, "in": "query", "required": name in needed, "schema": _not_null(schema)}
            for name, schema in asked["properties"].items()
        ]
    else:
        refusals |= set(_SENT)
        body = {"application/json": {"schema": head}}
        found["requestBody"] = {"required": True, "content": body}
    problem = {MEDIA_TYPE: {"schema": {"$ref": f"{_PLACE}Problem"}}}
    found["responses"] = {
        "200": {"description": "Done.", "content": {resource.media_type: {"schema": answer}}},
        **{
            str(status): {"description": WAYS[status][0], "content": problem}
            for status in sorted(refusals)
        },
    }
    return found


def told_roles(resource: Resource) -> str:
    """Return for whom a resource is, in words."""
    if resource.roles is None:
        return "anybody"
    scope = "" if resource.method == "GET" or resource.reads else ", with the scope change"
    return ", ".join(sorted(resource.roles)) + scope


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter: one that isn't given is absent, never null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return kinds[0] if kinds else schema
