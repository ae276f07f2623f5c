"""
What a command's exit status says.
"""

from __future__ import annotations

from typing import Final

DONE: Final = 0
"""It was done."""
FAILED: Final = 1
"""It was refused or failed; stderr says why. Kafka's own tools use it for bad usage too."""
USAGE: Final = 2
"""The command line makes no sense; nothing was tried."""
FOUND: Final = 3
"""It was done and there is something: what differs, or what was looked for."""
INTERRUPTED: Final = 130
"""Ctrl-C; as a shell says it of a program that SIGINT ended."""
