"""Whose a delegation token is: asked seldom, of the right broker, and remembered."""

from __future__ import annotations

import asyncio
import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config.listeners import HostPort
from headgate.gateway.answered_here.token_owners import TokenOwners
from headgate.gateway.upstream import UpstreamError
from headgate.wire.messages.delegation import DescribedToken

ONE, TWO = HostPort("127.0.0.1", 9092), HostPort("127.0.0.1", 9093)
LATER_MS = time.time_ns() // 1_000_000 + 86_400_000


def token(token_id: str, owner: str, expires_ms: int = LATER_MS, kind: str = "User") -> Any:
    return DescribedToken(kind, owner, 0, expires_ms, expires_ms, token_id, b"secret")


def face(where: HostPort | None) -> Any:
    return SimpleNamespace(name="SASL", upstream=where, upstream_tls=None)


class Asked(TokenOwners):
    """Brokers that are made up."""

    def __init__(self, interval_s: float = 0.0) -> None:
        super().__init__(SimpleNamespace(), asyncio.ensure_future, interval_s)  # type: ignore[arg-type]
        self.brokers: dict[HostPort, list[DescribedToken]] = {ONE: [], TWO: []}
        self.asked: list[HostPort] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def _describe(self, where: HostPort, face: Any) -> tuple[DescribedToken, ...]:
        self.asked.append(where)
        self.begun.set()
        found = tuple(self.brokers[where])
        await self.go_on.wait()
        if not found:
            raise UpstreamError("the broker has no delegation tokens")
        return found


async def test_an_owner_is_asked_once_and_remembered() -> None:
    owners = Asked()
    owners.brokers[TWO] = [token("t", "alice"), token("g", "ops", kind="Group")]
    assert owners.owner_of("t") is None
    await owners.find("t", face(TWO))
    assert owners.owner_of("t") == "alice"
    assert owners.owner_of("g") is None
    await owners.find("t", face(ONE))
    assert owners.asked == [TWO]
    await owners.find("u", face(None))
    assert owners.asked == [TWO]


async def test_however_many_come_a_broker_is_asked_once_in_an_interval() -> None:
    owners = Asked(interval_s=0.05)
    owners.brokers[ONE] = [token("t", "alice")]
    await owners.find("nobody's", face(ONE))
    await asyncio.gather(*(owners.find(f"guess {n}", face(ONE)) for n in range(100)))
    assert owners.asked == [ONE, ONE]


async def test_who_comes_while_a_broker_answers_waits_for_the_next_answer() -> None:
    owners = Asked()
    owners.brokers[ONE] = [token("t", "alice")]
    owners.go_on.clear()
    first = asyncio.ensure_future(owners.find("t", face(ONE)))
    await owners.begun.wait()
    owners.brokers[ONE].append(token("new", "bob"))
    second = asyncio.ensure_future(owners.find("new", face(ONE)))
    owners.go_on.set()
    await asyncio.gather(first, second)
    assert (owners.owner_of("new"), len(owners.asked)) == ("bob", 2)


async def test_a_client_that_goes_doesnt_end_the_question_of_others() -> None:
    owners = Asked()
    owners.brokers[ONE] = [token("t", "alice")]
    owners.go_on.clear()
    gone = asyncio.ensure_future(owners.find("t", face(ONE)))
    stays = asyncio.ensure_future(owners.find("t", face(ONE)))
    await asyncio.sleep(0)
    gone.cancel()
    owners.go_on.set()
    await stays
    assert (owners.owner_of("t"), owners.asked) == ("alice", [ONE])


async def test_a_broker_that_doesnt_tell_is_said_and_no_secret_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = Asked()
    monkeypatch.setattr(owners.failures, "_clock", lambda: 100.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await owners.find("t", face(ONE))
    assert owners.owner_of("t") is None
    assert caplog.text.count("no delegation tokens") == 1
    monkeypatch.setattr(owners.failures, "_clock", lambda: 160.0)
    with caplog.at_level(logging.WARNING):
        await owners.find("t", face(ONE))
    assert caplog.text.count("no delegation tokens") == 2
    assert "secret" not in repr(token("t", "alice"))


def test_what_has_expired_is_forgotten_unless_it_was_renewed() -> None:
    owners = TokenOwners(SimpleNamespace(), asyncio.ensure_future)  # type: ignore[arg-type]
    owners.learn([token("a", "alice", 1_000), token("b", "bob", 2_000)], 0)
    owners.learn([token("c", "carol", 500)], 1_500)
    assert [owners.owner_of(name) for name in "abc"] == [None, "bob", "carol"]
