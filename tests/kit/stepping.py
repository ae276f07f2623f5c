"""Count what work in steps does, and what it keeps."""

from __future__ import annotations

import gc
from typing import Any

from headgate.steps import Work


def most_alive(work: Work[Any], *kinds: type) -> tuple[int, int, Any]:
    """
    Count the steps of `work`, and the objects of `kinds` that it keeps alive.

    What was there before is frozen: a count then looks at the work's own objects, not at all that
    pytest and its plugins hold.

    Returns:
        the number of steps, the most objects that were alive after one of them, the work's result.
    """
    steps = most = 0
    gc.collect()
    gc.freeze()
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
