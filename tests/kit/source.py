"""The product's source: its modules, their syntax trees, and which imports which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


@cache
def modules() -> dict[str, Path]:
    """Every module of the product, by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def is_package(module: str) -> bool:
    return modules()[module].name == "__init__.py"


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs: what only type checkers read isn't among them."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield from nodes(child)


def imports(module: str) -> set[str]:
    """The product's modules that a module imports, at its top or later."""
    package = module if is_package(module) else module.rpartition(".")[0]
    found = set()
    for node in nodes(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.add(whole if whole in modules() else base)
    # A package's own __init__ that offers its modules' public names is no circle.
    return {
        name
        for name in found & modules().keys() - {module}
        if not (is_package(name) and module.startswith(f"{name}."))
    }


def statements(path: Path) -> Iterator[ast.stmt]:
    """Return all statements of a file; most of a tree are expressions, which take ten times it."""
    left: list[ast.stmt] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while left:
        one = left.pop()
        yield one
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in getattr(one, field, ()):
                left += [inner] if isinstance(inner, ast.stmt) else inner.body
