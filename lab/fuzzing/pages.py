"""
What browsers, proxies, providers and monitoring send: the console's requests, the gateway's HTTP.

A request of the console: bytes for the viewer, the page and the manner; then its query,
its body, its cookies and other headers, parted by ``\\xff``.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import re
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

import uvicorn
from uvicorn.server import ServerState

from fuzzing.quotas import folder
from fuzzing.target import Target
from headgate.config.listeners import HostPort
from headgate.console.access.csrf import HEADER, csrf_token
from headgate.console.access.oidc import Oidc
from headgate.console.access.proxy import Proxies
from headgate.console.access.roles import RoleRow, Roles
from headgate.console.access.viewer import Role
from headgate.console.pages import PAGES
from headgate.gateway import health_and_metrics as gateway_http
from headgate.quota.file import dump_quotas
from headgate.quota.table import QuotaTable
from kit.console import ORIGIN, Console, asking

ROUTES = [(page.path, method) for page in PAGES for method in page.methods]
_ROLES = ("", "viewer", "operator", "tenant", "proxy")
_OTHERS = tuple(f"tenant-{n:04}".encode() for n in range(1, 12))
"""Principals that tenant payments must not read about."""


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


class _Nobody:
    """No users at all; a real password's hash takes 64 MiB and a tenth of a second."""

    def verify(self, name: str, password: str) -> None:
        return None


@functools.cache
def _console() -> Console:
    place = folder() / "console"
    place.mkdir()
    console = Console(place, 15, 2)
    console.access.proxies = Proxies(("127.0.0.1",), "x-user", "x-groups")
    rows = [RoleRow("ada", "", Role.OPERATOR, ""), RoleRow("", "pay", Role.TENANT, "payments")]
    console.access.roles = Roles({"proxy": rows})
    console.access.users = _Nobody()  # type: ignore[assignment]
    # A provider that never answers: what claims to come from it is refused before.
    console.access.oidc = Oidc(
        "http://127.0.0.1:9", "console", "s", "openid", f"{ORIGIN}/sign-in/oidc/callback", "oidc"
    )
    return console


@functools.cache
def _signed_in(role: str) -> tuple[str, str]:
    """The cookies of a role's session, and what its forms' tokens are bound to."""
    client = _console().client(role, "payments" if role == "tenant" else "")
    return "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar), client.viewer_key


def _latin(raw: bytes) -> str:
    return raw.replace(b"\0", b"").replace(b"\n", b"").replace(b"\r", b"").decode("latin-1")


def console(data: bytes) -> None:
    """Any request, from anybody: an answer of ours, never a 500, nothing of other tenants."""
    if len(data) < 3:
        return
    role = _ROLES[data[0] % len(_ROLES)]
    path, method = ROUTES[data[1] % len(ROUTES)]
    manner = data[2]
    query, body, cookies, more = [*data[3:].split(b"\xff", 3), b"", b"", b"", b""][:4]
    headers: dict[str, str] = {}
    key = ""
    if role == "proxy":
        headers = {"x-user": _latin(more[:100]), "x-groups": _latin(more[100:]) or "pay"}
    elif role:
        headers["cookie"], key = _signed_in(role)
    if cookies:
        headers["cookie"] = f"{headers.get('cookie', '')}; {_latin(cookies)}"
    if more and role != "proxy":
        name, _, value = more.partition(b":")
        if re.fullmatch(rb"[a-z-]{1,30}", name) and name not in (b"host", b"accept"):
            headers[name.decode()] = _latin(value)
    if manner & 1 and key:
        headers[HEADER] = csrf_token(key)
    form = (
        b"multipart/form-data; boundary=B" if manner & 2 else b"application/x-www-form-urlencoded"
    )
    headers["content-type"] = form.decode()
    if manner & 4:
        headers["accept"] = "application/json"
    streams = manner & 12 == 12
    if streams:
        headers["accept"] = "text/event-stream"
    where = f"{path}?{_latin(query)}" if query else path
    half = len(body) // 2
    answer = _loop().run_until_complete(
        asking(
            _console().app,
            where,
            method=method,
            headers=headers,
            chunks=(body[:half], body[half:], b""),
            most_bytes=1 if streams else 200_000,
            wait_s=0.5 if streams else 10,
        )
    )
    assert answer.status not in (0, 500), f"{method} {where}: {answer.status}"
    assert b"Traceback" not in answer.body
    assert all(b"\n" not in value and b"\r" not in value for _, value in answer.headers)
    if role in ("tenant", "") and path != "/healthz":
        asked = unquote_to_bytes(data.replace(b"+", b" "))
        found = [other for other in _OTHERS if other in answer.body and other not in asked]
        assert not found, f"{method} {where} tells {found}"


class _Shown:
    """A gateway that has metrics."""

    async def health(self) -> str | None:
        return None

    async def ready(self) -> str | None:
        return "not yet"

    async def note(self) -> str | None:
        return None

    async def metrics(self) -> list[Any]:
        return [{"headgate_up": b"headgate_up 1\n"}]


class _Strict(logging.Logger):
    """A log into which no application's exception may come."""

    def __init__(self) -> None:
        super().__init__("fuzzing")

    def error(self, msg: object, *given: object, **named: object) -> None:
        raise AssertionError(msg) from named.get("exc_info")  # type: ignore[misc]

    exception = error


class _Transport(asyncio.Transport):
    """A peer that takes everything."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 6)})
        self.sent = bytearray()
        self.closing = False

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        """Nothing."""

    def resume_reading(self) -> None:
        """Nothing."""

    def set_write_buffer_limits(self, high: Any = None, low: Any = None) -> None:
        """Nothing."""


@functools.cache
def _http() -> uvicorn.Config:
    listener = gateway_http.HttpListener(HostPort("127.0.0.1", 0), _Shown())
    listener._sock.close()
    config = listener._server.config
    config.load()
    return config


def gateway(data: bytes) -> None:
    """Any bytes, in pieces, at the gateway's own port: answers of ours, or the end."""

    async def play() -> bytes:
        state = ServerState()
        protocol = gateway_http._Few(config=_http(), server_state=state, app_state={})
        protocol.logger = _Strict()
        transport = _Transport()
        protocol.connection_made(transport)
        for piece in data.split(b"\xff"):
            if transport.closing:
                break
            if piece:
                protocol.data_received(piece)
            for _ in range(3):
                await asyncio.sleep(0)
        protocol.connection_lost(None)
        for task in list(state.tasks):
            await asyncio.wait_for(task, 5)
        protocol._unset_keepalive_if_required()
        assert not state.connections, "a connection that nobody has"
        return bytes(transport.sent)

    sent = _loop().run_until_complete(play())
    for line in re.findall(rb"HTTP/1\.1 (\d+)", sent):
        assert line in (b"200", b"400", b"404", b"405", b"503", b"307", b"426", b"100"), line


def _requests() -> list[bytes]:
    table = quote_from_bytes(dump_quotas(QuotaTable.of({})).encode())
    fields = (
        "user=alice&client-id=app-0&key=producer_byte_rate&value=2MB%2Fs&reason=x",
        "entity=users%2Falice&key=producer_byte_rate&value=&reason=y&id=1",
        "change=0123456789ab&reason=z&id=1&value=9MB/s",
        "user=ada&password=correct&next=%2Fwhy%3Fuser%3Dalice",
        f"file={table}&prune=on",
        "state=abc&code=def&error=access_denied&iss=x",
        "find=tenant&user=%E2%80%AE%00",
    )
    upload = (
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="q.yaml"\r\n\r\n'
        b"quotas: [{entity: {user: alice}, producer_byte_rate: 5}]\r\n--B--\r\n"
    )
    made = []
    for role in range(len(_ROLES)):
        for number, (_, method) in enumerate(ROUTES):
            for field in fields:
                start = bytes([role, number, 1])
                if method == "GET":
                    made.append(start + field.encode())
                else:
                    made.append(start + b"\xff" + field.encode())
        made.append(bytes([role, ROUTES.index(("/plan", "POST")), 3]) + b"\xff" + upload)
    return [*made, made[0] + b"\xff\xffoidc=gAAAA; headgate-session=x\xfforigin:http://evil"]


def _raw() -> list[bytes]:
    host = b"Host: x\r\n\r\n"
    return [
        *(b"GET /" + at + b" HTTP/1.1\r\n" + host for at in (b"metrics", b"healthz", b"readyz")),
        b"GET /healthz HTTP/1.1\r\n" + host + b"\xff" + b"GET /metrics HTTP/1.1\r\n" + host,
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + host + b"3\r\nabc\xff\r\n0\r\n\r\n",
        b"GET /%6detrics?x=%zz HTTP/1.0\r\nExpect: 100-continue\r\n" + host,
        b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + host,
    ]  # fmt: skip


_FORM = (
    b"\xff", b"&", b"=", b"%00", b"%F0%9F", b"user=", b"client-id=", b"key=", b"value=", b"reason=",
    b"id=", b"next=", b"entity=", b"users/", b"1e999", b"--B\r\n", b"oidc=", b"headgate-session=",
    b"content-length:", b"cookie:",
)  # fmt: skip
_HTTP = (
    b"\r\n", b"\xff", b": ", b"HTTP/1.1", b"Content-Length: ", b"Transfer-Encoding: chunked",
    b"Host: x", b"GET /metrics", b"\x00", b"Connection: close", b"Expect: 100-continue",
)  # fmt: skip
TARGETS = {
    "console pages": Target(console, _requests, _FORM),
    "gateway http": Target(gateway, _raw, _HTTP),
}
