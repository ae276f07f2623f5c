"""
Run tests against mutants, each in a forked process of one pytest run that has collected its tests.

A fork starts in milliseconds, with everything imported. There the mutated function's code is put in
the place of the old, in the live objects, and only those tests run that touch its lines, the
shortest first, to the first that fails. A mutant outside all functions (a table, a default, a
decorator) needs its module imported again: for it pytest runs whole in a fork that has imported
nothing of Headgate yet.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol
from mutant_source import Mutant

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
OPTIONS = ["-p", "no:cacheprovider", "-p", "no:xdist", "--capture=no"]
# Hypothesis is imported before pytest could rewrite it, which it says, and a warning is an error.
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
MOST_MEMORY = 3 << 30
"""Bytes a fork may map beyond what it began with: a mutant may allocate without an end."""
LEAST_S, PATIENCE = 10.0, 5.0
"""A mutant's tests get this long and this many times what they took before: a loop may not end."""

KILLED, SURVIVED, TIMEOUT, SAME, INVALID, UNTOUCHED = (
    "killed",
    "survived",
    "timeout",
    "same",
    "invalid",
    "untouched",
)
_CODES = {KILLED: 1, SURVIVED: 0, SAME: 90, INVALID: 91, UNTOUCHED: 92}
_NEEDS_IMPORT = 93
_BROKEN = 94


def silent() -> None:
    """Send what a fork prints nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)


def bounded() -> None:
    """Bound a fork's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


@dataclass
class Fork:
    """One forked process with its limit of time."""

    pid: int
    mutant: int
    ends: float
    place: Path


def forked(work: Callable[[Path], int], place: Path) -> int:
    """Run work in a fork, in a session of its own; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = _BROKEN
    try:
        os.setsid()
        silent()
        bounded()
        place.mkdir(parents=True, exist_ok=True)
        code = work(place)
    except BaseException:
        code = _CODES[KILLED]
    finally:
        os._exit(code)


class Forks:
    """Runs mutants in forks, a few at once, and tells each one's fate."""

    def __init__(self, jobs: int, tell: Callable[[int, str], None]) -> None:
        self.jobs = jobs
        self.tell = tell
        self.again: list[int] = []
        self._running: list[Fork] = []
        self._places = Path(tempfile.mkdtemp(prefix="mutants-"))

    def start(self, mutant: int, limit_s: float, work: Callable[[Path], int]) -> None:
        """Start a mutant's run as soon as there is room."""
        while len(self._running) >= self.jobs:
            self._reap()
        place = self._places / str(mutant)
        now = time.monotonic()
        pid = forked(work, place)
        self._running.append(Fork(pid, mutant, now + limit_s, place))

    def finish(self) -> None:
        """Wait for all."""
        while self._running:
            self._reap()
        shutil.rmtree(self._places, ignore_errors=True)

    def _reap(self) -> None:
        for fork in list(self._running):
            pid, status = os.waitpid(fork.pid, os.WNOHANG)
            late = time.monotonic() > fork.ends
            if not pid and not late:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(fork.pid, signal.SIGKILL)  # the fork's own session: what it started too
            if not pid:
                os.waitpid(fork.pid, 0)
            self._running.remove(fork)
            shutil.rmtree(fork.place, ignore_errors=True)
            self._judge(fork, TIMEOUT if not pid else None, status)
        time.sleep(0.002)

    def _judge(self, fork: Fork, fate: str | None, status: int) -> None:
        if fate is None:
            code = os.waitstatus_to_exitcode(status)
            if code == _NEEDS_IMPORT:
                self.again.append(fork.mutant)
                return
            fate = next((name for name, value in _CODES.items() if value == code), KILLED)
        self.tell(fork.mutant, fate)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


@dataclass
class Touched:
    """Which lines each test touches, and how long it took: by test, as kept between runs."""

    tests: dict[str, dict[str, Any]] = field(default_factory=dict)

    def of(self, mutant: Mutant, most_s: float) -> list[str]:
        """
        Return the tests that touch a mutant, the shortest first, as many as take ``most_s``.

        One outside all functions is touched by every test of its module, and a module without
        functions by every test.
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
        return found

    def took(self, tests: Sequence[str]) -> float:
        """Return how many seconds some tests took."""
        return sum(self.tests[name]["took"] for name in tests)


class Plugin:
    """Takes the place of pytest's loop: forks for each mutant."""

    def __init__(self, run: Run, forks: Forks) -> None:
        self.settings = run
        self.mutants = run.mutants
        self.forks = forks
        self.imported: dict[int, list[str]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests against each mutant."""
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors while collecting")
        items = {item.nodeid: item for item in session.items}
        touched = self.measure(items)
        functions = self.functions()
        gc.collect()
        gc.freeze()
        for index in self.settings.order:
            mutant = self.mutants[index]
            tests = touched.of(mutant, self.settings.most_s)
            if not tests:
                self.forks.tell(index, UNTOUCHED)
            elif not mutant.function:
                self.imported[index] = tests
            else:
                limit = LEAST_S + PATIENCE * touched.took(tests)
                chosen = [items[name] for name in tests]
                work = functools.partial(self.run, mutant, functions, chosen)
                self.forks.start(index, limit, work)
            if time.time() > self.settings.until:
                break
        self.forks.finish()
        for index in self.forks.again:
            self.imported[index] = touched.of(self.mutants[index], self.settings.most_s)
        return True

    def measure(self, items: dict[str, pytest.Item]) -> Touched:
        """Run each test that changed since it was last measured, in a fork, and see its lines."""
        began = time.monotonic()
        names = sorted(map(str, self.settings.folder.rglob("*.py")))
        source = digest(*sorted(self.settings.folder.rglob("*.py")))
        files = {item.path: digest(item.path) for item in items.values()}
        kept = self.settings.kept
        known = json.loads(kept.read_text()) if kept.exists() else {}
        known = known["tests"] if known.get("source") == source else {}
        new = [
            item
            for name, item in items.items()
            if known.get(name, {}).get("file") != files[item.path]
        ]
        place = Path(tempfile.mkdtemp(prefix="mutants-measured-"))

        def work(place: Path) -> int:
            seen = coverage.Coverage(include=names, data_file=None, config_file=False)
            found = {}
            seen.start()
            for index, item in enumerate(new):
                seen.switch_context(item.nodeid)
                started = time.process_time()
                failed = fails(new, index)
                took = time.process_time() - started
                file = files[item.path]
                found[item.nodeid] = {"file": file, "took": took, "failed": failed, "lines": {}}
            seen.stop()
            data = seen.get_data()
            for name in names:
                file = str(Path(name).relative_to(ROOT))
                for line, tests in data.contexts_by_lineno(name).items():
                    for test in filter(None, tests):
                        found[test]["lines"].setdefault(file, []).append(line)
            (place / "touched.json").write_text(json.dumps(found))
            return 0

        if new:
            os.waitpid(forked(work, place), 0)
            known.update(json.loads((place / "touched.json").read_text()))
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps({"source": source, "tests": known}))
        shutil.rmtree(place)
        took = time.monotonic() - began
        self.settings.note(f"{len(items)} tests, {len(new)} measured with coverage: {took:.0f} s")
        result = Touched({name: known[name] for name in items})
        for name, test in result.tests.items():
            if test["failed"]:
                self.settings.note(f"left out, fails without a mutant: {name}")
        return result

    def functions(self) -> dict[tuple[str, str, int], list[FunctionType]]:
        """Find the live functions of the modules, by file, name and first line."""
        names = {str(mutant.path) for mutant in self.mutants}
        found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename in names:
                code = thing.__code__
                found[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
        return found

    def run(
        self,
        mutant: Mutant,
        functions: dict[tuple[str, str, int], list[FunctionType]],
        items: Sequence[pytest.Item],
        place: Path,
    ) -> int:
        """In a fork: put the mutant in place and run its tests."""
        key = (str(mutant.path), mutant.function, mutant.first_line)
        code = mutated_code(mutant)
        if code is None:
            return _CODES[INVALID]
        old = functions.get(key)
        if not old:
            return _NEEDS_IMPORT
        new = [c for c in codes_in(code) if (c.co_qualname, c.co_firstlineno) == key[1:]]
        if len(new) != 1 or any(f.__code__.co_freevars != new[0].co_freevars for f in old):
            return _NEEDS_IMPORT
        for function in old:
            function.__code__ = new[0]
        forget()
        with contextlib.suppress(AttributeError):
            items[0].config._tmp_path_factory._basetemp = place  # type: ignore[attr-defined]
        if any(fails(items, index) for index in range(len(items))):
            return _CODES[KILLED]
        return survived(mutant)


def fails(items: Sequence[pytest.Item], index: int) -> bool:
    """Run one test; tell whether it failed, in its set-up or end too."""
    after = items[index + 1] if index + 1 < len(items) else None
    return any(report.failed for report in runtestprotocol(items[index], log=False, nextitem=after))


def digest(*paths: Path) -> str:
    """Hash files."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def forget() -> None:
    """Empty caches: what was computed before the mutant came would hide it."""
    for thing in gc.get_objects():
        if isinstance(thing, functools._lru_cache_wrapper):
            thing.cache_clear()


def mutated_code(mutant: Mutant) -> CodeType | None:
    """Compile a mutant's module; None where it isn't Python."""
    try:
        return compile(mutant.source(), str(mutant.path), "exec")
    except (SyntaxError, ValueError):
        return None


def survived(mutant: Mutant) -> int:
    """Tell whether what no test noticed is another program at all."""
    same = ast.dump(ast.parse(mutant.source())) == ast.dump(ast.parse(mutant.original))
    return _CODES[SAME if same else SURVIVED]


class MutatedImport(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Imports one module from a mutant's code."""

    def __init__(self, mutant: Mutant, code: CodeType) -> None:
        parts = mutant.path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        super().__init__(name, str(mutant.path))
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Offer the one module."""
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        """Return the mutant's code."""
        return self._code


def run_imported(mutant: Mutant, tests: Sequence[str], place: Path) -> int:
    """In a fork that has imported nothing of Headgate: run all tests with a mutated module."""
    code = mutated_code(mutant)
    if code is None:
        return _CODES[INVALID]
    sys.meta_path.insert(0, MutatedImport(mutant, code))
    done = pytest.main([*OPTIONS, "-x", f"--basetemp={place}/tmp", *tests])
    return survived(mutant) if done == 0 else _CODES[KILLED]


@dataclass
class Run:
    """
    One package's mutants against its tests.

    Attributes:
        mutants: all of the package.
        order: which to run, in what order.
        tests: files and folders of tests.
        jobs: processes at once.
        until: when to begin no more, epoch seconds.
        most_s: seconds of tests that a mutant gets.
        folder: the package's folder, whose change makes what was measured old.
        kept: where what was measured is kept.
        note: takes a line about the progress.
        tell: takes a mutant's number and what became of it.
    """

    mutants: Sequence[Mutant]
    order: Sequence[int]
    tests: Sequence[str]
    jobs: int
    until: float
    most_s: float
    folder: Path
    kept: Path
    note: Callable[[str], None]
    tell: Callable[[int, str], None]

    def all(self) -> None:
        """Run until all are done or the time is over."""
        imported = self._collected()
        forks = Forks(self.jobs, self.tell)
        for index, tests in imported.items():
            if time.time() > self.until:
                break
            work = functools.partial(run_imported, self.mutants[index], tests)
            forks.start(index, 6 * LEAST_S + PATIENCE * self.most_s, work)
        forks.finish()

    def _collected(self) -> dict[int, list[str]]:
        """Run those inside functions, in a child that collects the tests; return the others."""
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reader)
            self._collect(writer)
        os.close(writer)
        imported: dict[int, list[str]] = {}
        with os.fdopen(reader) as lines:
            for line in lines:
                kind, *rest = json.loads(line)
                if kind == "fate":
                    self.tell(*rest)
                elif kind == "note":
                    self.note(*rest)
                else:
                    imported = {int(index): tests for index, tests in rest[0].items()}
        os.waitpid(pid, 0)
        return imported

    def _collect(self, writer: int) -> None:
        def send(*message: object) -> None:
            with os.fdopen(os.dup(writer), "w") as out:
                out.write(json.dumps(message) + "\n")

        code = 1
        try:
            self.note = functools.partial(send, "note")
            plugin = Plugin(self, Forks(self.jobs, functools.partial(send, "fate")))
            code = pytest.main([*OPTIONS, *self.tests], plugins=[plugin])
            if code:
                send("note", f"pytest ended with {code!r}")
            send("imported", plugin.imported)
        except BaseException:
            send("note", traceback.format_exc())
        finally:
            os._exit(int(code))
