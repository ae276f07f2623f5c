"""
Refuse rows that an engine gives a task in another order than ``frames.together`` asks for.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


def refuse_again(key: Hashable, seen: set[Any]) -> None:
    """
    Keep a key that rows begin with; refuse one whose rows came before those of another.

    Raises:
        RuntimeError: an engine didn't bring the key's rows together, and sums would be wrong.
    """
    if key in seen:
        raise RuntimeError(f"rows of {key} came again after those of others")
    seen.add(key)
