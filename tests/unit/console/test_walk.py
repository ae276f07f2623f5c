"""
Every route as every role, and as a tenant that asks for another tenant's names.

The routes are those of the tables, so a page or a resource of the API that is added is tried too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace as changed

from headgate.console.access.csrf import FIELD, HEADER, csrf_token
from headgate.console.access.tokens import API
from headgate.console.access.viewer import Role
from headgate.console.app import ROWS as ALL
from headgate.console.routing import Page
from headgate.errors import StoreError
from headgate.live.picture import ClientUse
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store.base import AuditEvent
from kit.console import QUOTA, Answer, Browser, Console, asking

ROWS = [(page, method) for page in ALL for method in page.methods]
ADDRESS, CLIENT, WHO, WHY = "10.66.66.66", "nightly-feed", "carol-the-admin", "because-of-bob"
SECRETS = ("bob", ADDRESS, CLIENT, WHO, WHY)
"""What tenant payments (alice) must never read."""


def cookie(client: Browser) -> str:
    return "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)


@dataclass
class Asker:
    """One viewer's requests."""

    console: Console
    client: Browser

    async def __call__(
        self, page: Page, method: str, fields: dict[str, str], accept: str = "text/html"
    ) -> Answer:
        headers = {"cookie": cookie(self.client), "accept": accept}
        if method == "GET":
            query = f"?{urlencode(fields)}" if fields else ""
            streaming = accept == "text/event-stream" or page.path.endswith("/stream")
            return await asking(
                self.console.app, page.path + query, headers=headers,
                most_bytes=1 if streaming else 1_000_000, wait_s=1.5 if streaming else 20,
            )  # fmt: skip
        token = csrf_token(self.client.viewer_key)
        if page.path.startswith(API):
            headers |= {"content-type": "application/json", HEADER: token}
            body = json.dumps(fields).encode()
        else:
            headers["content-type"] = "application/x-www-form-urlencoded"
            body = urlencode({FIELD: token, **fields}).encode()
        return await asking(
            self.console.app, page.path, method=method, headers=headers, chunks=(body, b""),
            wait_s=20,
        )  # fmt: skip


@pytest.fixture
def secrets(console: Console) -> Console:
    """A console where tenant search (bob) has quotas, use, connections, history and a raise."""
    bob = QuotaEntity.of(user="bob", client_id=CLIENT)
    console.store.alter(
        [QuotaAlteration(bob, (Op(PRODUCER, QUOTA * 2),))], who=WHO, tool="test", message=WHY
    )
    console.store.history.audit(AuditEvent(WHO, "test", "alter", "refused", "users/bob", WHY, 1))
    (broker,) = console.live.shown.brokers
    quotas = []
    for use in broker.quotas:
        clients = tuple(
            changed(c, client_id=CLIENT, addresses=((ADDRESS, 1),)) if c.principal == "bob" else c
            for c in use.clients
        )
        quotas.append(changed(use, clients=clients))
    hidden = ClientUse("bob", CLIENT, 7, 3, addresses=((ADDRESS, 7),))
    shared = next(n for n, use in enumerate(quotas) if use.client_id == "shared")
    quotas[shared] = changed(quotas[shared], clients=(*quotas[shared].clients, hidden))
    console.live.shown = changed(
        console.live.shown, brokers=(changed(broker, quotas=tuple(quotas)),)
    )
    asked = {"user": "bob", "key": PRODUCER.name, "value": "9MB/s", "reason": WHY}
    assert console.client("tenant", "search").send_form("/raises", asked).status_code == 303
    return console


# --- roles


@pytest.mark.parametrize("role", ["", *Role])
async def test_each_route_is_for_its_roles_alone(console: Console, role: str) -> None:
    tenant = "payments" if role == Role.TENANT else ""
    for page, method in ROWS:
        client = console.client(role, tenant)
        answer = await Asker(console, client)(page, method, {})
        place = f"{method} {page.path}"
        if page.roles is None:
            assert answer.status < 500, place
        elif not role:
            is_page = method == "GET" and not page.path.startswith(API)
            assert answer.status == (303 if is_page else 401), place
            assert b"alice" not in answer.body
        elif role in page.roles:
            assert answer.status not in (401, 403, 500), place
        else:
            # Signing in ends at "/", from where a tenant goes on to its own page.
            assert answer.status == (303 if page.path == "/" else 403), place
            assert b"alice" not in answer.body


async def test_each_form_needs_its_token(console: Console) -> None:
    for page, method in ROWS:
        if method == "GET":
            continue
        for role in page.roles or ():
            client = console.client(role, "payments" if role == Role.TENANT else "")
            client.viewer_key = "somebody else's"
            answer = await Asker(console, client)(page, method, {})
            assert answer.status == 403, f"{method} {page.path}"


def test_a_viewer_ends_its_session_and_has_tokens_and_can_send_nothing_else() -> None:
    sent = {
        page.path for page, method in ROWS if method != "GET" and Role.VIEWER in (page.roles or ())
    }
    assert sent == {"/sign-out", "/tokens", "/tokens/end"}


# --- tenants

NAMED = [
    # The foreign name, and one of the same length that nobody knows.
    {"user": ("bob", "bqz")},
    {"user": ("bob", "bqz"), "client-id": (CLIENT, "nightly-fuel")},
    {
        "user": ("bob", "bqz"),
        "key": (PRODUCER.name,) * 2,
        "value": ("9MB/s",) * 2,
        "reason": ("x",) * 2,
    },
    {"entity": ("users/bob", "users/bqz")},
    {"find": ("bob", "bqz")},
    {"find": (CLIENT, "nightly-fuel")},
    {"tenant": ("search", "serrch")},
    {"id": ("1", "9")},
    {"id": ("1", "9"), "value": ("9MB/s",) * 2, "reason": ("x",) * 2},
    {"change": ("CHANGE", "0123456789ab")},
]


def told(answer: Answer, *given: str) -> tuple[int, object, bytes]:
    """What an answer says but for the words that were asked with."""
    body = answer.body
    for word in sorted(given, key=len, reverse=True):
        body = body.replace(word.encode(), b"NAME")
    headers = sorted(pair for pair in answer.headers if pair[0] != b"content-length")
    return answer.status, headers, body


def cases(console: Console) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    change = console.store.history.entries(limit=1)[0].change
    for row in NAMED:
        pairs = {k: (v[0].replace("CHANGE", change), v[1]) for k, v in row.items()}
        yield {k: v[0] for k, v in pairs.items()}, {k: v[1] for k, v in pairs.items()}


@pytest.mark.parametrize("accept", ["text/html", "application/json", "text/event-stream"])
async def test_a_foreign_name_is_answered_as_an_unknown_one(secrets: Console, accept: str) -> None:
    asker = Asker(secrets, secrets.client("tenant", "payments"))
    for page, method in ROWS:
        if page.path.startswith("/sign-") or (method != "GET" and accept == "text/event-stream"):
            continue
        for foreign, unknown in cases(secrets):
            place = f"{method} {page.path} {foreign}"
            one = await asker(page, method, foreign, accept)
            other = await asker(page, method, unknown, accept)
            words = [*foreign.values(), *unknown.values()]
            assert told(one, *words) == told(other, *words), place
            left = [s for s in SECRETS if s not in words and s.encode() in one.body]
            assert not left, f"{place} tells {left}"


@pytest.mark.parametrize("accept", ["text/html", "text/event-stream"])
@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_of_others_is_on_a_tenants_own_pages(
    secrets: Console, accept: str, fails: bool
) -> None:
    if fails:  # what a failure says may name anybody

        async def failing(_: object) -> object:
            raise StoreError(f"{ADDRESS}: {WHO} closed it, {WHY}")

        secrets.live.live_beside = failing  # type: ignore[method-assign,assignment]
    asker = Asker(secrets, secrets.client("tenant", "payments"))
    own = [{}, {"user": "alice"}, {"user": "alice", "client-id": "app-0"}]
    own += [{"user": "alice", "client-id": "shared"}, {"user": "alice", "client-id": CLIENT}]
    for page, method in ROWS:
        if method != "GET" or (page.roles is not None and Role.TENANT not in page.roles):
            continue
        for fields in own:
            answer = await asker(page, method, fields, accept)
            body = answer.body.replace(fields.get("client-id", "-").encode(), b"")
            left = [secret for secret in SECRETS if secret.encode() in body]
            assert not left, f"{page.path} {fields} tells {left}"


async def test_the_walk_finds_what_isnt_hidden(secrets: Console) -> None:
    """To a viewer the same pages tell all: what the tests above look for is there to be found."""
    asker = Asker(secrets, secrets.client("viewer"))
    bodies = b""
    for page, method in ROWS:
        if method == "GET" and page.roles is not None and Role.VIEWER in page.roles:
            for fields in ({}, {"user": "bob"}, {"user": "bob", "client-id": CLIENT}, {"id": "1"}):
                bodies += (await asker(page, method, fields)).body
    assert [secret for secret in SECRETS if secret.encode() not in bodies] == []
