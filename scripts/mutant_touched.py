"""
Measure which lines each test runs, and for how long: a mutant needs only tests that run it.

What was measured is kept between runs, until the package or the test's file changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol
from mutant_forks import forked
from mutant_source import Mutant

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Touched:
    """Which lines each test touches, and how long it took: by test, as kept between runs."""

    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    killers: dict[tuple[Path, str], dict[str, None]] = field(default_factory=dict)

    def killed(self, mutant: Mutant, test: str) -> None:
        """Note which test noticed a mutant: it runs first against that function's next mutant."""
        killers = self.killers.setdefault((mutant.path, mutant.function), {})
        killers.pop(test, None)
        killers[test] = None

    def of(self, mutant: Mutant, most_s: float) -> list[str]:
        """
        Return the tests that touch a mutant, as many as take ``most_s``.

        Tests that noticed another mutant of its function come first, the latest of them at the
        start; then the shortest.

        A mutant outside all functions is touched by every test that runs a line of its module; if
        no test does, by every test.
        """
        first, last = mutant.lines
        lines = frozenset(range(first, last + 1)) if mutant.function else None
        file = str(mutant.path.relative_to(ROOT))
        any_test = not mutant.function and not any(file in t["lines"] for t in self.tests.values())
        found, left = [], most_s
        for name, test in sorted(self.tests.items(), key=lambda item: item[1]["took"]):
            here = any_test or test["lines"].get(file)
            if test["failed"] or not here or (lines and lines.isdisjoint(here)):
                continue
            left -= test["took"]
            if found and left < 0:
                break
            found.append(name)
        killers = self.killers.get((mutant.path, mutant.function), {})
        first_tests = [name for name in reversed(killers) if name in found]
        return [*first_tests, *(name for name in found if name not in killers)]

    def took(self, tests: Sequence[str]) -> float:
        """Return how many seconds some tests took."""
        return sum(self.tests[name]["took"] for name in tests)


def measured(
    items: dict[str, pytest.Item],
    folders: Sequence[Path],
    kept: Path,
    note: Callable[[str], None],
) -> Touched:
    """
    Run each test that changed since it was last measured, in a fork, and see its lines.

    Args:
        items: the tests by name.
        folders: of the packages.
        kept: where what was measured is kept.
        note: takes a line about the progress.
    """
    began = time.monotonic()
    modules = sorted(path for folder in folders for path in folder.rglob("*.py"))
    source = digest(*modules)
    files = {item.path: digest(item.path) for item in items.values()}
    known = json.loads(kept.read_text()) if kept.exists() else {}
    known = known["tests"] if known.get("source") == source else {}
    new = [
        item for name, item in items.items() if known.get(name, {}).get("file") != files[item.path]
    ]
    if new:
        place = Path(tempfile.mkdtemp(prefix="mutants-measured-"))
        os.waitpid(forked(lambda place: _measure(new, files, modules, place), place), 0)
        known.update(json.loads((place / "touched.json").read_text()))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"source": source, "tests": known}))
        shutil.rmtree(place)
    took = time.monotonic() - began
    note(f"{len(items)} tests, {len(new)} measured with coverage: {took:.0f} s")
    result = Touched({name: known[name] for name in items})
    for name, test in result.tests.items():
        if test["failed"]:
            note(f"left out, fails without a mutant: {name}")
    return result


def _measure(
    items: Sequence[pytest.Item], files: dict[Path, str], modules: Sequence[Path], place: Path
) -> int:
    names = list(map(str, modules))
    seen = coverage.Coverage(include=names, data_file=None, config_file=False)
    found: dict[str, dict[str, Any]] = {}
    seen.start()
    for index, item in enumerate(items):
        seen.switch_context(item.nodeid)
        started = time.process_time()
        failed = fails(items, index)
        took = time.process_time() - started
        found[item.nodeid] = {"file": files[item.path], "took": took, "failed": failed, "lines": {}}
    seen.stop()
    data = seen.get_data()
    for name in names:
        file = str(Path(name).relative_to(ROOT))
        for line, tests in data.contexts_by_lineno(name).items():
            for test in filter(None, tests):
                found[test]["lines"].setdefault(file, []).append(line)
    (place / "touched.json").write_text(json.dumps(found))
    return 0


def fails(items: Sequence[pytest.Item], index: int) -> bool:
    """Run one test; tell whether it failed, in its set-up or end too."""
    after = items[index + 1] if index + 1 < len(items) else None
    return any(report.failed for report in runtestprotocol(items[index], log=False, nextitem=after))


def digest(*paths: Path) -> str:
    """Hash files."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
