"""
How long ``headgate serve`` may take to end, what happens to one that takes longer, and how long a
process that ended waits to be started again.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Final

from headgate.cli import exit_codes

if TYPE_CHECKING:
    from headgate.config.settings import Settings

AGAIN_S: Final = (0.2, 1.0, 5.0)
"""Wait before a process that ended is started again: the first times quickly."""
STEADY_S: Final = 60.0
"""A process that ran for this long starts again quickly."""
_LAST_WORD_S: Final = 1.0
"""Time for the last log line: the thread that hangs may hold the log's lock."""


def exit_limit_s(settings: Settings) -> float:
    """
    Return how long a process may take to end once it was told to, in seconds; 0: for ever.

    Requests in flight may take ``headgate.drain.timeout.ms``, and closing the store and the
    journal as long as a worker may say nothing, ``headgate.worker.hang.timeout.ms`` (0: for ever).
    """
    if not settings.worker_hang_timeout_ms:
        return 0.0
    return (settings.drain_timeout_ms + settings.worker_hang_timeout_ms) / 1000


def end_process(limit_s: float) -> None:
    """End this process at once, saying what it was doing instead of ending."""
    try:
        # Not threading.Timer: while Python 3.12 ends, it starts no thread. This exits with 1.
        faulthandler.dump_traceback_later(_LAST_WORD_S, exit=True)
        from headgate.gateway.log import get_logger

        get_logger("headgate.serve").error(
            "didn't end in time; the process is ended",
            waited_ms=round(limit_s * 1000),
            doing=doing(),
        )
    finally:
        os._exit(exit_codes.FAILED)


def doing() -> str:
    """Say where the main thread is: file, line and function."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return "unknown"
    where = traceback.extract_stack(frame)[-1]
    return f"{where.filename}:{where.lineno} {where.name}"
