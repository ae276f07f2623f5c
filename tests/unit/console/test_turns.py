"""The answers of one person are made 64 at a time, so that nobody waits behind hundreds."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from headgate.console.access.viewer import Role, Viewer
from headgate.console.app import MOST_OF_ONE, _Gate


class Access:
    """Takes the path for the viewer's name."""

    hosts = frozenset({"here"})
    origins = frozenset({"http://here"})
    secure = False

    async def viewer_of(self, request: Any) -> tuple[Viewer, str]:
        name = request.url.path.strip("/")
        return Viewer(name, Role.VIEWER, "", frozenset(), name), name


def ask(gate: Any, name: str, send: Any) -> asyncio.Task[None]:
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": f"/{name}", "query_string": b"",
        "headers": [(b"host", b"here")], "scheme": "http", "server": ("here", 80),
    }  # fmt: skip
    return asyncio.get_running_loop().create_task(gate(scope, None, send))


async def test_of_one_person_a_bounded_number_is_made_at_a_time() -> None:
    made: dict[str, int] = {"vic": 0, "ada": 0}
    go = asyncio.Event()
    unread = asyncio.Event()
    began: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"].strip("/")
        made[name] += 1
        if name == "vic":
            await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def sent(message: Any) -> None:
        began.append(message["type"])
        if not go.is_set():
            return
        await unread.wait()  # nobody reads

    gate = _Gate(app, Access())
    hers = [ask(gate, "vic", sent) for _ in range(300)]
    await asyncio.sleep(0.05)
    assert made == {"vic": MOST_OF_ONE, "ada": 0}
    await ask(gate, "ada", sent)
    assert made["ada"] == 1
    go.set()
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert made["vic"] == 300  # what is made and isn't read keeps no other from being made
    unread.set()
    await asyncio.gather(*hers)
    assert not gate._turns


async def test_one_that_fails_gives_its_turn_back() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError

    gate = _Gate(app, Access())
    failing = [ask(gate, "vic", None) for _ in range(3 * MOST_OF_ONE)]
    results = await asyncio.gather(*failing, return_exceptions=True)
    assert {type(result) for result in results} == {ValueError}
