"""What people on the network try: to hold connections, to forge forms, to count asks of others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from msgspec.structs import replace
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from headgate.config.listeners import HostPort
from headgate.console import app as console_app
from headgate.console import serve
from headgate.console.access.csrf import HEADER, MOST_FORM_BYTES, csrf_token
from headgate.console.access.proxy import Proxies
from headgate.console.access.viewer import Role
from headgate.console.pages import plan
from headgate.console.pages.sign_in import MOST_WAITING
from headgate.console.raises import MOST_OPEN, MOST_USES, Raises, drawn
from headgate.errors import StoreError
from headgate.live.picture import QuotaUse
from headgate.quota.file import parse_quotas
from headgate.quota.key import PRODUCER
from kit.console import ORIGIN, Console, ask

ASK = {
    "user": "alice", "client-id": "app-0", "key": "producer_byte_rate", "value": "2MB/s",
    "reason": "a new feed",
}  # fmt: skip


# --- connections


async def _served(app: ASGIApp, use: Callable[[uvicorn.Server, int], Awaitable[None]]) -> None:
    """Serve with the console's own connections while something is tried."""
    sock = serve.listen(HostPort("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_config=None, lifespan="off", http=serve.ConsoleConnection, limit_concurrency=5
    )
    server = uvicorn.Server(config)
    with contextlib.ExitStack() as signals:
        server.capture_signals = lambda: signals  # type: ignore[method-assign, assignment, return-value]
        serving = asyncio.create_task(server.serve([sock]))
        try:
            await _until(lambda: server.started)
            await use(server, sock.getsockname()[1])
        finally:
            server.should_exit = server.force_exit = True
            await serving


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - others' servers set no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /"]
)
async def test_who_never_asks_in_full_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(serve, "ASK_S", 1.5)

    async def use(server: uvicorn.Server, port: int) -> None:
        held = []
        for _ in range(8):  # more than there may be
            held.append(await asyncio.open_connection("127.0.0.1", port))
            held[-1][1].write(begun)
            await asyncio.sleep(0.02)
        async with httpx2.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{port}/")
        assert answer.status_code == 200
        await _until(lambda: not server.server_state.connections)
        for _, writer in held:
            writer.close()

    await _served(PlainTextResponse("well"), use)


async def test_who_never_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "READ_S", 1.5)

    async def use(server: uvicorn.Server, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await _until(lambda: bool(server.server_state.connections))
        await _until(lambda: not server.server_state.connections)
        writer.close()

    await _served(PlainTextResponse("x" * 30_000_000), use)


def test_a_form_that_never_ends_is_refused(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_app, "BODY_S", 0.05)
    form = {"content-type": "application/x-www-form-urlencoded", "cookie": "headgate-visit=v"}
    answer = ask(console.app, "/sign-in", method="POST", headers=form, chunks=(b"user=",))
    assert answer.status == 408


@pytest.mark.parametrize("role", ["", "viewer", "tenant"])
def test_who_uploads_nothing_sends_short_forms(console: Console, role: str) -> None:
    client = console.client(role, "payments" if role == "tenant" else "")
    where = "/sign-out" if role else "/sign-in"
    data = {"user": "x" * (MOST_FORM_BYTES + 1)}
    assert client.send_form(where, data).status_code == 413


# --- signing in


def test_a_form_that_no_page_opened_has_no_token_that_counts(console: Console) -> None:
    console.access.users.add("ada", Role.OPERATOR, "", "correct horse battery")
    token = console.client().get("/nothing").text.partition('csrf-token" content="')[2][:64]
    fields = {"csrf": token, "user": "ada", "password": "correct horse battery"}
    answer = console.client().post("/sign-in", data=fields)
    assert (len(token), answer.status_code) == (64, 403)


async def test_many_who_sign_in_at_once_leave_the_pages_of_others_alone(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = console.client("operator")
    console.access.proxies = Proxies(("127.0.0.1",), None, None)
    done, begun = threading.Event(), 0

    def verify(name: str, password: str) -> None:
        nonlocal begun
        begun += 1
        done.wait(30)

    monkeypatch.setattr(type(console.access.users), "verify", staticmethod(verify))
    transport = httpx2.ASGITransport(console.app)
    async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN) as client:

        async def sign_in(number: int) -> int:
            headers = {
                "cookie": "headgate-visit=v", HEADER: csrf_token("visit:v"),
                "x-forwarded-for": f"10.0.{number // 250}.{number % 250}",
            }  # fmt: skip
            data = {"user": f"u{number}", "password": "x"}
            return (await client.post("/sign-in", data=data, headers=headers)).status_code

        many = [asyncio.create_task(sign_in(number)) for number in range(MOST_WAITING + 30)]
        try:
            await _until(lambda: sum(task.done() for task in many) == 30 and begun >= 2)
            async with asyncio.timeout(20):
                cookie = "; ".join(f"{k}={v}" for k, v in reader.cookies.items())
                page = await client.get("/raises", headers={"cookie": cookie})
            assert page.status_code == 200
            assert begun == 2
        finally:
            done.set()
        answers = await asyncio.gather(*many)
    assert (answers.count(503), answers.count(403)) == (30, MOST_WAITING)


async def test_a_gateway_that_hangs_leaves_pages_alone_that_ask_nothing_of_it(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, done, begun = console.client("tenant", "payments"), asyncio.Event(), 0

    async def hangs(_: Any) -> Any:
        nonlocal begun
        begun += 1
        await done.wait()
        raise StoreError("too late")

    monkeypatch.setattr(console.live, "live_beside", hangs)
    cookie = {"cookie": "; ".join(f"{k}={v}" for k, v in tenant.cookies.items())}
    transport = httpx2.ASGITransport(console.app)
    async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=cookie) as client:
        pages = [f"/why?user=alice&client-id={number}" for number in range(60)]
        many = [asyncio.create_task(client.get(page)) for page in pages]
        try:
            await _until(lambda: begun >= 8)
            async with asyncio.timeout(20):
                assert (await client.get("/raises")).status_code == 200
        finally:
            done.set()
        assert {answer.status_code for answer in await asyncio.gather(*many)} == {200}


def test_a_provider_or_browser_writes_no_line_of_the_log(
    console: Console, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(*_: Any) -> Any:
        raise StoreError("it says\nsigned in: ada")

    monkeypatch.setattr(type(console.parts), "table", refused)
    with caplog.at_level(logging.WARNING, "headgate.console"):
        console.client("tenant", "payments").send_form("/raises", ASK)
    assert caplog.messages
    assert not any("\n" in message for message in caplog.messages)


# --- asks


def test_an_asks_number_does_not_tell_how_many_others_ask() -> None:
    numbers = [drawn() for _ in range(20)]
    assert len(set(numbers)) == 20
    assert numbers != sorted(numbers)


def test_an_ask_of_another_tenant_is_not_even_read(console: Console) -> None:
    console.client("tenant", "payments").send_form("/raises", ASK)
    raises = Raises(console.database)
    assert raises.get(1) == raises.get(1, "payments") is not None
    with console.database.transaction() as connection:
        connection.execute("UPDATE raises SET evidence='no JSON'")  # reading it would fail
    assert raises.get(1, "search") is None


def test_asks_beyond_the_bound_cost_no_evidence(console: Console) -> None:
    client = console.client("tenant", "payments")
    for _ in range(MOST_OPEN):
        client.send_form("/raises", ASK)
    asked = console.live.asked
    assert client.send_form("/raises", ASK).status_code == 422
    assert console.live.asked == asked


def test_an_ask_names_few_of_a_principals_client_ids(console: Console) -> None:
    broker = console.live.shown.brokers[0]
    many = tuple(
        QuotaUse(PRODUCER.name, "alice", f"{n}" * 3_000, quota=1.0) for n in range(MOST_USES + 7)
    )
    console.live.shown = replace(console.live.shown, brokers=(replace(broker, quotas=many),))
    client = console.client("tenant", "payments")
    page = client.get(client.send_form("/raises", ASK | {"client-id": ""}).headers["location"])
    assert "7 more quota-ids" in page.text
    kept = Raises(console.database).get(1)
    assert kept is not None
    assert len(kept.evidence.uses) == MOST_USES


# --- uploads


def test_a_file_is_read_beside_the_pages(
    console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = console.client("operator")
    files = {"file": ("q.yaml", b"quotas:\n- entity: {user: alice}\n  producer_byte_rate: 3MB/s\n")}
    shown = client.send_form("/plan", files=files).text
    fields = {
        name: shown.rpartition(f'name="{name}" value="')[2].partition('"')[0]
        for name in ("uploaded", "state")
    }
    made = client.send_form("/plan/apply", fields | {"reason": "growth"})
    assert made.status_code == 303
    loops: list[bool] = []

    def parsed(*given: str) -> Any:
        try:
            asyncio.get_running_loop()
            loops.append(True)
        except RuntimeError:
            loops.append(False)
        return parse_quotas(*given)

    monkeypatch.setattr(plan, "parse_quotas", parsed)
    assert client.get("/plan").status_code == 200
    assert loops == [False]


def test_a_file_that_would_end_the_process_is_refused(console: Console) -> None:
    files = {"file": ("q.yaml", b"note: " + b"[" * 500_000)}
    answer = console.client("operator").send_form("/plan", files=files)
    assert answer.status_code == 422
    assert "nested more than" in answer.text


def test_files_are_read_one_after_the_other(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 4 MB takes 200 MB of memory while it is read."""
    at_once, most, counted = 0, 0, threading.Lock()

    def read(text: str, name: str) -> Any:
        nonlocal at_once, most
        with counted:
            at_once += 1
            most = max(most, at_once)
        done.wait(0.05)
        with counted:
            at_once -= 1
        return parse_quotas(text, name)

    done = threading.Event()
    monkeypatch.setattr(plan, "parse_quotas", read)
    operator = console.client("operator")
    token = csrf_token(operator.viewer_key)

    async def upload(client: httpx2.AsyncClient) -> int:
        files = {"file": ("q.yaml", b"quotas: []")}
        return (await client.post("/plan", headers={HEADER: token}, files=files)).status_code

    async def all_at_once() -> list[int]:
        cookie = {"cookie": "; ".join(f"{k}={v}" for k, v in operator.cookies.items())}
        headers = {**cookie, "origin": ORIGIN}
        transport = httpx2.ASGITransport(console.app)
        async with httpx2.AsyncClient(
            transport=transport, base_url=ORIGIN, headers=headers
        ) as client:
            return await asyncio.gather(*(upload(client) for _ in range(6)))

    assert asyncio.run(all_at_once()) == [200] * 6
    assert most == 1
