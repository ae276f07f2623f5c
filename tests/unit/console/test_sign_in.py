"""Signing in by a password: sessions, their cookies and ends, CSRF, slowed failures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from argon2 import PasswordHasher

from headgate.console.access.csrf import MOST_BODY_BYTES
from headgate.console.access.next_page import next_page
from headgate.console.access.opening import left_out
from headgate.console.access.users import User, Users
from headgate.console.access.viewer import Role
from headgate.errors import ConfigError
from kit.console import ORIGIN, Browser, Console, ask

PASSWORD = "correct horse battery"
COOKIE = "headgate-session"


@pytest.fixture
def ada(console: Console) -> Console:
    console.access.users.add("ada", Role.OPERATOR, "", PASSWORD)
    return console


def sign_in(
    client: Browser, user: str = "ada", password: str = PASSWORD, next_: str = "/", **headers: str
) -> Any:
    """Open the form as a browser does, and send it."""
    form = client.get("/sign-in", params={"next": next_}).text
    token = re.search(r'name="csrf" value="(\w+)"', form)
    assert token is not None
    fields = {"csrf": token[1], "user": user, "password": password, "next": next_}
    return client.post("/sign-in", data=fields, headers={"origin": ORIGIN, **headers})


def test_a_password_opens_a_session_and_signing_out_ends_it(ada: Console) -> None:
    client = ada.client()
    assert client.get("/").headers["location"] == "/sign-in?next=%2F"
    answer = sign_in(client, next_="/why?user=alice")
    assert (answer.status_code, answer.headers["location"]) == (303, "/why?user=alice")
    page = client.get("/")
    assert page.status_code == 200
    assert "<bdi>ada</bdi>" in page.text
    token = client.cookies[COOKIE]
    csrf = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert csrf is not None
    assert client.post("/sign-out", data={"csrf": csrf[1]}).status_code == 303
    client.cookies.set(COOKIE, token, domain="testserver.local")
    assert client.get("/").status_code == 303


def test_a_sessions_cookie_is_for_the_server_alone_and_its_token_is_not_kept(ada: Console) -> None:
    client = ada.client()
    set_ = sign_in(client).headers.get_list("set-cookie")
    (session,) = [cookie for cookie in set_ if cookie.startswith(COOKIE)]
    assert "HttpOnly" in session
    assert "SameSite=lax" in session
    assert "Path=/" in session
    assert "Domain" not in session
    assert client.cookies[COOKIE].encode() not in ada.database.path.read_bytes()
    assert ada.database.path.stat().st_mode & 0o777 == 0o600


def test_under_tls_cookies_are_secure_and_of_this_host_alone(ada: Console) -> None:
    ada.access.secure = True
    client = ada.client()
    client.base_url = ORIGIN.replace("http:", "https:")
    cookies = sign_in(client).headers.get_list("set-cookie")
    assert cookies
    for cookie in cookies:
        assert cookie.startswith("__Host-headgate-")
        assert "Secure" in cookie


def test_signing_in_takes_no_session_that_was_there_before(ada: Console) -> None:
    client = ada.client("viewer")
    planted = client.cookies[COOKIE]
    answer = client.send_form("/sign-in", {"user": "ada", "password": PASSWORD})
    assert answer.status_code == 303
    assert client.cookies[COOKIE] != planted
    assert ada.access.sessions.find(planted) is None
    stranger = ada.client()
    stranger.cookies.set(COOKIE, "made-up")
    sign_in(stranger)
    assert ada.access.sessions.find("made-up") is None


@pytest.mark.parametrize("idle", [True, False])
def test_sessions_end_by_themselves(ada: Console, idle: bool) -> None:
    client = ada.client("operator")
    assert client.get("/").status_code == 200
    if idle:
        ada.now_ms += 3_600_000
    else:
        for _ in range(13):
            assert client.get("/").status_code == 200
            ada.now_ms += 3_590_000
    assert client.get("/").status_code == 303


def test_another_password_role_or_removal_counts_at_once(ada: Console) -> None:
    client = ada.client()
    sign_in(client)
    assert client.get("/change").status_code == 200
    with ada.database.transaction() as connection:
        connection.execute("UPDATE users SET role='viewer' WHERE name='ada'")
    assert client.get("/change").status_code == 403
    ada.access.users.set_role("ada", Role.OPERATOR, "")
    assert client.get("/").status_code == 303
    sign_in(client)
    assert client.get("/change").status_code == 200
    with pytest.raises(ConfigError, match="goes with --tenant"):
        ada.access.users.set_role("ada", Role.TENANT, "")
    ada.access.users.set_password("ada", "another long password")
    assert client.get("/").status_code == 303
    assert sign_in(client).status_code == 403
    assert sign_in(client, password="another long password").status_code == 303
    ada.access.users.remove("ada")
    assert client.get("/").status_code == 303


def test_who_is_of_an_unknown_tenant_is_left_out_and_nobody_else(ada: Console) -> None:
    users, password = ada.access.users, "another long password"
    users.add("tom", Role.TENANT, "paymnets", password)
    assert left_out(users, ada.access.tenants) == [
        "tom can't sign in: headgate.console.tenants.file (--tenants) has no tenant paymnets; did "
        "you mean payments?; its tenants: payments, search. Correct the file, or: headgate console "
        "user role tom --role tenant --tenant NAME"
    ]
    refused = sign_in(ada.client(), user="tom", password=password)
    assert refused.status_code == 403 and "know your tenant" in refused.text
    assert sign_in(ada.client()).status_code == 303
    users.set_role("tom", Role.TENANT, "payments")
    tom = ada.client()
    assert sign_in(tom, user="tom", password=password).status_code == 303
    assert tom.get("/tenant").status_code == 200
    with ada.database.transaction() as connection:
        connection.execute("UPDATE users SET tenant='gone' WHERE name='tom'")
    assert tom.get("/tenant").status_code == 303


def test_a_person_has_a_bounded_number_of_sessions(ada: Console) -> None:
    first = ada.client("viewer")
    for _ in range(20):
        last = ada.client("viewer")
    assert last.get("/").status_code == 200
    assert first.get("/").status_code == 303
    assert len(ada.database.rows("SELECT * FROM sessions")) == 20


# --- forms


def test_forms_of_others_are_refused(ada: Console) -> None:
    client, other = ada.client("operator"), ada.client("viewer")
    fine = {"csrf": re.search(r'name="csrf" value="(\w+)"', client.get("/").text)[1]}  # type: ignore[index]
    others = {"csrf": re.search(r'name="csrf" value="(\w+)"', other.get("/").text)[1]}  # type: ignore[index]
    for data, headers in (
        ({}, {}),
        ({"csrf": ""}, {}),
        (others, {}),
        (fine, {"origin": "https://evil.example"}),
        (fine, {"origin": "null"}),
        (fine, {"sec-fetch-site": "cross-site"}),
        (fine, {"sec-fetch-site": "same-site"}),
    ):
        assert client.post("/sign-out", data=data, headers=headers).status_code == 403
        assert client.get("/").status_code == 200
    assert client.post("/sign-out", headers={"x-csrf-token": fine["csrf"]}).status_code == 303


def test_the_sign_in_form_belongs_to_the_browser_that_opened_it(ada: Console) -> None:
    mine, other = ada.client(), ada.client()
    token = re.search(r'name="csrf" value="(\w+)"', mine.get("/sign-in").text)[1]  # type: ignore[index]
    other.get("/sign-in")
    fields = {"csrf": token, "user": "ada", "password": PASSWORD}
    assert other.post("/sign-in", data=fields).status_code == 403
    assert mine.post("/sign-in", data=fields).status_code == 303


def test_a_body_beyond_the_bound_is_refused_as_it_comes(ada: Console) -> None:
    client = ada.client("operator")
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 100_000
            yield b"x" * 100_000

    headers = {
        "cookie": f"{COOKIE}={client.cookies[COOKIE]}",
        "content-type": "application/x-www-form-urlencoded",
    }
    answer = ask(ada.app, "/sign-out", method="POST", headers=headers, chunks=endless())
    assert answer.status == 413
    assert taken <= MOST_BODY_BYTES + 200_000


# --- failures


def test_an_unknown_user_and_a_wrong_password_are_answered_alike(
    ada: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    verify = PasswordHasher.verify
    monkeypatch.setattr(
        PasswordHasher,
        "verify",
        lambda self, hash_, password: hashed.append(hash_) or verify(self, hash_, password),
    )

    def body(user: str) -> tuple[int, str]:
        answer = sign_in(ada.client(), user, "wrong password")
        return answer.status_code, re.sub(r'[0-9a-f]{64}"', '"', answer.text)

    assert body("ada") == body("bea")
    # Both cost one hash of the same parameters.
    assert len(hashed) == 2
    assert hashed[0].rsplit("$", 2)[0] == hashed[1].rsplit("$", 2)[0]


def test_failures_are_slowed_by_user_and_the_wait_grows(
    ada: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hashing takes seconds this often; what verifies is tested above.
    known = ("ada", PASSWORD)
    right = User("ada", Role.OPERATOR, "")
    monkeypatch.setattr(Users, "verify", lambda _, *given: right if given == known else None)
    client = ada.client()
    for user in ("ada", "bea"):
        for _ in range(5):
            assert sign_in(client, user, "wrong").status_code == 403
        refused = sign_in(client, user, PASSWORD)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
    waits = []
    for _ in range(8):
        wait = int(sign_in(client, "ada", "wrong").headers["retry-after"])
        waits.append(wait)
        ada.now_ms += wait * 1000
        assert sign_in(client, "ada", "wrong").status_code == 403
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    ada.now_ms += 60_000
    assert sign_in(client).status_code == 303
    assert ada.access.failures.wait_ms("ada", "elsewhere", ada.now_ms) == 0


def test_failures_are_slowed_by_address_in_bounded_memory(console: Console) -> None:
    failures = console.access.failures
    for n in range(100_000):
        failures.tried(f"user{n}", "10.0.0.1", 1_000_000)
    assert failures.wait_ms("nobody tried this", "10.0.0.1", 1_000_001) > 0
    assert len(failures._count) == len(failures._last_ms) == 16_384
    fresh = type(failures)()
    for _ in range(24):
        fresh.tried("x", "2001:db8::1", 0)
    assert fresh.wait_ms("y", "2001:db8::2", 1) > 0, "a /64 is one customer"
    assert fresh.wait_ms("y", "2001:db8:0:1::2", 1) == 0


def test_only_names_and_passwords_that_will_do(console: Console) -> None:
    users: Users = console.access.users
    for name, role, tenant, password in (
        ("oidc:ada", Role.VIEWER, "", PASSWORD),
        ("ada", Role.VIEWER, "payments", PASSWORD),
        ("ada", Role.TENANT, "", PASSWORD),
        ("ada", Role.VIEWER, "", "short"),
    ):
        with pytest.raises(ConfigError):
            users.add(name, role, tenant, password)
    assert users.listed() == []


# --- where to


@pytest.mark.parametrize(
    "text",
    [
        "//evil.example",
        "/\\evil.example",
        "/%5Cevil.example",
        "/%2Fevil.example",
        "/%252Fevil.example",
        "/%25252Fevil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/\tevil",
        "/x\r\nset-cookie: a=b",
        "/%0d%0aset-cookie: a=b",
        "/sign-in",
        "evil.example",
        "",
        "/" + "a" * 3_000,
    ],
)
def test_after_signing_in_people_stay_here(text: str) -> None:
    assert next_page(text) == "/"


@pytest.mark.parametrize("text", ["/", "/tenant?user=alice", "/tenant?user=%2F%2Fa%0Ab", "/why"])
def test_after_signing_in_people_are_where_they_wanted(text: str) -> None:
    assert next_page(text) == text
