"""Endless work of a gateway: one round that fails ends none of the rounds to come."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.gateway import periodic_work as following_module
from headgate.gateway.background import BackgroundWork
from headgate.gateway.periodic_work import PeriodicWork


@pytest.fixture
def following(monkeypatch: pytest.MonkeyPatch) -> PeriodicWork:
    for name in ("_SWEEP_S", "_LOOK_AGAIN_S"):
        monkeypatch.setattr(following_module, name, 0.0)
    in_force: Any = SimpleNamespace(settings=None)
    return PeriodicWork(in_force, BackgroundWork())


async def ends(work: Any, enough: asyncio.Event) -> None:
    """Run endless work until there was enough of it."""
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(60):
        await enough.wait()
    assert not task.done()
    task.cancel()


async def test_a_pool_that_fails_once_is_looked_at_again(following: PeriodicWork) -> None:
    rounds, enough = [], asyncio.Event()

    def expire(now_ms: int) -> None:
        rounds.append(now_ms)
        if len(rounds) == 1:
            raise RuntimeError("made up")
        enough.set()

    other: Any = SimpleNamespace(tell=lambda: None, expire=expire, watch=lambda _: None)
    await ends(following.sweep({}, other, other, other), enough)
    assert len(rounds) >= 2


async def test_producer_ids_are_forgotten_though_one_round_failed(following: PeriodicWork) -> None:
    rounds, enough = [], asyncio.Event()

    def cleanup(now_ms: int, most: int) -> None:
        rounds.append((now_ms, most))
        if len(rounds) == 1:
            raise RuntimeError("made up")
        enough.set()

    ids = SimpleNamespace(idle_ms=lambda _: 0.0, cleanup=cleanup)
    broker: Any = SimpleNamespace(rules=SimpleNamespace(managers=SimpleNamespace(producer_ids=ids)))
    await ends(following.forget_producer_ids({1: broker}), enough)
    assert len(rounds) >= 2
