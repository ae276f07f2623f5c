"""
Draw mutants of a module: small changes of its code, each of which some test should notice.

``mutant_rules`` says which changes there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, WhitespaceInclusivePositionProvider
from mutant_rules import changes, without_behaviour


@dataclass(frozen=True)
class Mutant:
    """
    One change of one module.

    Attributes:
        path: the module.
        function: the outermost function around it, with its class; "" for the module's own level.
        first_line: where that function begins, its decorators included.
        lines: first and last line of its statement; a test that runs none of them can't notice it.
        before: the changed lines, without indentation.
        after: what they become.
        original: the module's text.
        start: where the change begins in it.
        end: where it ends there.
        text: what stands there instead.
        key: differs from all others, and stays the same until the function around it changes; at
            the module's own level, until the statement changes.
    """

    path: Path
    function: str
    first_line: int
    lines: tuple[int, int]
    before: str
    after: str
    original: str
    start: int
    end: int
    text: str
    key: str

    def source(self) -> str:
        """Return the module's text with the change in it."""
        return self.original[: self.start] + self.text + self.original[self.end :]


class _Drawer:
    """Walks a module and draws its mutants."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = path.read_text()
        self.module = cst.parse_module(self.source)
        self.wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        self.positions = self.wrapper.resolve(WhitespaceInclusivePositionProvider)
        self.parents = self.wrapper.resolve(ParentNodeProvider)
        self.offsets = [0]
        for line in self.source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))
        self.seen = {self.source}

    def draw(self) -> Iterator[Mutant]:
        for node, function in self.walk(self.wrapper.module, None):
            for gone, come in changes(node):
                if isinstance(gone, cst.BaseString) and self.in_raise(gone):
                    continue
                mutant = self.mutant(gone, come, function)
                if mutant is not None:
                    yield mutant

    def walk(
        self, node: cst.CSTNode, function: cst.FunctionDef | None
    ) -> Iterator[tuple[cst.CSTNode, cst.FunctionDef | None]]:
        if without_behaviour(node):
            return
        yield node, function
        for child in node.children:
            inner = function
            if isinstance(node, cst.FunctionDef) and function is None and child is node.body:
                inner = node
            yield from self.walk(child, inner)

    def in_raise(self, node: cst.CSTNode) -> bool:
        while (parent := self.parents.get(node)) is not None:
            if isinstance(parent, cst.Raise):
                return True
            if isinstance(parent, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                return False
            node = parent
        return False

    def offset(self, place: cst.metadata.CodePosition) -> int:
        return self.offsets[place.line - 1] + place.column

    def mutant(
        self, gone: cst.CSTNode, come: cst.CSTNode, function: cst.FunctionDef | None
    ) -> Mutant | None:
        place = self.positions[gone]
        start, end = self.offset(place.start), self.offset(place.end)
        text = self.module.code_for_node(come)
        changed = self.source[:start] + text + self.source[end:]
        if changed in self.seen:
            return None
        self.seen.add(changed)
        before, after = self.difference(start, end, text)
        first = self.positions[function] if function else None
        return Mutant(
            self.path,
            self.qualified(function) if function else "",
            self.first_line(function) if first and function else 0,
            self.statement(gone),
            before,
            after,
            self.source,
            start,
            end,
            text,
            self.key(gone, function, start, text),
        )

    def key(
        self, gone: cst.CSTNode, function: cst.FunctionDef | None, start: int, text: str
    ) -> str:
        home: cst.CSTNode = function or gone
        while function is None and (parent := self.parents.get(home)) is not None:
            if isinstance(home, cst.SimpleStatementLine | cst.BaseCompoundStatement):
                break
            home = parent
        place = self.positions[home]
        first, last = self.offset(place.start), self.offset(place.end)
        name = self.qualified(function) if function else ""
        parts = (self.path.name, name, self.source[first:last], str(start - first), text)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    def difference(self, start: int, end: int, text: str) -> tuple[str, str]:
        """Return the lines that change, and what they become."""
        first = self.source.rfind("\n", 0, start) + 1
        last = self.source.find("\n", end)
        last = len(self.source) if last < 0 else last
        old = self.source[first:last].splitlines()
        new = (self.source[first:start] + text + self.source[end:last]).splitlines()
        same = sum(1 for _ in _equal(old, new))
        tail = sum(1 for _ in _equal(old[same:][::-1], new[same:][::-1]))
        return _joined(old[same : len(old) - tail]), _joined(new[same : len(new) - tail])

    def qualified(self, function: cst.FunctionDef) -> str:
        names = [function.name.value]
        node: cst.CSTNode = function
        while (parent := self.parents.get(node)) is not None:
            if isinstance(parent, cst.ClassDef):
                names.append(parent.name.value)
            node = parent
        return ".".join(reversed(names))

    def first_line(self, function: cst.FunctionDef) -> int:
        """Return the line that Python names as a function's first."""
        first = function.decorators[0] if function.decorators else function
        line = self.positions[first].start.line
        lines = self.source.splitlines()
        while not lines[line - 1].strip() or lines[line - 1].lstrip().startswith("#"):
            line += 1
        return line

    def statement(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return the lines of a node's statement; of a compound one, those of its head."""
        while not isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            parent = self.parents.get(node)
            if parent is None:
                break
            node = parent
        place = self.positions[node]
        last = place.end.line
        if isinstance(node, cst.BaseCompoundStatement):
            last = self.positions[node.body].start.line
        return place.start.line, max(place.start.line, last)


def _equal(old: list[str], new: list[str]) -> Iterator[str]:
    for one, other in zip(old, new, strict=False):
        if one != other:
            return
        yield one


def _joined(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines)


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a module, in the order of its text."""
    return sorted(_Drawer(path).draw(), key=lambda mutant: (mutant.start, mutant.end, mutant.text))
