"""A console over twenty principals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.console import Console, make_console


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    made = make_console(tmp_path)
    yield made
    made.close()
