"""
The inputs that are kept of each target.

``tests/data/fuzz/NAME.txt`` has an input a line, in hexadecimal: the smallest that reach lines of
the product which the seeds don't reach, and what once was a fault. ``keep.py`` writes it.
"""

from __future__ import annotations

from pathlib import Path

KEPT = Path(__file__).parents[2] / "tests/data/fuzz"


def path_of(name: str) -> Path:
    """Return the file of a target's inputs."""
    return KEPT / f"{name.replace(' ', '_')}.txt"


def kept(name: str) -> list[bytes]:
    """Return the inputs kept of a target."""
    path = path_of(name)
    return [bytes.fromhex(line) for line in path.read_text().split()] if path.exists() else []


def keep(name: str, inputs: list[bytes]) -> None:
    """Write the inputs of a target, the smallest first."""
    KEPT.mkdir(exist_ok=True)
    lines = [data.hex() for data in sorted(set(inputs), key=lambda data: (len(data), data))]
    path_of(name).unlink(missing_ok=True)
    if any(lines):
        path_of(name).write_text("".join(f"{line}\n" for line in lines if line))
