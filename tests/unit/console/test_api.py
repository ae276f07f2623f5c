"""The API: what it tells is what its document describes, as its pages tell it, whoever asks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from headgate.admin.listing import KINDS, ONLY, SORTS
from headgate.console import events
from headgate.console.access.viewer import Scope
from headgate.console.api import problems
from headgate.console.api.looking import UsageAsked
from headgate.console.api.quotas import QuotasAsked
from headgate.console.api.resource import V1
from headgate.console.pages import usage
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, REQUEST
from headgate.usage.sums import WHO
from kit.console import QUOTA, Browser, Console, asking, make_console
from kit.openapi import DOCUMENT, check_answer, operations, requests

DATA = Path(__file__).parents[2] / "data"
OPERATIONS = {(method, path): told for method, path, told in operations()}
ROLES = [("viewer", ""), ("operator", ""), ("tenant", "payments")]


def bearer(console: Console, role: str, tenant: str = "") -> Browser:
    client = console.client()
    client.headers["authorization"] = f"Bearer {console.token(role, tenant)}"
    return client


def told(client: Browser, path: str, status: int = 200, **query: Any) -> Any:
    """What a resource tells, which is as the document describes it."""
    answer = client.get(V1 + path, params=query)
    assert answer.status_code == status, answer.text
    check_answer(OPERATIONS["GET", V1 + path], answer)
    return answer.json()


# --- the document


def test_the_document_is_openapi(console: Console) -> None:
    """By the schema that the OpenAPI Initiative publishes for 3.1."""
    served = console.client().get(f"{V1}/openapi.json").json()
    assert served == DOCUMENT
    schema = json.loads((DATA / "openapi-3.1.json").read_text(encoding="utf-8"))
    assert [e.message for e in Draft202012Validator(schema).iter_errors(served)] == []
    for part in served["components"]["schemas"].values():
        Draft202012Validator.check_schema(part)
    names = [told["operationId"] for told in OPERATIONS.values()]
    assert len(set(names)) == len(names)
    text = json.dumps(served)
    for name in served["components"]["schemas"]:
        assert f"schemas/{name}" in text


def test_the_words_of_the_document_are_those_of_the_pages() -> None:
    def words(takes: type, name: str) -> set[str]:
        return set(get_args(get_type_hints(takes)[name])) - {""}

    assert words(QuotasAsked, "kind") == {*KINDS, "default"}
    assert words(QuotasAsked, "only") == set(ONLY)
    assert words(QuotasAsked, "sort") == set(SORTS)
    assert words(UsageAsked, "last") == {name for name, _, _ in usage.PERIODS}
    assert words(UsageAsked, "sort") == {name for name, _, _ in usage.SORTS}
    assert words(UsageAsked, "who") == set(WHO)


# --- quotas


def test_quotas_are_listed_page_by_page(console: Console) -> None:
    client, seen = bearer(console, "viewer"), []
    whole = told(client, "/quotas", size=500)
    for page in range(1, 5):
        part = told(client, "/quotas", size=20, page=page)
        assert (part["found"], part["page"], part["pages"]) == (62, page, 4)
        seen += part["rows"]
    assert seen == whole["rows"]
    assert told(client, "/quotas", size=20, page=5)["rows"] == []
    [row] = told(client, "/quotas", find="alice", only="throttled")["rows"]
    assert (row["entity"], row["value"], row["use"]) == (
        "users/alice/clients/app-0", QUOTA, QUOTA * 1.4)  # fmt: skip
    assert (row["waiting"], row["matched"], row["who"]) == (2, 1, "kit")
    values = [row["value"] for row in told(client, "/quotas", sort="value", turned=True)["rows"]]
    assert values == sorted(values)


def test_a_tenant_is_told_its_own_quotas_without_who_changed_them(console: Console) -> None:
    client = bearer(console, "tenant", "payments")
    rows = told(client, "/quotas")["rows"]
    assert {row["entity"].split("/")[1] for row in rows} == {"alice", "tenant-0000"}
    assert {(row["who"], row["message"], row["change"]) for row in rows} == {("", "", "")}
    assert told(client, "/quotas/describe", entity="users/alice/clients/app-0")["quotas"] == [
        row for row in rows if row["entity"] == "users/alice/clients/app-0"
    ]
    own = told(client, "/history", entity="users/alice/clients/app-0")["rows"]
    assert [(change["who"], change["after"]) for change in own] == [("", QUOTA)]
    assert told(client, "/history", entity="users/bob/clients/app-0")["rows"] == []
    assert told(client, "/history", 422)["where"] == "entity"


def test_what_applies_is_told_with_what_it_overrides(console: Console) -> None:
    client = bearer(console, "viewer")
    found = told(client, "/quotas/effective", user="alice", **{"client-id": "app-0"})
    [quota] = found["quotas"]
    assert quota["entries"] == [
        {"entity": "users/alice/clients/app-0", "value": QUOTA},
        {"entity": "users/<default>", "value": QUOTA},
    ]


def test_a_quota_without_bound_is_told_by_a_word(console: Console) -> None:
    entity = QuotaEntity.of(user="alice")
    console.store.alter([QuotaAlteration(entity, (Op(REQUEST, math.inf),))], who="x", tool="x")
    client = bearer(console, "viewer")
    assert told(client, "/quotas/describe", entity=entity.path)["quotas"][0]["value"] == "Infinity"
    assert told(client, "/history", size=1)["rows"][0]["after"] == "Infinity"
    found = told(client, "/quotas/effective", user="alice")["quotas"]
    assert [q["entries"][0]["value"] for q in found if q["key"] == REQUEST.name] == ["Infinity"]


def test_half_a_character_anywhere_is_a_question_mark() -> None:
    found = problems.encoded({"a\ud800": ["\udfff", (1, None, {"b": "c\ud800"})]})
    assert msgspec.json.decode(found) == {"a?": ["?", [1, None, {"b": "c?"}]]}


# --- why, history, who uses most


def test_why_is_what_the_page_says(console: Console) -> None:
    client = bearer(console, "tenant", "payments")
    found = told(client, "/why", user="alice", **{"client-id": "app-0"})
    assert found["state"] == "held"
    page = console.client("tenant", "payments").get("/why?user=alice&client-id=app-0").text
    assert found["sentence"].split(",")[0] in page.replace("&#39;", "'")
    assert told(client, "/why", user="alice", key="request_percentage")["state"] == "unlimited"


def test_the_history_is_told_the_latest_first(console: Console) -> None:
    pair = QuotaEntity.of(user="alice", client_id="app-0")
    console.store.alter(
        [QuotaAlteration(pair, (Op(PRODUCER, 7.0),))], who="ada", tool="t", message="a feed"
    )
    client = bearer(console, "viewer")
    [first, *_] = told(client, "/history", size=1)["rows"]
    assert (first["before"], first["after"], first["who"], first["message"]) == (
        QUOTA, 7.0, "ada", "a feed")  # fmt: skip
    pages = [told(client, "/history", entity=pair.path, size=1, page=page) for page in (1, 2, 3)]
    assert [[change["after"] for change in page["rows"]] for page in pages] == [[7.0], [QUOTA], []]
    assert [page["more"] for page in pages] == [True, False, False]


# --- the stream


@pytest.mark.parametrize(("role", "tenant"), ROLES)
async def test_each_change_is_told_to_those_who_may_see_it(
    console: Console, role: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PERIOD_S", 0.01)
    names = ["bob", "alice"]

    def enough(body: bytes) -> bool:
        """Change quotas when the stream has begun, and hang up when the last change was told."""
        while names and b"data: " in body:
            entity = QuotaEntity.of(user=names.pop(0))
            console.store.alter([QuotaAlteration(entity, (Op(PRODUCER, 5.0),))], who="x", tool="x")
        return b"users/alice" in body

    token = console.token(role, tenant, Scope.READ)
    answer = await asking(
        console.app, f"{V1}/stream", headers={"authorization": f"Bearer {token}"}, enough=enough
    )
    schema = {"$ref": "#/components/schemas/ChangedTold", "components": DOCUMENT["components"]}
    lines = answer.body.decode().splitlines()
    told = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    for one in told:
        Draft202012Validator(schema).validate(one)
        assert bool(one["revision"]) != bool(tenant)
    entities = {change["entity"] for one in told for change in one["changes"]}
    assert entities == {"users/alice", *(() if tenant else ("users/bob",))}


# --- what is sent


@pytest.mark.parametrize(
    ("path", "query", "where"),
    [
        ("/quotas", {"page": "0"}, "page"),
        ("/quotas", {"size": "501"}, "size"),
        ("/quotas", {"key": "nonsense"}, "key"),
        ("/quotas", {"find": "x" * 201}, "find"),
        ("/quotas", {"nonsense": "1"}, "query"),
        ("/quotas", [("page", "1"), ("page", "2")], "page"),
        ("/why", {}, "query"),
        ("/usage", {"last": "2h"}, "last"),
    ],
)
def test_what_cannot_be_understood_is_said_with_its_place(
    console: Console, path: str, query: Any, where: str
) -> None:
    answer = bearer(console, "viewer").get(V1 + path, params=query)
    assert answer.status_code == 400
    check_answer(OPERATIONS["GET", V1 + path], answer)
    assert answer.json()["where"] == where


def test_what_isnt_there_is_a_problem_too(console: Console) -> None:
    client = bearer(console, "viewer")
    for answer in (client.get(f"{V1}/nothing"), client.put(f"{V1}/quotas")):
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code
    assert client.put(f"{V1}/asks").headers["allow"] == "GET, POST"


# --- whatever is sent

_SENT = st.sampled_from(list(OPERATIONS)).flatmap(
    lambda at: st.tuples(st.just(at), requests(OPERATIONS[at]))
)


@pytest.fixture(scope="module")
def everybody(tmp_path_factory: pytest.TempPathFactory) -> Any:
    console = make_console(tmp_path_factory.mktemp("fuzzed"))
    yield [bearer(console, role, tenant) for role, tenant in ROLES]
    console.close()


@settings(deadline=None)
@given(sent=_SENT)
def test_whatever_is_sent_gets_an_answer_that_is_described(everybody: Any, sent: Any) -> None:
    (method, path), asked = sent
    for client in everybody:
        if method == "GET":
            query = [(n, v) for n, v in asked.items() if isinstance(v, str | int | float)]
            answer = client.get(
                path, params=[(n, str(v).encode("utf-8", "replace")) for n, v in query]
            )
        else:
            body = json.dumps(asked).encode()
            answer = client.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        check_answer(OPERATIONS[method, path], answer)
