"""Changes by the API: checked, planned, made as planned, taken back; asks and their answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.console.access.viewer import Role, Scope
from headgate.console.api.resource import V1
from headgate.console.app import make_app
from headgate.console.raises import MOST_OPEN
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from kit.console import QUOTA, Browser, Console
from kit.journals import traffic, write_journal
from kit.openapi import DOCUMENT, check_answer

ALICE = QuotaEntity.of(user="alice")
PAIR = "users/alice/clients/app-0"
SET = {"quotas": [{"entity": "users/alice", "key": "producer_byte_rate", "value": "2MB/s"}]}
FILE = "quotas:\n- entity: {user: alice}\n  producer_byte_rate: 3MB/s\n"
ASK = {"user": "alice", "client-id": "app-0", "key": "producer_byte_rate", "value": "2MB/s",
    "reason": "a new feed"}  # fmt: skip


def bearer(console: Console, role: str, tenant: str = "") -> Browser:
    client = console.client()
    client.headers["authorization"] = f"Bearer {console.token(role, tenant)}"
    return client


def sent(client: Browser, path: str, body: Any, status: int = 200) -> Any:
    answer = client.post(V1 + path, json=body)
    assert answer.status_code == status, answer.text
    check_answer(DOCUMENT["paths"][V1 + path]["post"], answer)
    return answer.json()


def value_of(console: Console, entity: QuotaEntity = ALICE) -> float | None:
    return console.store.snapshot().get(entity, PRODUCER)


@pytest.fixture
def operator(console: Console) -> Browser:
    return bearer(console, "operator")


# --- quotas


def test_a_change_is_planned_made_and_taken_back(console: Console, operator: Browser) -> None:
    plan = sent(operator, "/quotas/plan", SET)
    change = {"entity": "users/alice", "key": "producer_byte_rate", "before": None, "after": 2e6}
    assert plan["changes"] == [change]
    checked = sent(operator, "/quotas/validate", SET)
    assert {**plan, **checked, "notes": plan["notes"]} == plan
    assert value_of(console) is None
    made = sent(
        operator, "/quotas/apply", {**SET, "revision": plan["revision"], "reason": "a feed"}
    )
    assert value_of(console) == 2e6
    entry = console.store.history.entries()[-1]
    assert (entry.who, entry.message, entry.tool, entry.change) == (
        "operator", "a feed", "headgate console", made["change"])  # fmt: skip
    undo = {"undo": made["change"]}
    revision = sent(operator, "/quotas/plan", undo)["revision"]
    sent(operator, "/quotas/apply", {**undo, "revision": revision, "reason": "a mistake"})
    assert value_of(console) is None
    again = sent(operator, "/quotas/plan", undo, 409)
    assert "changed again since" in again["detail"]


def test_what_was_planned_isnt_made_of_other_quotas(console: Console, operator: Browser) -> None:
    revision = sent(operator, "/quotas/plan", SET)["revision"]
    other = QuotaAlteration(QuotaEntity.of(user="bob"), (Op(PRODUCER, 5.0),))
    console.store.alter([other], who="x", tool="x")
    body = {**SET, "revision": revision, "reason": "r"}
    stale = sent(operator, "/quotas/apply", body, 409)
    assert stale["where"] == "revision"
    assert "the quotas have changed" in stale["detail"]
    assert stale["way_out"].startswith("Ask for the plan again")
    assert value_of(console) is None
    body["revision"] = sent(operator, "/quotas/plan", SET)["revision"]
    sent(operator, "/quotas/apply", body)
    sent(operator, "/quotas/apply", body, 409)  # replayed
    body["revision"] = sent(operator, "/quotas/plan", SET)["revision"]
    history = console.store.history.entries()
    assert sent(operator, "/quotas/apply", body) == {"change": ""}  # nothing is left to do
    assert console.store.history.entries() == history


def test_the_plan_is_the_one_of_the_page(console: Console, operator: Browser) -> None:
    remove = {"quotas": [{"entity": PAIR, "key": "producer_byte_rate", "value": None}]}
    plan = sent(operator, "/quotas/plan", remove)
    [affected] = plan["affected"]
    assert affected == {"client": PAIR, "key": "producer_byte_rate", "before": QUOTA,
        "after": QUOTA, "connections": 3}  # fmt: skip
    assert (plan["clients"], plan["waiting"], plan["removals"]) == (1, 2, 1)
    form = {"entity": PAIR, "key": "producer_byte_rate", "remove": "yes"}
    page = console.client("operator").send_form("/change/preview", form).text
    assert plan["revision"] in page


def test_a_plan_foretells_how_clients_would_go(console: Console, tmp_path: Path) -> None:
    _, events = traffic(console.now_ms, users=("alice",), client_ids=("app-0",))
    write_journal(tmp_path, events)
    console.parts = replace(console.parts, journal=tmp_path)
    console.app = make_app(console.parts, console.access)
    body = {"quotas": [{"entity": PAIR, "key": "producer_byte_rate", "value": "9MB/s"}]}
    [said] = sent(bearer(console, "operator"), "/quotas/plan", body)["foretold"]
    assert said.startswith("alice/app-0 producer_byte_rate: ")


def test_a_quotas_file_is_applied_and_remembered(console: Console, operator: Browser) -> None:
    plan = sent(operator, "/quotas/plan", {"file": FILE})
    body = {"file": FILE, "revision": plan["revision"], "reason": "as code"}
    sent(operator, "/quotas/apply", body)
    assert value_of(console) == 3e6
    assert "the API&#39;s file" in console.client("operator").get("/plan").text
    console.store.alter([QuotaAlteration(ALICE, (Op(PRODUCER, 1.0),))], who="x", tool="x")
    pruned = {"file": FILE, "prune": True}
    plan = sent(operator, "/quotas/plan", pruned)
    assert plan["removes_most"]
    body = {**pruned, "revision": plan["revision"], "reason": "r"}
    refused = sent(operator, "/quotas/apply", body, 422)
    assert f"write their number, {plan['removals']}" in refused["detail"]
    sent(operator, "/quotas/apply", {**body, "removals": plan["removals"]})
    assert len(console.store.snapshot().entities) == 1


def test_a_quota_that_ends_says_so(console: Console, operator: Browser) -> None:
    body = {**SET, "until": str(console.now_ms + 3_600_000)}
    revision = sent(operator, "/quotas/plan", body)["revision"]
    sent(operator, "/quotas/apply", {**body, "revision": revision, "reason": "for an hour"})
    answer = operator.get(f"{V1}/quotas/describe", params={"entity": "users/alice"}).json()
    [quota] = answer["quotas"]
    assert (quota["until_ms"], quota["then"]) == (console.now_ms + 3_600_000, None)


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        ({}, 422, "body"),
        ({**SET, "file": FILE}, 422, "body"),
        ({**SET, "prune": True}, 422, "body"),
        ({"quotas": SET["quotas"] * 2}, 422, "quotas"),
        ({"quotas": SET["quotas"] * 1001}, 400, "quotas"),
        ({"quotas": [{**SET["quotas"][0], "key": "x"}]}, 400, "quotas[0].key"),
        ({"quotas": [{**SET["quotas"][0], "value": "fast"}]}, 422, ""),
        ({"quotas": [{**SET["quotas"][0], "entity": "nobody"}]}, 400, "quotas[0].entity"),
        ({"quotas": [{**SET["quotas"][0], "entity": "users/%"}]}, 422, ""),
        ({**SET, "until": "soon"}, 422, ""),
        ({**SET, "until": "2001-01-01 10:00"}, 422, ""),
        ({"file": "quotas: 1"}, 422, ""),
        ({"undo": "0123456789ab"}, 404, ""),
        ([], 400, "body"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(
    operator: Browser, body: Any, status: int, where: str
) -> None:
    found = sent(operator, "/quotas/plan", body, status)
    assert found["where"] == (where or f"POST {V1}/quotas/plan")


def test_what_the_store_refuses_is_told_and_not_made(console: Console, operator: Browser) -> None:
    zero = {"quotas": [{**SET["quotas"][0], "value": 0}]}
    plan = sent(operator, "/quotas/validate", zero)
    [refused] = plan["refused"]
    assert "must be greater than 0" in refused["error"]
    body = {**zero, "revision": plan["revision"], "reason": "r"}
    assert "must be greater than 0" in sent(operator, "/quotas/apply", body, 422)["detail"]
    assert value_of(console) is None


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"nul"])
def test_a_body_that_isnt_json_is_refused(operator: Browser, body: bytes) -> None:
    answer = operator.post(
        f"{V1}/quotas/plan", content=body, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["where"]) == (400, "body")


def test_a_body_is_bounded(console: Console, operator: Browser) -> None:
    body = {"file": "#" * 4_000_000}
    assert sent(operator, "/quotas/plan", body, 413)["way_out"] == "Send less at a time."
    tenant = bearer(console, "tenant", "payments")
    assert sent(tenant, "/asks", {**ASK, "reason": "r" * 256_000}, 413)


# --- asks


def test_an_ask_is_granted_with_another_value(console: Console, operator: Browser) -> None:
    tenant = bearer(console, "tenant", "payments")
    asked = sent(tenant, "/asks", ASK)
    assert (asked["state"], asked["value"], asked["entity"]) == ("open", 2e6, PAIR)
    [listed] = operator.get(f"{V1}/asks").json()["rows"]
    assert listed == asked
    change = {"quotas": [{"entity": PAIR, "key": ASK["key"], "value": 3e6}]}
    revision = sent(operator, "/quotas/plan", change)["revision"]
    grant = {"id": asked["id"], "revision": revision, "reason": "gladly", "value": "3MB/s"}
    granted = sent(operator, "/asks/grant", grant)
    assert (granted["state"], granted["granted"], granted["word"]) == ("granted", 3e6, "gladly")
    assert value_of(console, QuotaEntity.of(user="alice", client_id="app-0")) == 3e6
    assert tenant.get(f"{V1}/asks/one", params={"id": asked["id"]}).json() == granted
    assert "answered before" in sent(operator, "/asks/grant", grant, 409)["detail"]


def test_an_ask_is_refused_or_withdrawn_once(console: Console, operator: Browser) -> None:
    tenant = bearer(console, "tenant", "payments")
    first, second = (sent(tenant, "/asks", ASK)["id"] for _ in range(2))
    refused = sent(operator, "/asks/refuse", {"id": first, "reason": "no room"})
    assert (refused["state"], refused["word"]) == ("refused", "no room")
    assert sent(tenant, "/asks/withdraw", {"id": second})["state"] == "withdrawn"
    for number in (first, second):
        sent(operator, "/asks/refuse", {"id": number, "reason": "again"}, 409)
        sent(tenant, "/asks/withdraw", {"id": number}, 409)


def test_a_tenant_asks_for_its_own_alone(console: Console) -> None:
    tenant = bearer(console, "tenant", "payments")
    sent(tenant, "/asks", {**ASK, "user": "bob"}, 404)
    sent(tenant, "/asks", {**ASK, "value": "1B/s"}, 422)
    for _ in range(MOST_OPEN):
        sent(tenant, "/asks", ASK)
    assert "wait for an answer" in sent(tenant, "/asks", ASK, 422)["detail"]
    other = bearer(console, "tenant", "search")
    assert other.get(f"{V1}/asks").json()["rows"] == []
    sent(other, "/asks/withdraw", {"id": 1}, 404)


def test_who_asked_doesnt_answer_by_a_token(console: Console) -> None:
    asked = sent(bearer(console, "tenant", "payments"), "/asks", ASK)
    console.access.users.set_role("payments", Role.OPERATOR, "")
    own = console.client()
    own.headers["authorization"] = (
        f"Bearer {console.access.tokens.make('payments', 'own', Scope.CHANGE, 1)}"
    )
    body = {"id": asked["id"], "reason": "r"}
    assert "Who asked can't answer" in sent(own, "/asks/refuse", body, 409)["detail"]
