"""
A limit on the time of a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from headgate.errors import ApiError, KafkaError

T = TypeVar("T")

DEFAULT_TIMEOUT_MS: Final = 30_000
"""How long a call may take unless its options say otherwise; kafka-configs waits as long."""


async def limited(timeout_ms: int | None, work: Coroutine[Any, Any, T]) -> T:
    """
    Await some work with a limit on its time.

    Args:
        timeout_ms: the limit; None means ``DEFAULT_TIMEOUT_MS``.
        work: a coroutine.

    Raises:
        ApiError: REQUEST_TIMED_OUT.
    """
    limit_ms = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
    try:
        async with asyncio.timeout(limit_ms / 1000):
            return await work
    except TimeoutError:
        message = f"no answer within {limit_ms} ms"
        raise ApiError(KafkaError.REQUEST_TIMED_OUT, message) from None
