"""Tokens of the API: whose they are, what they may, where they count, and when they end."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from headgate.console.access.csrf import HEADER, csrf_token
from headgate.console.access.roles import RoleRow, Roles
from headgate.console.access.tokens import MOST_OF_ONE, PREFIX
from headgate.console.access.unsigned import Unsigned
from headgate.console.access.viewer import Role, Scope
from headgate.console.api import RESOURCES
from headgate.console.api.resource import V1
from headgate.console.app import make_app
from headgate.errors import ConfigError, StoreError
from kit.console import ORIGIN, Browser, Console

DAY_MS = 86_400_000
QUOTAS = f"{V1}/quotas"
CHANGES = [r for r in RESOURCES if r.method != "GET" and not r.reads]


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def status(console: Console, token: str, path: str = QUOTAS, **more: Any) -> int:
    return console.client().get(path, headers=bearer(token), **more).status_code


def made(client: Browser, **fields: str) -> str:
    """Make a token on the page, and return it."""
    form = {"label": "ci", "scope": "read", "days": "1", **fields}
    page = client.send_form("/tokens", form)
    assert page.status_code == 200, page.text
    found = re.search(r'<code id="token"[^>]*>([^<]+)', page.text)
    assert found is not None
    return found[1]


# --- the page


def test_it_is_shown_once_listed_and_ended(console: Console) -> None:
    client = console.client("operator")
    token = made(client, label="night <b>run")
    assert status(console, token) == 200
    page = client.get("/tokens").text
    assert token not in page
    assert "night &lt;b&gt;run" in page
    [listed] = console.access.tokens.listed()
    assert client.send_form("/tokens/end", {"id": listed.id}).status_code == 303
    assert status(console, token) == 401  # and replayed
    assert status(console, token) == 401
    assert client.send_form("/tokens/end", {"id": listed.id}).status_code == 404
    told = [(e.action, e.who) for e in console.store.history.audit_log()]
    assert told == [("token_made", "operator"), ("token_ended", "operator")]


def test_each_sees_and_ends_its_own_and_an_operator_all(console: Console) -> None:
    payments, search = console.client("tenant", "payments"), console.client("tenant", "search")
    made(payments, label="of payments")
    assert "of payments" not in search.get("/tokens").text
    [listed] = console.access.tokens.listed()
    assert search.send_form("/tokens/end", {"id": listed.id}).status_code == 404
    operator = console.client("operator")
    assert "of payments" in operator.get("/tokens").text
    assert operator.send_form("/tokens/end", {"id": listed.id}).status_code == 303


@pytest.mark.parametrize(
    "fields",
    [{"scope": "all"}, {"days": "0"}, {"days": "367"}, {"days": "9" * 5}, {"label": ""},
     {"label": "x" * 101}, {"label": "a\nb"}],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(console: Console, fields: dict[str, str]) -> None:
    form = {"label": "ci", "scope": "read", "days": "1", **fields}
    assert console.client("operator").send_form("/tokens", form).status_code == 422
    assert console.access.tokens.listed() == []


def test_somebody_whose_role_comes_from_a_group_has_none(console: Console) -> None:
    rows = [RoleRow("", "admins", Role.OPERATOR, ""), RoleRow("7", "", Role.VIEWER, "")]
    console.access.roles = Roles({"oidc": rows})
    assert console.access.role_of("oidc:8") is None
    token = console.access.tokens.make("oidc:7", "ci", Scope.READ, 1)
    assert status(console, token) == 200
    console.access.roles = Roles({})  # as after a restart with another file
    assert status(console, token) == 401


# --- what is kept


def test_only_a_hash_is_kept_and_nothing_of_it_is_logged(
    console: Console, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = console.token("operator")
    assert token.startswith(PREFIX)
    for path in (QUOTAS, f"{QUOTAS}/describe?entity=users/nobody", f"{V1}/nothing", f"{V1}/why"):
        status(console, token, path)
    status(console, token + "x")

    async def failing(_: object) -> object:
        raise StoreError("the gateway is gone")

    console.live.live_beside = failing  # type: ignore[method-assign,assignment]
    status(console, console.token("tenant", "payments"), f"{V1}/why?user=alice")
    console.client().get(f"{QUOTAS}?access_token={token}")
    data = b"".join(p.read_bytes() for p in console.database.path.parent.iterdir())
    secret = token.removeprefix(PREFIX)
    ours = [r.getMessage() for r in caplog.records if not r.name.startswith("httpx")]
    assert ours
    assert secret not in "".join(ours)
    assert secret.encode() not in data


# --- when and where it counts


def test_it_ends_at_its_time(console: Console) -> None:
    token = console.token("viewer")
    console.now_ms += DAY_MS - 1
    assert status(console, token) == 200
    console.now_ms += 1
    assert status(console, token) == 401
    assert console.access.tokens.listed() == []


@pytest.mark.parametrize("what", ["removed", "password", "role"])
def test_it_ends_with_its_owner(console: Console, what: str) -> None:
    token, users = console.token("operator"), console.access.users
    if what == "removed":
        users.remove("operator")
    elif what == "password":
        users.set_password("operator", "correct horse battery")
    else:
        users.set_role("operator", Role.VIEWER, "")
    assert status(console, token) == 401
    console.client("operator")  # a user of the same name, added again
    assert status(console, token) == 401


def test_its_owner_may_no_more_than_now(console: Console) -> None:
    token = console.token("tenant", "payments")
    entity = {"entity": "users/alice/clients/app-0"}
    assert status(console, token, f"{QUOTAS}/describe", params=entity) == 200
    console.access.tenants = {"search": frozenset({"bob"})}
    assert status(console, token) == 401


def test_another_tenant_is_told_nothing(console: Console) -> None:
    token = console.token("tenant", "search")
    for entity in ("users/alice/clients/app-0", "users/nobody"):
        asked = {"entity": entity}
        assert status(console, token, f"{QUOTAS}/describe", params=asked) == 404
    assert status(console, token, f"{V1}/why", params={"user": "alice"}) == 404


@pytest.mark.parametrize("name", ["access_token", "token", "authorization"])
def test_in_an_address_it_is_refused(console: Console, name: str) -> None:
    token = console.token("operator")
    assert console.client().get(QUOTAS, params={name: token}).status_code == 401
    answer = console.client("operator").get(QUOTAS, params={name: token})
    assert answer.status_code == 400
    assert token not in answer.text


@pytest.mark.parametrize("form", ["Bearer", "Bearer {} x", "Basic {}", "{}", "Bearer {}x"])
def test_another_form_of_it_counts_for_nothing(console: Console, form: str) -> None:
    headers = {"authorization": form.format(console.token("operator"))}
    answer = console.client().get(QUOTAS, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["way_out"].startswith("Send `Authorization: Bearer")


def test_a_wrong_one_isnt_helped_by_a_session(console: Console) -> None:
    answer = console.client("operator").get(QUOTAS, headers=bearer("headgate_wrong"))
    assert answer.status_code == 401


def test_pages_dont_take_it(console: Console) -> None:
    headers = bearer(console.token("operator"))
    assert console.client().get("/quotas", headers=headers).status_code == 303
    assert console.client().post("/tokens", headers=headers).status_code == 401


def test_one_has_a_bounded_number(console: Console) -> None:
    for _ in range(MOST_OF_ONE):
        console.token("viewer")
    with pytest.raises(ConfigError, match="end one first"):
        console.token("viewer")
    console.token("operator")
    console.now_ms += DAY_MS
    console.token("viewer")  # those that ended don't count


def test_its_last_use_is_noted_to_the_minute(console: Console) -> None:
    token, began = console.token("viewer"), console.now_ms
    for after_ms in (0, 59_999, 60_000):
        console.now_ms = began + after_ms
        status(console, token)
        [listed] = console.access.tokens.listed()
        assert listed.used_ms == began + after_ms // 60_000 * 60_000


@pytest.mark.parametrize("role", [*Role])
def test_each_resource_is_for_the_roles_that_a_session_needs(console: Console, role: str) -> None:
    """What the walk does by sessions, by tokens of both scopes."""
    tenant = "payments" if role == Role.TENANT else ""
    for resource in RESOURCES:
        if resource.page.path.endswith("/stream"):
            continue
        for scope in Scope:
            headers = bearer(console.token(role, tenant, scope))
            asked = {"json": {}} if resource.method == "POST" else {}
            answer = console.client().request(
                resource.method, resource.page.path, headers=headers, **asked
            )
            may = resource.roles is None or role in resource.roles
            reads = resource.method == "GET" or resource.reads or scope is Scope.CHANGE
            assert (answer.status_code == 403) != (may and reads), (resource.path, scope)
            assert answer.status_code < 500 or answer.status_code == 503
        console.access.users.remove(tenant or role)


def test_where_nobody_signs_in_it_is_read_without_one(console: Console) -> None:
    access = Unsigned(frozenset({ORIGIN}), frozenset({"testserver"}))
    client = Browser(make_app(console.parts, access), ORIGIN)
    assert client.get(QUOTAS).json()["found"] == 62
    client.viewer_key = "anybody"
    headers = {HEADER: csrf_token("anybody")}
    assert client.post(f"{QUOTAS}/plan", json={}, headers=headers).status_code == 403
    assert "Nobody signs in here" in client.get("/tokens").text
    assert client.send_form("/tokens", {"label": "x"}).status_code == 404


# --- changes


@pytest.mark.parametrize("resource", CHANGES, ids=lambda r: r.path)
def test_one_that_reads_changes_nothing(console: Console, resource: Any) -> None:
    for role in resource.roles:
        token = console.token(role, "payments" if role == Role.TENANT else "", Scope.READ)
        answer = console.client().post(resource.page.path, json={}, headers=bearer(token))
        assert answer.status_code == 403
        assert "scope change" in answer.json()["way_out"]


@pytest.mark.parametrize("resource", CHANGES, ids=lambda r: r.path)
def test_a_session_changes_by_a_form_of_ours_alone(console: Console, resource: Any) -> None:
    for role in resource.roles:
        client = console.client(role, "payments" if role == Role.TENANT else "")
        path = resource.page.path
        own = {HEADER: csrf_token(client.viewer_key)}
        evil = own | {"origin": "https://evil.example"}
        cross = own | {"sec-fetch-site": "cross-site"}
        for headers in ({}, {HEADER: "guessed"}, evil, cross):
            assert client.post(path, json={}, headers=headers).status_code == 403
        plain = own | {"content-type": "text/plain"}
        assert client.post(path, content="{}", headers=plain).status_code == 415
        assert client.post(path, json={"x": 1}, headers=own).status_code == 400


def test_no_other_site_may_read_an_answer_or_send_a_token(console: Console) -> None:
    asks = {"origin": "https://evil.example", "access-control-request-method": "POST",
        "access-control-request-headers": "authorization"}  # fmt: skip
    answer = console.client("operator").options(QUOTAS, headers=asks)
    read = console.client("operator").get(QUOTAS, headers={"origin": "https://evil.example"})
    for one in (answer, read):
        assert not [name for name in one.headers if name.startswith("access-control-")]
