"""
Say which small changes a mutant may be: each of them could be a fault that somebody makes.

The operators are mutmut's. Its own runner isn't used, because it leaves out module tables,
properties and all other decorated functions, where much is decided here. Three operators are added:
negate a condition that is a name, an attribute or a call; leave out a statement that changes
something; take a bound away.

Left out, since nothing is decided by it:

- words: docstrings, annotations, sentences, `__slots__`, `__repr__`;
- another case of a string, where a longer one is tried;
- None in a value's place, which mypy --strict refuses nearly everywhere, as does every test that
  touches the line;
- one more or less than a bound that was chosen (`MOST_...`, `MAX_...`): the bound is taken away;
- how much is done in one step (`..._AT_ONCE`, `FEW`), and that a step ends;
- `strict=` of `zip`, a check that can't fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from mutmut.mutation.mutators import mutation_operators

NO_BEHAVIOUR = ("__slots__", "__all__", "__repr__")
BOUND = re.compile(r"_?(MOST|MAX)(_[A-Z_]+)?")
STEP = re.compile(r"_?([A-Z_]+_AT_ONCE|FEW)")
SENTENCE = re.compile(r"\w[,;:.']? \w")
Change = tuple[cst.CSTNode, cst.CSTNode]


def is_named(node: cst.CSTNode, kind: re.Pattern[str]) -> bool:
    """Tell whether a node is a name of a kind."""
    return isinstance(node, cst.Name) and bool(kind.fullmatch(node.value))


def is_against_bound(node: cst.CSTNode) -> bool:
    """Tell whether something is compared with a bound that was chosen."""
    return isinstance(node, cst.Comparison) and any(
        is_named(side, BOUND) for side in (node.left, *(one.comparator for one in node.comparisons))
    )


def unbounded(node: cst.CSTNode) -> Iterator[Change]:
    """Take a bound away: what is compared with it is never beyond."""
    if is_against_bound(node):
        assert isinstance(node, cst.Comparison)
        most_is_right = is_named(node.comparisons[-1].comparator, BOUND)
        up = isinstance(node.comparisons[-1].operator, cst.GreaterThan | cst.GreaterThanEqual)
        yield node, cst.Name("False" if up == most_is_right else "True")


def ends_step(node: cst.CSTNode) -> bool:
    """Tell whether a node asks if a step is long enough, as ``not count % FEW``."""
    if isinstance(node, cst.UnaryOperation):
        node = node.expression
    return (
        isinstance(node, cst.BinaryOperation)
        and isinstance(node.operator, cst.Modulo)
        and is_named(node.right, STEP)
    )


def is_strict(node: cst.CSTNode) -> bool:
    """Tell whether a node is ``strict=...`` in a call."""
    return isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "strict"


def conditions(node: cst.CSTNode) -> Iterator[Change]:
    """Negate a condition that is a name, an attribute or a call; mutmut negates comparisons."""
    if isinstance(node, cst.If | cst.While | cst.IfExp):
        test = node.test
        if isinstance(test, cst.Name | cst.Attribute | cst.Call):
            yield test, cst.UnaryOperation(cst.Not(), test)


def left_out(node: cst.CSTNode) -> Iterator[Change]:
    """Leave out a call whose value nobody uses, a change of what is kept, or an error."""
    is_call = isinstance(node, cst.Expr) and isinstance(node.value, cst.Call)
    kept = cst.Attribute | cst.Subscript
    is_change = isinstance(node, cst.Assign) and isinstance(node.targets[0].target, kept)
    if is_call or is_change or isinstance(node, cst.AugAssign | cst.Raise):
        yield node, cst.Pass()


def is_needless(gone: cst.CSTNode, come: cst.CSTNode) -> bool:
    """Tell whether a change of a node is left out."""
    if isinstance(gone, cst.Assign | cst.AnnAssign):
        return True
    if isinstance(gone, cst.Call) and isinstance(come, cst.Call):
        if len(gone.args) == len(come.args):
            return gone.func is come.func
        return any(is_strict(arg) for arg in gone.args if arg not in come.args)
    if isinstance(gone, cst.SimpleString) and SENTENCE.search(gone.value):
        return True
    return isinstance(come, cst.SimpleString) and "XX" not in come.value


def changes(node: cst.CSTNode) -> Iterator[Change]:
    """Yield every change of a node: what goes, and what comes."""
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            yield from ((node, to) for to in operator(node) if not is_needless(node, to))
    yield from conditions(node)
    yield from left_out(node)
    yield from unbounded(node)


def without_behaviour(node: cst.CSTNode) -> bool:
    """Tell whether no decision depends on a node and what is in it."""
    if isinstance(
        node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom | cst.TypeAlias
    ):
        return True
    if isinstance(node, cst.FunctionDef):
        return node.name.value in NO_BEHAVIOUR
    if isinstance(node, cst.Assign | cst.AnnAssign):
        target = node.target if isinstance(node, cst.AnnAssign) else node.targets[0].target
        names = isinstance(target, cst.Name) and target.value in NO_BEHAVIOUR
        return names or is_named(target, BOUND) or is_named(target, STEP)
    if isinstance(node, cst.If):
        return isinstance(node.test, cst.Name) and node.test.value == "TYPE_CHECKING"
    if isinstance(node, cst.ComparisonTarget):
        return is_named(node.comparator, BOUND)
    if is_strict(node) or ends_step(node):
        return True
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        return node.func.value in ("TypeVar", "cast")
    return isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString)
