"""Write the API's reference page from its table: `python tests/kit/http_page.py FILE`."""

# ruff: noqa: E501 - the page wraps where its readers do

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from headgate.console.api import RESOURCES
from headgate.console.api.openapi import document, told_roles
from headgate.console.api.problems import WAYS
from headgate.console.api.resource import V1

_HEAD: Final = f"""\
# The HTTP API

What the [console](../howto/console.md) shows and does, for programs: JSON, under `{V1}` of the console's address. The console describes it at
`{V1}/openapi.json` (OpenAPI 3.1). A resource calls the function that its page calls, so both tell and allow the same.
[How to use it](../howto/console.md#by-a-program), with `curl`.

- A request needs `Authorization: Bearer TOKEN`. A token may do what its owner may do at that moment: a tenant's token sees that tenant's part. With the scope
  `read` it changes nothing. Where nobody signs in to the console, reading needs no token, and nothing can be planned or changed.
- To change quotas: `POST /quotas/plan`, look at the answer, then `POST /quotas/apply` with its `revision`. `validate` only asks the store or the servers what
  they would refuse; `plan` also says which connected clients are concerned.
- `GET` takes a query, `POST` a body of `Content-Type: application/json`. What isn't in the tables below is refused. A body has at most 256 kB, an
  operator's 4 MB; a page of a list has at most 500 rows.
- Names of quotas are paths: `users/alice/clients/etl`, `clients/<default>`, `ips/10.0.0.1`. Within a path a name's `/` is `%2F`. A query is encoded once more, so
  leave that to the client: `curl --get --data-urlencode 'entity=users/a%2Fb'`.
- Values are in the unit of the key: bytes per second, percent of a thread, and per second else. As texts they may have a unit: `"2MB/s"` is 2,000,000.
- Requests say `client-id`, answers `client_id`.
- A refusal is `application/problem+json` (RFC 9457) with `detail`, `where` and `way_out`. A 422 of `apply` may come after a part was made, where some entities were
  refused: look at the history.
- A name that a token may not see gets the same answer as one that doesn't exist.

This page is generated from `headgate.console.api` (`make docs`).

## Resources

| request | for | what it does | takes | answers |
|---|---|---|---|---|
"""
_PLACE: Final = "#/components/schemas/"


def http_page() -> str:
    """Return the reference page as Markdown."""
    described = document(RESOURCES)
    schemas = described["components"]["schemas"]
    kinds = {getattr(r.answers, "__name__", ""): r.answers for r in RESOURCES}
    lines: list[str] = []
    asked: dict[str, list[str]] = {}
    for resource in RESOURCES:
        operation = described["paths"][V1 + resource.path][resource.method.lower()]
        [content] = operation["responses"]["200"]["content"].values()
        takes = resource.takes.__name__
        fields = operation.get("parameters") or _fields(schemas.get(takes, {}))
        if fields:
            asked[takes] = _section(
                takes,
                inspect.getdoc(resource.takes),
                fields,
                _meanings(resource.takes),
                is_asked=True,
            )
        told = _link(takes) if fields else ""
        lines.append(
            f"| `{resource.method} {V1}{resource.path}` | {told_roles(resource)} | {resource.about} | {told} | {_typed(content['schema'])} |"
        )
    for name in re.findall(rf"{_PLACE}(\w+)", str([schemas.get(name) for name in asked])):
        doc = schemas[name]["description"]
        asked[name] = _section(name, doc, _fields(schemas[name]), _told(doc), is_asked=True)
    lines.append("\n## What is sent")
    lines += [line for _, section in sorted(asked.items()) for line in section]
    lines.append("\n## What is answered")
    for name, schema in sorted(schemas.items()):
        if name not in asked:
            doc = schema.get("description", "")
            meanings = _meanings(kinds[name]) if name in kinds else _told(doc)
            lines += _section(name, doc, _fields(schema), meanings)
            lines += [] if "properties" in schema else [_typed(schema)]
    lines.append("\n## Refusals\n")
    lines.append(
        "| status | what is said if nothing better is known | the way out |\n|---|---|---|"
    )
    lines += [f"| {status} | {what} | {way} |" for status, (what, way) in sorted(WAYS.items())]
    return _HEAD + "\n".join(lines) + "\n"


def _section(
    name: str,
    doc: str | None,
    fields: list[dict[str, Any]],
    meanings: Mapping[str, str],
    *,
    is_asked: bool = False,
) -> list[str]:
    summary = (doc or "").partition("\n\n")[0].replace("``", "`")
    table = _table(fields, meanings, is_asked=is_asked) if fields else ()
    return [f"\n### {name}\n", f"{summary}\n", *table]


def _fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a body or an answer in the form of parameters."""
    needed = schema.get("required", ())
    return [
        {"name": name, "required": name in needed, "schema": part}
        for name, part in schema.get("properties", {}).items()
    ]


def _table(
    fields: list[dict[str, Any]], meanings: Mapping[str, str], *, is_asked: bool
) -> Iterator[str]:
    yield "| name | | meaning |\n|---|---|---|"
    for field in fields:
        default = field["schema"].get("default")
        usual = (
            ""
            if field["required"] or default in ("", None, (), [], False)
            else f"; `{default}` otherwise"
        )
        mark = " (needed)" if field["required"] and is_asked else ""
        meaning = meanings.get(field["name"].replace("-", "_"), "").replace("|", "\\|")
        yield f"| `{field['name']}`{mark} | {_typed(field['schema'])}{usual} | {meaning} |"


def _typed(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _link(schema["$ref"].removeprefix(_PLACE))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"] if value != "")
    if "anyOf" in schema:
        return " or ".join(map(_typed, schema["anyOf"]))
    if schema.get("type") == "array":
        most = f"at most {schema['maxItems']:,} " if "maxItems" in schema else ""
        return f"{most}list of {_typed(schema['items'])}" if schema.get("items") else f"{most}list"
    bounds = [f"{schema[k]:,}" for k in ("minimum", "maximum") if k in schema]
    return schema.get("type", "list") + (f" {' to '.join(bounds)}" if bounds else "")


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _meanings(kind: Any) -> dict[str, str]:
    """Return what each field of a class means, those that it inherits too."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        found |= _told(inspect.getdoc(each) or "")
    return found


def _told(doc: str) -> dict[str, str]:
    """Return the meanings of fields from a docstring."""
    _, _, listed = re.sub(r"(Args|Attributes):", "\0", doc).partition("\0")
    rows = re.findall(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", listed, re.M)
    return {
        name: " ".join(meaning.split()).replace("``", "`")
        for names, meaning in rows
        for name in names.split(", ")
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(http_page(), encoding="utf-8")
