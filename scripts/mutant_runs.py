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
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from mutant_forks import (
    CODES,
    INVALID,
    KILLED,
    KILLER,
    NEEDS_IMPORT,
    SAME,
    SURVIVED,
    UNTOUCHED,
    Forks,
    limit,
)
from mutant_source import Mutant
from mutant_touched import fails, measured

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
OPTIONS = ["-p", "no:cacheprovider", "-p", "no:xdist", "--capture=no"]
# pytest warns that Hypothesis was imported before it could be rewritten; warnings are errors.
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
IMPORT_S = 15.0
"""Processor time for a fork that imports all."""


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


class Plugin:
    """Takes the place of pytest's loop: forks for each mutant."""

    def __init__(self, run: Run, forks: Forks) -> None:
        self.settings = run
        self.mutants = run.mutants
        self.forks = forks
        self.imported: dict[int, list[str]] = {}
        self.caches: list[Any] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests against each mutant."""
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors while collecting")
        items = {item.nodeid: item for item in session.items}
        settings = self.settings
        gc.unfreeze()  # conftest.py froze what was collected; functions and caches are in it
        touched = measured(items, settings.folders, settings.kept, settings.note)
        self.forks.killed = lambda index, test: touched.killed(self.mutants[index], test)
        functions = self.functions()
        # Results that were cached before would hide a mutant: its fork empties these caches.
        self.caches = [t for t in gc.get_objects() if isinstance(t, functools._lru_cache_wrapper)]
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
                chosen = [items[name] for name in tests]
                work = functools.partial(self.run, mutant, functions, chosen)
                self.forks.start(index, limit(touched.took(tests)), work)
            if time.time() > self.settings.until:
                break
        self.forks.finish()
        for index in self.forks.again:
            self.imported[index] = touched.of(self.mutants[index], self.settings.most_s)
        return True

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
            return CODES[INVALID]
        old = functions.get(key)
        if not old:
            return NEEDS_IMPORT
        new = [c for c in codes_in(code) if (c.co_qualname, c.co_firstlineno) == key[1:]]
        if len(new) != 1 or any(f.__code__.co_freevars != new[0].co_freevars for f in old):
            return NEEDS_IMPORT
        for function in old:
            function.__code__ = new[0]
        for cache in self.caches:
            cache.cache_clear()
        with contextlib.suppress(AttributeError):
            items[0].config._tmp_path_factory._basetemp = place  # type: ignore[attr-defined]
        for index, item in enumerate(items):
            if fails(items, index):
                (place / KILLER).write_text(item.nodeid)
                return CODES[KILLED]
        return survived(mutant)


def mutated_code(mutant: Mutant) -> CodeType | None:
    """Compile a mutant's module; None where it isn't Python."""
    try:
        return compile(mutant.source(), str(mutant.path), "exec")
    except (SyntaxError, ValueError):
        return None


def survived(mutant: Mutant) -> int:
    """Return a fork's exit code for a mutant that no test noticed: is it another program at all?"""
    same = ast.dump(ast.parse(mutant.source())) == ast.dump(ast.parse(mutant.original))
    return CODES[SAME if same else SURVIVED]


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
        return CODES[INVALID]
    sys.meta_path.insert(0, MutatedImport(mutant, code))
    done = pytest.main([*OPTIONS, "-x", f"--basetemp={place}/tmp", *tests])
    return survived(mutant) if done == 0 else CODES[KILLED]


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
        folders: packages with these tests; if one changes, the tests are measured again.
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
    folders: Sequence[Path]
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
            forks.start(index, IMPORT_S + limit(self.most_s), work)
        forks.finish()

    def _collected(self) -> dict[int, list[str]]:
        """Run mutants of functions, in a child that collects tests; return the others' tests."""
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
