"""
Run a command's action: what it raises becomes lines on stderr and an exit status.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.cli import exit_codes
from headgate.cli.output import complain, printable
from headgate.errors import ApiError, HeadgateError


def run(name: str, action: Callable[[], int]) -> int:
    """
    Run a command's action; what it raises becomes lines on stderr and an exit status.

    Args:
        name: what the lines begin with, such as ``headgate plan``.
        action: returns the exit status.
    """
    try:
        return action()
    except (HeadgateError, OSError) as exc:
        code = f"{exc.name}: " if isinstance(exc, ApiError) else ""
        for line in f"{name}: {code}{exc}".splitlines():
            complain(printable(line))
        return exit_codes.FAILED
