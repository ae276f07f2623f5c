"""A console over twenty principals."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from headgate.console import raises
from kit.console import Console, make_console


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    monkeypatch.setattr(raises, "drawn", count(1).__next__)
    made = make_console(tmp_path)
    yield made
    made.close()
