"""Which labels a PromQL answer has, by the table of metrics; unknown names are errors."""

from __future__ import annotations

from collections.abc import Mapping

import promql_parser as promql

from headgate.metrics import BY_NAME

OF_PROMETHEUS = {"job", "instance", "broker"}
CHOOSING = {"topk", "bottomk"}

Labels = frozenset[str]


def labels_of(text: str, recorded: Mapping[str, Labels] | None = None) -> Labels:
    """
    Return the labels that the answer to an expression may carry.

    Args:
        text: the expression.
        recorded: what rules record, with its labels.

    Raises:
        AssertionError: it names a metric or label that isn't there, or takes a counter's value
            as it is, or a gauge's rate.
    """
    expression: promql.Expr = promql.parse(text)
    return _labels(expression, recorded or {})


def _selector(
    selector: promql.VectorSelector, recorded: Mapping[str, Labels], *, ranged: bool
) -> Labels:
    name = str(selector.name)
    if name in recorded:
        known = recorded[name]
    else:
        assert name in BY_NAME, f"{name} isn't exported"
        counter = BY_NAME[name].kind == "counter"
        assert counter == ranged, f"{name} is a {BY_NAME[name].kind}"
        known = frozenset({*BY_NAME[name].labels, *OF_PROMETHEUS})
    asked = {matcher.name for matcher in selector.matchers.matchers}
    assert asked <= known, f"{name} has no {asked - known}"
    return known


def _labels(node: promql.Expr, recorded: Mapping[str, Labels]) -> Labels:
    match node:
        case promql.VectorSelector():
            return _selector(node, recorded, ranged=False)
        case promql.MatrixSelector():
            return _selector(node.vector_selector, recorded, ranged=True)
        case promql.NumberLiteral():
            return frozenset()
        case promql.ParenExpr():
            return _labels(node.expr, recorded)
        case promql.Call():
            found: Labels = frozenset().union(*(_labels(one, recorded) for one in node.args))
            return found
        case promql.AggregateExpr():
            inner = _labels(node.expr, recorded)
            if node.modifier is None:
                return inner if str(node.op) in CHOOSING else frozenset()
            assert node.modifier.type == promql.AggModifierType.By
            by = frozenset(node.modifier.labels)
            assert by <= inner, f"{by - inner} isn't a label of {node.expr.prettify()}"
            return by
        case promql.BinaryExpr():
            left, right = _labels(node.lhs, recorded), _labels(node.rhs, recorded)
            if node.modifier is not None and node.modifier.matching is not None:
                on = set(node.modifier.matching.labels)
                assert on <= left & right, f"{on} isn't on both sides of {node.prettify()}"
            return left | right if str(node.op) == "or" else left or right
    raise AssertionError(f"not read here: {node.prettify()}")
