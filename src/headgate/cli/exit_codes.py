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
CHANGES: Final = 3
"""``headgate plan`` found changes."""
INTERRUPTED: Final = 130
"""Ctrl-C; as a shell says it of a program that SIGINT ended."""
FOUND: Final = 3
"""``headgate doctor`` found something."""
