"""Terraform's language, beside what python-hcl2 8.1.4 makes of the same file (recorded)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.quota.file import parse_quotas
from headgate.quota.formats import hcl
from headgate.quota.formats.nodes import items_of
from headgate.quota.key import PRODUCER

DATA = Path(__file__).parents[2] / "data" / "hcl"


def plain(node: yaml.Node) -> Any:
    """A node's value; blocks are lists of mappings, as python-hcl2 has them."""
    if isinstance(node, yaml.MappingNode):
        return {key.value: plain(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [plain(item) for item in node.value]
    kind = node.tag.rpartition(":")[2]
    read = {"float": json.loads, "bool": json.loads, "null": lambda _: None}.get(kind, str)
    return read(node.value)


def test_a_file_is_what_python_hcl2_reads() -> None:
    read = plain(hcl.parse((DATA / "sample.tf").read_text(encoding="utf-8")))
    assert read == json.loads((DATA / "sample.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    ["var.a", '"${var.a}"', "1 + 1", "[for a in b : a]", "{for a in b : a => 1}", "a ? 1 : 2",
     'f("}", "a")', "<<EOT\nx = {\nEOT", "-x", '"a" == "b"', '{ (a) = 1 }', "[1][0]"],
)  # fmt: skip
def test_what_must_be_computed_is_one_node_and_what_follows_is_read(text: str) -> None:
    [(_, first), (_, second)] = hcl.parse(f"a = {text}\nb = 7\n").value
    assert any(map(hcl.is_expression, [first, *items_of(first)]))
    assert plain(second) == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [("1024 * 1024", 1048576), ("0.1 * 3", 0.3), ("2 * /* of */ 3", 6), ("-5", -5), ("null", None)],
)
def test_products_of_numbers_are_computed(text: str, value: object) -> None:
    [(_, node)] = hcl.parse(f"a = {text} # so\n").value
    assert plain(node) == value


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("a = 1\n}", 2, "a } that closes nothing"),
        ("a {\n", 2, "the block a isn't closed"),
        ("a = \n", 1, "a value is missing"),
        ('a = "\\x"', 1, "an escape that HCL doesn't have"),
        ("\n= 1", 2, "'=' where a name must stand"),
        ("a = (1\n", 1, "a bracket isn't closed"),
        ("a = <<E\nx", 1, "the text <<E isn't closed"),
    ],
)
def test_what_is_not_the_language_is_refused_with_its_line(text: str, line: int, told: str) -> None:
    with pytest.raises(hcl.NotHcl, match=told) as refused:
        hcl.parse(text)
    assert refused.value.line == line


@pytest.mark.parametrize("head", ['resource "kafka_quota" "a"{', "resource kafka_quota a {"])
def test_a_block_on_a_line_is_known_for_terraforms(head: str) -> None:
    inner = 'entity_name = "a"\nentity_type = "user"\nconfig = { producer_byte_rate = 5 } }'
    file = parse_quotas(f"{head} {inner}")
    assert [dict(quotas) for quotas in file.table.entities.values()] == [{PRODUCER: 5.0}]
