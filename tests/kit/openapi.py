"""
The API by its own document: whether it describes an answer, and the requests that it allows.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from headgate.console.api import RESOURCES
from headgate.console.api.openapi import document
from headgate.console.events import EVENTS

DOCUMENT: dict[str, Any] = json.loads(json.dumps(document(RESOURCES)))
"""As it is served."""
_PARTS = "#/components/schemas/"


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Return method, path and operation of each resource whose answers end."""
    return [
        (method.upper(), path, operation)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        if EVENTS not in operation["responses"]["200"]["content"]
    ]


def check_answer(operation: dict[str, Any], answer: Any) -> None:
    """Assert that an answer is one that its operation describes."""
    told = operation["responses"].get(str(answer.status_code))
    assert told is not None, f"{answer.status_code} isn't described: {answer.text}"
    [(media_type, content)] = told["content"].items()
    assert answer.headers["content-type"].partition(";")[0] == media_type
    found = json.loads(answer.text)
    schema = {**content["schema"], "components": DOCUMENT["components"]}
    problems = [e.message for e in Draft202012Validator(schema).iter_errors(found)]
    assert not problems, f"{problems[:3]} in {answer.text[:2000]}"
    if answer.status_code >= 400:
        assert found["status"] == answer.status_code
        assert all(found[name] for name in ("title", "detail", "where", "way_out"))


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a schema allows, and now and then another one."""
    return st.one_of(_allowed(schema), _allowed(schema), _allowed(schema), _OTHER)


_OTHER = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.lists(st.none(), max_size=2), st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
)  # fmt: skip
KNOWN = st.sampled_from(
    ("users/alice", "users/alice/clients/app-0", "users/<default>", "users/bob", "ips/10.0.0.1",
     "alice", "bob", "app-0", "1", "10MB/s", "quotas: []", "null", "users/%", "\ud800")
)  # fmt: skip
"""Texts that mean something here."""


def _allowed(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return _allowed(DOCUMENT["components"]["schemas"][schema["$ref"].removeprefix(_PARTS)])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of(*map(_allowed, schema["anyOf"]))
    kind = schema.get("type")
    if kind == "object":
        needed = set(schema.get("required", ()))
        fields = {name: values(part) for name, part in schema.get("properties", {}).items()}
        return st.fixed_dictionaries(
            {name: part for name, part in fields.items() if name in needed},
            optional={name: part for name, part in fields.items() if name not in needed},
        )
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=3)
    if kind == "integer":
        return st.integers(schema.get("minimum"), schema.get("maximum"))
    if kind == "number":
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind == "string":
        return st.one_of(KNOWN, st.text(max_size=30))
    return {"boolean": st.booleans(), "null": st.none()}[kind or "null"]


def requests(operation: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return what an operation may be sent: a query or a body, some of which it refuses."""
    if "requestBody" in operation:
        return values(operation["requestBody"]["content"]["application/json"]["schema"])
    given = {p["name"]: values(p["schema"]) for p in operation["parameters"]}
    needed = {p["name"] for p in operation["parameters"] if p["required"]}
    return st.fixed_dictionaries(
        {name: part for name, part in given.items() if name in needed},
        optional={name: part for name, part in given.items() if name not in needed},
    )
