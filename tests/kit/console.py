"""
A console over real quotas in SQLite and a picture of a busy broker, for tests and benchmarks.

``make_console(tmp_path, 1000, 10)`` has 1,000 principals (``tenant-0000`` …) with 10 client-ids
each; alice, bob and a hostile name are among them. ``client("operator")`` is a browser of one who
is signed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.testclient import TestClient
from starlette.types import ASGIApp

from headgate.admin.open_target import OpenTarget
from headgate.admin.opening import Address
from headgate.clock import now_ms
from headgate.console.access.csrf import FIELD, csrf_token
from headgate.console.access.failures import Failures
from headgate.console.access.proxy import Proxies
from headgate.console.access.roles import Roles
from headgate.console.access.sessions import LOCAL, Sessions
from headgate.console.access.sign_in import SignIn, cookie_name
from headgate.console.access.tokens import Tokens
from headgate.console.access.users import Users
from headgate.console.access.viewer import Role, Scope
from headgate.console.app import make_app
from headgate.console.database import Database
from headgate.console.parts import ConsoleParts
from headgate.live.picture import (
    BrokerPicture,
    ClientUse,
    EffectiveQuotaEntry,
    EffectiveQuotaOf,
    ListenerUse,
    Picture,
    QuotaUse,
    WaitTold,
)
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store
from headgate.wire.messages.live import LiveRequest

ORIGIN = "http://testserver"
HOSTILE = '<script>alert("x")</script>\n\u202eecila'
"""A name that would be a script, a second line, and a text that runs backwards."""
TENANTS = {"payments": frozenset({"alice", "tenant-0000"}), "search": frozenset({"bob"})}
QUOTA = 1_000_000.0


def text_of(page: str) -> str:
    """Return what is read on a page; where a line may break, nothing is."""
    spaced = re.sub(r"<[^>]+>", " ", page.replace("<wbr>", ""))
    return " ".join(html.unescape(spaced).split())


def rows_of(page: str) -> list[str]:
    """What each row of the table says."""
    table = page.partition("<tbody>")[2].partition("</tbody>")[0]
    return [text_of(row) for row in table.split("</tr>")[:-1]]


def principals(count: int) -> list[str]:
    """Names of principals: alice, bob, a hostile one, and numbered ones."""
    return ["alice", "bob", HOSTILE, *(f"tenant-{n:04}" for n in range(count - 3))]


def picture(count: int = 1000, client_ids: int = 10, at_ms: int = 1_800_000_000_000) -> Picture:
    """
    Return a picture of one broker with ``count`` × ``client_ids`` quota-ids.

    Every 50th quota-id is held; alice's first one too. One bucket, ``:shared``, is several's.
    """
    quotas = []
    for n, user in enumerate(principals(count)):
        for c in range(client_ids):
            held = c == 0 and n % 50 == 0
            rate = QUOTA * (1.4 if held else ((n * 7 + c * 13) % 100) / 100)
            client_id = f"app-{c}"
            quotas.append(
                QuotaUse(
                    key=PRODUCER.name,
                    user=user,
                    client_id=client_id,
                    quota=QUOTA,
                    rate=rate,
                    held=2 if held else 0,
                    held_until_ms=at_ms + 900 if held else 0,
                    held_since_ms=at_ms - 60_000 if held else 0,
                    throttled=40 if held else 0,
                    throttled_ms=30_000 if held else 0,
                    window_ms=11_000,
                    clients=(
                        ClientUse(
                            user,
                            client_id,
                            3,
                            2 if held else 0,
                            at_ms + 900 if held else 0,
                            addresses=((f"10.0.0.{c}", 3),),
                            told=WaitTold(at_ms - 6_000, QUOTA, QUOTA, rate=rate) if held else None,
                        ),
                    ),
                )
            )
    shared = [
        ClientUse(
            user,
            "shared",
            1,
            1,
            at_ms + 500,
            (("10.9.9.9", 1),),
            told=WaitTold(at_ms - 2_000, QUOTA, QUOTA, rate=QUOTA * 1.2),
        )
        for user in ("alice", "bob")
    ]
    quotas.append(
        QuotaUse(
            key=PRODUCER.name, user="", client_id="shared", quota=QUOTA, rate=QUOTA * 1.2, held=2,
            held_until_ms=at_ms + 500, held_since_ms=at_ms - 5_000, throttled=3,
            throttled_ms=1_500, window_ms=11_000, clients=tuple(shared),
        )
    )  # fmt: skip
    quotas.sort(key=lambda use: (-use.held, -(use.utilisation or 0)))
    listener = ListenerUse("SASL_PLAINTEXT", "127.0.0.1:19092", 3 * len(quotas), 42, 1.5)
    broker = BrokerPicture(
        0, "gateway-1", connections=listener.connections, accept_rate=1.5, listeners=(listener,),
        quotas=tuple(quotas),
    )  # fmt: skip
    return Picture(at_ms, brokers=(broker,))


def table_of(count: int = 1000, client_ids: int = 10) -> list[QuotaAlteration]:
    """Return the quotas that the picture shows, and a default of all users."""
    default = QuotaEntity.of(user=DEFAULT)
    shared = QuotaEntity.of(client_id="shared")
    pairs = [
        QuotaEntity.of(user=user, client_id=f"app-{c}")
        for user in principals(count)
        for c in range(client_ids)
    ]
    return [QuotaAlteration(e, (Op(PRODUCER, QUOTA),)) for e in (default, shared, *pairs)]


class CannedLive:
    """
    Says what a picture says; only the part that is asked for.

    Args:
        shown: the picture; tests may put another one here.
    """

    def __init__(self, shown: Picture) -> None:
        self.shown = shown
        self.asked = 0

    async def live_beside(self, request: LiveRequest) -> Picture:
        """Return the part that is about a principal and client-id."""
        user, client_id, most = request.user, request.client_id, request.most
        self.asked += 1

        def about(use: QuotaUse) -> bool:
            return all(
                wanted is None
                or (tag in ("", wanted)
                and (tag or any(getattr(client, name) == wanted for client in use.clients)))
                for wanted, tag, name in (
                    (user, use.user, "principal"), (client_id, use.client_id, "client_id")
                )
            )  # fmt: skip

        brokers = []
        for broker in self.shown.brokers:
            uses = [use for use in broker.quotas if about(use)]
            asked = {
                (c.client_id, c.connections)
                for use in uses
                for c in use.clients
                if c.principal == user and client_id in (None, c.client_id)
            }
            connections = broker.connections if user is None else sum(n for _, n in asked)
            brokers.append(
                BrokerPicture(
                    broker.broker_id, broker.gateway, connections=connections,
                    listeners=broker.listeners,
                    quotas=tuple(uses[:most]), other_quotas=broker.other_quotas + len(uses[most:]),
                    without_capacity=broker.without_capacity,
                )
            )  # fmt: skip
        effective = (
            (
                EffectiveQuotaOf(
                    PRODUCER.name,
                    (
                        EffectiveQuotaEntry(
                            QuotaEntity.of(user=user, client_id=client_id).path, QUOTA
                        ),
                        EffectiveQuotaEntry("users/<default>", QUOTA),
                    ),
                    user,
                    client_id or "",
                ),
            )
            if user is not None
            else ()
        )
        return Picture(
            self.shown.at_ms, brokers=tuple(brokers), user=user, client_id=client_id,
            effective=effective,
        )  # fmt: skip


class Answer(NamedTuple):
    """The beginning of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def ask(app: ASGIApp, path: str, **more: Any) -> Answer:
    """Ask as `asking` does, on a loop of its own."""
    return asyncio.run(asking(app, path, **more))


async def asking(
    app: ASGIApp,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    chunks: Iterable[bytes] = (b"",),
    most_bytes: int = 1_000_000,
    wait_s: float = 5.0,
    enough: Callable[[bytes], object] = lambda _: False,
) -> Answer:
    """
    Ask as the server does, and hang up after the first bytes: for bodies and answers without end.

    Args:
        app: the application.
        path: with its query, percent-encoded.
        method: the HTTP method.
        headers: of the request; ``host`` is there.
        chunks: of the request's body; read as the application asks for them.
        most_bytes: of the answer, before hanging up.
        wait_s: for the end of the answer, before hanging up.
        enough: called with the answer whenever more of it came; whether to hang up.
    """
    where, _, query = path.partition("?")
    given = {"host": "testserver", **(headers or {})}
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(where), "raw_path": where.encode(), "query_string": query.encode(),
        "root_path": "", "client": ("127.0.0.1", 50_000), "server": ("testserver", 80),
        "headers": [(k.encode(), v.encode()) for k, v in given.items()],
    }  # fmt: skip
    status, heads, body = 0, [], b""
    left, gone = iter(chunks), asyncio.Event()

    async def receive() -> Any:
        for chunk in left:
            return {"type": "http.request", "body": chunk, "more_body": chunk != b""}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status, heads, body
        if message["type"] == "http.response.start":
            status, heads = message["status"], message["headers"]
        else:
            body += message.get("body", b"")
            if len(body) >= most_bytes or enough(body):
                gone.set()

    serving = asyncio.create_task(app(scope, receive, send))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(serving), wait_s)
    gone.set()
    await asyncio.wait_for(serving, 10)
    return Answer(status, heads, body)


class Browser(TestClient):
    """A browser of one viewer; sends the CSRF token with every form."""

    viewer_key = "visit:"

    def send_form(self, path: str, data: dict[str, str] | None = None, **more: Any) -> Any:
        """Post a form as our own page would."""
        fields = {FIELD: csrf_token(self.viewer_key), **(data or {})}
        return self.post(path, data=fields, headers={"origin": ORIGIN}, **more)


def sign_in(parts: ConsoleParts, host: str, kind: type[SignIn] = SignIn) -> SignIn:
    """Return what knows the users of a console that is called by a host and port."""
    database = parts.database
    assert database is not None
    return kind(
        origins=frozenset({f"http://{host}"}),
        hosts=frozenset({host}),
        secure=False,
        users=Users(database),
        sessions=Sessions(database, parts.clock_ms, 3_600_000, 43_200_000),
        tokens=Tokens(database, parts.clock_ms),
        proxies=Proxies((), None, None),
        roles=Roles({}),
        tenants=TENANTS,
        oidc=None,
        failures=Failures(),
    )


class Console:
    """
    A console without a socket.

    Args:
        folder: for the store and the console's own state.
        count: principals.
        client_ids: of each principal.
    """

    def __init__(self, folder: Path, count: int, client_ids: int) -> None:
        self.store = open_store(f"sqlite:{folder / 'quotas.db'}")
        self.store.alter(table_of(count, client_ids), who="kit", tool="kit")
        self.live = CannedLive(picture(count, client_ids))
        self.database = Database(folder / "console")
        self.quotas = OpenTarget(Address(store=self.store, tool="headgate console"))
        self.parts = ConsoleParts(self.quotas, self.live, self.database, lambda: self.now_ms)
        self.access = sign_in(self.parts, "testserver")
        self.now_ms = now_ms()
        self.app = make_app(self.parts, self.access)

    def client(self, role: str = "", tenant: str = "") -> Browser:
        """
        Return a browser.

        Args:
            role: ``viewer``, ``tenant``, ``operator``; "": nobody is signed in.
            tenant: for the role tenant: ``payments`` (alice, tenant-0000) or ``search`` (bob).
        """
        made = Browser(self.app, ORIGIN, follow_redirects=False)
        if role:
            name = tenant or role
            with self.database.transaction() as connection:
                connection.execute(
                    "INSERT OR REPLACE INTO users VALUES (?, ?, ?, 'none')", (name, role, tenant)
                )
            token = self.access.sessions.start(LOCAL, name, Role(role), tenant)
            made.cookies.set(
                cookie_name("headgate-session", secure=False), token, domain="testserver.local"
            )
            session = self.access.sessions.find(token)
            assert session is not None
            made.viewer_key = f"session:{session.key}"
        return made

    def token(self, role: str, tenant: str = "", scope: Scope = Scope.CHANGE) -> str:
        """Return a token of the API, of somebody with a role."""
        self.client(role, tenant)
        return self.access.tokens.make(tenant or role, "a test", scope, 1)

    def close(self) -> None:
        """Let go of the files."""
        self.quotas.close()
        self.store.close()
        self.database.close()


def make_console(folder: Path, count: int = 20, client_ids: int = 3) -> Console:
    """Return a console over quotas and a picture of this many principals; close it."""
    return Console(folder, count, client_ids)
