"""Count what work in steps does, and what it keeps."""

from __future__ import annotations

import gc
from typing import Any

from headgate.steps import Work


def most_alive(work: Work[Any], *kinds: type) -> tuple[int, int, Any]:
    """Return how many steps work takes, the most objects that were there after one, its result."""
    steps = most = 0
    gc.disable()
    try:
        while True:
            next(work)
            steps += 1
            if steps % 100 == 0:
                most = max(most, sum(type(thing) in kinds for thing in gc.get_objects()))
    except StopIteration as end:
        return steps, most, end.value
    finally:
        gc.enable()
