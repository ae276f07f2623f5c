"""The page of clients says what the tests are parametrised with, and every test it names exists."""

from __future__ import annotations

import ast
from pathlib import Path

from clients import matrix

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "clients.md"


def functions(file: str) -> dict[str, ast.FunctionDef]:
    """The test functions of a file by their names."""
    module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {
        node.name: node
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_the_page_of_clients_is_built_from_the_matrix() -> None:
    assert PAGE.read_text(encoding="utf-8") == matrix.page()


def test_every_test_that_the_page_of_clients_names_exists() -> None:
    found = functions(matrix.FILE)
    for test in matrix.SHOWN_BY:
        # ``@tried(matrix.NAME)`` makes a test of every client and broker of its rows.
        tried = [
            getattr(matrix, node.args[0].attr)
            for node in found[test].decorator_list
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "tried"
            and isinstance(node.args[0], ast.Attribute)
        ]
        assert tried == [test]
        assert matrix.trials(test)
    for node in matrix.ELSEWHERE.values():
        file, _, test = node.partition("::")
        assert test in functions(file)


def test_every_client_is_tried_at_all_it_can_before_both_brokers() -> None:
    whole = {"confluent-kafka", "aiokafka", "kafka-python"}
    shown = {
        row.id: {operation for test in row.tests for operation in matrix.SHOWN_BY[test]}
        for row in matrix.ROWS
        if set(row.brokers) == set(matrix.BROKERS)
    }
    assert all(shown[client] == set(matrix.OPERATIONS) for client in whole)
    assert shown["console"] | shown["perf"] == set(matrix.OPERATIONS)
