"""What people try at a running console: names in headers, methods nobody serves, raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import httpx2
import pytest
import uvicorn
from starlette.routing import Mount, Route

from headgate.config.listeners import HostPort
from headgate.console import events, serve
from headgate.console.access.proxy import Proxies
from headgate.console.access.roles import RoleRow, Roles
from headgate.console.access.viewer import Role
from headgate.console.app import ROWS
from headgate.console.rendering import STATIC
from kit.console import ORIGIN, Console

NAMING = (
    "X-Forwarded-User", "X_Forwarded_User", "X-Remote-User", "Remote-User", "X-Auth-Request-User",
    "X-User", "X-Webauth-User", "X-Forwarded-Email", "X-Amzn-Oidc-Identity", "Authorization",
)  # fmt: skip
"""By which proxies name those that they signed in."""
FORM = b"Content-Type: application/x-www-form-urlencoded\r\nCookie: headgate-visit=v\r\n"
OTHERS = ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")


@pytest.fixture
def served(console: Console) -> Iterator[str]:
    """The console's address on loopback, by its own server."""
    sock = serve.listen(HostPort("127.0.0.1", 0))
    port = sock.getsockname()[1]
    console.access.hosts = frozenset({f"127.0.0.1:{port}"})
    server = uvicorn.Server(serve.config_of(console.app))
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    yield f"http://127.0.0.1:{port}"
    server.should_exit = server.force_exit = True
    thread.join()


def test_what_is_served_is_what_the_table_says(console: Console) -> None:
    app = console.app._app  # type: ignore[attr-defined]
    assert {route.path for route in app.routes if isinstance(route, Mount)} == {STATIC}
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert len(routes) + 1 == len(app.routes)
    served = {(route.path, method) for route in routes for method in route.methods or ()}
    listed = {(page.path, method) for page in ROWS for method in page.methods}
    assert served == listed | {(path, "HEAD") for path, method in listed if method == "GET"}


@pytest.mark.parametrize("believed", [(), ("10.9.9.9",)], ids=["no proxy", "another proxy"])
def test_a_name_in_a_header_opens_nothing(
    console: Console, served: str, believed: tuple[str, ...]
) -> None:
    rows = [RoleRow("operator", "", Role.OPERATOR, ""), RoleRow("", "admins", Role.OPERATOR, "")]
    console.access.roles = Roles({"proxy": rows})
    with httpx2.Client(base_url=served) as client:
        for header in NAMING:
            if believed:
                console.access.proxies = Proxies(believed, header, "x-groups")
            told = {
                header: "operator", "x-groups": "admins", "x-forwarded-for": "10.9.9.9",
                "forwarded": "for=10.9.9.9", "x-real-ip": "10.9.9.9",
            }  # fmt: skip
            assert client.get("/change", headers=told).status_code == 303, header
            assert client.post("/plan/apply", headers=told).status_code == 401, header
            # Twice, in case that one of them is believed.
            twice = [*told.items(), (header, "operator")]
            assert client.get("/change", headers=twice).status_code == 303, header


@pytest.mark.parametrize("role", ["", *Role])
def test_methods_that_no_page_has_tell_nothing(
    console: Console, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LIFE_S", 0.01)  # the API's stream
    client = console.client(role, "payments" if role == Role.TENANT else "")
    for path in sorted({page.path for page in ROWS}):
        for method in OTHERS:
            answer = client.request(method, path, headers={"origin": ORIGIN})
            assert answer.status_code == 405, f"{method} {path}"
            assert "alice" not in answer.text
    for page in ROWS:
        if "GET" in page.methods and page.path != "/sign-in/oidc":
            head = client.head(page.path)
            assert head.status_code == client.get(page.path).status_code, page.path


async def _said(port: int, raw: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    with contextlib.suppress(OSError):
        await writer.drain()
        writer.write_eof()
    said = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return said


async def test_bytes_that_are_no_request_end_the_connection_and_write_no_traceback(
    served: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(served.rpartition(":")[2])
    host = b"Host: 127.0.0.1:%d\r\n" % port
    chunked = b"POST /sign-in HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + FORM + host + b"\r\n"
    for raw in (
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n" + host + b"\r\n",
        b"GET / HTTP/1.1\r\n" + host + host + b"\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n" + host + b"\r\n",
        # A chunk of no length: the answer to its head is under way when that is found.
        chunked + b"3\xff\xff\r\nabc",
        chunked + b"5\r\nuser=\r\n" + b"zz\r\n",
        b"POST /sign-in HTTP/1.1\r\nContent-Length: 50\r\n" + FORM + host + b"\r\nuser=",
        b"GET /healthz HTTP/1.1\r\n" + host + b"\r\n" + b"\0" * 50,
    ):
        said = await _said(port, raw)
        assert b"Traceback" not in said
        assert b" 200 " not in said or b"healthz" in raw, raw
    assert [r for r in caplog.records if r.exc_info] == []


async def test_what_begins_a_second_request_within_a_first_is_none(served: str) -> None:
    """As of a proxy that reads lengths otherwise than we do: either refused, or one request."""
    port = int(served.rpartition(":")[2])
    host = b"Host: 127.0.0.1:%d\r\n" % port
    hidden = b"GET /healthz HTTP/1.1\r\n" + host + b"\r\n"
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(hidden)
    said = await _said(port, b"POST /sign-in HTTP/1.1\r\n" + host + both + b"\r\n" + hidden)
    assert said.count(b"HTTP/1.1 ") <= 1
    assert b"ok\n" not in said
