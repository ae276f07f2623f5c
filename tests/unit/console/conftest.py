"""A console over twenty principals, whose pages never wait for a disk on the event loop."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headgate.console import raises
from headgate.console.database import Database
from kit.console import Console, make_console


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    monkeypatch.setattr(raises, "drawn", count(1).__next__)
    made = make_console(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Where the console's own state was read or written on an event loop: nowhere."""
    found: list[str] = []

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            callers = [frame.filename for frame in inspect.stack(0)]
            rooms = ("console/pages", "console/api")
            if asyncio._get_running_loop() and any(r in name for r in rooms for name in callers):
                found.append(f"{real.__name__}: {callers[1:4]}")
            return real(*arguments)

        return call

    for name in ("rows", "transaction"):
        monkeypatch.setattr(Database, name, watched(getattr(Database, name)))
    yield found
    assert found == []
