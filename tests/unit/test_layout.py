"""
How the product's source is laid out: sizes, circles of imports, chains of classes, package maps.

``tests/data/layout_left.txt`` lists what doesn't keep a rule yet. The list is exact: when an entry
keeps its rule the test fails until the entry is struck out, and nothing is ever added.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from kit.source import SOURCE, imports, is_package, modules, tree

MOST_FILES = 20
MOST_LINES = 450
MOST_LINES_OF_A_CLASS = 800
"""Of a module that is one class for most of its lines: a class is whole in one module."""
MOST_FUNCTION_LINES = 80
MOST_BASES = 2

LEFT = Path(__file__).parents[1] / "data" / "layout_left.txt"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def children(package: str) -> set[str]:
    """Names of the modules and packages that lie directly in a package."""
    return {
        name.removeprefix(f"{package}.") for name in modules() if name.rpartition(".")[0] == package
    }


def circles() -> Iterator[frozenset[str]]:
    """Sets of modules that reach each other by imports."""
    graph = {module: imports(module) for module in modules()}

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for name in graph[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        return seen

    reach = {module: reached(module) for module in graph}
    return (
        frozenset(other for other in reach[module] if module in reach[other])
        for module in graph
        if module in reach[module]
    )


def most_lines(module: str, lines: int) -> int:
    """Return how long a module may be; one that is mostly one class may be longer."""
    classes = [node for node in tree(module).body if isinstance(node, ast.ClassDef)]
    largest = max((node.end_lineno - node.lineno + 1 for node in classes), default=0)  # type: ignore[operator]
    return MOST_LINES_OF_A_CLASS if largest > 0.6 * lines else MOST_LINES


def long_functions() -> Iterator[str]:
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, Function):
                first = node.body[0]
                lines = node.end_lineno - node.lineno + 1  # type: ignore[operator]
                if ast.get_docstring(node) is not None:
                    lines -= first.end_lineno - first.lineno + 1  # type: ignore[operator]
                if lines > MOST_FUNCTION_LINES:
                    yield f"{module}.{node.name}"


def deep_classes() -> Iterator[str]:
    bases: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                generic = (b.value if isinstance(b, ast.Subscript) else b for b in node.bases)
                bases[node.name] += [b.id for b in generic if isinstance(b, ast.Name)]

    def depth(name: str, below: tuple[str, ...] = ()) -> int:
        if name not in bases or name in below:
            return 0
        return 1 + max((depth(base, (*below, name)) for base in bases[name]), default=0)

    return (name for name in bases if depth(name) > MOST_BASES + 1)


def mapped(package: str) -> set[str]:
    """Names that a package's map gives a line: ``- ``name``: what it is for``, or several names."""
    names: set[str] = set()
    for line in (ast.get_docstring(tree(package)) or "").splitlines():
        heads = re.match(r"- ((?:``\w+``(?:, | and )?)+)", line)
        if heads:
            names |= set(re.findall(r"``(\w+)``", heads[1]))
    return names


def wrong_maps() -> Iterator[str]:
    for package in modules():
        if is_package(package) and mapped(package) != children(package) - {"__main__"}:
            yield package


def check(rule: str, found: Iterable[str]) -> None:
    """Compare what breaks a rule with what is known to."""
    lines = LEFT.read_text(encoding="utf-8").splitlines()
    left = {line.removeprefix(f"{rule}: ") for line in lines if line.startswith(f"{rule}: ")}
    seen = set(found)
    assert not seen - left, f"{rule}: {sorted(seen - left)}"
    kept = sorted(left - seen)
    assert not kept, f"{rule}: strike {kept} out of {LEFT.name}, the rule is kept now"


def test_a_package_has_few_files_of_its_own() -> None:
    counts = Counter(
        str(path.parent.relative_to(SOURCE))
        for path in modules().values()
        if path.name != "__init__.py"
    )
    check("crowded packages", (name for name, count in counts.items() if count > MOST_FILES))


def test_files_are_short() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    check("long files", (name for name, n in lengths.items() if n > most_lines(name, n)))


def test_functions_are_short() -> None:
    check("long functions", long_functions())


def test_no_class_is_filed_over_a_chain_of_bases() -> None:
    check("deep classes", deep_classes())


def test_no_modules_import_each_other_in_a_circle() -> None:
    check("circles", (" ".join(sorted(circle)) for circle in circles()))


def test_every_package_has_a_map_of_what_is_in_it() -> None:
    check("packages whose map doesn't fit", wrong_maps())
