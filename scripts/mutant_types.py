"""
Ask mypy --strict about mutants that no test noticed: `make lint` wouldn't let these pass.

Nothing is written to the sources: mypy reads a mutant's text in place of a module's. One run asks
about one mutant of each module.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mutant_source import Mutant

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "mutants" / "mypy"
_ERROR = re.compile(r"^([^:]+):\d+: error: ", re.MULTILINE)


def rounds(mutants: Sequence[Mutant], indexes: Sequence[int]) -> Iterator[dict[Path, int]]:
    """Yield what is asked at once: a mutant of each module that has one left."""
    left: dict[Path, list[int]] = {}
    for index in indexes:
        left.setdefault(mutants[index].path, []).append(index)
    while left:
        yield {path: some.pop() for path, some in left.items()}
        left = {path: some for path, some in left.items() if some}


def refused(
    mutants: Sequence[Mutant], indexes: Sequence[int], note: Callable[[str], None]
) -> set[int]:
    """Return which of some mutants mypy refuses."""
    found: set[int] = set()
    done = 0
    for asked in rounds(mutants, indexes):
        with tempfile.TemporaryDirectory(prefix="mutants-typed-") as folder:
            shadows = []
            for number, (path, index) in enumerate(asked.items()):
                shadow = Path(folder) / f"{number}.py"
                shadow.write_text(mutants[index].source())
                shadows += ["--shadow-file", str(path.relative_to(ROOT)), str(shadow)]
            command = [sys.executable, "-m", "mypy", "--cache-dir", str(CACHE), *shadows]
            told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        wrong = {ROOT / name for name in _ERROR.findall(told.stdout)}
        found |= {index for path, index in asked.items() if path in wrong}
        done += len(asked)
        note(f"mypy was asked for {done} of {len(indexes)}, and refuses {len(found)}")
    return found
