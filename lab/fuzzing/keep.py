"""
Keep the smallest of the inputs that fuzzing found in tests/data/fuzz: those that reach new lines.

A target's seeds come first, for nobody has to keep what can be made; then what was kept before,
what was a fault, and what atheris found. Each that stays is made smaller as long as it reaches
the same.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "lab")]
OUT = ROOT / "out" / "fuzz"
MOST_OF_A_TARGET = 60_000
"""Bytes; beyond that the longest stay out."""

Lines = frozenset[tuple[str, int]]


class Watch:
    """
    Runs a target and notes which lines of some modules it reached.

    Args:
        run: the target.
        watched: what the modules' names begin with.
    """

    def __init__(self, run: Any, watched: tuple[str, ...]) -> None:
        self._run = run
        self._watched = watched
        self._ours: dict[str, bool] = {}

    def lines(self, data: bytes) -> Lines:
        """Return the lines that an input reaches."""
        reached: set[tuple[str, int]] = set()
        ours, watched = self._ours, self._watched

        def line(frame: Any, event: str, _: object) -> Any:
            reached.add((frame.f_code.co_filename, frame.f_lineno))
            return line

        def call(frame: Any, event: str, _: object) -> Any:
            file = frame.f_code.co_filename
            if file not in ours:
                ours[file] = str(frame.f_globals.get("__name__", "")).startswith(watched)
            return line if ours[file] else None

        sys.settrace(call)
        try:
            self._run(data)
        finally:
            sys.settrace(None)
        return frozenset(reached)


def chosen(name: str) -> list[bytes]:
    """Return the inputs that a target is to keep."""
    from fuzzing.corpus import kept
    from fuzzing.table import TABLE, load

    target = load(name)
    watch = Watch(target.run, TABLE[name].watched)
    file = name.replace(" ", "_")
    faults = [f for f in (OUT / "faults").glob(f"{file}-????????") if not f.suffix]
    found = {*(OUT / "corpus" / file).glob("*")} if (OUT / "corpus" / file).is_dir() else set()
    seen: set[tuple[str, int]] = set()
    for data in target.seeds():
        seen |= watch.lines(data)
    always = [path.read_bytes() for path in faults]
    others = {*kept(name), *(path.read_bytes() for path in found)}
    stay: list[bytes] = []
    for data in (*always, *sorted(others, key=len)):
        new = watch.lines(data) - seen
        if new or data in always:
            stay.append(data if data in always else smaller(data, new, watch))
            seen |= new
    while sum(map(len, stay)) * 2 > MOST_OF_A_TARGET:
        stay.remove(max(stay, key=len))
    return stay


def smaller(data: bytes, new: Lines, watch: Watch) -> bytes:
    """Cut pieces out of an input as long as it reaches what it is kept for."""
    size = len(data) // 2
    while size:
        at = 0
        while at < len(data):
            without = data[:at] + data[at + size :]
            try:
                good = new <= watch.lines(without)
            except Exception:
                good = False
            if good:
                data = without
            else:
                at += size
        size //= 2 if len(data) < 300 else 4
    return data


def main() -> int:
    """Choose and write, target by target."""
    from fuzzing.corpus import keep, path_of
    from fuzzing.table import TABLE

    logging.disable(logging.CRITICAL)
    for name in sys.argv[1:] or TABLE:
        keep(name, chosen(name))
        size = path_of(name).stat().st_size if path_of(name).exists() else 0
        print(f"{name}: {size:,} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
