"""Parts of a stream: which hold what."""

from __future__ import annotations

import pytest

from headgate.pipeline.growing.parts import FOLD, cover


@pytest.mark.parametrize("count", [0, 1, FOLD - 1, FOLD, FOLD + 1, FOLD**2 + FOLD + 3])
def test_parts_hold_every_batch_once(count: int) -> None:
    held = [
        batch
        for level, number in cover(count)
        for batch in range(number * FOLD**level, (number + 1) * FOLD**level)
    ]
    assert held == list(range(count))
    assert len(cover(count)) <= 2 * FOLD
