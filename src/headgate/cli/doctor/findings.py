"""
What `headgate doctor` gathers.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """
    What was looked at, and what was found.

    Args:
        found: a sentence for each thing that is wrong or odd.
        unseen: what couldn't be looked at, and why.
        seen: what was.
    """

    found: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
